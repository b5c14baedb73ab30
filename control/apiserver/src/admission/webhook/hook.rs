//! One webhook as its configuration describes it, and whether it is to be called.
//!
//! Pure but for the roots of the system, which are read from their file when a configuration brings none of its own.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podwire_api::Kind;
use podwire_api::selector::LabelSelector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::super::{Operation, Request};
use super::conditions::Conditions;

/// Where systems keep the authorities they believe.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A webhook.
pub(super) struct Hook {
    /// Unique among all.
    pub(super) id: String,
    pub(super) name: String,
    rules: Vec<Rule>,
    pub(super) namespaces: LabelSelector,
    objects: LabelSelector,
    pub(super) conditions: Conditions,
    pub(super) fails_open: bool,
    equivalent: bool,
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

struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: String,
}

/// What a webhook is asked about.
pub(super) struct Matched {
    /// Another version of the same objects, if the rule names that one.
    pub(super) other: Option<Arc<Kind>>,
    /// The resource by the rule's version.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    /// What the object is.
    pub(super) object_group: String,
    pub(super) object_version: String,
    pub(super) kind: String,
}

impl Matched {
    pub(super) fn api_version(&self) -> String {
        match self.object_group.as_str() {
            "" => self.object_version.clone(),
            group => format!("{group}/{}", self.object_version),
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Hook {
    /// The webhooks of a configuration in their order; one whose selector cannot be read is called for everything.
    pub(super) fn of_configuration(configuration: &Value) -> Vec<Hook> {
        let name = text(&configuration["metadata"]["name"]);
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| Hook::read(&name, hook)).collect()
    }

    fn read(configuration: &str, hook: &Value) -> Hook {
        let selector = |key: &str| match &hook[key] {
            Value::Object(selector) if !selector.is_empty() => {
                LabelSelector::from_object(&hook[key]).unwrap_or_default()
            }
            _ => LabelSelector::default(),
        };
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
            rules: hook["rules"].as_array().into_iter().flatten().map(Rule::read).collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: Conditions::read(hook),
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

    /// Whether the rules are about this, and as which version of it.
    pub(super) fn matches(&self, request: &Request<'_>) -> Option<Matched> {
        let kind = request.kind;
        let part = request.part.map(podwire_api::Part::as_str).unwrap_or_default();
        let operation = match request.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        let fits = |kind: &Kind| self.rules.iter().any(|rule| rule.fits(operation, kind, part));
        let other = match fits(kind) {
            true => None,
            false if self.equivalent => Some(
                request
                    .context
                    .kinds
                    .now()
                    .registry
                    .kinds()
                    .iter()
                    .find(|other| {
                        let same = other.storage_prefix == kind.storage_prefix && kind.is_stored();
                        same && (&other.group, &other.version) != (&kind.group, &kind.version) && fits(other)
                    })?
                    .clone(),
            ),
            false => return None,
        };
        let seen = other.as_deref().unwrap_or(kind);
        let own = request.part.and_then(|part| seen.subresource(part));
        let (group, version, name) = match own {
            Some(own) => (&own.group, &own.version, &own.kind),
            None => (&seen.group, &seen.version, &seen.kind),
        };
        Some(Matched {
            group: seen.group.to_string(),
            version: seen.version.to_string(),
            resource: seen.resource.to_string(),
            object_group: group.to_string(),
            object_version: version.to_string(),
            kind: name.to_string(),
            other,
        })
    }

    /// Whether the object is or was one that the webhook is about.
    pub(super) fn matches_object(&self, new: &Value, old: Option<&Value>) -> bool {
        let none = serde_json::Map::new();
        let matches = |object: &Value| {
            object.is_object()
                && self.objects.matches(object["metadata"]["labels"].as_object().unwrap_or(&none))
        };
        self.objects.is_empty() || matches(new) || old.is_some_and(matches)
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let resources = texts(&rule["resources"]).into_iter().map(|name| match name.split_once('/') {
            Some((resource, part)) => (resource.to_owned(), part.to_owned()),
            None => (name, String::new()),
        });
        Rule {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: resources.collect(),
            scope: text(&rule["scope"]),
        }
    }

    fn fits(&self, operation: &str, kind: &Kind, part: &str) -> bool {
        let named = |list: &[String], name: &str| list.iter().any(|one| one == "*" || one == name);
        let resource = |(resource, own): &(String, String)| {
            (resource == "*" || *resource == *kind.resource) && (own == "*" || own == part)
        };
        let scope = match self.scope.as_str() {
            "Cluster" => !kind.namespaced,
            "Namespaced" => kind.namespaced,
            _ => true,
        };
        scope
            && named(&self.operations, operation)
            && named(&self.groups, &kind.group)
            && named(&self.versions, &kind.version)
            && self.resources.iter().any(resource)
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
    use podwire_api::by_resource;
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_name_operations_resources_parts_and_scopes() {
        let rule = |resources: Value, scope: &str| {
            Rule::read(
                &json!({"operations": ["CREATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": resources, "scope": scope}),
            )
        };
        let (pods, nodes) = (by_resource("", "v1", "pods").unwrap(), by_resource("", "v1", "nodes").unwrap());
        for (rule, kind, part, fits) in [
            (rule(json!(["pods"]), "*"), pods, "", true),
            (rule(json!(["pods"]), "*"), pods, "status", false),
            (rule(json!(["*"]), "*"), pods, "status", false),
            (rule(json!(["pods/*"]), "*"), pods, "status", true),
            (rule(json!(["pods/*"]), "*"), pods, "", true),
            (rule(json!(["*/status"]), "*"), pods, "status", true),
            (rule(json!(["*/*"]), "Namespaced"), nodes, "", false),
            (rule(json!(["*/*"]), "Cluster"), nodes, "", true),
        ] {
            assert_eq!(
                rule.fits("CREATE", kind, part),
                fits,
                "{:?} {} {part}",
                rule.resources,
                kind.resource
            );
            assert!(!rule.fits("DELETE", kind, part));
        }
    }

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
