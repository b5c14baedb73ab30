//! Port-forward: pairs of SPDY streams, or pairs of WebSocket channels for old clients.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::session::Activity;
use super::spdy::{self, Connection, Stream};
use super::websocket;
use crate::stream::backend::StreamBackend;

const CHUNK: usize = 32 * 1024;
/// Pairs of which only one stream has come.
const MOST_HALVES: usize = 256;

/// Forwards the ports that a client asks for until it goes away.
pub(super) async fn serve<S>(io: S, backend: Arc<dyn StreamBackend>, sandbox: String)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (driver, connection) = spdy::start(io);
    let activity = Arc::new(Activity::new());
    tokio::select! {
        ended = driver => {
            if let Err(error) = ended {
                tracing::debug!(%error, "port-forward connection ended badly");
            }
        }
        () = pairs(connection, backend, sandbox, Arc::clone(&activity)) => {}
        () = activity.idle() => tracing::info!("port-forward ended: no traffic for four hours"),
    }
}

/// Matches streams to pairs and forwards each.
async fn pairs(
    mut connection: Connection,
    backend: Arc<dyn StreamBackend>,
    sandbox: String,
    activity: Arc<Activity>,
) {
    let mut halves: HashMap<String, Stream> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = connection.streams.recv() => stream,
            Some(_) = tasks.join_next() => continue,
        };
        let Some(stream) = stream else { break };
        activity.seen();
        let Some(key) = pair_key(&stream) else {
            tracing::debug!(stream = stream.id, "stream is neither data nor error of a forwarded port");
            stream.writer.close().await;
            continue;
        };
        match halves.remove(&key) {
            None if halves.len() >= MOST_HALVES => stream.writer.close().await,
            None => drop(halves.insert(key, stream)),
            Some(other) => {
                let (data, error) = if is_data(&stream) { (stream, other) } else { (other, stream) };
                if !is_data(&data) || is_data(&error) {
                    data.writer.close().await;
                    error.writer.close().await;
                    continue;
                }
                let (backend, sandbox, activity) =
                    (Arc::clone(&backend), sandbox.clone(), Arc::clone(&activity));
                tasks.spawn(async move { pair(data, error, backend, &sandbox, &activity).await });
            }
        }
    }
    tasks.shutdown().await;
}

fn is_data(stream: &Stream) -> bool {
    stream.header("streamtype") == Some("data")
}

/// What both streams of a pair have in common; old clients open the error stream just before the data stream.
fn pair_key(stream: &Stream) -> Option<String> {
    let kind = stream.header("streamtype")?;
    if let Some(request) = stream.header("requestid").filter(|request| !request.is_empty()) {
        return matches!(kind, "data" | "error").then(|| format!("request {request}"));
    }
    match kind {
        "error" => Some(format!("stream {}", stream.id)),
        "data" => Some(format!("stream {}", stream.id.checked_sub(2)?)),
        _ => None,
    }
}

/// Forwards one pair to its port.
async fn pair(
    data: Stream,
    error: Stream,
    backend: Arc<dyn StreamBackend>,
    sandbox: &str,
    activity: &Activity,
) {
    let Stream { data: mut incoming, writer, .. } = data;
    let port = error.header("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let result = match port {
        None => Err("the port is not a number from 1 to 65535".to_owned()),
        Some(port) => match backend.port_forward(sandbox, port).await {
            Err(error) => Err(message(port, sandbox, &error)),
            Ok(target) => {
                let send = |bytes| writer.send(bytes);
                let carried = carry(target, &mut incoming, send, activity).await;
                carried.map_err(|error| message(port, sandbox, &error))
            }
        },
    };
    writer.close().await;
    if let Err(text) = result {
        error.writer.send(Bytes::from(text)).await;
    }
    error.writer.close().await;
}

/// Carries bytes both ways until the target has sent everything or one side breaks; `send` tells whether the client is
/// still there.
async fn carry<T, F>(
    target: T,
    incoming: &mut mpsc::Receiver<Bytes>,
    send: impl Fn(Bytes) -> F,
    activity: &Activity,
) -> std::io::Result<()>
where
    T: AsyncRead + AsyncWrite,
    F: Future<Output = bool>,
{
    let (mut reader, mut sink) = tokio::io::split(target);
    let forth = async {
        while let Some(bytes) = incoming.recv().await {
            activity.seen();
            sink.write_all(&bytes).await?;
        }
        sink.shutdown().await
    };
    let back = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK);
            if reader.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            activity.seen();
            if !send(buffer.split().freeze()).await {
                return Ok(());
            }
        }
    };
    let mut back = std::pin::pin!(back);
    tokio::select! {
        ended = &mut back => ended,
        ended = forth => match ended {
            Ok(()) => back.await,
            Err(error) => Err(error),
        },
    }
}

fn message(port: u16, sandbox: &str, error: &dyn std::error::Error) -> String {
    format!("error forwarding port {port} to pod {sandbox}: {}", podwire_trace::chain(error))
}

/// Forwards `ports` over WebSocket channels: the n-th port has channels 2n for data and 2n+1 for errors.
pub(super) async fn channels<S>(io: S, backend: Arc<dyn StreamBackend>, sandbox: String, ports: Vec<u16>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sink, mut stream) = websocket::socket(io).await.split();
    let (to, mut to_receiver) = mpsc::channel::<(u8, Bytes)>(16);
    let activity = Arc::new(Activity::new());
    let mut inputs = Vec::new();
    let mut tasks = JoinSet::new();
    for (at, port) in ports.into_iter().take(100).enumerate() {
        let channel = u8::try_from(at * 2).expect("at most a hundred ports");
        let (sender, incoming) = mpsc::channel::<Bytes>(16);
        inputs.push(sender);
        let (backend, sandbox, to, activity) =
            (Arc::clone(&backend), sandbox.clone(), to.clone(), Arc::clone(&activity));
        tasks.spawn(
            async move { channel_pair(channel, port, incoming, to, backend, &sandbox, &activity).await },
        );
    }
    drop(to);
    let reading = async {
        while let Some(Ok(message)) = stream.next().await {
            let Some(bytes) = websocket::data(message) else { continue };
            let Some(channel) = bytes.first().copied() else { continue };
            if channel % 2 == 0
                && let Some(input) = inputs.get(usize::from(channel / 2))
            {
                // Ignored: a port whose target is gone swallows the rest.
                input.send(bytes.slice(1..)).await.ok();
            }
        }
    };
    let writing = async {
        while let Some((channel, bytes)) = to_receiver.recv().await {
            if sink.send(websocket::channel_message(channel, &bytes)).await.is_err() {
                return;
            }
        }
        websocket::close(&mut sink).await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
        () = activity.idle() => {}
    }
    tasks.shutdown().await;
}

async fn channel_pair(
    channel: u8,
    port: u16,
    mut incoming: mpsc::Receiver<Bytes>,
    to: mpsc::Sender<(u8, Bytes)>,
    backend: Arc<dyn StreamBackend>,
    sandbox: &str,
    activity: &Activity,
) {
    // Both channels first tell the client which port they are for.
    let number = Bytes::copy_from_slice(&port.to_le_bytes());
    for channel in [channel, channel + 1] {
        if to.send((channel, number.clone())).await.is_err() {
            return;
        }
    }
    let target = match backend.port_forward(sandbox, port).await {
        Ok(target) => target,
        Err(error) => {
            // Ignored: a client that is gone cannot be told.
            to.send((channel + 1, Bytes::from(message(port, sandbox, &error)))).await.ok();
            return;
        }
    };
    let send = |bytes| async { to.send((channel, bytes)).await.is_ok() };
    if let Err(error) = carry(target, &mut incoming, send, activity).await {
        // Ignored: a client that is gone cannot be told.
        to.send((channel + 1, Bytes::from(message(port, sandbox, &error)))).await.ok();
    }
}
