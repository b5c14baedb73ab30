//! TLS pieces: a connector that trusts anyone, for probes, and the kubelet's own server configuration.

use std::sync::{Arc, OnceLock};

use podwire_wire::tls::TrustAnyone;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsConnector;

/// Why the server cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM text holds nothing usable.
    #[error("read {what} from PEM")]
    Pem {
        /// Which text.
        what: &'static str,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and key do not work.
    #[error("use the serving certificate")]
    Certificate(#[source] rustls::Error),
    /// The client CA does not work.
    #[error("use the client CA")]
    ClientCa(#[source] rustls::server::VerifierBuilderError),
}

/// A connector that accepts every certificate: a probe asks whether something answers, not who.
pub(crate) fn unverified_connector() -> TlsConnector {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring supports the default protocol versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAnyone::new(provider)))
            .with_no_client_auth();
        Arc::new(config)
    });
    TlsConnector::from(config.clone())
}

/// The server's configuration: clients may show a certificate, and it must then be of `client_ca`.
pub(crate) fn server(cert: &str, key: &str, client_ca: &str) -> Result<ServerConfig, TlsError> {
    let pem = |what| move |source| TlsError::Pem { what, source };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(pem("the serving certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(pem("the serving key"))?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(client_ca.as_bytes()) {
        roots.add(root.map_err(pem("the client CA"))?).map_err(TlsError::Certificate)?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::ClientCa)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Certificate)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(TlsError::Certificate)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
