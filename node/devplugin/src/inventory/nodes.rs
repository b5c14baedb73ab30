//! Device files by patterns of paths, and what sysfs says about each.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{FoundNode, Inventory, LeftOut, sysfs};
use crate::{
    config::MOST_IDS,
    glob,
    tree::{NoNode, Tree},
};

/// Folders and links that are named after serial numbers.
const BY_ID: &[&str] =
    &["/dev/disk/by-id/*", "/dev/serial/by-id/*", "/dev/input/by-id/*", "/dev/v4l/by-id/*"];
/// Paths that one pattern may fit.
const MOST_PATHS: usize = MOST_IDS as usize;

/// Paths that were looked at.
pub(super) type Seen = BTreeSet<PathBuf>;

/// Adds the device files that fit the pattern.
pub(super) fn fitting(tree: &Tree, pattern: &str, seen: &mut Seen, found: &mut Inventory) {
    let paths = expand(tree, pattern, found);
    for path in paths {
        add(tree, path, true, seen, found);
    }
}

/// Adds every device file that may have a serial number: those of the upper folder, and where the links by number lead.
pub(super) fn with_serials(tree: &Tree, seen: &mut Seen, found: &mut Inventory) {
    for pattern in BY_ID.iter().copied().chain(["/dev/*"]) {
        for path in expand(tree, pattern, found) {
            add(tree, path, false, seen, found);
        }
    }
}

/// Paths that a person named are complained about; those of a search are not.
fn add(tree: &Tree, named: PathBuf, named_by_hand: bool, seen: &mut Seen, found: &mut Inventory) {
    if !seen.insert(named.clone()) {
        return;
    }
    // What a link leads to is watched as well: the link may outlive it.
    if let Some(folder) = tree.real(&named).and_then(|real| real.parent().map(Path::to_owned))
        && folder.starts_with("/dev")
    {
        found.folders.insert(folder);
    }
    match tree.node(&named) {
        Ok(node) => {
            let sys = sysfs::folder_of(tree, &node.identity);
            found.nodes.push(FoundNode {
                serial: sys.as_deref().and_then(|folder| sysfs::serial(tree, folder)),
                numa: sys.as_deref().and_then(|folder| sysfs::numa(tree, folder)),
                partition: sys.is_some_and(|folder| tree.read(&folder.join("partition")).is_some()),
                named,
                node,
            });
        }
        Err(NoNode::Absent) => {}
        Err(why) if named_by_hand => {
            found.left_out.insert(LeftOut { path: named, why: why.to_string() });
        }
        Err(_) => {}
    }
}

/// The paths that fit, part by part; folders that lead out of `/dev` are not entered.
fn expand(tree: &Tree, pattern: &str, found: &mut Inventory) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for folder in paths {
            let inside =
                folder == Path::new("/") || tree.real(&folder).is_none_or(|real| real.starts_with("/dev"));
            if !inside {
                found.left_out.insert(LeftOut { path: folder, why: "it leads out of /dev".to_owned() });
                continue;
            }
            if folder.starts_with("/dev") {
                found.folders.insert(folder.clone());
            }
            if glob::is_pattern(part) {
                let names = tree.list(&folder).into_iter().filter(|name| glob::fits(part, name));
                next.extend(names.map(|name| folder.join(name)));
            } else {
                next.push(folder.join(part));
            }
            if next.len() > MOST_PATHS {
                next.truncate(MOST_PATHS);
                let why = format!("it fits more than {MOST_PATHS} paths; only these were looked at");
                found.left_out.insert(LeftOut { path: pattern.into(), why });
                break;
            }
        }
        paths = next;
    }
    paths
}

/// A link by serial number carries the number between separators: `usb-FTDI_FT232R_A10-if00-port0`.
pub(crate) fn link_has_serial(named: &Path, serial: &str) -> bool {
    let by_id = named.parent().and_then(Path::file_name).is_some_and(|folder| folder == "by-id");
    let Some(name) = named.file_name().and_then(|name| name.to_str()).filter(|_| by_id) else { return false };
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    name.match_indices(serial)
        .any(|(at, _)| edge(name[..at].chars().next_back()) && edge(name[at + serial.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_a_whole_word_of_a_links_name() {
        let has = |name: &str, serial| link_has_serial(&Path::new("/dev/serial/by-id").join(name), serial);
        assert!(has("usb-FTDI_FT232R_A10-if00-port0", "A10"));
        assert!(has("nvme-Model_S4-NX0", "S4-NX0"));
        assert!(!has("usb-FTDI_FT232R_A100-if00", "A10"));
        assert!(!has("usb-FTDI_FT232R_XA10-if00", "A10"));
        assert!(!link_has_serial(Path::new("/dev/A10"), "A10"));
    }
}
