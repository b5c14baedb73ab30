//! Services: addresses and node ports are given out, shared, kept and given back.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::start;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn ports(spec: &Value) -> Vec<u64> {
    spec["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["nodePort"].as_u64().unwrap_or(0))
        .collect()
}

#[tokio::test]
async fn what_a_refused_service_asked_for_is_free_again() {
    let server = start().await;
    let at = |spec: &Value| service("web", spec.clone());
    let good =
        json!({"type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30700}]});
    let mut bad = good.clone();
    bad["sessionAffinity"] = "Sometimes".into();
    assert_eq!(server.post(SERVICES, &at(&bad)).await.code, 422, "refused by validation");
    let dry = server.post(&format!("{SERVICES}?dryRun=All"), &at(&good)).await;
    assert_eq!(dry.code, 201, "a trial: {}", dry.text);
    let made = server.post(SERVICES, &at(&good)).await;
    assert_eq!(made.code, 201, "{}", made.text);

    let other = json!({"clusterIP": "10.96.7.8", "ports": [{"port": 80}]});
    assert_eq!(server.post(SERVICES, &at(&other)).await.code, 409, "the name is taken");
    assert_eq!(server.post(SERVICES, &service("other", other.clone())).await.code, 201, "its address is not");

    let twice = server.post(SERVICES, &service("twice", good.clone())).await;
    assert_eq!(twice.code, 422, "what a stored service has is not given again: {}", twice.text);
    assert_eq!(server.delete(&format!("{SERVICES}/web"), &json!({})).await.code, 200);
    assert_eq!(server.post(SERVICES, &service("twice", good)).await.code, 201, "until it is gone");
}

#[tokio::test]
async fn node_ports_are_given_shared_kept_and_given_back() {
    let server = start().await;
    let dns = json!({"type": "NodePort", "ports": [
        {"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "web", "port": 80}]});
    let made = server.post(SERVICES, &service("dns", dns)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let given = ports(&made.body);
    assert_eq!(given[0], given[1], "one number, one port");
    assert_ne!(given[0], given[2]);
    assert!(given.iter().all(|port| (30_086..=32_767).contains(port)), "{given:?}");

    let path = format!("{SERVICES}/dns");
    let mut changed = made.body.clone();
    for port in changed["spec"]["ports"].as_array_mut().unwrap() {
        port.as_object_mut().unwrap().remove("nodePort");
    }
    changed["spec"]["ports"][2]["port"] = 8080.into();
    let kept = server.put(&path, &changed).await;
    assert_eq!((kept.code, ports(&kept.body)), (200, given.clone()), "by name: {}", kept.text);

    let mut inner = kept.body.clone();
    inner["spec"]["type"] = "ClusterIP".into();
    let inner = server.put(&path, &inner).await;
    assert_eq!((inner.code, ports(&inner.body)), (200, vec![0, 0, 0]), "{}", inner.text);
    let heir = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": given[2]}]});
    let heir = server.post(SERVICES, &service("heir", heir)).await;
    assert_eq!((heir.code, ports(&heir.body)), (201, vec![given[2]]), "given back: {}", heir.text);
}
