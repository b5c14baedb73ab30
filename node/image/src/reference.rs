//! Image references: parsing and the normal form that docker and containerd use.
//!
//! `nginx` is `docker.io/library/nginx:latest`. A reference with a digest keeps its tag only
//! for display: the digest decides.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;
use crate::error::Error;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";

/// A normalised image reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry's host, with its port if given: `docker.io`.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The repository within the registry: `library/nginx`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tag; `latest` was filled in if neither tag nor digest were given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the reference pins one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The repository with its registry: `docker.io/library/nginx`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The repository at `digest`, as CRI's repo digests are written.
    pub fn at_digest(&self, digest: &Digest) -> String {
        format!("{}/{}@{digest}", self.domain, self.path)
    }

    /// What to ask the registry for: the digest if there is one, else the tag.
    pub fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid =
            |reason| Error::InvalidReference { reference: text.chars().take(300).collect(), reason };
        if text.is_empty() {
            return Err(invalid("empty"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (
                rest,
                Some(digest.parse::<Digest>().map_err(|_| invalid("digest is not sha256:<64 hex digits>"))?),
            ),
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("tag is not [A-Za-z0-9_][A-Za-z0-9._-]{0,127}"));
        }
        let (domain, path) = split_domain(name);
        if !is_domain(domain) {
            return Err(invalid("registry host is malformed"));
        }
        let path = if domain == DEFAULT_DOMAIN && !path.contains('/') {
            format!("library/{path}")
        } else {
            path.to_owned()
        };
        if domain.len() + path.len() + 1 > 255 {
            return Err(invalid("repository name is longer than 255 bytes"));
        }
        if !path.split('/').all(is_component) {
            return Err(invalid(
                "repository name must be lower case components of [a-z0-9] joined by . _ - or /",
            ));
        }
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { domain: domain.to_owned(), path, tag, digest })
    }
}

/// Splits the registry off a name; the first component is a registry if it looks like a host.
fn split_domain(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || has_upper(first) => {
            let first = if first == "index.docker.io" { DEFAULT_DOMAIN } else { first };
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, name),
    }
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => return address.parse::<std::net::Ipv6Addr>().is_ok(),
            Some((address, port)) => match port.strip_prefix(':') {
                Some(port) => return address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port),
                None => return false,
            },
            None => return false,
        },
        None => match domain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (domain, None),
        },
    };
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-')
}

/// Alphanumeric runs joined by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    if !plain(*first) || !plain(*last) {
        return false;
    }
    bytes.split(|byte| plain(*byte)).all(|joint| match joint {
        [] | [b'.'] | [b'_'] | [b'_', b'_'] => true,
        dashes => dashes.iter().all(|byte| *byte == b'-'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn normal(text: &str) -> String {
        text.parse::<Reference>().unwrap().to_string()
    }

    #[test]
    fn names_are_normalised_as_docker_does() {
        assert_eq!(normal("nginx"), "docker.io/library/nginx:latest");
        assert_eq!(normal("nginx:1.2"), "docker.io/library/nginx:1.2");
        assert_eq!(normal("me/app"), "docker.io/me/app:latest");
        assert_eq!(normal("index.docker.io/nginx"), "docker.io/library/nginx:latest");
        assert_eq!(normal("docker.io/nginx"), "docker.io/library/nginx:latest");
        assert_eq!(normal("localhost/app"), "localhost/app:latest");
        assert_eq!(normal("localhost:5000/a/b:v1"), "localhost:5000/a/b:v1");
        assert_eq!(normal("127.0.0.1:5000/app"), "127.0.0.1:5000/app:latest");
        assert_eq!(normal("[::1]:5000/app"), "[::1]:5000/app:latest");
        assert_eq!(normal("registry.k8s.io/pause:3.9"), "registry.k8s.io/pause:3.9");
        assert_eq!(normal(&format!("nginx@{D}")), format!("docker.io/library/nginx@{D}"));
        assert_eq!(normal(&format!("q.io/a/b:v1@{D}")), format!("q.io/a/b:v1@{D}"));
        assert_eq!(normal("q.io/a__b/c-d.e---f"), "q.io/a__b/c-d.e---f:latest");
    }

    #[test]
    fn malformed_names_are_refused() {
        let long = format!("q.io/{}", "a".repeat(252));
        for bad in [
            "",
            "Nginx",
            "nginx:",
            "nginx:.x",
            "a//b",
            "a/../b",
            "-a",
            "a_-b",
            "a...b",
            "nginx@sha256:00",
            "nginx@md5:x",
            "q.io:x/a",
            "q.io:99999/a",
            "q..io/a",
            " nginx",
            "nginx\n",
            "a/b/",
            "/a",
            "q.io/",
            "Q.io:5/A",
            &long,
            &format!("nginx:{}", "t".repeat(129)),
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?} was taken");
        }
    }
}
