//! Tests of the environment.

use serde_json::json;

use super::*;

fn facts() -> NodeFacts<'static> {
    NodeFacts {
        node_name: "node-a",
        host_ips: &[],
        pod_ips: &[],
        allocatable: (2000, 1 << 30),
        services: &[],
    }
}

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}}, "spec": {"containers": []},
    }))
    .unwrap()
}

fn container(json: serde_json::Value) -> Container {
    serde_json::from_value(json).unwrap()
}

#[test]
fn references_expand_to_what_was_defined_before() {
    let app = container(json!({"name": "c", "env": [
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)"}, {"name": "C", "value": "x"},
    ]}));
    let env = build(&pod(), &app, &Sources::default(), &facts()).unwrap();
    assert_eq!(env[1], ("B".to_owned(), "1-$(C)-$(A)".to_owned()));
}

#[test]
fn a_missing_config_map_key_is_an_error_unless_optional() {
    let mut sources = Sources::default();
    sources.config_maps.insert("cfg".into(), BTreeMap::new());
    let of = |optional: bool| {
        container(json!({"name": "c", "env": [{"name": "A", "valueFrom":
            {"configMapKeyRef": {"name": "cfg", "key": "k", "optional": optional}}}]}))
    };
    let error = build(&pod(), &of(false), &sources, &facts()).unwrap_err();
    assert_eq!(error.to_string(), "couldn't find key k in ConfigMap n/cfg");
    assert!(build(&pod(), &of(true), &sources, &facts()).unwrap().is_empty());
}

#[test]
fn fields_and_resources_of_the_pod_are_readable() {
    let app = container(json!({"name": "c", "resources": {"limits": {"cpu": "250m"}}, "env": [
        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]}));
    let env: BTreeMap<_, _> =
        build(&pod(), &app, &Sources::default(), &facts()).unwrap().into_iter().collect();
    assert_eq!((env["L"].as_str(), env["N"].as_str()), ("web", "node-a"));
    assert_eq!((env["C"].as_str(), env["M"].as_str()), ("1", "1024"));
}

#[test]
fn services_of_the_namespace_and_the_api_server_become_variables() {
    let service = |name: &str, namespace: &str| -> Service {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "https", "port": 443}]}}))
        .unwrap()
    };
    let services = [service("kubernetes", "default"), service("my-db", "n"), service("far", "other")];
    let node = NodeFacts { services: &services, ..facts() };
    let env: BTreeMap<_, _> = build(&pod(), &container(json!({"name": "c"})), &Sources::default(), &node)
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(env["KUBERNETES_SERVICE_HOST"], "10.0.0.1");
    assert_eq!(env["MY_DB_PORT_443_TCP"], "tcp://10.0.0.1:443");
    assert!(!env.contains_key("FAR_SERVICE_HOST"));
}

#[test]
fn env_from_takes_every_key_with_its_prefix_and_env_overrides_it() {
    let mut sources = Sources::default();
    sources.secrets.insert("s".into(), BTreeMap::from([("K".to_owned(), b"v".to_vec())]));
    let app = container(json!({"name": "c", "envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}],
        "env": [{"name": "P_K", "value": "own"}]}));
    assert_eq!(build(&pod(), &app, &sources, &facts()).unwrap(), [("P_K".to_owned(), "own".to_owned())]);
}
