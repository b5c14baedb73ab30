//! Which cluster, and as whom: what a kubeconfig says.
//!
//! A setting that is not honoured (a proxy, the credential providers that kubectl no longer has) is refused, not passed over.
//! <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Uri};
use serde::Deserialize;
use serde_json::Value;

use crate::body::BoxError;
use crate::credentials::Credentials;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("read {path:?}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not YAML.
    #[error("the kubeconfig is not YAML: {0}")]
    Yaml(serde_yaml_ng::Error),
    /// It names something that is not in it.
    #[error("the kubeconfig has no {what} {name:?}")]
    Missing {
        /// A kind of entry.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A setting has a value that it cannot have.
    #[error("{setting} of the kubeconfig: {reason}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The program that gives credentials gave none.
    #[error("the program {command:?}, which gives the credentials: {reason}")]
    Program {
        /// The program.
        command: String,
        /// What it did.
        reason: String,
    },
    /// Certificates and keys do not fit.
    #[error("set up TLS")]
    Tls(#[source] BoxError),
}

/// A cluster and a user of it.
pub struct Config {
    /// Where the API server is.
    pub(crate) server: Uri,
    /// The namespace of a bare name.
    pub namespace: String,
    /// Certificates that the server's must come from, as PEM; the system's if there are none.
    pub authority: Option<Vec<u8>>,
    /// Take any certificate of the server.
    pub(crate) insecure: bool,
    /// The name that the server's certificate is for, if not the server's own.
    pub(crate) server_name: Option<String>,
    /// Certificate and key of the user, as PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// How the user says who it is otherwise.
    pub(crate) credentials: Credentials,
    /// Whom the user acts for.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Config {
    /// What a file says of its current context.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// The same of its text; relative paths in it begin at `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Config, ConfigError> {
        let documents = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
        let file = File { documents: documents.collect::<Result<_, _>>().map_err(ConfigError::Yaml)? };
        let current = file.documents.iter().find_map(|one| one["current-context"].as_str());
        let context = file.named("contexts", "context", current.unwrap_or_default())?;
        let cluster = file.named("clusters", "cluster", context["cluster"].as_str().unwrap_or_default())?;
        let nobody = Value::Null;
        let user = match context["user"].as_str() {
            Some(name) => file.named("users", "user", name).unwrap_or(&nobody),
            None => &nobody,
        };
        if words(cluster, "proxy-url").is_some() {
            return Err(refused("proxy-url", "proxies are not supported"));
        }
        let certificate = bytes(user, "client-certificate-data", "client-certificate", folder)?;
        let key = bytes(user, "client-key-data", "client-key", folder)?;
        Ok(Config {
            server: server(cluster)?,
            namespace: words(context, "namespace").unwrap_or("default").to_owned(),
            authority: bytes(cluster, "certificate-authority-data", "certificate-authority", folder)?,
            insecure: cluster["insecure-skip-tls-verify"] == true,
            server_name: words(cluster, "tls-server-name").map(str::to_owned),
            identity: certificate.zip(key),
            credentials: Credentials::of(user, cluster, folder)?,
            headers: impersonation(user)?,
        })
    }
}

/// The documents of a kubeconfig; what the first says counts.
struct File {
    documents: Vec<Value>,
}

impl File {
    fn named(&self, list: &str, what: &'static str, name: &str) -> Result<&Value, ConfigError> {
        let entries = self.documents.iter().filter_map(|document| document[list].as_array()).flatten();
        let mut found = entries.filter(|entry| entry["name"] == name).map(|entry| &entry[what]);
        found.next().ok_or_else(|| ConfigError::Missing { what, name: name.to_owned() })
    }
}

/// A text that is there and not empty.
pub(crate) fn words<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of[key].as_str().filter(|text| !text.is_empty())
}

pub(crate) fn refused(setting: &'static str, reason: impl ToString) -> ConfigError {
    ConfigError::Setting { setting, reason: reason.to_string() }
}

fn server(cluster: &Value) -> Result<Uri, ConfigError> {
    let text = words(cluster, "server").ok_or_else(|| refused("server", "is missing"))?;
    let uri: Uri = text.parse().map_err(|error| refused("server", error))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("https" | "http"), Some(_)) => Ok(uri),
        _ => Err(refused("server", format!("{text:?} is not an address like https://host:port"))),
    }
}

/// What is in the file itself, or in a file that it names.
fn bytes(
    of: &Value,
    data: &'static str,
    file: &'static str,
    folder: &Path,
) -> Result<Option<Vec<u8>>, ConfigError> {
    if let Some(text) = words(of, data) {
        return STANDARD.decode(text).map(Some).map_err(|error| refused(data, error));
    }
    let Some(path) = words(of, file).map(|path| folder.join(path)) else { return Ok(None) };
    std::fs::read(&path).map(Some).map_err(|source| ConfigError::Read { path, source })
}

/// Whom the user acts for, as request headers say it.
fn impersonation(user: &Value) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let header = |name: &str, value: &Value| {
        let name = HeaderName::try_from(name).map_err(|error| refused("as-user-extra", error))?;
        let value = HeaderValue::try_from(value.as_str().unwrap_or_default());
        Ok((name, value.map_err(|error| refused("as", error))?))
    };
    let mut headers = Vec::new();
    for (setting, name) in [("as", "impersonate-user"), ("as-uid", "impersonate-uid")] {
        if words(user, setting).is_some() {
            headers.push(header(name, &user[setting])?);
        }
    }
    for group in user["as-groups"].as_array().into_iter().flatten() {
        headers.push(header("impersonate-group", group)?);
    }
    for (key, values) in user["as-user-extra"].as_object().into_iter().flatten() {
        let name = format!("impersonate-extra-{}", escaped(key));
        for value in values.as_array().into_iter().flatten() {
            headers.push(header(&name, value)?);
        }
    }
    Ok(headers)
}

/// A key as it can stand in a header's name; whatever cannot is percent-encoded, which the server takes back.
fn escaped(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|'
            | b'~' => {
                name.push(char::from(byte));
            }
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r"
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: other, context: {cluster: away, user: nobody}}
- {name: one, context: {cluster: here, user: admin, namespace: work}}
clusters:
- {name: away, cluster: {server: 'https://away:1'}}
- {name: here, cluster: {server: 'https://127.0.0.1:6443', certificate-authority-data: Y2E=, tls-server-name: kubernetes}}
users:
- name: admin
  user: {client-certificate: admin.crt, client-key-data: a2V5, as: jane, as-groups: [a, b], as-user-extra: {x/y: [z]}}
";

    #[test]
    fn the_current_context_counts_and_paths_begin_at_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin.crt"), "certificate").unwrap();
        let config = Config::parse(FILE, folder.path()).unwrap();
        assert_eq!(config.server, "https://127.0.0.1:6443");
        assert_eq!((config.namespace.as_str(), config.server_name.as_deref()), ("work", Some("kubernetes")));
        assert_eq!(config.authority.as_deref(), Some(&b"ca"[..]));
        assert_eq!(config.identity, Some((b"certificate".to_vec(), b"key".to_vec())));
        let said: Vec<_> = config.headers.iter().map(|(k, v)| (k.as_str(), v.to_str().unwrap())).collect();
        let wanted = [
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-x%2fy", "z"),
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        let refused = |text: &str| match Config::parse(text, Path::new("/")) {
            Ok(_) => panic!("taken: {text}"),
            Err(error) => error.to_string(),
        };
        let with = |cluster: &str, user: &str| {
            format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {cluster}}}], users: [{{name: u, user: {user}}}]}}"
            )
        };
        assert_eq!(refused("{current-context: c}"), "the kubeconfig has no context \"c\"");
        assert_eq!(refused(&with("{}", "{}")), "server of the kubeconfig: is missing");
        assert!(refused(&with("{server: 'here:1'}", "{}")).contains("is not an address"));
        let proxied = with("{server: 'https://a:1', proxy-url: 'http://b'}", "{}");
        assert_eq!(refused(&proxied), "proxy-url of the kubeconfig: proxies are not supported");
        let provided = with("{server: 'https://a:1'}", "{auth-provider: {name: gcp}}");
        assert!(refused(&provided).starts_with("auth-provider of the kubeconfig: "));
    }
}
