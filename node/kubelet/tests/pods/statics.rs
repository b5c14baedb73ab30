//! Pods from files.

use k8s_openapi::api::core::v1::Pod;

use crate::cluster::{Cluster, NODE, phase};

const TEXT: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  containers: [{name: app, image: \"run:1\"}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_runs_as_a_pod_with_a_mirror_that_comes_back_and_goes_with_the_file() {
    let mut cluster = Cluster::without_kubelet().await;
    let folder = cluster.dir.path().join("static");
    std::fs::create_dir(&folder).unwrap();
    cluster.start_kubelet().await;
    std::fs::write(folder.join("own.yaml"), TEXT).unwrap();
    let name = format!("own-{NODE}");
    let mirror = cluster.running(&name).await;
    assert!(mirror.metadata.annotations.as_ref().unwrap().contains_key("kubernetes.io/config.mirror"));
    assert_eq!(mirror.metadata.owner_references.as_ref().unwrap()[0].name, NODE);
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap();
    cluster.delete(&name, 0).await;
    let again =
        cluster.until(&name, "shown again", |pod| uid(pod) != uid(&mirror) && phase(pod) == "Running").await;
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 1, "the pod itself ran on");
    assert_eq!(again.spec.unwrap().node_name.as_deref(), Some(NODE));
    std::fs::remove_file(folder.join("own.yaml")).unwrap();
    cluster.gone(&name).await;
    cluster.eventually("nothing runs", || async { cluster.fake.is_empty() }).await;
    cluster.stop().await;
}
