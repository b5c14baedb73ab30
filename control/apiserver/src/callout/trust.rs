//! Whom a bundle makes a webhook's caller believe: whoever its authorities have signed, and the certificates that it holds themselves.
//!
//! Go takes a server's certificate that lies in the bundle for what it is, whoever signed it; certificates of webhooks are bundled that way
//! (by controller-runtime's test environment, for one). It must still be in its time, for servers, and carry the name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// The certificates of a bundle.
#[derive(Debug)]
pub(super) struct Bundle {
    /// Nothing when the bundle holds no authority.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Bundle {
    /// What can be read of the bundle is believed.
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Bundle, rustls::client::VerifierBuilderError> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            // Ignored: one that cannot be read is one that is not believed.
            roots.add(certificate.clone()).ok();
        }
        let authorities = if roots.is_empty() {
            None
        } else {
            Some(WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone()).build()?)
        };
        Ok(Bundle { authorities, certificates, provider })
    }

    /// Whether a certificate that lies in the bundle may speak for a server of this name now.
    fn is_itself_right(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let bad = || Error::from(CertificateError::BadEncoding);
        let (_, read) = X509Certificate::from_der(certificate).map_err(|_| bad())?;
        let seconds = i64::try_from(now.as_secs()).map_err(|_| bad())?;
        let time = ASN1Time::from_timestamp(seconds).map_err(|_| bad())?;
        if time < read.validity().not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if time > read.validity().not_after {
            return Err(CertificateError::Expired.into());
        }
        let usage = read.extended_key_usage().map_err(|_| bad())?;
        if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.iter().any(|held| held == end_entity) {
            return Self::is_itself_right(end_entity, name, now).map(|()| ServerCertVerified::assertion());
        }
        match &self.authorities {
            None => Err(CertificateError::UnknownIssuer.into()),
            Some(known) => known.verify_server_cert(end_entity, intermediates, name, ocsp_response, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn checked(
        bundle: &[&rcgen::Certificate],
        shown: &rcgen::Certificate,
        name: &str,
        at: u64,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let held = bundle.iter().map(|certificate| certificate.der().clone()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
        let bundle = Bundle::new(held, provider).unwrap();
        bundle.verify_server_cert(shown.der(), &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn a_certificate_that_is_bundled_itself_is_believed_for_its_name_in_its_time() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority =
            rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        let signed = |usage: Vec<rcgen::ExtendedKeyUsagePurpose>| {
            let mut params = rcgen::CertificateParams::new(vec!["hook.svc".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2030, 1, 1);
            params.extended_key_usages = usage;
            params.signed_by(&key, &authority).unwrap()
        };
        let (server, client) = (
            signed(vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth]),
            signed(vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth]),
        );
        let other = signed(Vec::new());
        const IN_TIME: u64 = 1_700_000_000;
        assert_eq!(checked(&[&server], &server, "hook.svc", IN_TIME), Ok(()));
        assert_eq!(checked(&[&other], &other, "hook.svc", IN_TIME), Ok(()));
        // Another one, another name, another time, another use.
        assert!(checked(&[&other], &server, "hook.svc", IN_TIME).is_err());
        assert!(checked(&[&server], &server, "other.svc", IN_TIME).is_err());
        assert_eq!(
            checked(&[&server], &server, "hook.svc", 4_000_000_000),
            Err(CertificateError::Expired.into())
        );
        assert_eq!(checked(&[&server], &server, "hook.svc", 1), Err(CertificateError::NotValidYet.into()));
        assert_eq!(
            checked(&[&client], &client, "hook.svc", IN_TIME),
            Err(CertificateError::InvalidPurpose.into())
        );
        assert!(checked(&[], &server, "hook.svc", IN_TIME).is_err());
    }
}
