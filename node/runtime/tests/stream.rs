//! The streaming server against real processes and sockets, with clients of both framings.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt};
use podwire_runtime::stream::StreamServer;
use podwire_runtime::stream::backend::{BackendError, Duplex, Session, StreamBackend, Streams, TerminalSize};
use podwire_runtime::stream::spdy::{Decoder, Encoder, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_util::sync::CancellationToken;

/// Runs commands on this machine; a container id of `missing` does not exist.
#[derive(Default)]
struct Host {
    sizes: Arc<Mutex<Vec<TerminalSize>>>,
    pids: Mutex<Vec<u32>>,
}

impl StreamBackend for Host {
    fn exec(
        &self,
        id: &str,
        argv: &[String],
        streams: Streams,
    ) -> BoxFuture<'_, Result<Session, BackendError>> {
        let (id, argv) = (id.to_owned(), argv.to_vec());
        Box::pin(async move {
            if id == "missing" {
                return Err(BackendError::NotFound { id });
            }
            let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
            let mut child = tokio::process::Command::new(&argv[0])
                .args(&argv[1..])
                .stdin(pipe(streams.stdin))
                .stdout(pipe(streams.stdout))
                .stderr(pipe(streams.stderr))
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| BackendError::Start { message: format!("exec: {:?}: {error}", argv[0]) })?;
            self.pids.lock().unwrap().push(child.id().unwrap());
            let (resize, mut sizes) = mpsc::channel(4);
            let seen = Arc::clone(&self.sizes);
            let stdin = child.stdin.take().map(|stdin| Box::new(stdin) as _);
            let stdout = child.stdout.take().map(|stdout| Box::new(stdout) as _);
            let stderr = child.stderr.take().map(|stderr| Box::new(stderr) as _);
            let exit = Box::pin(async move {
                loop {
                    tokio::select! {
                        Some(size) = sizes.recv() => seen.lock().unwrap().push(size),
                        status = child.wait() => {
                            return Ok(status.map_err(|source| BackendError::Io { source })?.code().unwrap_or(137));
                        }
                    }
                }
            });
            Ok(Session { stdin, stdout, stderr, resize, exit })
        })
    }

    fn attach(&self, id: &str, streams: Streams) -> BoxFuture<'_, Result<Session, BackendError>> {
        self.exec(id, &["sh".into(), "-c".into(), "echo attached; exit 9".into()], streams)
    }

    fn port_forward(&self, _: &str, port: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, BackendError>> {
        Box::pin(async move {
            let socket = TcpStream::connect(("127.0.0.1", port)).await;
            Ok(Box::new(socket.map_err(|source| BackendError::Dial { port, source })?) as _)
        })
    }
}

struct Running {
    server: StreamServer,
    host: Arc<Host>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let host = Arc::new(Host::default());
        let server = StreamServer::bind("127.0.0.1:0".parse().unwrap(), host.clone()).await.unwrap();
        let stop = CancellationToken::new();
        #[expect(clippy::disallowed_methods, reason = "a test's own server, awaited in finish")]
        let task = tokio::spawn(server.clone().run(stop.clone()));
        Self { server, host, stop, task }
    }

    fn exec(&self, script: &str, streams: Streams) -> String {
        let argv = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        self.server.exec_url("c", argv, streams).unwrap()
    }

    async fn finish(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.unwrap().unwrap();
    }
}

const OUT: Streams = Streams { stdin: false, stdout: true, stderr: true, tty: false };
const IN_OUT: Streams = Streams { stdin: true, ..OUT };

type Ws = tokio_tungstenite::WebSocketStream<TcpStream>;

async fn websocket(url: &str, protocol: &str) -> Result<Ws, tokio_tungstenite::tungstenite::Error> {
    let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    let address = request.uri().authority().unwrap().to_string();
    let socket = TcpStream::connect(address).await.unwrap();
    tokio_tungstenite::client_async(request, socket).await.map(|(socket, _)| socket)
}

/// All that came on each channel, and the code of the close frame.
async fn drain(socket: &mut Ws) -> (HashMap<u8, Vec<u8>>, Option<u16>) {
    let mut channels: HashMap<u8, Vec<u8>> = HashMap::new();
    loop {
        let message =
            tokio::time::timeout(Duration::from_secs(10), socket.next()).await.expect("it must end");
        match message {
            Some(Ok(Message::Binary(bytes))) => channels.entry(bytes[0]).or_default().extend(&bytes[1..]),
            Some(Ok(Message::Close(frame))) => return (channels, frame.map(|frame| frame.code.into())),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return (channels, None),
        }
    }
}

fn status(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

#[tokio::test]
async fn websocket_exec_gives_output_and_exit_code_and_closes_normally() {
    let running = Running::start().await;
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let url = running.exec("echo out; echo err >&2; exit 3", OUT);
        let mut socket = websocket(&url, protocol).await.unwrap();
        let (channels, code) = drain(&mut socket).await;
        assert_eq!(channels[&1], b"out\n");
        assert_eq!(channels[&2], b"err\n");
        assert_eq!(status(&channels[&3])["details"]["causes"][0]["message"], "3");
        assert_eq!(code, Some(1000), "kubectl takes any other code as an error");
        assert!(!channels.contains_key(&255), "clients do not know a close of their own channels");
    }
    running.finish().await;
}

#[tokio::test]
async fn text_messages_carry_bytes_as_binary_ones_do() {
    let running = Running::start().await;
    let url = running.exec("read line; echo got $line", IN_OUT);
    let mut socket = websocket(&url, "v4.channel.k8s.io").await.unwrap();
    socket.send(Message::Text("\0as Python writes\n".into())).await.unwrap();
    let (channels, _) = drain(&mut socket).await;
    assert_eq!(channels[&1], b"got as Python writes\n");
    running.finish().await;
}

#[tokio::test]
async fn v5_clients_can_close_standard_input_and_large_input_comes_back_whole() {
    let running = Running::start().await;
    let mut socket = websocket(&running.exec("cat; echo end", IN_OUT), "v5.channel.k8s.io").await.unwrap();
    let block: Vec<u8> = (0..30_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let (mut sink, stream) = socket.split();
    let sending = async {
        for _ in 0..40 {
            sink.send(Message::Binary([&[0u8], block.as_slice()].concat().into())).await.unwrap();
        }
        sink.send(Message::Binary(Bytes::from_static(&[255, 0]))).await.unwrap();
        sink
    };
    let receiving = async {
        let mut out = Vec::new();
        let mut stream = stream;
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message
                && bytes[0] == 1
            {
                out.extend_from_slice(&bytes[1..]);
            }
        }
        out
    };
    let (_, out) = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(sending, receiving) })
        .await
        .expect("cat ends when its input does");
    assert_eq!(out.len(), 40 * block.len() + 4);
    assert!(out.ends_with(b"end\n"));
    socket = websocket(&running.exec("true", OUT), "v5.channel.k8s.io").await.unwrap();
    assert_eq!(status(&drain(&mut socket).await.0[&3])["status"], "Success");
    running.finish().await;
}

#[tokio::test]
async fn sizes_reach_the_session_and_errors_reach_the_client() {
    let running = Running::start().await;
    let tty = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let mut socket = websocket(&running.exec("read line", tty), "v5.channel.k8s.io").await.unwrap();
    let size = [b"\x04".as_slice(), br#"{"Width":132,"Height":43}"#].concat();
    socket.send(Message::Binary(size.into())).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while running.host.sizes.lock().unwrap().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the size never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(running.host.sizes.lock().unwrap()[0], TerminalSize { width: 132, height: 43 });
    socket.send(Message::Binary(Bytes::from_static(b"\0line\n"))).await.unwrap();
    assert_eq!(status(&drain(&mut socket).await.0[&3])["status"], "Success");

    let argv = vec!["/nonexistent".to_owned()];
    let mut socket =
        websocket(&running.server.exec_url("c", argv, OUT).unwrap(), "v5.channel.k8s.io").await.unwrap();
    let failed = status(&drain(&mut socket).await.0[&3]);
    assert_eq!(failed["reason"], "InternalError");
    assert!(failed["message"].as_str().unwrap().contains("/nonexistent"));
    let mut socket =
        websocket(&running.server.attach_url("c", OUT).unwrap(), "v5.channel.k8s.io").await.unwrap();
    let (channels, _) = drain(&mut socket).await;
    assert_eq!(channels[&1], b"attached\n");
    assert_eq!(status(&channels[&3])["status"], "Success", "the end of an attachment is no failure");
    running.finish().await;
}

#[tokio::test]
async fn a_url_works_once_and_a_client_that_leaves_takes_its_process_along() {
    let running = Running::start().await;
    let url = running.exec("sleep 1000", IN_OUT);
    let socket = websocket(&url, "v5.channel.k8s.io").await.unwrap();
    let error = websocket(&url, "v5.channel.k8s.io").await.unwrap_err();
    assert!(matches!(error, tokio_tungstenite::tungstenite::Error::Http(answer) if answer.status() == 404));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let pid = loop {
        if let Some(pid) = running.host.pids.lock().unwrap().first() {
            break *pid;
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    drop(socket);
    let alive =
        || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        assert!(tokio::time::Instant::now() < deadline, "the process outlives its client");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.finish().await;
}

/// A SPDY client as Go's is: opens streams, sends, collects what comes back per stream.
struct Spdy {
    io: TcpStream,
    encoder: Encoder,
    decoder: Decoder,
    buffer: BytesMut,
    next: u32,
}

impl Spdy {
    async fn connect(url: &str, protocol: &str) -> Self {
        let url: http::Uri = url.parse().unwrap();
        let mut io = TcpStream::connect(url.authority().unwrap().as_str()).await.unwrap();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n",
            url.path()
        );
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(io.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 101"), "{answer}");
        assert!(answer.contains(&format!("x-stream-protocol-version: {protocol}")), "{answer}");
        Self { io, encoder: Encoder::new(), decoder: Decoder::new(), buffer: BytesMut::new(), next: 1 }
    }

    async fn send(&mut self, frame: Frame) {
        let mut out = BytesMut::new();
        self.encoder.encode(&frame, &mut out);
        self.io.write_all(&out).await.unwrap();
    }

    async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let stream = self.next;
        self.next += 2;
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.send(Frame::SynStream { stream, fin: false, headers }).await;
        stream
    }

    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let read = tokio::time::timeout(Duration::from_secs(10), self.io.read_buf(&mut self.buffer));
            if read.await.expect("the server must answer").unwrap() == 0 {
                return None;
            }
        }
    }

    /// Reads until all `streams` are closed or the server says good-bye.
    async fn drain(&mut self, streams: &[u32]) -> HashMap<u32, Vec<u8>> {
        let mut got: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut open: Vec<u32> = streams.to_vec();
        while !open.is_empty() {
            match self.frame().await {
                Some(Frame::Data { stream, fin, data }) => {
                    got.entry(stream).or_default().extend_from_slice(&data);
                    open.retain(|id| !(fin && *id == stream));
                }
                Some(Frame::GoAway { .. }) | None => break,
                Some(_) => {}
            }
        }
        got
    }
}

#[tokio::test]
async fn spdy_exec_gives_streams_and_status() {
    let running = Running::start().await;
    let url = running.exec("cat; echo err >&2; exit 5", IN_OUT);
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    let error = client.open(&[("streamType", "error")]).await;
    let stdin = client.open(&[("streamType", "stdin")]).await;
    let stdout = client.open(&[("streamType", "stdout")]).await;
    let stderr = client.open(&[("streamType", "stderr")]).await;
    client.send(Frame::Ping { id: 7 }).await;
    client.send(Frame::Data { stream: stdin, fin: false, data: Bytes::from_static(b"hello ") }).await;
    client.send(Frame::Data { stream: stdin, fin: true, data: Bytes::from_static(b"spdy") }).await;
    let got = client.drain(&[error, stdout, stderr]).await;
    assert_eq!(got[&stdout], b"hello spdy");
    assert_eq!(got[&stderr], b"err\n");
    assert_eq!(status(&got[&error])["details"]["causes"][0]["message"], "5");
    running.finish().await;
}

async fn echo_server() -> (u16, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            socket.read_to_end(&mut text).await.unwrap();
            socket.write_all(&text).await.unwrap();
        }
    });
    (port, tasks)
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy_and_a_closed_port_is_told() {
    let running = Running::start().await;
    let (port, _echo) = echo_server().await;
    let url = running.server.port_forward_url("s", vec![]).unwrap();
    let mut client = Spdy::connect(&url, "portforward.k8s.io").await;
    for request in ["0", "1"] {
        let port = port.to_string();
        let pair = [("port", port.as_str()), ("requestID", request)];
        let error = client.open(&[("streamType", "error"), pair[0], pair[1]]).await;
        client.send(Frame::Data { stream: error, fin: true, data: Bytes::new() }).await;
        let data = client.open(&[("streamType", "data"), pair[0], pair[1]]).await;
        client.send(Frame::Data { stream: data, fin: true, data: Bytes::from_static(b"ping") }).await;
        let got = client.drain(&[error, data]).await;
        assert_eq!(got[&data], b"ping");
        assert!(got[&error].is_empty());
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port().to_string();
    let error = client.open(&[("streamType", "error"), ("port", &closed), ("requestID", "2")]).await;
    let data = client.open(&[("streamType", "data"), ("port", &closed), ("requestID", "2")]).await;
    let got = client.drain(&[error, data]).await;
    assert!(String::from_utf8_lossy(&got[&error]).contains("onnection refused"), "{got:?}");
    running.finish().await;
}

#[tokio::test]
async fn spdy_tunnelled_in_websocket_forwards_ports() {
    let running = Running::start().await;
    let (port, _echo) = echo_server().await;
    let url = running.server.port_forward_url("s", vec![]).unwrap();
    let mut socket = websocket(&url, "SPDY/3.1+portforward.k8s.io").await.unwrap();
    let (mut encoder, mut out) = (Encoder::new(), BytesMut::new());
    for (stream, kind) in [(1, "error"), (3, "data")] {
        let headers = [("streamtype", kind), ("port", &port.to_string()), ("requestid", "0")];
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        encoder.encode(&Frame::SynStream { stream, fin: false, headers }, &mut out);
    }
    encoder.encode(&Frame::Data { stream: 3, fin: true, data: Bytes::from_static(b"through") }, &mut out);
    // Cut anywhere: messages are not frames.
    for part in out.chunks(7) {
        socket.send(Message::Binary(Bytes::copy_from_slice(part))).await.unwrap();
    }
    let (mut decoder, mut buffer, mut got) = (Decoder::new(), BytesMut::new(), Vec::new());
    while got != b"through" {
        match tokio::time::timeout(Duration::from_secs(10), socket.next()).await.unwrap() {
            Some(Ok(Message::Binary(bytes))) => buffer.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
        while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
            if let Frame::Data { stream: 3, data, .. } = frame {
                got.extend_from_slice(&data);
            }
        }
    }
    running.finish().await;
}

#[tokio::test]
async fn garbage_and_strangers_do_not_disturb_the_server() {
    let running = Running::start().await;
    let url = running.exec("sleep 1000", IN_OUT);
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    client.io.write_all(&[0xff; 4096]).await.unwrap();
    assert!(client.frame().await.is_none(), "the server hangs up");
    let mut plain = TcpStream::connect(running.server.local_addr()).await.unwrap();
    plain.write_all(b"GET /exec/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let mut socket = websocket(&running.exec("echo fine", OUT), "v5.channel.k8s.io").await.unwrap();
    assert_eq!(drain(&mut socket).await.0[&1], b"fine\n");
    running.finish().await;
}
