//! Which ids of the node are for pods: configured, given to the user `kubelet`, or the default.

use super::LENGTH;

/// Ids of the node that pods with user namespaces of their own may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// The first; a multiple of 65536, and never the node's own first 65536.
    pub first: u32,
    /// How many; a multiple of 65536, one for each pod that the node takes.
    pub length: u32,
}

/// Why the ids cannot be given to pods.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("kubelet mappings: {0}")]
pub struct PoolError(pub String);

impl UserIds {
    /// What a node that takes `max_pods` gives to pods when nobody says otherwise; `subuid` and `subgid` are the
    /// contents of the files of those names.
    pub(crate) fn of_node(max_pods: u32, subuid: &str, subgid: &str) -> Result<UserIds, PoolError> {
        let (uids, gids) = (entries(subuid)?, entries(subgid)?);
        match (&uids[..], &gids[..]) {
            ([], []) => Ok(UserIds { first: LENGTH, length: LENGTH.saturating_mul(max_pods) }),
            ([one], [other]) if one == other => Ok(*one),
            ([_], [_]) => Err(PoolError("mismatched subuids and subgids for user \"kubelet\"".to_owned())),
            _ => Err(PoolError("user \"kubelet\" needs exactly one range of subuids and subgids".to_owned())),
        }
    }

    /// Checks that every pod can have a range, and none of them the node's own ids.
    pub(crate) fn check(self, max_pods: u32) -> Result<UserIds, PoolError> {
        let UserIds { first, length } = self;
        let complaint = if !first.is_multiple_of(LENGTH) {
            format!("kubelet user assigned ID {first} is not a multiple of {LENGTH}")
        } else if first < LENGTH {
            format!("kubelet user assigned ID {first} must be greater or equal to {LENGTH}")
        } else if !length.is_multiple_of(LENGTH) {
            format!("kubelet user assigned IDs length {length} is not a multiple of {LENGTH}")
        } else if length / LENGTH < max_pods || u64::from(first) + u64::from(length) > u64::from(u32::MAX) {
            format!("kubelet user assigned IDs are not enough to support {max_pods} pods")
        } else {
            return Ok(self);
        };
        Err(PoolError(complaint))
    }

    /// The first id of every range.
    pub(super) fn ranges(self) -> impl Iterator<Item = u32> {
        (0..self.length / LENGTH).map(move |slot| self.first + slot * LENGTH)
    }
}

/// The ranges of the user `kubelet` in a file of subordinate ids.
///
/// The format is <https://man7.org/linux/man-pages/man5/subuid.5.html>.
fn entries(text: &str) -> Result<Vec<UserIds>, PoolError> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(range) = line.trim().strip_prefix("kubelet:") else { continue };
        let numbers = range.split_once(':').and_then(|(first, length)| {
            Some(UserIds { first: first.parse().ok()?, length: length.parse().ok()? })
        });
        found.push(numbers.ok_or_else(|| PoolError(format!("{line:?} is no range of ids")))?);
    }
    Ok(found)
}
