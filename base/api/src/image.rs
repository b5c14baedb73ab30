//! Image references: the grammar and the normal form that docker, containerd and the kubelet share.
//!
//! `nginx` is `docker.io/library/nginx:latest`; a digest decides, and a tag beside it is for people. The grammar:
//! <https://github.com/distribution/reference>. A host with an underscore (`a_b.c/app`), of which upstream makes a
//! reference without a registry, is refused. Nothing is looked up here.

use std::fmt;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
const LONGEST_PATH: usize = 255;
const LONGEST_TAG: usize = 128;

/// Why a text is no image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageReferenceError {
    /// It could be mistaken for an image's id.
    #[error("64 hexadecimal digits are an id")]
    Id,
    /// The registry's host is none.
    #[error("registry host is malformed")]
    Domain,
    /// The repository is none.
    #[error("repository name must be lower case components of [a-z0-9] joined by . _ - or /")]
    Path,
    /// The repository is too long.
    #[error("repository name is longer than 255 bytes")]
    Length,
    /// The tag is none.
    #[error("tag is not [A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}")]
    Tag,
    /// The digest is none.
    #[error("digest is not of sha256, sha384 or sha512 in lower case")]
    Digest,
}

/// A reference in its normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageReference {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl ImageReference {
    /// Reads a reference and fills in what people leave out: the registry, `library`, the tag.
    pub fn parse(text: &str) -> Result<ImageReference, ImageReferenceError> {
        if text.len() == 64 && text.bytes().all(is_lower_hex) {
            return Err(ImageReferenceError::Id);
        }
        let (domain, rest) = split_domain(text);
        let (name, digest) = match rest.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (rest, None),
        };
        let (name, tag) = match name.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (name, None),
        };
        if !name.split('/').all(is_component) {
            return Err(ImageReferenceError::Path);
        }
        if !is_domain(domain) {
            return Err(ImageReferenceError::Domain);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ImageReferenceError::Tag);
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ImageReferenceError::Digest);
        }
        let short = domain == DEFAULT_DOMAIN && !name.contains('/');
        let path = if short { format!("library/{name}") } else { name.to_owned() };
        if path.len() > LONGEST_PATH {
            return Err(ImageReferenceError::Length);
        }
        let tag = tag.or(if digest.is_none() { Some(DEFAULT_TAG) } else { None });
        Ok(ImageReference {
            domain: domain.to_owned(),
            path,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

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
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The repository with its registry: `docker.io/library/nginx`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The one name under which the image is found: by its digest if there is one, else by its tag.
    pub fn exact_name(&self) -> String {
        match &self.digest {
            Some(digest) => format!("{}/{}@{digest}", self.domain, self.path),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.domain, self.path)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{digest}")?;
        }
        Ok(())
    }
}

/// Whether an image is pulled each time unless its pod says otherwise: it has the tag `latest`, said or unsaid.
pub fn is_latest(image: &str) -> bool {
    ImageReference::parse(image).is_ok_and(|reference| reference.tag() == Some(DEFAULT_TAG))
}

/// Splits the registry off; the first component is one if it looks like a host.
fn split_domain(text: &str) -> (&str, &str) {
    let is_host = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
    };
    match text.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest)) if is_host(first) => (first, rest),
        _ => (DEFAULT_DOMAIN, text),
    }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'a'..=b'f')
}

/// A name or an address, in brackets if it has colons, and perhaps a port.
fn is_domain(domain: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_address =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    let (host_fits, rest) = match domain.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((address, rest)) => (is_address(address), rest),
        None => {
            let (host, rest) = domain.split_at(domain.find(':').unwrap_or(domain.len()));
            (host.split('.').all(label), rest)
        }
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    host_fits && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
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

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(is_lower_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn names_are_normalised_as_docker_does() {
        for (given, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("me/app:1.2", "docker.io/me/app:1.2"),
            ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("q.io/a__b/c-d.e---f", "q.io/a__b/c-d.e---f:latest"),
        ] {
            assert_eq!(ImageReference::parse(given).unwrap().to_string(), expected, "{given}");
        }
        let both = ImageReference::parse(&format!("nginx:1@{D}")).unwrap();
        assert_eq!(both.to_string(), format!("docker.io/library/nginx:1@{D}"));
        assert_eq!(both.exact_name(), format!("docker.io/library/nginx@{D}"));
        assert_eq!((both.repository().as_str(), both.digest()), ("docker.io/library/nginx", Some(D)));
    }

    #[test]
    fn malformed_names_are_refused_with_the_reason() {
        for (given, expected) in [
            ("", ImageReferenceError::Path),
            ("Nginx", ImageReferenceError::Path),
            ("a//b", ImageReferenceError::Path),
            ("nginx:", ImageReferenceError::Tag),
            ("nginx@sha256:00", ImageReferenceError::Digest),
            ("q..io/a", ImageReferenceError::Domain),
            (&D["sha256:".len()..], ImageReferenceError::Id),
            (&"a".repeat(300), ImageReferenceError::Length),
        ] {
            assert_eq!(ImageReference::parse(given).unwrap_err(), expected, "{given:?}");
        }
    }

    #[test]
    fn a_tag_that_moves_is_told_from_what_stays() {
        assert!(is_latest("nginx") && is_latest("reg:5000/nginx:latest"));
        assert!(!is_latest("nginx:1") && !is_latest(&format!("nginx@{D}")) && !is_latest("no:image:at:all"));
    }
}
