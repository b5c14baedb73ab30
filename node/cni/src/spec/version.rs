//! Versions of the specification.
//!
//! <https://github.com/containernetworking/cni/blob/main/SPEC.md#version>

use super::error::{CniError, code};

/// Every version we speak, oldest first.
pub const SUPPORTED: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// A version of the specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Version {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Version {
    /// What a configuration without a version speaks.
    pub const OLDEST: Version = Version { major: 0, minor: 1, patch: 0 };
    /// The first with lists of addresses.
    pub const V0_3: Version = Version { major: 0, minor: 3, patch: 0 };
    /// The first with CHECK.
    pub const V0_4: Version = Version { major: 0, minor: 4, patch: 0 };
    /// The first without `ips[].version`.
    pub const V1_0: Version = Version { major: 1, minor: 0, patch: 0 };
    /// The first with GC and STATUS, and the newest.
    pub const V1_1: Version = Version { major: 1, minor: 1, patch: 0 };

    /// Reads `x.y.z`; the empty text is the oldest.
    pub fn parse(text: &str) -> Result<Version, CniError> {
        if text.is_empty() {
            return Ok(Version::OLDEST);
        }
        let bad = || CniError::config(format!("cniVersion {text:?} is not a version"));
        let mut parts = text.split('.').map(|part| part.parse::<u16>().map_err(|_| bad()));
        let mut next = || parts.next().unwrap_or_else(|| Err(bad()));
        let version = Version { major: next()?, minor: next()?, patch: next()? };
        if parts.next().is_some() { Err(bad()) } else { Ok(version) }
    }

    /// Whether we speak it.
    pub fn is_supported(self) -> bool {
        SUPPORTED.contains(&self.to_string().as_str())
    }

    /// The best version of a list configuration: the newest we speak of `cniVersions` and `cniVersion`.
    ///
    /// A lone version we do not speak is passed on, so that the plugin says no.
    pub fn negotiate(single: &str, many: &[String]) -> Result<Version, CniError> {
        let mut best = None;
        for text in many.iter().map(String::as_str).chain((!single.is_empty()).then_some(single)) {
            let version = Version::parse(text)?;
            if version <= Version::V1_1 {
                best = best.max(Some(version));
            }
        }
        match best {
            Some(version) => Ok(version),
            None => Version::parse(single),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Whether a plugin that speaks `supported` can serve a configuration of `wanted`.
pub fn reconcile(wanted: &str, supported: &[&str]) -> Result<Version, CniError> {
    let wanted = if wanted.is_empty() { "0.1.0" } else { wanted };
    if !supported.contains(&wanted) {
        let list: Vec<String> = supported.iter().map(|version| format!("{version:?}")).collect();
        return Err(CniError::new(code::INCOMPATIBLE_VERSION, "incompatible CNI versions")
            .details(format!("config is {wanted:?}, plugin supports [{}]", list.join(" "))));
    }
    Version::parse(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_wins() {
        let pick = |single: &str, many: &[&str]| {
            let many: Vec<String> = many.iter().map(|text| (*text).to_owned()).collect();
            Version::negotiate(single, &many).expect("versions").to_string()
        };
        assert_eq!(pick("0.4.0", &[]), "0.4.0");
        assert_eq!(pick("0.4.0", &["1.0.0", "1.1.0", "2.0.0"]), "1.1.0");
        assert_eq!(pick("", &["0.3.1"]), "0.3.1");
        assert_eq!(pick("", &[]), "0.1.0");
        assert_eq!(pick("9.0.0", &[]), "9.0.0");
    }

    #[test]
    fn an_unknown_version_is_refused_with_code_one() {
        let error = reconcile("9.9.9", &SUPPORTED).expect_err("too new");
        assert_eq!(error.code, code::INCOMPATIBLE_VERSION);
        assert_eq!(reconcile("", &SUPPORTED).expect("oldest"), Version::OLDEST);
        for bad in ["1", "1.0", "1.0.0.0", "x.y.z", "-1.0.0"] {
            assert!(Version::parse(bad).is_err(), "{bad}");
        }
    }
}
