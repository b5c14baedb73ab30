//! The connection to a backend: opened for one request, and ended with it.
//!
//! Errors are upstream's words for them, which are Go's.

use std::io;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::location::{Location, Transport};
use crate::body::Body;
use crate::context::Context;

/// A stream to a backend, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a backend did not answer.
pub(super) enum Failure {
    /// It could not be reached.
    Dial(String),
    /// It could, and broke off.
    Broken(String),
}

impl Failure {
    pub(super) fn words(self) -> String {
        match self {
            Failure::Dial(why) | Failure::Broken(why) => why,
        }
    }
}

/// Sends one request over a connection of its own, which ends with the answer or with this server.
pub(super) async fn send(
    context: &Context,
    location: &Location,
    request: Request<Body>,
) -> Result<hyper::Response<Incoming>, Failure> {
    let stream = open(context, location).await.map_err(Failure::Dial)?;
    let broken = |error: hyper::Error| Failure::Broken(words(&error));
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(broken)?;
    let shutdown = context.shutdown.clone();
    context.kubelets.tasks().spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            ended = connection.with_upgrades() => if let Err(error) = ended {
                tracing::debug!(%error, "connection to a backend ended");
            }
        }
    });
    sender.send_request(request).await.map_err(broken)
}

async fn open(context: &Context, location: &Location) -> Result<Box<dyn Stream>, String> {
    let address = location.address;
    let dial = |why: String| format!("dial tcp {address}: {why}");
    let connected = tokio::time::timeout(super::CONNECT, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| dial("i/o timeout".into()))?;
    let stream = stream.map_err(|error| dial(connect_words(&error)))?;
    // Ignored: a delay is all that it costs.
    stream.set_nodelay(true).ok();
    let (config, name) = match &location.transport {
        Transport::Plain => return Ok(Box::new(stream)),
        Transport::Unverified => (unverified()?, address.ip().to_string()),
        Transport::Kubelet(host) => (context.kubelets.config(), host.clone()),
    };
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let shaken = tokio::time::timeout(super::CONNECT, TlsConnector::from(config).connect(name, stream)).await;
    let stream = shaken.map_err(|_| "net/http: TLS handshake timeout".to_owned())?;
    Ok(Box::new(stream.map_err(|error| tls_words(&error))?))
}

fn connect_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        io::ErrorKind::TimedOut => "connect: connection timed out".into(),
        _ => format!("connect: {error}"),
    }
}

fn tls_words(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".into()
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".into(),
        _ => format!("tls: {error}"),
    }
}

fn words(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".into();
    }
    format!("net/http: HTTP/1.x transport connection broken: {}", crate::error_chain(error))
}

fn unverified() -> Result<Arc<rustls::ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes any certificate, as pods are asked by their address and theirs name something else. No credential is sent
/// that one in the middle could use.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
