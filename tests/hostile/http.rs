//! The smallest HTTPS client that can be rude: what is sent is chosen byte by byte, and every wait has an end.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// More than this is never read of an answer.
const LONGEST: usize = 64 << 20;

/// A connection that speaks TLS.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Who asks.
#[derive(Clone)]
pub struct Who {
    config: Arc<ClientConfig>,
    token: Option<String>,
}

/// An API server and its authority.
pub struct Api {
    /// Where it listens.
    pub address: SocketAddr,
    roots: RootCertStore,
    /// The administrator.
    pub admin: Who,
}

/// What was answered.
pub struct Answer {
    /// The HTTP status; 0 when the connection ended without one.
    pub status: u16,
    /// The body, with its chunks joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status and the beginning of the body, for what is told.
    pub fn brief(&self) -> String {
        let value = self.json();
        let text = match value["message"].as_str() {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(&self.body).into_owned(),
        };
        format!("{} {}", self.status, text.chars().take(160).collect::<String>())
    }
}

impl Api {
    /// The server that a kubeconfig names, with its credentials as the administrator's.
    pub fn of(kubeconfig: &Path) -> Result<Api> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let value: Value = serde_yaml_ng::from_str(&text)?;
        let server = value["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
        let address = server.trim_start_matches("https://").parse()?;
        let pem = |value: &Value| -> Result<Vec<u8>> {
            Ok(BASE64_STANDARD.decode(value.as_str().context("no data in the kubeconfig")?)?)
        };
        let mut roots = RootCertStore::empty();
        let authority = pem(&value["clusters"][0]["cluster"]["certificate-authority-data"])?;
        for one in CertificateDer::pem_slice_iter(&authority) {
            roots.add(one?)?;
        }
        let user = &value["users"][0]["user"];
        let admin = with_certificate(
            &roots,
            &pem(&user["client-certificate-data"])?,
            &pem(&user["client-key-data"])?,
        )?;
        Ok(Api { address, roots, admin })
    }

    /// A server that shows one of these certificates, with a token as the administrator's.
    #[allow(dead_code, reason = "policies beside upstream's participants use it")]
    pub fn with_token(address: SocketAddr, authority: &[u8], token: &str) -> Result<Api> {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(authority) {
            roots.add(one?)?;
        }
        let config = Arc::new(builder(&roots).with_no_client_auth());
        Ok(Api { address, roots, admin: Who { config, token: Some(token.to_owned()) } })
    }

    /// Somebody with a certificate.
    pub fn holder(&self, certificate: &[u8], key: &[u8]) -> Result<Who> {
        with_certificate(&self.roots, certificate, key)
    }

    /// Somebody with a bearer token.
    pub fn bearer(&self, token: &str) -> Who {
        Who { token: Some(token.to_owned()), ..self.nobody() }
    }

    /// Somebody without credentials.
    pub fn nobody(&self) -> Who {
        let config = builder(&self.roots).with_no_client_auth();
        Who { config: Arc::new(config), token: None }
    }

    /// A connection on which nothing was said yet.
    pub fn connect(&self, who: &Who) -> Result<Stream> {
        self.connect_to(self.address, who)
    }

    /// A connection to another server of the same authority.
    pub fn connect_to(&self, address: SocketAddr, who: &Who) -> Result<Stream> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::from(address.ip());
        Ok(StreamOwned::new(ClientConnection::new(Arc::clone(&who.config), name)?, stream))
    }

    /// One request as the administrator, with JSON or without a body.
    pub fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        self.ask(&self.admin, method, path, &[("Content-Type", "application/json")], body.as_bytes())
    }

    /// A request of the administrator that must succeed.
    pub fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.admin(method, path, body)?;
        ensure!((200..300).contains(&answer.status), "{method} {path}: {}", answer.brief());
        Ok(answer.json())
    }

    /// One request.
    pub fn ask(
        &self,
        who: &Who,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        let mut stream = self.connect(who)?;
        let head = head(who, method, path, headers, body.len());
        // A server may refuse and hang up before it has read all: what it said is what counts.
        let sent =
            stream.write_all(&head).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        match receive(&mut stream) {
            Ok(answer) if answer.status != 0 => Ok(answer),
            Ok(answer) => sent.map(|()| answer).context("send the request"),
            Err(error) => {
                Err(error.context(format!("{method} {}", path.chars().take(80).collect::<String>())))
            }
        }
    }
}

/// The head of a request.
pub fn head(who: &Who, method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\nContent-Length: {length}\r\n"
    );
    if let Some(token) = &who.token {
        text += &format!("Authorization: Bearer {token}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    text.into_bytes()
}

/// Reads an answer to its end; `status` is 0 when there was none.
pub fn receive(stream: &mut impl Read) -> Result<Answer> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let deadline = Instant::now() + PATIENCE;
    loop {
        ensure!(Instant::now() < deadline, "no end of the answer within {PATIENCE:?}");
        ensure!(bytes.len() < LONGEST, "the answer is larger than {LONGEST} bytes");
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                anyhow::bail!("no answer within {PATIENCE:?}")
            }
            // Without a goodbye, or after a reset: what came before is the answer.
            Err(_) => break,
        }
    }
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(at) = split else {
        return Ok(Answer { status: 0, body: Vec::new() });
    };
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { join(&bytes[at + 4..]) } else { bytes[at + 4..].to_vec() };
    Ok(Answer { status, body })
}

/// A chunked body as one.
fn join(mut bytes: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]);
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = bytes.get(end + 2..end + 2 + size) else { break };
        if size == 0 {
            break;
        }
        joined.extend_from_slice(chunk);
        bytes = bytes.get(end + 2 + size + 2..).unwrap_or_default();
    }
    joined
}

fn builder(roots: &RootCertStore) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots.clone())
}

fn with_certificate(roots: &RootCertStore, certificate: &[u8], key: &[u8]) -> Result<Who> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let config = builder(roots).with_client_auth_cert(chain, key)?;
    Ok(Who { config: Arc::new(config), token: None })
}
