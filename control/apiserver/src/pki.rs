//! The cluster's own certificate authority and everything that is signed by it.
//!
//! The authority and the keys are made on first start and kept in one folder as PEM files that only the
//! owner reads. Leaf certificates are short-lived beside the authority and are renewed while running.

mod files;
mod kubeconfig;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long the authority lives.
const CA_LIFE: Duration = DAY.saturating_mul(3650);
/// How long a leaf lives; it is renewed when a third of that is left.
const LEAF_LIFE: Duration = DAY.saturating_mul(365);
/// Clocks of clients may be this much behind.
const SKEW: Duration = Duration::from_secs(3600);

/// Why keys or certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{action} {path:?}")]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate could not be signed or parsed.
    #[error("make the certificate of {subject}")]
    Certificate {
        /// Whose certificate.
        subject: String,
        /// What the library said.
        source: rcgen::Error,
    },
    /// PEM text that is none.
    #[error("read the PEM text of {subject}")]
    Pem {
        /// Whose.
        subject: String,
        /// What the parser said.
        source: rustls::pki_types::pem::Error,
    },
    /// The TLS library refused a key or a certificate.
    #[error("use the certificate of {subject} for TLS")]
    Tls {
        /// Whose.
        subject: String,
        /// What it said.
        source: rustls::Error,
    },
}

/// A certificate with its key, both as PEM text.
#[derive(Clone)]
pub struct KeyCert {
    /// The certificate.
    pub cert_pem: String,
    /// The private key (PKCS#8).
    pub key_pem: String,
}

/// What a leaf certificate is for.
#[derive(Clone, Copy)]
enum Usage {
    Client,
    Server,
}

/// The certificate authority of one cluster.
pub struct Pki {
    dir: PathBuf,
    ca_pem: String,
    ca_key_pem: String,
}

impl Pki {
    /// Opens the folder; makes the authority if there is none yet.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        files::make_dir(dir)?;
        let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        if let (Some(ca_pem), Some(ca_key_pem)) = (files::read(&cert)?, files::read(&key)?) {
            return Ok(Self { dir: dir.to_owned(), ca_pem, ca_key_pem });
        }
        let made = make_ca()?;
        files::write(&key, &made.key_pem)?;
        files::write(&cert, &made.cert_pem)?;
        Ok(Self { dir: dir.to_owned(), ca_pem: made.cert_pem, ca_key_pem: made.key_pem })
    }

    /// The authority's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The folder all of this lies in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A client certificate: `user` is its common name, `groups` are its organizations.
    pub fn issue_client(&self, user: &str, groups: &[&str]) -> Result<KeyCert, PkiError> {
        self.issue(user, groups, &[], Usage::Client)
    }

    /// A serving certificate for host names and addresses.
    ///
    /// Its subject must differ from the authority's: OpenSSL takes a certificate whose subject is its issuer for
    /// a self-signed one and refuses it.
    pub fn issue_server(&self, sans: &[String]) -> Result<KeyCert, PkiError> {
        self.issue("kube-apiserver", &[], sans, Usage::Server)
    }

    /// The serving certificate of a node's kubelet.
    pub fn issue_node_server(&self, node: &str, sans: &[String]) -> Result<KeyCert, PkiError> {
        self.issue(&format!("system:node:{node}"), &["system:nodes"], sans, Usage::Server)
    }

    /// A certificate kept under `name` in the folder, made anew when it is absent, about to expire, or
    /// does not cover `sans` any more.
    pub(crate) fn kept_server(&self, name: &str, sans: &[String]) -> Result<KeyCert, PkiError> {
        self.kept(name, |pem| is_good(pem, sans, SystemTime::now()), |pki| pki.issue_server(sans))
    }

    /// As [`Self::kept_server`], for a client certificate.
    pub(crate) fn kept_client(&self, name: &str, user: &str, groups: &[&str]) -> Result<KeyCert, PkiError> {
        let fits = |pem: &str| is_good(pem, &[], SystemTime::now()) && is_in(pem, groups);
        self.kept(name, fits, |pki| pki.issue_client(user, groups))
    }

    fn kept(
        &self,
        name: &str,
        fits: impl Fn(&str) -> bool,
        make: impl Fn(&Self) -> Result<KeyCert, PkiError>,
    ) -> Result<KeyCert, PkiError> {
        let (cert, key) = (self.dir.join(format!("{name}.crt")), self.dir.join(format!("{name}.key")));
        if let (Some(cert_pem), Some(key_pem)) = (files::read(&cert)?, files::read(&key)?)
            && fits(&cert_pem)
        {
            return Ok(KeyCert { cert_pem, key_pem });
        }
        let made = make(self)?;
        files::write(&key, &made.key_pem)?;
        files::write(&cert, &made.cert_pem)?;
        Ok(made)
    }

    /// The key that signs service-account tokens, as PKCS#8 PEM; made on first use.
    pub(crate) fn token_key(&self) -> Result<String, PkiError> {
        let path = self.dir.join("sa.key");
        if let Some(pem) = files::read(&path)? {
            return Ok(pem);
        }
        let pem = new_key("service account tokens")?.serialize_pem();
        files::write(&path, &pem)?;
        Ok(pem)
    }

    /// A kubeconfig for a user with a client certificate.
    pub fn kubeconfig(&self, server: &str, user: &str, identity: &KeyCert) -> String {
        kubeconfig::render(server, user, &self.ca_pem, identity)
    }

    /// Writes a file that only the owner reads, replacing it in one step.
    pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
        files::write(path, text)
    }

    fn issue(&self, cn: &str, orgs: &[&str], sans: &[String], usage: Usage) -> Result<KeyCert, PkiError> {
        let failed = |source| PkiError::Certificate { subject: cn.to_owned(), source };
        let ca_key = KeyPair::from_pem(&self.ca_key_pem).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&self.ca_pem, ca_key).map_err(failed)?;
        let key = new_key(cn)?;
        let mut params = blank(LEAF_LIFE);
        params.distinguished_name.push(DnType::CommonName, cn);
        for org in orgs {
            params.distinguished_name.push(DnType::OrganizationName, *org);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        params.use_authority_key_identifier_extension = true;
        for san in sans {
            params.subject_alt_names.push(match san.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(san.as_str().try_into().map_err(failed)?),
            });
        }
        let cert = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(KeyCert { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

/// The text of a file that somebody else has made.
pub(crate) fn given(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

impl KeyCert {
    /// Both parts in the form the TLS library takes.
    pub(crate) fn to_der(
        &self,
        subject: &str,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
        let failed = |source| PkiError::Pem { subject: subject.to_owned(), source };
        let chain = CertificateDer::pem_slice_iter(self.cert_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(failed)?;
        Ok((chain, key))
    }
}

fn new_key(subject: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|source| PkiError::Certificate { subject: subject.to_owned(), source })
}

fn blank(life: Duration) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + life).into();
    params
}

fn make_ca() -> Result<KeyCert, PkiError> {
    let subject = "kubernetes";
    let key = new_key(subject)?;
    let mut params = blank(CA_LIFE);
    params.distinguished_name.push(DnType::CommonName, subject);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let cert = params
        .self_signed(&key)
        .map_err(|source| PkiError::Certificate { subject: subject.to_owned(), source })?;
    Ok(KeyCert { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}

/// Whether a kept certificate still has a third of its life ahead and names everything it should.
fn is_good(cert_pem: &str, sans: &[String], now: SystemTime) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(cert_pem.as_bytes()) else { return false };
    let Ok(cert) = pem.parse_x509() else { return false };
    let ends = cert.validity().not_after.timestamp();
    let soon =
        (now + LEAF_LIFE / 3).duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if u64::try_from(ends).unwrap_or(0) <= soon || cert.subject() == cert.issuer() {
        return false;
    }
    let Ok(names) = cert.subject_alternative_name() else { return false };
    let named: Vec<String> = names
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            x509_parser::extensions::GeneralName::DNSName(name) => Some((*name).to_owned()),
            x509_parser::extensions::GeneralName::IPAddress(raw) => address(raw),
            _ => None,
        })
        .collect();
    sans.iter().all(|san| named.contains(san))
}

/// Whether a kept certificate stands for exactly these groups.
fn is_in(cert_pem: &str, groups: &[&str]) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(cert_pem.as_bytes()) else { return false };
    let Ok(cert) = pem.parse_x509() else { return false };
    cert.subject().iter_organization().filter_map(|group| group.as_str().ok()).eq(groups.iter().copied())
}

fn address(raw: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(raw) {
        return Some(IpAddr::from(four).to_string());
    }
    <[u8; 16]>::try_from(raw).ok().map(|sixteen| IpAddr::from(sixteen).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_authority_survives_a_restart_and_keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path()).unwrap().ca_pem().to_owned();
        assert_eq!(Pki::open(dir.path()).unwrap().ca_pem(), first);
        for file in ["ca.key", "ca.crt"] {
            let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn a_kept_client_certificate_of_other_groups_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let wide = pki.kept_client("client", "someone", &["system:masters"]).unwrap();
        let narrow = pki.kept_client("client", "someone", &[]).unwrap();
        assert!(is_in(&wide.cert_pem, &["system:masters"]) && is_in(&narrow.cert_pem, &[]));
        assert_eq!(pki.kept_client("client", "someone", &[]).unwrap().cert_pem, narrow.cert_pem);
    }

    #[test]
    fn a_serving_certificate_does_not_look_self_signed() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let made = pki.issue_server(&["kubernetes".to_owned(), "localhost".to_owned()]).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(made.cert_pem.as_bytes()).unwrap();
        let cert = pem.parse_x509().unwrap();
        assert_ne!(cert.subject(), cert.issuer());
        // One that does is not kept.
        assert!(!is_good(pki.ca_pem(), &[], SystemTime::now()));
    }

    #[test]
    fn a_certificate_is_kept_until_its_names_change_or_it_nears_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let sans = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = pki.kept_server("apiserver", &sans).unwrap().cert_pem;
        assert_eq!(pki.kept_server("apiserver", &sans).unwrap().cert_pem, first);
        assert!(!is_good(&first, &sans, SystemTime::now() + LEAF_LIFE - LEAF_LIFE / 4));
        let more = vec!["localhost".to_owned(), "10.0.0.1".to_owned()];
        assert_ne!(pki.kept_server("apiserver", &more).unwrap().cert_pem, first);
    }
}
