//! Who is calling, from the client's certificate, and what they may do.

use http::StatusCode;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Refusal;

const APISERVER: &str = "kube-apiserver-kubelet-client";
const MASTERS: &str = "system:masters";

/// The identity in a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// No certificate.
    Nobody,
    /// A certificate of our CA.
    Known { user: String, groups: Vec<String> },
}

impl Caller {
    /// Reads a certificate that TLS has verified already.
    pub(super) fn of(der: Option<&[u8]>) -> Caller {
        let Some((_, certificate)) = der.and_then(|der| X509Certificate::from_der(der).ok()) else {
            return Caller::Nobody;
        };
        let subject = certificate.subject();
        let user = subject.iter_common_name().find_map(|cn| cn.as_str().ok()).unwrap_or_default().to_owned();
        let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        Caller::Known { user, groups }
    }

    /// Whether this caller may use `path`; health is for everyone.
    pub(super) fn may(&self, path: &str) -> Result<(), Refusal> {
        if path == "/healthz" || path.starts_with("/healthz/") {
            return Ok(());
        }
        match self {
            Caller::Nobody => Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized")),
            Caller::Known { user, groups } if user == APISERVER || groups.iter().any(|g| g == MASTERS) => {
                Ok(())
            }
            Caller::Known { user, .. } => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                format!("Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[proxy])"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(user: &str, groups: &[&str]) -> Caller {
        Caller::Known { user: user.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect() }
    }

    #[test]
    fn only_the_api_server_and_masters_get_in() {
        assert!(known(APISERVER, &[]).may("/pods").is_ok());
        assert!(known("admin", &[MASTERS]).may("/exec/a/b/c").is_ok());
        assert_eq!(
            known("system:node:x", &["system:nodes"]).may("/pods").unwrap_err().code,
            StatusCode::FORBIDDEN
        );
        assert_eq!(Caller::Nobody.may("/pods").unwrap_err().code, StatusCode::UNAUTHORIZED);
        assert!(Caller::Nobody.may("/healthz").is_ok());
        assert!(Caller::Nobody.may("/healthzz").is_err());
    }
}
