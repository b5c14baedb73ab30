//! Probes over the network: a pod is ready when its HTTP, TCP and gRPC probes all say so, and events say why it is not.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, condition, phase, restarts};

/// What a prober finds at a pod's address.
#[derive(Default)]
struct Pod {
    well: AtomicBool,
    asked: AtomicUsize,
}

/// Answers HTTP and gRPC's health check as the pod is.
async fn serve(listener: TcpListener, pod: Arc<Pod>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let pod = pod.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                pod.asked.fetch_add(1, Ordering::SeqCst);
                let reply = reply(&request, pod.well.load(Ordering::SeqCst));
                async move { Ok::<_, Infallible>(reply) }
            });
            // Ignored: a prober hangs up when it has its answer.
            auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await
                .ok();
        });
    }
}

type Body = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn reply(request: &Request<Incoming>, well: bool) -> Response<Body> {
    let frames = match request.uri().path() {
        "/grpc.health.v1.Health/Check" => {
            // One message: the status, 1 for serving and 2 for not.
            let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, if well { 1 } else { 2 }]);
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(0))]);
            vec![Frame::data(message), Frame::trailers(trailers)]
        }
        "/healthz" => vec![Frame::data(Bytes::from_static(b"well?"))],
        other => panic!("asked for {other}"),
    };
    let code = if well || request.uri().path() != "/healthz" { 200 } else { 503 };
    let body = StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok)).boxed());
    Response::builder().status(code).header("content-type", "application/grpc").body(body).unwrap()
}

async fn start(server: &mut JoinSet<()>, pod: &Arc<Pod>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    server.spawn(serve(listener, pod.clone()));
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_http_tcp_and_grpc_probes() {
    let cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().address = Some("127.0.0.1".into());
    let (mut server, inside) = (JoinSet::new(), Arc::new(Pod::default()));
    let port = start(&mut server, &inside).await;
    // Ours, but nobody listens there until later.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let closed = silent.local_addr().unwrap();
    let container = |name: &str, action: serde_json::Value| {
        let mut probe = json!({"periodSeconds": 1, "failureThreshold": 1});
        probe.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        json!({"name": name, "image": "run:1", "ports": [{"name": "web", "containerPort": port}], "readinessProbe": probe})
    };
    let spec = json!({"containers": [
        container("http", json!({"httpGet": {"path": "/healthz", "port": "web"}})),
        container("tcp", json!({"tcpSocket": {"port": closed.port()}})),
        container("grpc", json!({"grpc": {"port": port}})),
    ]});
    cluster.create("web", spec).await;
    let pod = cluster.until("web", "running, not ready", |pod| phase(pod) == "Running").await;
    assert_eq!(condition(&pod, "Ready"), Some("False"));
    for why in [
        "HTTP probe failed with statuscode: 503".to_owned(),
        format!("dial tcp {closed}: connect: connection refused"),
        "service unhealthy (responded with \"NOT_SERVING\")".to_owned(),
    ] {
        cluster.says("web", "Unhealthy", &format!("Readiness probe failed: {why}")).await;
    }
    inside.well.store(true, Ordering::SeqCst);
    let late = silent.listen(16).unwrap();
    cluster.running("web").await;

    drop(late);
    let pod = cluster.until("web", "not ready", |pod| condition(pod, "Ready") == Some("False")).await;
    let ready: Vec<bool> = pod.status.unwrap().container_statuses.unwrap().iter().map(|c| c.ready).collect();
    assert_eq!(
        ready.iter().filter(|ready| **ready).count(),
        2,
        "only the one whose port is closed: {ready:?}"
    );
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_startup_probe_holds_back_the_others() {
    let cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().address = Some("127.0.0.1".into());
    cluster.fake.world.lock().unwrap().exec_exit = 1;
    let (mut server, inside) = (JoinSet::new(), Arc::new(Pod::default()));
    inside.well.store(true, Ordering::SeqCst);
    let port = start(&mut server, &inside).await;
    let http = json!({"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 1});
    let exec = |threshold: u32| json!({"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": threshold});
    let spec = |threshold: u32| {
        json!({"containers": [{"name": "app", "image": "run:1", "startupProbe": exec(threshold),
            "readinessProbe": http, "livenessProbe": http}]})
    };
    cluster.create("slow", spec(100)).await;
    let pod = cluster.until("slow", "running", |pod| phase(pod) == "Running").await;
    assert_eq!(condition(&pod, "Ready"), Some("False"));
    cluster.says("slow", "Unhealthy", "Startup probe failed: ").await;
    assert_eq!(inside.asked.load(Ordering::SeqCst), 0, "nobody else asks before it has started");

    cluster.create("never", spec(1)).await;
    cluster.says("never", "Killing", "Container app failed startup probe, will be restarted").await;
    cluster.until("never", "restarted", |pod| restarts(pod) > 0).await;
    assert_eq!(inside.asked.load(Ordering::SeqCst), 0, "it has not started either");

    cluster.fake.world.lock().unwrap().exec_exit = 0;
    cluster.running("slow").await;
    assert!(inside.asked.load(Ordering::SeqCst) > 0, "now the others ask");
    for name in ["slow", "never"] {
        cluster.delete(name, 0).await;
        cluster.gone(name).await;
    }
    cluster.stop().await;
}
