//! A load on an API server in this process: creates, reads, lists and a watched change, with their times.
//!
//! `load FOLDER [OBJECTS]`; FOLDER must not exist yet. Without sockets: the cost is the server's and the store's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use podwire_apiserver::{ApiService, Config, Identity};
use podwire_store::EmbeddedConfig;
use tokio::time::Instant;
use tower::ServiceExt;

type Failure = Box<dyn std::error::Error + Send + Sync>;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(service: ApiService, method: &str, path: String, body: String) -> Result<Bytes, Failure> {
    let request = http::Request::builder().method(method).uri(path).body(Full::new(Bytes::from(body)))?;
    let response = service.oneshot(request).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    if status.is_success() { Ok(bytes) } else { Err(String::from_utf8_lossy(&bytes).into_owned().into()) }
}

async fn create(service: &ApiService, from: usize, to: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut made = stream::iter(from..to)
        .map(|n| {
            let value = "x".repeat(500);
            let body = format!("{{\"metadata\":{{\"name\":\"m{n}\"}},\"data\":{{\"v\":\"{value}\"}}}}");
            send(service.clone(), "POST", MAPS.to_owned(), body)
        })
        .buffer_unordered(64);
    while let Some(result) = made.next().await {
        result?;
    }
    Ok(start.elapsed())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: load FOLDER [OBJECTS]")?);
    let count: usize = args.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(5000);
    let start = Instant::now();
    let store = EmbeddedConfig::new(folder.join("store")).open()?;
    let config = Config::new(Arc::new(store.clone()), folder.join("pki"), "127.0.0.1:0".parse()?);
    let server = config.build().await?;
    tracing::info!(took = ?start.elapsed(), "ready");
    let service = server.client(Identity::admin());
    let per = |took: Duration, n: usize| took / u32::try_from(n.max(1)).unwrap_or(u32::MAX);
    let half = count / 2;
    for (from, to) in [(0, half), (half, count)] {
        let took = create(&service, from, to).await?;
        tracing::info!(stored = from, each = ?per(took, to - from), "created 64 at a time");
    }
    let start = Instant::now();
    for n in 0..count {
        send(service.clone(), "GET", format!("{MAPS}/m{n}"), String::new()).await?;
    }
    tracing::info!(each = ?per(start.elapsed(), count), "read one after the other");
    let start = Instant::now();
    let bytes = send(service.clone(), "GET", MAPS.to_owned(), String::new()).await?.len();
    tracing::info!(took = ?start.elapsed(), bytes, "listed all");
    fan_out(&service).await?;
    drop(server);
    store.close().await;
    Ok(())
}

/// How long a thousand watchers take to hear of one change.
async fn fan_out(service: &ApiService) -> Result<(), Failure> {
    let mut watches = Vec::new();
    for _ in 0..1000 {
        let path = format!("{MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        let request = http::Request::get(path).body(Full::new(Bytes::new()))?;
        watches.push(service.clone().oneshot(request).await?.into_body());
    }
    let start = Instant::now();
    send(service.clone(), "POST", MAPS.to_owned(), "{\"metadata\":{\"name\":\"news\"}}".into()).await?;
    let written = start.elapsed();
    for watch in &mut watches {
        watch.frame().await.ok_or("a watch ended")??;
    }
    tracing::info!(?written, all = ?start.elapsed(), "a thousand watchers heard a change");
    Ok(())
}
