//! `/dev` and `/sys` below a root folder: `/` on a node, a folder with a tree of its own in a test.
//!
//! Links are followed as the kernel would with that root, so none leads out of it; magic links are refused. Files of sysfs are
//! read to a bound, and only if they are regular. <https://man7.org/linux/man-pages/man2/openat2.2.html>

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{fd::AsRawFd, fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use podwire_linux::beneath;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::inventory::{Identity, Node};

/// An attribute of sysfs is at most a page.
const ATTRIBUTE: u64 = 4096;
/// Entries of one folder that are looked at; a node with more device files in one folder is none.
const ENTRIES: usize = 65_536;
/// How often a look-up is repeated that a rename beside it disturbed.
const TRIES: usize = 16;

/// The tree below a root.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    fd: OwnedFd,
}

impl Tree {
    /// Opens the root; it must be a folder.
    pub(crate) fn open(root: &Path) -> io::Result<Tree> {
        let root = root.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&root, flags, Mode::empty())?;
        Ok(Tree { root, fd })
    }

    /// Where a path of the tree is for everybody else.
    pub(crate) fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.fd, below, flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Where the path leads, in the tree's own terms.
    pub(crate) fn real(&self, path: &Path) -> Option<PathBuf> {
        self.name_of(&self.at(path, OFlags::PATH).ok()?)
    }

    fn name_of(&self, place: &OwnedFd) -> Option<PathBuf> {
        let own = format!("/proc/self/fd/{}", place.as_raw_fd());
        let named = rustix::fs::readlink(own, Vec::new()).ok()?;
        let named = Path::new(OsStr::from_bytes(named.as_bytes()));
        Some(Path::new("/").join(named.strip_prefix(&self.root).ok()?))
    }

    /// The names in a folder, in order; none if there is no such folder. Names that are not text belong to no device of ours.
    pub(crate) fn list(&self, path: &Path) -> Vec<String> {
        let Ok(folder) = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK) else {
            return Vec::new();
        };
        let Ok(entries) = Dir::new(folder) else { return Vec::new() };
        let names = entries
            .take(ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        names.sort_by(|one, other| natural(one).cmp(&natural(other)));
        names
    }

    /// An attribute of sysfs without the white space around it; nothing if there is none or it is empty.
    pub(crate) fn read(&self, path: &Path) -> Option<String> {
        let place = self.at(path, OFlags::PATH).ok()?;
        let mut text = String::new();
        beneath::reopen(&place, path).ok()?.take(ATTRIBUTE).read_to_string(&mut text).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The last part of where a link leads, as sysfs names drivers, parents and groups.
    pub(crate) fn link_name(&self, path: &Path) -> Option<String> {
        let parent = self.at(path.parent()?, OFlags::PATH | OFlags::DIRECTORY).ok()?;
        let target = rustix::fs::readlinkat(&parent, path.file_name()?, Vec::new()).ok()?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes())).file_name()?.to_str()?.to_owned();
        Some(target)
    }

    /// The device file that the path leads to, or why it is none.
    pub(crate) fn node(&self, path: &Path) -> Result<Node, NoNode> {
        let place = self.at(path, OFlags::PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoNode::Absent,
            _ => NoNode::Unreachable(error.to_string()),
        })?;
        let stat = rustix::fs::fstat(&place).map_err(|error| NoNode::Unreachable(error.to_string()))?;
        let real = self.name_of(&place).ok_or(NoNode::Outside { leads: None })?;
        if !real.starts_with("/dev") {
            return Err(NoNode::Outside { leads: Some(real) });
        }
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let identity = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => Identity::Character(major, minor),
            FileType::BlockDevice => Identity::Block(major, minor),
            _ => return Err(NoNode::NoDevice { leads: real }),
        };
        Ok(Node { path: real, identity })
    }
}

/// Why a path leads to no device file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNode {
    #[error("there is nothing")]
    Absent,
    #[error("it cannot be looked at: {0}")]
    Unreachable(String),
    #[error("it leads out of /dev{}", leads.as_ref().map(|path| format!(", to {}", path.display())).unwrap_or_default())]
    Outside { leads: Option<PathBuf> },
    #[error("{} is neither a character nor a block device", leads.display())]
    NoDevice { leads: PathBuf },
}

/// Names by their text and their numbers, so that `tap10` comes after `tap9`.
pub(crate) fn natural(name: &str) -> Vec<(u8, u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(if digits { (0, part.parse().unwrap_or(u64::MAX), part) } else { (1, 0, part) });
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["tap10", "tap9", "mlx5_1", "tap"];
        names.sort_by(|one, other| natural(one).cmp(&natural(other)));
        assert_eq!(names, ["mlx5_1", "tap", "tap9", "tap10"]);
    }

    #[test]
    fn links_stay_below_the_root_and_lead_to_devices_or_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let dev = folder.path().join("dev");
        std::fs::create_dir_all(dev.join("deep")).unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        std::fs::write(folder.path().join("etc/passwd"), "root").unwrap();
        std::fs::write(dev.join("file"), "no device").unwrap();
        for (link, to) in [
            ("out", "/etc/passwd"),
            ("up", "../../../../etc/passwd"),
            ("plain", "file"),
            ("gone", "nothing"),
            ("loop", "loop"),
            ("deep/back", "../file"),
        ] {
            symlink(to, dev.join(link)).unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        let node = |path: &str| tree.node(Path::new(path)).unwrap_err();
        let outside = || NoNode::Outside { leads: Some("/etc/passwd".into()) };
        assert_eq!(node("/dev/out"), outside());
        assert_eq!(node("/dev/up"), outside(), "the root is its own parent");
        assert_eq!(node("/dev/plain"), NoNode::NoDevice { leads: "/dev/file".into() });
        assert_eq!(node("/dev/gone"), NoNode::Absent);
        assert!(matches!(node("/dev/loop"), NoNode::Unreachable(_)));
        assert_eq!(tree.real(Path::new("/dev/deep/back")), Some("/dev/file".into()));
        assert_eq!(tree.link_name(Path::new("/dev/deep/back")).as_deref(), Some("file"));
        assert_eq!(tree.list(Path::new("/dev")), ["deep", "file", "gone", "loop", "out", "plain", "up"]);
    }
}
