//! The kubelet's HTTPS server as the API server uses it.

use std::io::Write;

use futures::{AsyncBufReadExt, AsyncReadExt};
use kube::api::LogParams;

use crate::cluster::{Cluster, one};

/// Writes the log that the runtime would write.
fn log(cluster: &Cluster, pod: &k8s_openapi::api::core::v1::Pod, text: &str) {
    let (name, uid) = (pod.metadata.name.as_ref().unwrap(), pod.metadata.uid.as_ref().unwrap());
    let folder = cluster.dir.path().join(format!("kubelet/logs/default_{name}_{uid}/app"));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("0.log")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_through_the_api_server_selected_and_followed() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    let pod = cluster.running("web").await;
    log(&cluster, &pod, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n");
    cluster.registered().await;
    let all = cluster.pods().logs("web", &LogParams::default()).await.unwrap();
    assert_eq!(all, "one\ntwo\n");
    let tail = LogParams { tail_lines: Some(1), timestamps: true, ..Default::default() };
    assert_eq!(cluster.pods().logs("web", &tail).await.unwrap(), "2026-01-01T00:00:02Z two\n");
    let follow = LogParams { follow: true, tail_lines: Some(0), ..Default::default() };
    let mut lines = cluster.pods().log_stream("web", &follow).await.unwrap();
    log(&cluster, &pod, "2026-01-01T00:00:03Z stdout F three\n");
    let mut line = String::new();
    lines.read_line(&mut line).await.unwrap();
    assert_eq!(line, "three\n");
    cluster.delete("web", 1).await;
    let mut rest = String::new();
    lines.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "", "the stream ends with the container");
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_container_that_never_ran_say_why_there_are_none() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("absent:1")).await;
    cluster.event("web", "Failed").await;
    cluster.registered().await;
    let error = cluster.pods().logs("web", &LogParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("container \"app\" in pod \"web\" is waiting to start"), "{error}");
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}
