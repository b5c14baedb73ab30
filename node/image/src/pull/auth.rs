//! Credentials, and the challenges by which registries ask for them. Pure but for reading `config.json`.
//!
//! Challenges: <https://www.rfc-editor.org/rfc/rfc9110#name-www-authenticate>; tokens:
//! <https://distribution.github.io/distribution/spec/auth/token/>.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine;
use serde::Deserialize;

use super::PullError;

/// Credentials for one pull, as CRI's AuthConfig gives them; empty fields are not used.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Auth {
    /// For basic authentication, with `password`.
    pub username: String,
    /// For basic authentication.
    pub password: String,
    /// `base64(username:password)`, instead of the two above.
    pub auth: String,
    /// The registry the credentials are for; any other registry does not get them.
    pub server_address: String,
    /// A refresh token to be traded for a bearer token.
    pub identity_token: String,
    /// A bearer token to be sent as it is.
    pub registry_token: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

/// What to show a registry.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing.
    Anonymous,
    /// A name and a password, joined and encoded.
    Basic(String),
    /// A refresh token.
    Identity(String),
    /// A bearer token.
    Bearer(String),
}

impl Auth {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The credentials for `host`, none if they are for another one.
    pub(super) fn for_host(&self, host: &str) -> Result<Credentials, PullError> {
        if !self.server_address.is_empty() && bare_host(&self.server_address) != bare_host(host) {
            return Ok(Credentials::Anonymous);
        }
        if !self.registry_token.is_empty() {
            return Ok(Credentials::Bearer(self.registry_token.clone()));
        }
        if !self.identity_token.is_empty() {
            return Ok(Credentials::Identity(self.identity_token.clone()));
        }
        if !self.username.is_empty() {
            let pair = format!("{}:{}", self.username, self.password);
            return Ok(Credentials::Basic(base64::engine::general_purpose::STANDARD.encode(pair)));
        }
        if self.auth.is_empty() {
            return Ok(Credentials::Anonymous);
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(self.auth.trim());
        let pair =
            decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok()).filter(|pair| pair.contains(':'));
        let pair = pair.ok_or_else(|| PullError::Settings {
            host: host.to_owned(),
            reason: "auth is not base64 of user:password".to_owned(),
        })?;
        let pair = pair.trim_end_matches('\0');
        Ok(Credentials::Basic(base64::engine::general_purpose::STANDARD.encode(pair)))
    }

    /// These credentials, or those of `config` for `host` if there are none.
    pub(super) fn or_docker(&self, config: Option<&Path>, host: &str) -> Self {
        let Some(config) = config.filter(|_| self.is_empty()) else { return self.clone() };
        match std::fs::read(config) {
            Ok(bytes) => from_docker(&bytes, host).unwrap_or_default(),
            Err(error) => {
                tracing::debug!(path = %config.display(), %error, "no docker credentials");
                Self::default()
            }
        }
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, DockerAuth>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct DockerAuth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default)]
    identitytoken: String,
    #[serde(default)]
    registrytoken: String,
}

/// Whether docker's file has something to show to `host`, for `hostile`.
pub(crate) fn has_credentials(bytes: &[u8], host: &str) -> bool {
    let found = from_docker(bytes, host).map(|auth| auth.for_host(host));
    found.is_some_and(|shown| shown.is_ok_and(|shown| shown != Credentials::Anonymous))
}

fn from_docker(bytes: &[u8], host: &str) -> Option<Auth> {
    let config: DockerConfig = serde_json::from_slice(bytes).ok()?;
    let found = config.auths.into_iter().find(|(name, _)| bare_host(name) == bare_host(host))?.1;
    Some(Auth {
        username: found.username,
        password: found.password,
        auth: found.auth,
        server_address: host.to_owned(),
        identity_token: found.identitytoken,
        registry_token: found.registrytoken,
    })
}

/// A host without scheme and path; docker's registry goes by several names.
fn bare_host(address: &str) -> &str {
    let address =
        address.strip_prefix("https://").or_else(|| address.strip_prefix("http://")).unwrap_or(address);
    let host = address.split('/').next().unwrap_or(address);
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}

/// How a registry asks for credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A name and a password with every request.
    Basic,
    /// A token from the realm.
    Bearer {
        /// Where to get it.
        realm: String,
        /// Whom it is for.
        service: Option<String>,
        /// What it is for.
        scope: Option<String>,
        /// What was wrong with the last token.
        error: Option<String>,
    },
}

/// Parses the value of a `WWW-Authenticate` header, which may hold several challenges.
pub fn parse_challenges(value: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let end = rest.find([' ', ',']).unwrap_or(rest.len());
        let scheme = &rest[..end];
        rest = rest[end..].trim_start_matches([' ', ',']);
        let (parameters, after) = parameters(rest);
        rest = after;
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = parameters.get("realm")
        {
            found.push(Challenge::Bearer {
                realm: realm.clone(),
                service: parameters.get("service").cloned(),
                scope: parameters.get("scope").cloned(),
                error: parameters.get("error").cloned(),
            });
        }
    }
    found
}

/// The `name=value` pairs at the start of `text`, and what follows them.
fn parameters(text: &str) -> (HashMap<String, String>, &str) {
    let mut found = HashMap::new();
    let mut rest = text;
    loop {
        let name_end = rest.find(['=', ' ', ',']).unwrap_or(rest.len());
        if !rest[name_end..].starts_with('=') || name_end == 0 {
            return (found, rest);
        }
        let name = rest[..name_end].to_ascii_lowercase();
        let (value, after) = value(&rest[name_end + 1..]);
        found.insert(name, value);
        rest = after.trim_start_matches([' ', ',']);
    }
}

/// A token or a quoted string.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut out = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                out.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (out, &quoted[at + 1..]),
            c => out.push(c),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed_however_they_are_written() {
        let bearer = |scope: Option<&str>| Challenge::Bearer {
            realm: "https://a.example/token".into(),
            service: Some("r.example".into()),
            scope: scope.map(Into::into),
            error: None,
        };
        assert_eq!(
            parse_challenges(
                r#"Bearer realm="https://a.example/token",service="r.example",scope="repository:a/b:pull,push""#
            ),
            [bearer(Some("repository:a/b:pull,push"))]
        );
        assert_eq!(
            parse_challenges(r#"Basic realm="x", bearer realm="https://a.example/token", service=r.example"#),
            [Challenge::Basic, bearer(None)]
        );
        assert_eq!(parse_challenges("Basic"), [Challenge::Basic]);
        for strange in
            ["", ",,,", "Bearer", "Bearer realm", "Bearer realm=\"", "Negotiate abc==", "= = =", "\u{e9}="]
        {
            // Only that it ends and does not panic matters.
            drop(parse_challenges(strange));
        }
    }

    #[test]
    fn credentials_go_only_to_their_registry() {
        let auth = Auth { username: "u".into(), password: "p".into(), ..Auth::default() };
        assert!(auth.for_host("any.example").unwrap() == Credentials::Basic("dTpw".into()));
        let bound = Auth { server_address: "https://r.example/v2/".into(), ..auth };
        assert!(bound.for_host("r.example").unwrap() == Credentials::Basic("dTpw".into()));
        assert!(bound.for_host("other.example").unwrap() == Credentials::Anonymous);
        let encoded = Auth { auth: "dTpw".into(), ..Auth::default() };
        assert!(encoded.for_host("r.example").unwrap() == Credentials::Basic("dTpw".into()));
        assert!(Auth { auth: "!".into(), ..Auth::default() }.for_host("r").is_err());
    }

    #[test]
    fn docker_credentials_are_found_by_host() {
        let config =
            br#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"},"r.example":{"identitytoken":"t"}}}"#;
        assert_eq!(from_docker(config, "docker.io").unwrap().auth, "dTpw");
        assert_eq!(from_docker(config, "r.example").unwrap().identity_token, "t");
        assert!(from_docker(config, "x.example").is_none());
    }
}
