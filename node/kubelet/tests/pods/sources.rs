//! Config maps, secrets and the pod itself as files and environment.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Cluster, one, waiting};

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_reaches_files_and_environment_and_its_changes_reach_the_files() {
    let cluster = Cluster::start().await;
    cluster.config_map("cfg", json!({"colour": "red"})).await;
    cluster.secret("key", json!({"pin": "MTIzNA=="})).await;
    let spec = json!({
        "volumes": [
            {"name": "c", "configMap": {"name": "cfg"}},
            {"name": "all", "projected": {"sources": [
                {"secret": {"name": "key", "items": [{"key": "pin", "path": "deep/pin"}]}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
        "containers": [{"name": "app", "image": "run:1",
            "env": [{"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "colour"}}}],
            "envFrom": [{"prefix": "K_", "secretRef": {"name": "key"}}],
            "volumeMounts": [{"name": "c", "mountPath": "/etc/cfg"}, {"name": "all", "mountPath": "/all", "readOnly": true},
                {"name": "scratch", "mountPath": "/tmp"}]}],
    });
    cluster.create("web", spec).await;
    let pod = cluster.running("web").await;
    let config = cluster.fake.world.lock().unwrap().containers.values().next().unwrap().config.clone();
    let env: Vec<(String, String)> =
        config.envs.iter().map(|e| (e.key.clone(), String::from_utf8_lossy(&e.value).into_owned())).collect();
    assert!(env.contains(&("COLOUR".to_owned(), "red".to_owned())), "{env:?}");
    assert!(env.contains(&("K_pin".to_owned(), "1234".to_owned())), "{env:?}");
    let host =
        |path: &str| config.mounts.iter().find(|m| m.container_path == path).unwrap().host_path.clone();
    assert_eq!(std::fs::read_to_string(format!("{}/colour", host("/etc/cfg"))).unwrap(), "red");
    assert_eq!(std::fs::read_to_string(format!("{}/deep/pin", host("/all"))).unwrap(), "1234");
    assert_eq!(std::fs::read_to_string(format!("{}/name", host("/all"))).unwrap(), "web");
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let change = Patch::Merge(json!({"data": {"colour": "blue"}}));
    maps.patch("cfg", &PatchParams::default(), &change).await.unwrap();
    let file = format!("{}/colour", host("/etc/cfg"));
    cluster
        .eventually("the change reaches the file", || async {
            std::fs::read_to_string(&file).unwrap() == "blue"
        })
        .await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    assert!(host("/all").contains("/memory/"), "secrets have a place of their own");
    let uid = pod.metadata.uid.unwrap();
    assert!(!cluster.dir.path().join("kubelet/pods").join(&uid).exists());
    assert!(!cluster.dir.path().join("memory/pods").join(uid).exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_config_map_is_waited_for() {
    let cluster = Cluster::start().await;
    let mut spec = one("run:1");
    spec["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "late"}}]);
    cluster.create("env", spec).await;
    let pod = cluster
        .until("env", "refused", |pod| waiting(pod).is_some_and(|(r, _)| r == "CreateContainerConfigError"))
        .await;
    assert_eq!(waiting(&pod).unwrap().1, "configmap \"late\" not found");
    let mut spec = one("run:1");
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "late"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    cluster.create("file", spec).await;
    let message = cluster.event("file", "FailedMount").await;
    assert_eq!(message, "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found");
    cluster.config_map("late", json!({"a": "b"})).await;
    for name in ["env", "file"] {
        cluster.running(name).await;
        cluster.delete(name, 1).await;
        cluster.gone(name).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_token_of_its_service_account() {
    let cluster = Cluster::start().await;
    cluster.config_map("kube-root-ca.crt", json!({"ca.crt": "CA"})).await;
    let mut spec = one("run:1");
    spec["automountServiceAccountToken"] = json!(true);
    cluster.create("web", spec).await;
    cluster.running("web").await;
    let config = cluster.fake.world.lock().unwrap().containers.values().next().unwrap().config.clone();
    let folder = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mount = config.mounts.iter().find(|m| m.container_path == folder).expect("the token is mounted");
    let token = std::fs::read_to_string(format!("{}/token", mount.host_path)).unwrap();
    assert_eq!(token.split('.').count(), 3, "a signed token");
    assert_eq!(std::fs::read_to_string(format!("{}/namespace", mount.host_path)).unwrap(), "default");
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}
