//! A client that costs little: HTTP/1.1 with keep-alive over TLS, requests rendered beforehand, answers only measured.
//!
//! It shares two cores with the server, so whatever it burns is taken from the figures. It does not check the server's
//! certificate: the server was started by this very process.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme,
    client::WantsClientCert,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Where an API server is and how its administrator proves to be one.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    tls: TlsConnector,
    /// Header lines that every request carries.
    headers: String,
}

impl Endpoint {
    /// Reads a kubeconfig with one cluster and one user.
    pub fn read(kubeconfig: &Path) -> Result<Endpoint> {
        let file: serde_yaml_ng::Value = serde_yaml_ng::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let user = &file["users"][0]["user"];
        let server = file["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
        let address = server.strip_prefix("https://").context("not https")?.parse()?;
        let builder = trusting()?;
        let mut headers = format!("Host: {address}\r\nAccept: application/json\r\n");
        let config = match (user["client-certificate-data"].as_str(), user["client-key-data"].as_str()) {
            (Some(cert), Some(key)) => {
                let cert = CertificateDer::from_pem_slice(&pem(cert)?)?;
                let key = PrivateKeyDer::from_pem_slice(&pem(key)?)?;
                builder.with_client_auth_cert(vec![cert], key)?
            }
            _ => {
                let token = user["token"].as_str().context("neither certificate nor token")?;
                headers += &format!("Authorization: Bearer {token}\r\n");
                builder.with_no_client_auth()
            }
        };
        Ok(Endpoint { address, tls: TlsConnector::from(Arc::new(config)), headers })
    }

    /// Somebody who serves anybody.
    pub fn anonymous(address: SocketAddr) -> Result<Endpoint> {
        let config = trusting()?.with_no_client_auth();
        let headers = format!("Host: {address}\r\nAccept: application/json\r\n");
        Ok(Endpoint { address, tls: TlsConnector::from(Arc::new(config)), headers })
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self.tls.connect(name, stream).await?;
        Ok(Connection { stream, buffer: Vec::with_capacity(64 << 10) })
    }

    /// Opens a connection for HTTP/2.
    pub async fn connect_http2(&self) -> Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::clone(self.tls.config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    /// A GET for a client that renders its requests itself.
    pub fn http_request<B>(&self, path: &str, body: B) -> Result<hyper::Request<B>> {
        let mut request = hyper::Request::get(format!("https://{}{path}", self.address));
        for (name, value) in self.headers.lines().filter_map(|line| line.split_once(": ")) {
            if name != "Host" {
                request = request.header(name, value);
            }
        }
        Ok(request.body(body)?)
    }

    /// Opens `count` connections.
    pub async fn connect_many(&self, count: usize) -> Result<Vec<Connection>> {
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(self.connect().await?);
        }
        Ok(all)
    }

    /// The bytes of a request for something in a form of its own.
    pub fn get_as(&self, path: &str, media: &str) -> Vec<u8> {
        let headers = self.headers.replace("Accept: application/json", &format!("Accept: {media}"));
        format!("GET {path} HTTP/1.1\r\n{headers}\r\n").into_bytes()
    }

    /// The bytes of a request.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let mut text = format!("{method} {path} HTTP/1.1\r\n{}", self.headers);
        if !body.is_empty() {
            text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        text += body;
        text.into_bytes()
    }
}

/// Believes every certificate.
fn trusting() -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider))))
}

fn pem(data: &str) -> Result<Vec<u8>> {
    use base64::Engine;
    Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
}

/// One kept-alive connection.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and waits for the whole answer; its length. Anything but success is an error.
    pub async fn ask(&mut self, request: &[u8]) -> Result<usize> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        let head = loop {
            self.read().await?;
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
        };
        let (code, length) = read_head(&self.buffer[..head])?;
        match length {
            Some(length) => {
                while self.buffer.len() < head + length {
                    self.read().await?;
                }
            }
            // Chunked; nothing follows on the connection, so the end is the end.
            None => {
                while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                    self.read().await?;
                }
            }
        }
        if !(200..300).contains(&code) {
            bail!("answered {code}: {}", String::from_utf8_lossy(&self.buffer[head..]));
        }
        Ok(self.buffer.len() - head)
    }

    /// The answer to the last request.
    pub fn answer(&self) -> &[u8] {
        find(&self.buffer, b"\r\n\r\n").map_or(&[], |end| &self.buffer[end + 4..])
    }

    /// The same put together if it came in pieces.
    pub fn body(&self) -> Result<Vec<u8>> {
        let end = find(&self.buffer, b"\r\n\r\n").context("no answer")? + 4;
        let (head, mut rest) = self.buffer.split_at(end);
        if read_head(head)?.1.is_some() {
            return Ok(rest.to_vec());
        }
        let mut body = Vec::with_capacity(rest.len());
        loop {
            let line = find(rest, b"\r\n").context("a piece without a length")?;
            let length = usize::from_str_radix(std::str::from_utf8(&rest[..line])?, 16)?;
            if length == 0 {
                return Ok(body);
            }
            let after = line + 2 + length;
            body.extend_from_slice(rest.get(line + 2..after).context("a piece that is cut off")?);
            rest = rest.get(after + 2..).context("no end of a piece")?;
        }
    }

    /// Sends the request of a watch and waits for the head of its answer.
    pub async fn watch(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        while find(&self.buffer, b"\r\n\r\n").is_none() {
            self.read().await?;
        }
        let (code, _) = read_head(&self.buffer)?;
        if code != 200 {
            bail!("a watch was answered {code}");
        }
        Ok(())
    }

    /// Waits until the watch has said something that contains `text`.
    pub async fn hear(&mut self, text: &[u8]) -> Result<()> {
        self.buffer.clear();
        while find(&self.buffer, text).is_none() {
            self.read().await?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection: {}", String::from_utf8_lossy(&self.buffer));
        }
        Ok(())
    }
}

/// Where a text begins.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

/// Status code and content length of the head of an answer.
fn read_head(head: &[u8]) -> Result<(u16, Option<usize>)> {
    let text = std::str::from_utf8(head).context("a head that is no text")?;
    let code = text.get(9..12).context("no status line")?.parse()?;
    let mut length = None;
    for line in text.lines().skip(1) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse()?);
        }
    }
    Ok((code, length))
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
