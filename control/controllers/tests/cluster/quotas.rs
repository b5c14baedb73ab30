//! Quotas: their status follows their specification and what goes away, and nobody gets more than they allow.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, create, until};

fn status(quota: Option<&ResourceQuota>) -> Value {
    quota.and_then(|quota| serde_json::to_value(&quota.status).ok()).unwrap_or_default()
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] =
        json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]);
    pod
}

#[tokio::test]
async fn the_status_of_a_quota_follows_what_comes_ends_and_goes() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.namespace("q").await;
    let (pods, quotas): (Api<Pod>, Api<ResourceQuota>) = (cluster.within("q"), cluster.within("q"));
    create(&pods, pod("before", json!({}))).await;
    create(&quotas, json!({"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "3", "cpu": "1", "configmaps": "9", "count/leases.coordination.k8s.io": "4"}}})).await;
    let wanted = json!({"hard": {"pods": "3", "cpu": "1", "configmaps": "9", "count/leases.coordination.k8s.io": "4"},
        "used": {"pods": "1", "cpu": "100m", "configmaps": "1", "count/leases.coordination.k8s.io": "0"}});
    until(&quotas, "rq", |quota| status(quota) == wanted).await;

    create(&pods, pod("second", json!({"nodeName": "gone"}))).await;
    create(&pods, pod("third", json!({}))).await;
    let full =
        pods.create(&PostParams::default(), &serde_json::from_value(pod("fourth", json!({}))).unwrap()).await;
    let message = full.unwrap_err().to_string();
    assert!(
        message.contains("exceeded quota: rq, requested: pods=1, used: pods=3, limited: pods=3"),
        "{message}"
    );

    pods.delete("third", &DeleteParams::default()).await.unwrap();
    until(&quotas, "rq", |quota| status(quota)["used"]["pods"] == "2").await;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("second", &PatchParams::default(), &ended).await.unwrap();
    until(&quotas, "rq", |quota| {
        status(quota)["used"]
            == json!({"pods": "1", "cpu": "100m", "configmaps": "1", "count/leases.coordination.k8s.io": "0"})
    })
    .await;

    let changed = Patch::Merge(
        json!({"spec": {"hard": {"pods": "1", "cpu": null, "configmaps": null, "count/leases.coordination.k8s.io": null}}}),
    );
    quotas.patch("rq", &PatchParams::default(), &changed).await.unwrap();
    until(&quotas, "rq", |quota| status(quota) == json!({"hard": {"pods": "1"}, "used": {"pods": "1"}}))
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_race_each_other_and_the_controller_never_exceed_a_quota() {
    const CLIENTS: usize = 64;
    let cluster = Cluster::start(|_| {}).await;
    cluster.namespace("q").await;
    let quotas: Api<ResourceQuota> = cluster.within("q");
    create(&quotas, json!({"metadata": {"name": "rq"}, "spec": {"hard": {"count/configmaps": "21"}}})).await;
    until(&quotas, "rq", |quota| status(quota)["used"]["count/configmaps"] == "1").await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let maps: Api<ConfigMap> = cluster.within("q");
        clients.spawn(async move {
            // What goes away is counted while others come.
            for round in 0..6 {
                let name = format!("m{client}-{round}");
                let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
                match maps.create(&PostParams::default(), &map).await {
                    Ok(_) if client % 2 == 0 => {
                        let there = maps.list(&Default::default()).await.unwrap().items.len();
                        assert!(there <= 21, "{there} are there");
                        maps.delete(&name, &DeleteParams::default()).await.unwrap();
                    }
                    Ok(_) => {}
                    Err(error) => assert!(error.to_string().contains("exceeded quota: rq"), "{error}"),
                }
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let there = cluster.within::<ConfigMap>("q").list(&Default::default()).await.unwrap().items.len();
    assert!(there <= 21, "{there} are there");
    let there = there.to_string();
    until(&quotas, "rq", |quota| status(quota)["used"]["count/configmaps"] == there).await;
    cluster.stop().await;
}
