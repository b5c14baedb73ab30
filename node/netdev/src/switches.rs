//! Features and private flags of a device: what a pod wants of them, and what they were before.

use std::collections::BTreeMap;

use podwire_linux::{
    ethtool::{Ethtool, Switch, Switches, Words},
    rtnl,
};
use serde::{Deserialize, Serialize};

use crate::attach::AttachError;

/// Names under which features were known before the kernel named them itself, and what they stand for; a star is any text.
const OLDER: [([&str; 2], &str); 12] = [
    (["rx", "rx-checksumming"], "rx-checksum"),
    (["tx", "tx-checksumming"], "tx-checksum-*"),
    (["sg", "scatter-gather"], "tx-scatter-gather*"),
    (["tso", "tcp-segmentation-offload"], "tx-tcp*-segmentation"),
    (["ufo", "udp-fragmentation-offload"], "tx-udp-fragmentation"),
    (["gso", "generic-segmentation-offload"], "tx-generic-segmentation"),
    (["gro", "generic-receive-offload"], "rx-gro"),
    (["lro", "large-receive-offload"], "rx-lro"),
    (["rxvlan", "rx-vlan-offload"], "rx-vlan-hw-parse"),
    (["txvlan", "tx-vlan-offload"], "tx-vlan-hw-insert"),
    (["ntuple", "ntuple-filters"], "rx-ntuple-filter"),
    (["rxhash", "receive-hashing"], "rx-hashing"),
];

/// What is to be on, and what off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// Features, under the kernel's names or the older ones.
    #[serde(default)]
    pub features: BTreeMap<String, bool>,
    /// Flags of the device's driver.
    #[serde(default)]
    pub private_flags: BTreeMap<String, bool>,
}

impl Switched {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty() && self.private_flags.is_empty()
    }

    /// Carries it out on a device of the calling thread's namespace. What the device does not do is an error.
    pub(crate) fn apply(&self, link: u32) -> Result<(), AttachError> {
        let wanted = [(Switches::Features, &self.features), (Switches::PrivateFlags, &self.private_flags)];
        for (of, wanted) in wanted.into_iter().filter(|(_, wanted)| !wanted.is_empty()) {
            let Some(mut ethtool) = Ethtool::open()? else {
                return Err(AttachError::Lacks { kind: "ethtool" });
            };
            let found = ethtool.named(of, link)?;
            let mut change = BTreeMap::new();
            for (name, on) in wanted {
                for known in meant(of, name, *on, &found)? {
                    change.insert(known.to_owned(), *on);
                }
            }
            if change.is_empty() {
                continue;
            }
            ethtool.set_named(of, link, &change)?;
            let now = ethtool.named(of, link)?;
            let is_other = |(name, on): &(&String, &bool)| now.get(*name).is_none_or(|is| is.on != **on);
            if let Some((name, _)) = change.iter().find(is_other) {
                return Err(AttachError::Switch { name: name.clone(), why: "the device did not take it" });
            }
        }
        Ok(())
    }
}

/// The switches that a name stands for and that have to be changed.
fn meant<'a>(
    of: Switches,
    name: &str,
    on: bool,
    found: &'a BTreeMap<String, Switch>,
) -> Result<Vec<&'a str>, AttachError> {
    let refused = |why| Err(AttachError::Switch { name: name.to_owned(), why });
    let pattern = match OLDER.iter().find(|(older, _)| older.contains(&name)) {
        Some((_, pattern)) if of == Switches::Features && !found.contains_key(name) => pattern,
        _ => name,
    };
    let all: Vec<_> = found.iter().filter(|(known, _)| fits(pattern, known)).collect();
    if all.is_empty() {
        return refused("the device has none of the name");
    }
    let open = all.iter().filter(|(_, switch)| switch.changeable);
    let open: Vec<&str> = open.map(|(known, _)| known.as_str()).collect();
    if open.is_empty() && all.iter().any(|(_, switch)| switch.on != on) {
        return refused("the device cannot change it");
    }
    Ok(open)
}

/// Whether a text is that of a pattern with at most one star.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

/// The switches of a device as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switchboard {
    /// Its features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Words>,
    /// Flags of its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_flags: Option<Words>,
}

impl Switchboard {
    /// What they are now, of a device of the calling thread's namespace.
    pub(crate) fn take(link: u32) -> Result<Switchboard, rtnl::Error> {
        let Some(mut ethtool) = Ethtool::open()? else { return Ok(Switchboard::default()) };
        Ok(Switchboard {
            features: ethtool.words(Switches::Features, link)?,
            private_flags: ethtool.words(Switches::PrivateFlags, link)?,
        })
    }

    /// Makes them that again, where they differ.
    pub(crate) fn restore(&self, link: u32) -> Result<(), rtnl::Error> {
        let now = Switchboard::take(link)?;
        let all = [
            (Switches::Features, &self.features, &now.features),
            (Switches::PrivateFlags, &self.private_flags, &now.private_flags),
        ];
        for (of, was, now) in all {
            if let (Some(was), true) = (was, was != now)
                && let Some(mut ethtool) = Ethtool::open()?
            {
                ethtool.set_words(of, link, was)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_stand_for_what_the_device_can_change() {
        let switch = |changeable, on| Switch { changeable, on };
        let found = BTreeMap::from([
            ("tx-checksum-ip-generic".to_owned(), switch(true, true)),
            ("tx-checksum-sctp".to_owned(), switch(true, false)),
            ("tx-checksum-fcoe-crc".to_owned(), switch(false, false)),
            ("rx-lro".to_owned(), switch(false, false)),
        ]);
        let names = |name: &str, on| meant(Switches::Features, name, on, &found);
        assert_eq!(names("tx", false).unwrap(), ["tx-checksum-ip-generic", "tx-checksum-sctp"]);
        assert_eq!(names("tx-checksum-sctp", true).unwrap(), ["tx-checksum-sctp"]);
        assert_eq!(names("large-receive-offload", false).unwrap(), [""; 0], "it is off already");
        for (name, why) in [("lro", "cannot change it"), ("warp", "none of the name"), ("gro", "none of")] {
            let said = names(name, true).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        let flags = meant(Switches::PrivateFlags, "tx", true, &found).unwrap_err().to_string();
        assert!(flags.contains("none of the name"), "flags have no older names: {flags}");
        assert!(
            !fits("tx-tcp*-segmentation", "tx-tcp-segmentatio")
                && fits("tx-tcp*-segmentation", "tx-tcp-segmentation")
        );
    }
}
