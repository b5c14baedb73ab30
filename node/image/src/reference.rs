//! Image references as this crate uses them: Kubernetes' own, with a digest that the store can have.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use podwire_api::image::ImageReference;

use crate::digest::Digest;
use crate::error::Error;

/// Of a host with its port.
const LONGEST_HOST: usize = 255;

/// A normalised image reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    name: ImageReference,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry's host, with its port if given: `docker.io`.
    pub fn domain(&self) -> &str {
        self.name.domain()
    }

    /// The repository within the registry: `library/nginx`.
    pub fn path(&self) -> &str {
        self.name.path()
    }

    /// The tag; `latest` was filled in if neither tag nor digest were given.
    pub fn tag(&self) -> Option<&str> {
        self.name.tag()
    }

    /// The digest, if the reference pins one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The repository with its registry: `docker.io/library/nginx`.
    pub fn repository(&self) -> String {
        self.name.repository()
    }

    /// The repository at `digest`, as CRI's repo digests are written.
    pub fn at_digest(&self, digest: &Digest) -> String {
        format!("{}/{}@{digest}", self.domain(), self.path())
    }

    /// The one name under which the image is found: by its digest if there is one, else by its tag.
    pub fn exact_name(&self) -> String {
        self.name.exact_name()
    }

    /// What to ask the registry for: the digest if there is one, else the tag.
    pub fn target(&self) -> String {
        let wanted = self.name.digest().or(self.name.tag());
        wanted.expect("a reference has a tag or a digest").to_owned()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid =
            |reason| Error::InvalidReference { reference: text.chars().take(300).collect(), reason };
        let name = ImageReference::parse(text).map_err(|error| invalid(error.to_string()))?;
        if !can_be_reached(name.domain()) {
            return Err(invalid("there is no such registry host or port".to_owned()));
        }
        let unsupported = |_| invalid("digest is not sha256:<64 hex digits>".to_owned());
        let digest = name.digest().map(str::parse::<Digest>).transpose().map_err(unsupported)?;
        Ok(Self { name, digest })
    }
}

/// The grammar takes a host of any length, any digits in brackets for an address and any number for a port.
fn can_be_reached(domain: &str) -> bool {
    let (host_fits, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address.parse::<Ipv6Addr>().is_ok(), rest.strip_prefix(':')),
        None => (true, domain.split_once(':').map(|(_, port)| port)),
    };
    domain.len() <= LONGEST_HOST && host_fits && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_asked_for_rather_than_a_tag() {
        let pinned: Reference = format!("q.io/a/b:v1@{D}").parse().unwrap();
        assert_eq!((pinned.target().as_str(), pinned.exact_name()), (D, format!("q.io/a/b@{D}")));
        assert_eq!(pinned.to_string(), format!("q.io/a/b:v1@{D}"));
        assert_eq!("[::1]/app".parse::<Reference>().unwrap().domain(), "[::1]");
        let tagged: Reference = "nginx".parse().unwrap();
        assert_eq!((tagged.target().as_str(), tagged.digest()), ("latest", None));
    }

    #[test]
    fn what_the_store_cannot_have_is_refused_with_the_reason() {
        for (bad, reason) in [
            ("Nginx".to_owned(), "lower case"),
            ("q.io:99999/a".to_owned(), "host or port"),
            ("[::1]:99999/a".to_owned(), "host or port"),
            ("[1:2]/a".to_owned(), "host or port"),
            (format!("{}.io/a", "q".repeat(300)), "host or port"),
            (format!("nginx@sha512:{0}{0}", &D["sha256:".len()..]), "sha256:<64 hex digits>"),
        ] {
            let error = bad.parse::<Reference>().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
