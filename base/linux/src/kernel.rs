//! Which kernel this is, the oldest one a node runs on, and what needs a newer one.
//!
//! Everything else that is newer than the oldest has a way around it, which is tried when the kernel refuses.

use std::fs;

/// Major and minor number.
pub type Version = (u32, u32);

/// The oldest kernel whose calls are enough: mounts as descriptors with attributes and mapped ids, pidfds, openat2,
/// clone3 into a cgroup, close_range, cgroup.kill.
pub const OLDEST: Version = (5, 15);

/// Overlay stacks layers with mapped ids.
pub const MAPPED_LAYERS: Version = (5, 19);

/// What older kernels do not do.
#[derive(Debug, PartialEq, Eq)]
pub struct Need {
    /// The first kernel that does it.
    pub since: Version,
    /// What.
    pub what: &'static str,
    /// What happens before.
    pub before: &'static str,
}

/// All of it, oldest first.
pub const NEEDS: &[Need] = &[
    Need {
        since: MAPPED_LAYERS,
        what: "pods with hostUsers: false",
        before: "they are refused: overlay takes no layers with mapped ids",
    },
    Need {
        since: (6, 3),
        what: "volumes on tmpfs (Secrets, tokens, memory) in pods with hostUsers: false",
        before: "such containers are refused: tmpfs has no mapped ids",
    },
    Need {
        since: (6, 15),
        what: "exit codes of containers that end after their supervisor died",
        before: "they end with exit code 255: the kernel tells the code to the parent alone",
    },
];

/// What a kernel of this version does not do.
pub fn lacks(version: Version) -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(move |need| version < need.since)
}

/// The name of the running kernel.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Its version; (0, 0) when its name has none.
pub fn version() -> Version {
    parse(&release())
}

/// The version in a kernel's name, such as `6.1.0-54-cloud-amd64`.
pub fn parse(release: &str) -> Version {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_follows_from_its_name() {
        let lacks = |name: &str| lacks(parse(name)).map(|need| need.since).collect::<Vec<_>>();
        assert_eq!(lacks("6.18.3"), []);
        assert_eq!(lacks("6.12.115+deb12-cloud-amd64"), [(6, 15)]);
        assert_eq!(lacks("6.1.0-54-cloud-amd64"), [(6, 3), (6, 15)]);
        assert_eq!(lacks("5.15-custom"), [(5, 19), (6, 3), (6, 15)]);
        assert_eq!(parse("7"), (7, 0));
        assert_eq!(parse("unknown"), (0, 0));
    }
}
