//! Writes a kubeconfig with everything embedded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::KeyCert;

/// A kubeconfig with one cluster, one user and one context.
pub(super) fn render(server: &str, user: &str, ca_pem: &str, identity: &KeyCert) -> String {
    let (ca, cert, key) =
        (STANDARD.encode(ca_pem), STANDARD.encode(&identity.cert_pem), STANDARD.encode(&identity.key_pem));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: podwire\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    \
         client-certificate-data: {cert}\n    client-key-data: {key}\ncontexts:\n- name: {user}@podwire\n  \
         context:\n    cluster: podwire\n    user: {user}\ncurrent-context: {user}@podwire\npreferences: {{}}\n"
    )
}
