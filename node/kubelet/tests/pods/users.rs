//! Pods with user namespaces of their own.

use std::collections::BTreeSet;

use podwire_wire::cri;
use serde_json::{Value, json};

use crate::cluster::{Cluster, waiting};

fn with_users(context: Value) -> Value {
    json!({
        "hostUsers": false,
        "volumes": [{"name": "own", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "cfg"}}],
        "containers": [{"name": "app", "image": "run:1", "securityContext": context, "volumeMounts": [
            {"name": "own", "mountPath": "/own"}, {"name": "cfg", "mountPath": "/cfg"}]}],
    })
}

/// The user namespace that the pod's sandbox was run with.
fn users(cluster: &Cluster, name: &str) -> cri::UserNamespace {
    let world = cluster.fake.world.lock().unwrap();
    let sandbox =
        world.sandboxes.values().find(|s| s.config.metadata.as_ref().unwrap().name == name).unwrap();
    let security = sandbox.config.linux.as_ref().unwrap().security_context.clone().unwrap();
    security.namespace_options.unwrap().userns_options.unwrap()
}

fn first(cluster: &Cluster, name: &str) -> u32 {
    let users = users(cluster, name);
    assert_eq!(users.mode, cri::NamespaceMode::Pod as i32);
    assert_eq!((users.uids.len(), &users.uids), (1, &users.gids));
    assert_eq!((users.uids[0].container_id, users.uids[0].length), (0, 65_536));
    users.uids[0].host_id
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_users_of_their_own_have_ranges_that_a_restart_keeps_and_their_end_frees() {
    let mut cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().user_namespaces = true;
    cluster.config_map("cfg", json!({"a": "1"})).await;
    let mut uids = Vec::new();
    for name in ["a", "b"] {
        uids.push(
            cluster.create(name, with_users(json!({"procMount": "Unmasked"}))).await.metadata.uid.unwrap(),
        );
        cluster.running(name).await;
    }
    let (a, b) = (first(&cluster, "a"), first(&cluster, "b"));
    assert!(a >= 65_536 && b >= 65_536 && a != b, "{a} {b}");
    let record = cluster.dir.path().join("kubelet/pods").join(&uids[0]).join("userns");
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(&record).unwrap()).unwrap();
    assert_eq!(recorded["uidMappings"][0]["hostId"], a);
    {
        let world = cluster.fake.world.lock().unwrap();
        for made in world.containers.values() {
            let security = made.config.linux.as_ref().unwrap().security_context.clone().unwrap();
            assert!(security.masked_paths.is_empty());
            let own = security.namespace_options.unwrap().userns_options.unwrap();
            let paths: BTreeSet<&str> =
                made.config.mounts.iter().map(|m| m.container_path.as_str()).collect();
            assert_eq!(paths, BTreeSet::from(["/own", "/cfg", "/etc/hosts", "/dev/termination-log"]));
            for mount in &made.config.mounts {
                assert_eq!((&mount.uid_mappings, &mount.gid_mappings), (&own.uids, &own.gids), "{mount:?}");
                assert_eq!(mount.readonly, mount.container_path == "/cfg", "{mount:?}");
            }
        }
    }

    cluster.stop_kubelet().await;
    cluster.start_kubelet().await;
    cluster.create("c", with_users(json!({}))).await;
    cluster.running("c").await;
    assert_eq!((first(&cluster, "a"), first(&cluster, "b")), (a, b), "they run on as they were");
    let c = first(&cluster, "c");
    assert!(c != a && c != b, "{a} {b} {c}");
    cluster.delete("a", 1).await;
    cluster.gone("a").await;
    assert!(!record.exists());
    cluster.create("d", with_users(json!({}))).await;
    cluster.running("d").await;
    assert_eq!(first(&cluster, "d"), a, "what is free is given again");
    cluster.create("plain", crate::cluster::one("run:1")).await;
    cluster.running("plain").await;
    assert_eq!(users(&cluster, "plain").mode, cri::NamespaceMode::Node as i32);
    for name in ["b", "c", "d", "plain"] {
        cluster.delete(name, 1).await;
        cluster.gone(name).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_user_namespaces_runs_no_pod_that_asks_for_one() {
    let cluster = Cluster::start().await;
    cluster.config_map("cfg", json!({"a": "1"})).await;
    cluster.create("web", with_users(json!({}))).await;
    let message = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    cluster.says("web", "FailedCreatePodSandBox", message).await;
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 0);
    let pod = cluster.until("web", "waiting", |pod| waiting(pod).is_some()).await;
    assert_eq!(waiting(&pod).unwrap().0, "ContainerCreating");
    cluster.fake.world.lock().unwrap().user_namespaces = true;
    cluster.running("web").await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_an_earlier_kubelet_ran_with_the_nodes_users_is_replaced() {
    let mut cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().user_namespaces = true;
    cluster.config_map("cfg", json!({"a": "1"})).await;
    cluster.create("web", with_users(json!({}))).await;
    cluster.running("web").await;
    cluster.stop_kubelet().await;
    {
        let mut world = cluster.fake.world.lock().unwrap();
        let sandbox = world.sandboxes.values_mut().next().unwrap();
        let security = sandbox.config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options.as_mut().unwrap().userns_options = None;
    }
    cluster.start_kubelet().await;
    cluster.event("web", "SandboxChanged").await;
    cluster
        .eventually("another sandbox has users of its own", || async {
            let world = cluster.fake.world.lock().unwrap();
            world.sandboxes.values().any(|held| {
                let security = held.config.linux.as_ref().unwrap().security_context.clone().unwrap();
                let users = security.namespace_options.unwrap().userns_options;
                held.ready && users.is_some_and(|users| users.mode == cri::NamespaceMode::Pod as i32)
            })
        })
        .await;
    cluster.until("web", "restarted", |pod| crate::cluster::restarts(pod) == 1).await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}
