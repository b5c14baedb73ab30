//! One webhook as its configuration describes it, and whether it is to be called.
//!
//! Pure but for the roots of the system, which are read from their file when a configuration brings none of its own.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podwire_api::selector::LabelSelector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::super::matching::{Rule, selector, text, texts};
use super::conditions::Conditions;

/// Where systems keep the authorities they believe.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A webhook.
pub(super) struct Hook {
    /// Unique among all.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) conditions: Conditions,
    pub(super) fails_open: bool,
    pub(super) equivalent: bool,
    pub(super) timeout: Duration,
    /// Whether it wants to be called again.
    pub(super) again: bool,
    /// Whether it may be called for a trial.
    pub(super) may_try: bool,
    /// The version of the review it is sent.
    pub(super) review_version: &'static str,
    pub(super) target: Target,
    pub(super) tls: Result<Arc<rustls::ClientConfig>, String>,
}

/// Where a webhook is.
pub(super) enum Target {
    Url(String),
    Service { namespace: String, name: String, port: u16, path: String },
}

impl Hook {
    /// The webhooks of a configuration in their order; one whose selector cannot be read is called for everything.
    pub(super) fn of_configuration(configuration: &Value) -> Vec<Hook> {
        let name = text(&configuration["metadata"]["name"]);
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| Hook::read(&name, hook)).collect()
    }

    fn read(configuration: &str, hook: &Value) -> Hook {
        let client = &hook["clientConfig"];
        let service = &client["service"];
        let target = match client["url"].as_str() {
            Some(url) => Target::Url(url.to_owned()),
            None => Target::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(443),
                path: text(&service["path"]),
            },
        };
        let versions = texts(&hook["admissionReviewVersions"]);
        let review_version =
            match versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")) {
                Some(version) if version == "v1beta1" => "v1beta1",
                _ => "v1",
            };
        let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        Hook {
            id: format!("{configuration}/{}", text(&hook["name"])),
            name: text(&hook["name"]),
            rules: Rule::read_all(&hook["rules"]),
            namespaces: selector(&hook["namespaceSelector"]),
            objects: selector(&hook["objectSelector"]),
            conditions: Conditions::of_webhook(hook),
            fails_open: hook["failurePolicy"] == "Ignore",
            equivalent: hook["matchPolicy"] != "Exact",
            timeout: Duration::from_secs(seconds),
            again: hook["reinvocationPolicy"] == "IfNeeded",
            may_try: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            review_version,
            target,
            tls: tls(&text(&client["caBundle"])),
        }
    }

    /// The address as errors show it.
    pub(super) fn shown_url(&self) -> String {
        let seconds = self.timeout.as_secs();
        match &self.target {
            Target::Url(url) => {
                let bare = url.strip_prefix("https://").is_some_and(|rest| !rest.contains('/'));
                format!("{url}{}?timeout={seconds}s", if bare { "/" } else { "" })
            }
            Target::Service { namespace, name, port, path } => {
                let slash = if path.starts_with('/') { "" } else { "/" };
                format!("https://{name}.{namespace}.svc:{port}{slash}{path}?timeout={seconds}s")
            }
        }
    }
}

/// What a webhook's certificate is checked against: its own bundle, or what the system believes.
fn tls(bundle: &str) -> Result<Arc<rustls::ClientConfig>, String> {
    let pem = match bundle {
        "" => SYSTEM_ROOTS.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default(),
        bundle => STANDARD.decode(bundle).map_err(|error| error.to_string())?,
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok) {
        // Ignored: one that cannot be read is one that is not believed.
        roots.add(certificate).ok();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_address_is_shown_with_the_time_it_has() {
        let of = |client: Value| {
            Hook::read("c", &json!({"name": "a.ex.com", "timeoutSeconds": 3, "clientConfig": client}))
                .shown_url()
        };
        assert_eq!(of(json!({"url": "https://127.0.0.1:1"})), "https://127.0.0.1:1/?timeout=3s");
        assert_eq!(of(json!({"url": "https://h/x"})), "https://h/x?timeout=3s");
        let service = json!({"service": {"namespace": "n", "name": "s", "path": "/p", "port": 443}});
        assert_eq!(of(service), "https://s.n.svc:443/p?timeout=3s");
    }
}
