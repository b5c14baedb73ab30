//! Connections to registries: TCP, with TLS where the scheme asks for it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use podwire_wire::tls::TrustAnyone;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::hosts::Endpoint;
use super::{PullError, RegistryConfig};

/// Opens connections for one endpoint.
#[derive(Clone)]
pub(super) struct Connector {
    tls: Arc<ClientConfig>,
    timeout: Duration,
}

impl Connector {
    /// A connector with the endpoint's trust.
    pub(super) fn new(endpoint: &Endpoint, config: &RegistryConfig) -> Result<Self, PullError> {
        let bad = |reason: String| PullError::Settings { host: endpoint.authority.to_string(), reason };
        let mut roots = RootCertStore::empty();
        for file in &endpoint.ca_files {
            let certificates =
                CertificateDer::pem_file_iter(file).map_err(|e| bad(format!("{}: {e}", file.display())))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| bad(format!("{}: {e}", file.display())))?;
                roots.add(certificate).map_err(|e| bad(format!("{}: {e}", file.display())))?;
            }
        }
        for file in &config.system_roots {
            // Files that are not there belong to other distributions.
            if let Ok(certificates) = CertificateDer::pem_file_iter(file) {
                roots.add_parsable_certificates(certificates.flatten());
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(error.to_string()))?;
        let tls = if endpoint.skip_verify {
            let verifier = Arc::new(TrustAnyone::new(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        } else if roots.is_empty() {
            // Any handshake will fail, in words that say why; plain HTTP still works.
            builder.with_root_certificates(roots).with_no_client_auth()
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| bad(error.to_string()))?;
            builder.with_webpki_verifier(verifier).with_no_client_auth()
        };
        Ok(Self { tls: Arc::new(tls), timeout: config.connect_timeout })
    }

    async fn open(self, uri: Uri) -> io::Result<Stream> {
        let host = uri.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
        let bare = host.trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() != Some("http");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let opening = async {
            let socket = TcpStream::connect((bare.as_str(), port)).await?;
            socket.set_nodelay(true)?;
            if !secure {
                return Ok(Stream::Plain(TokioIo::new(socket)));
            }
            let name = ServerName::try_from(bare.clone()).map_err(io::Error::other)?;
            let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await?;
            Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
        };
        tokio::time::timeout(self.timeout, opening)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}

/// An open connection.
pub(super) enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_read(cx, buf),
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_shutdown(cx),
        }
    }
}
