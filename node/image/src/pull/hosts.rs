//! Which endpoints serve a registry: mirrors first, then itself; with their TLS settings.
//!
//! The files are containerd's: <https://github.com/containerd/containerd/blob/main/docs/hosts.md>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::uri::{Authority, Scheme};
use serde::Deserialize;

use super::{PullError, RegistryConfig};

/// One place to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// Where the API starts: `/v2`, or the path of the settings if they override it.
    pub(super) prefix: String,
    /// Certificates are not checked.
    pub(super) skip_verify: bool,
    pub(super) ca_files: Vec<PathBuf>,
    pub(super) headers: Vec<(String, String)>,
    /// A mirror is told which registry it stands for.
    pub(super) namespace: Option<String>,
    /// May turn tags into digests.
    pub(super) resolves: bool,
}

/// The endpoints for registry `host`, in the order to try them.
pub(super) fn endpoints(config: &RegistryConfig, host: &str) -> Result<Vec<Endpoint>, PullError> {
    let mut found = Vec::new();
    if let Some(dir) = &config.hosts_dir
        && let Some(settings) = read_settings(dir, host)?
    {
        return from_settings(&settings, config, host);
    }
    let mirrors = config.mirrors.get(host).or_else(|| config.mirrors.get("*"));
    for url in mirrors.into_iter().flatten() {
        let mut endpoint = parse(url, host)?;
        endpoint.skip_verify = is_insecure(config, endpoint.authority.as_str());
        endpoint.ca_files = config.ca_files.get(endpoint.authority.as_str()).cloned().unwrap_or_default();
        endpoint.namespace = Some(host.to_owned());
        found.push(endpoint);
    }
    found.extend(own(config, host)?);
    Ok(found)
}

/// An endpoint as text, for `hostile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Scheme, authority and where the API starts.
    pub url: String,
    /// Authorities to trust.
    pub ca_files: Vec<PathBuf>,
    /// Headers to send.
    pub headers: Vec<(String, String)>,
}

/// The endpoints as text, for `hostile`.
pub(crate) fn places(config: &RegistryConfig, host: &str) -> Result<Vec<Place>, PullError> {
    let place = |one: Endpoint| Place {
        url: format!("{}://{}{}", one.scheme, one.authority, one.prefix),
        ca_files: one.ca_files,
        headers: one.headers,
    };
    Ok(endpoints(config, host)?.into_iter().map(place).collect())
}

/// The registry itself; an insecure one is tried with TLS and then without.
fn own(config: &RegistryConfig, host: &str) -> Result<Vec<Endpoint>, PullError> {
    let real = if host == "docker.io" { "registry-1.docker.io" } else { host };
    let insecure = is_insecure(config, host);
    let plain = is_loopback(real);
    let schemes: &[&str] = match (plain, insecure) {
        (true, _) => &["http"],
        (false, true) => &["https", "http"],
        (false, false) => &["https"],
    };
    schemes
        .iter()
        .map(|scheme| {
            let mut endpoint = parse(&format!("{scheme}://{real}"), host)?;
            endpoint.skip_verify = insecure;
            endpoint.ca_files = config.ca_files.get(host).cloned().unwrap_or_default();
            Ok(endpoint)
        })
        .collect()
}

fn is_insecure(config: &RegistryConfig, host: &str) -> bool {
    config.insecure.iter().any(|known| known == host)
}

/// Loopback registries speak plain HTTP unless they are told otherwise, as with other runtimes.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    let loopback = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback && authority.port_u16() != Some(443)
}

/// A URL without a scheme means HTTPS.
fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("https://{url}") }
}

/// An endpoint from a URL.
fn parse(url: &str, host: &str) -> Result<Endpoint, PullError> {
    let bad = |reason: String| PullError::Settings { host: host.to_owned(), reason };
    let uri: http::Uri = with_scheme(url).parse().map_err(|error| bad(format!("{url:?}: {error}")))?;
    let parts = uri.into_parts();
    let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let path = parts.path_and_query.as_ref().map_or("", |path| path.path().trim_end_matches('/'));
    Ok(Endpoint {
        scheme: scheme.ok_or_else(|| bad(format!("{url:?}: only http and https")))?,
        authority: parts.authority.ok_or_else(|| bad(format!("{url:?}: no host")))?,
        prefix: if path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") },
        skip_verify: false,
        ca_files: Vec::new(),
        headers: Vec::new(),
        namespace: None,
        resolves: true,
    })
}

/// `hosts.toml` as containerd reads it.
#[derive(Debug, Default, Deserialize)]
struct Settings {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    own: HostSettings,
    /// Relative files are looked up here.
    #[serde(skip)]
    dir: PathBuf,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HostSettings {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMore>,
    skip_verify: Option<bool>,
    override_path: Option<bool>,
    header: Option<BTreeMap<String, OneOrMore>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

/// The settings of `host` or the default ones, if the folder has them.
fn read_settings(dir: &Path, host: &str) -> Result<Option<Settings>, PullError> {
    let bad = |reason: String| PullError::Settings { host: host.to_owned(), reason };
    let flat = host.replace(':', "_") + if host.contains(':') { "_" } else { "" };
    for name in [host, &flat, "_default"] {
        let folder = dir.join(name);
        let file = folder.join("hosts.toml");
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                let settings: Settings =
                    toml::from_str(&text).map_err(|error| bad(format!("{}: {error}", file.display())))?;
                return Ok(Some(Settings { dir: folder, ..settings }));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(bad(format!("{}: {error}", file.display()))),
        }
        // Docker's form of the folder holds certificates only.
        let certificates = certificates(&folder);
        if !certificates.is_empty() {
            let ca = Some(OneOrMore::More(certificates));
            return Ok(Some(Settings {
                own: HostSettings { ca, ..HostSettings::default() },
                ..Settings::default()
            }));
        }
    }
    Ok(None)
}

fn certificates(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .filter_map(|path| path.to_str().map(str::to_owned))
        .collect();
    found.sort();
    found
}

fn from_settings(
    settings: &Settings,
    config: &RegistryConfig,
    host: &str,
) -> Result<Vec<Endpoint>, PullError> {
    let mut found = Vec::new();
    for (url, value) in &settings.host {
        let own: HostSettings =
            value.clone().try_into().map_err(|error: toml::de::Error| PullError::Settings {
                host: host.to_owned(),
                reason: format!("host {url:?}: {}", error.message()),
            })?;
        found.extend(with_settings(parse(url, host)?, url, own, settings, host));
    }
    match &settings.server {
        Some(url) => {
            found.extend(with_settings(parse(url, host)?, url, settings.own.clone(), settings, host))
        }
        None => {
            for endpoint in own(config, host)? {
                let url = format!("{}://{}", endpoint.scheme, endpoint.authority);
                found.extend(with_settings(endpoint, &url, settings.own.clone(), settings, host));
            }
        }
    }
    Ok(found)
}

/// The endpoint with its settings, or `None` if it may not be pulled from.
fn with_settings(
    mut endpoint: Endpoint,
    url: &str,
    own: HostSettings,
    settings: &Settings,
    host: &str,
) -> Option<Endpoint> {
    if let Some(capabilities) = own.capabilities {
        if !capabilities.iter().any(|capability| capability == "pull") {
            return None;
        }
        endpoint.resolves = capabilities.iter().any(|capability| capability == "resolve");
    }
    endpoint.skip_verify |= own.skip_verify.unwrap_or(false);
    if own.override_path.unwrap_or(false) {
        let uri: http::Uri = with_scheme(url).parse().ok()?;
        uri.path().trim_end_matches('/').clone_into(&mut endpoint.prefix);
    }
    let ca = own.ca.map(OneOrMore::into_vec).unwrap_or_default();
    endpoint.ca_files.extend(ca.into_iter().map(|file| settings.dir.join(file)));
    for (name, values) in own.header.unwrap_or_default() {
        endpoint.headers.extend(values.into_vec().into_iter().map(|value| (name.clone(), value)));
    }
    let real = if host == "docker.io" { "registry-1.docker.io" } else { host };
    if endpoint.authority.as_str() != real {
        endpoint.namespace = Some(host.to_owned());
    }
    Some(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(endpoints: &[Endpoint]) -> Vec<String> {
        endpoints.iter().map(|e| format!("{}://{}{}", e.scheme, e.authority, e.prefix)).collect()
    }

    #[test]
    fn registries_have_their_usual_endpoints() {
        let config = RegistryConfig {
            insecure: vec!["lan.example:5000".into()],
            mirrors: BTreeMap::from([("docker.io".into(), vec!["http://m.example/cache".into()])]),
            ..RegistryConfig::default()
        };
        let of = |host| urls(&endpoints(&config, host).unwrap());
        assert_eq!(of("docker.io"), ["http://m.example/cache/v2", "https://registry-1.docker.io/v2"]);
        assert_eq!(of("127.0.0.1:5000"), ["http://127.0.0.1:5000/v2"]);
        assert_eq!(of("localhost:443"), ["https://localhost:443/v2"]);
        assert_eq!(of("lan.example:5000"), ["https://lan.example:5000/v2", "http://lan.example:5000/v2"]);
        let mirror = &endpoints(&config, "docker.io").unwrap()[0];
        assert_eq!(mirror.namespace.as_deref(), Some("docker.io"));
    }

    #[test]
    fn containerd_settings_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let write = |host: &str, text: &str| {
            let folder = dir.path().join(host);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("hosts.toml"), text).unwrap();
        };
        write(
            "q.example",
            r#"
            server = "https://q.example"
            [host."http://127.0.0.1:5000"]
              capabilities = ["pull", "resolve"]
              skip_verify = true
            [host."https://proxy.example/q/prefix"]
              capabilities = ["pull"]
              override_path = true
              ca = "own.crt"
              [host."https://proxy.example/q/prefix".header]
                x-key = ["a", "b"]
            [host."https://push.example"]
              capabilities = ["push"]
            "#,
        );
        write("_default", "[host.\"http://127.0.0.1:6000\"]\n");
        write("bare.example", "server = \"bare.example\"\n[host.\"m.example/q\"]\noverride_path = true\n");
        write("bad.example", "server = 5");
        let config = RegistryConfig { hosts_dir: Some(dir.path().to_owned()), ..RegistryConfig::default() };
        let found = endpoints(&config, "q.example").unwrap();
        assert_eq!(
            urls(&found),
            ["http://127.0.0.1:5000/v2", "https://proxy.example/q/prefix", "https://q.example/v2"]
        );
        assert!(found[0].skip_verify && found[0].resolves && !found[1].resolves);
        assert_eq!(found[1].ca_files, [dir.path().join("q.example/own.crt")]);
        assert_eq!(found[1].headers.len(), 2);
        assert_eq!(found[2].namespace, None);
        let bare = endpoints(&config, "bare.example").unwrap();
        assert_eq!(urls(&bare), ["https://m.example/q", "https://bare.example/v2"], "without a scheme");
        let other = endpoints(&config, "z.example").unwrap();
        assert_eq!(urls(&other), ["http://127.0.0.1:6000/v2", "https://z.example/v2"]);
        assert!(matches!(endpoints(&config, "bad.example"), Err(PullError::Settings { .. })));
        std::fs::create_dir_all(dir.path().join("d.example_5000_")).unwrap();
        std::fs::write(dir.path().join("d.example_5000_/ca.crt"), "").unwrap();
        assert_eq!(endpoints(&config, "d.example:5000").unwrap()[0].ca_files.len(), 1);
    }
}
