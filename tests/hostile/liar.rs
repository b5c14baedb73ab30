//! A registry that answers as a row wants it to, over plain HTTP, and remembers what it was told.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use podwire_image::build::Built;
use podwire_testkit::images::{MANIFEST, digest};

/// One request.
pub struct Request {
    /// Method and path.
    pub path: String,
    /// Everything that was said: head and body.
    pub text: String,
}

/// What is answered.
pub enum Reply {
    /// Status, further header lines, body.
    Full(u16, Vec<String>, Vec<u8>),
    /// Header lines, and bytes without end (for some seconds).
    Endless(Vec<String>),
    /// Nothing, for some seconds.
    Silence,
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

/// A listening liar.
pub struct Liar {
    /// Where it listens.
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    /// Listens in the calling thread's network.
    pub fn listen(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Liar> {
        Liar::at("127.0.0.1:0", answer)
    }

    /// Listens as another host than the others.
    pub fn elsewhere(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Liar> {
        Liar::at("127.0.0.2:0", answer)
    }

    fn at(address: &str, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Liar> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, notes): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&heard));
        thread::Builder::new().name("liar".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, notes) = (Arc::clone(&answer), Arc::clone(&notes));
                // Ignored: clients go away as they please.
                thread::Builder::new()
                    .name("liar-client".into())
                    .spawn(move || converse(&stream, &answer, &notes))
                    .ok();
            }
        })?;
        Ok(Liar { address, heard })
    }

    /// All that it was told.
    pub fn heard(&self) -> String {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).join("\n---\n")
    }
}

fn converse(stream: &TcpStream, answer: &Arc<Answer>, notes: &Mutex<Vec<String>>) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while reader.read_line(&mut text)? > 2 {}
    let length = text
        .to_ascii_lowercase()
        .split("content-length:")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    text += &String::from_utf8_lossy(&body);
    notes.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
    let path = text.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let head = text.starts_with("HEAD");
    let mut out = stream;
    let begun = Instant::now();
    match answer(&Request { path, text }) {
        Reply::Full(status, headers, body) => {
            let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            let length = body.len();
            write!(
                out,
                "HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n"
            )?;
            if !head {
                out.write_all(&body)?;
            }
        }
        Reply::Endless(headers) => {
            let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n{lines}\r\n")?;
            let bytes = vec![b' '; 1 << 16];
            while begun.elapsed() < Duration::from_secs(10) {
                out.write_all(&bytes)?;
            }
        }
        Reply::Silence => {
            let mut end = [0];
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // Ignored: it ends when the client hangs up or patience is over.
            reader.read_exact(&mut end).ok();
        }
    }
    Ok(())
}

/// What an honest registry says of an image.
pub fn honest(image: &Built, request: &Request) -> Reply {
    let path = request.path.split('?').next().unwrap_or_default();
    if let Some((_, name)) = path.rsplit_once("/blobs/") {
        let layers = image.layers.iter().map(|(bytes, _)| bytes);
        return match layers.chain([&image.config]).find(|bytes| digest(bytes) == name) {
            Some(bytes) => {
                Reply::Full(200, vec!["Content-Type: application/octet-stream".into()], bytes.clone())
            }
            None => not_found(),
        };
    }
    if path.contains("/manifests/") {
        return manifest(&image.manifest);
    }
    if path.trim_end_matches('/') == "/v2" {
        Reply::Full(200, Vec::new(), b"{}".to_vec())
    } else {
        not_found()
    }
}

/// A manifest.
pub fn manifest(bytes: &[u8]) -> Reply {
    let headers =
        vec![format!("Content-Type: {MANIFEST}"), format!("Docker-Content-Digest: {}", digest(bytes))];
    Reply::Full(200, headers, bytes.to_vec())
}

/// Not here.
pub fn not_found() -> Reply {
    Reply::Full(404, vec!["Content-Type: application/json".into()], br#"{"errors":[]}"#.to_vec())
}

/// Elsewhere.
pub fn redirect(to: &str) -> Reply {
    Reply::Full(307, vec![format!("Location: {to}")], Vec::new())
}

/// Who are you?
pub fn challenge(words: &str) -> Reply {
    Reply::Full(401, vec![format!("WWW-Authenticate: {words}")], Vec::new())
}
