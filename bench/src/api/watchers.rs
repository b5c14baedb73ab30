//! How soon many watchers hear of one change, and how much of that is the kernel's.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::AsyncReadExt, task::JoinSet};

use super::{
    client::{Connection, Endpoint, find},
    millis,
    servers::Server,
};
use crate::measure::{self, Processes};

/// Watchers that hear one change.
const WATCHERS: usize = 1_000;
/// Connections when watchers share them.
const SHARED: usize = 10;
/// Changes that are measured.
const CHANGES: usize = 40;
/// Where the changes happen.
const COLLECTION: &str = "/api/v1/namespaces/few/configmaps";

/// Milliseconds for one change.
pub struct Heard {
    /// From sending the change until the last watcher has it; the median.
    pub took: f64,
    /// The server's CPU.
    pub server: f64,
    /// This client's CPU.
    pub client: f64,
}

/// Someone who waits for a text to come by.
trait Hears: Send + Sized + 'static {
    fn hear(&mut self, text: &[u8]) -> impl Future<Output = Result<()>> + Send;
}

impl Hears for Connection {
    async fn hear(&mut self, text: &[u8]) -> Result<()> {
        Connection::hear(self, text).await
    }
}

impl Hears for Incoming {
    async fn hear(&mut self, text: &[u8]) -> Result<()> {
        loop {
            let frame = self.frame().await.context("the watch ended")??;
            if frame.data_ref().is_some_and(|data| find(data, text).is_some()) {
                return Ok(());
            }
        }
    }
}

impl Hears for tokio::net::TcpStream {
    async fn hear(&mut self, _: &[u8]) -> Result<()> {
        let mut buffer = [0; 1024];
        ensure!(self.read(&mut buffer).await? > 0, "the writer is gone");
        Ok(())
    }
}

/// Each watcher on a connection of its own, over HTTP/1.1.
pub async fn alone(server: &Server) -> Result<Heard> {
    let endpoint = &server.endpoint;
    let request = endpoint.request("GET", &watch_path(endpoint).await?, "");
    let mut watchers = endpoint.connect_many(WATCHERS).await?;
    for watcher in &mut watchers {
        watcher.watch(&request).await?;
    }
    changes(server, "alone", watchers).await
}

/// The watchers share a few HTTP/2 connections, as those of one client-go process do.
pub async fn shared(server: &Server) -> Result<Heard> {
    let endpoint = &server.endpoint;
    let path = watch_path(endpoint).await?;
    let mut connections = JoinSet::new();
    let mut watchers = Vec::with_capacity(WATCHERS);
    for _ in 0..SHARED {
        let stream = TokioIo::new(endpoint.connect_http2().await?);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
        connections.spawn(connection);
        for _ in 0..WATCHERS / SHARED {
            sender.ready().await?;
            let request = endpoint.http_request(&path, Empty::<Bytes>::new())?;
            let answer = sender.send_request(request).await?;
            ensure!(answer.status() == 200, "a watch was answered {}", answer.status());
            watchers.push(answer.into_body());
        }
    }
    changes(server, "shared", watchers).await
}

/// A path that watches from now on.
async fn watch_path(endpoint: &Endpoint) -> Result<String> {
    let mut connection = endpoint.connect().await?;
    connection.ask(&endpoint.request("GET", &format!("{COLLECTION}?limit=1"), "")).await?;
    let list: serde_json::Value = serde_json::from_slice(connection.answer())?;
    let version = list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
    Ok(format!("{COLLECTION}?watch=true&resourceVersion={version}"))
}

/// Makes one change after another; each must reach all watchers.
async fn changes<W: Hears>(server: &Server, prefix: &str, mut watchers: Vec<W>) -> Result<Heard> {
    let endpoint = &server.endpoint;
    let mut connection = endpoint.connect().await?;
    let own = Processes::of_pids(&[std::process::id()]);
    let mut samples = Vec::new();
    let (mut on_server, mut on_client) = (Duration::ZERO, Duration::ZERO);
    for number in 0..CHANGES {
        let name = format!("{prefix}-{number}");
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"key":"news"}}}}"#
        );
        let post = endpoint.request("POST", COLLECTION, &body);
        let hearing = listen(&mut watchers, &format!("\"{name}\"")).await;
        let before = (server.cpu()?, own.cpu()?);
        let begun = Instant::now();
        connection.ask(&post).await?;
        samples.push(all_heard(hearing, &mut watchers).await? - begun);
        on_server += server.cpu()?.saturating_sub(before.0);
        on_client += own.cpu()?.saturating_sub(before.1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let each = |time: Duration| millis(time) / CHANGES as f64;
    Ok(Heard {
        took: millis(measure::percentile(&samples, 50)),
        server: each(on_server),
        client: each(on_client),
    })
}

/// What the machine needs to wake as many readers of plain sockets, one write each, from another thread.
pub async fn kernel() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut writers, mut readers) = (Vec::with_capacity(WATCHERS), Vec::with_capacity(WATCHERS));
    for _ in 0..WATCHERS {
        let reader = TcpStream::connect(listener.local_addr()?)?;
        reader.set_nonblocking(true)?;
        readers.push(tokio::net::TcpStream::from_std(reader)?);
        let writer = listener.accept()?.0;
        writer.set_nodelay(true)?;
        writers.push(writer);
    }
    let (go, going) = mpsc::sync_channel::<()>(1);
    let thread =
        std::thread::Builder::new().name("writer".into()).spawn(move || -> std::io::Result<()> {
            // About as long as the event of a small object.
            let event = [b'x'; 500];
            while going.recv().is_ok() {
                for writer in &mut writers {
                    writer.write_all(&event)?;
                }
            }
            Ok(())
        })?;
    let mut samples = Vec::new();
    for _ in 0..CHANGES {
        let hearing = listen(&mut readers, "").await;
        let begun = Instant::now();
        go.send(()).context("the writer ended")?;
        samples.push(all_heard(hearing, &mut readers).await? - begun);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(go);
    thread.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    Ok(millis(measure::percentile(&samples, 50)))
}

type Hearing<W> = JoinSet<Result<(W, Instant)>>;

/// All of them listen before anything happens.
async fn listen<W: Hears>(watchers: &mut Vec<W>, text: &str) -> Hearing<W> {
    let mut hearing = JoinSet::new();
    for mut watcher in watchers.drain(..) {
        let text = text.to_owned();
        hearing.spawn(async move {
            watcher.hear(text.as_bytes()).await?;
            Ok((watcher, Instant::now()))
        });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    hearing
}

/// When the last of them heard.
async fn all_heard<W: Hears>(mut hearing: Hearing<W>, watchers: &mut Vec<W>) -> Result<Instant> {
    let mut last = None;
    while let Some(heard) = hearing.join_next().await {
        let (watcher, at) = heard??;
        watchers.push(watcher);
        last = last.max(Some(at));
    }
    last.context("nobody listened")
}
