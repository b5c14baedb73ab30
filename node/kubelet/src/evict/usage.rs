//! How much a folder that pods write to holds. Blocking: call it off the async threads.
//!
//! No link is followed, no other file system entered, no descriptor kept per level, and memory is bounded, whatever a
//! pod builds: what is too deep or too wide to be counted is said to be incomplete.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// Folders that may wait to be looked at.
const WIDEST: usize = 200_000;
/// Files with several names that are remembered.
const LINKED: usize = 100_000;

/// What a tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Whether some of it could not be counted.
    pub(crate) incomplete: bool,
}

impl Usage {
    /// Both together.
    pub(crate) fn and(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
            incomplete: self.incomplete || other.incomplete,
        }
    }
}

/// What lies in `folder`, as the disk has it; a folder that is not there holds nothing.
pub(crate) fn of(folder: &Path) -> Usage {
    let Ok(root) = podwire_linux::beneath::folder(folder) else { return Usage::default() };
    let mut usage = Usage::default();
    let mut linked = HashSet::new();
    let mut waiting = vec![PathBuf::from(".")];
    while let Some(path) = waiting.pop() {
        match open(&root, &path) {
            Ok(dir) => look(dir, &path, &mut usage, &mut linked, &mut waiting),
            Err(Errno::NAMETOOLONG) => usage.incomplete = true,
            // Ignored: it is gone, or something is mounted there.
            Err(_) => {}
        }
        if waiting.len() > WIDEST {
            usage.incomplete = true;
            return usage;
        }
    }
    usage
}

fn open(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(root, path, flags, Mode::empty(), within)
}

fn look(
    folder: OwnedFd,
    path: &Path,
    usage: &mut Usage,
    linked: &mut HashSet<u64>,
    waiting: &mut Vec<PathBuf>,
) {
    let Ok(entries) = Dir::read_from(&folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // A file with several names is one file.
        if !is_folder && stat.st_nlink > 1 && linked.len() < LINKED && !linked.insert(stat.st_ino) {
            continue;
        }
        usage.bytes = usage.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or_default() * 512);
        usage.inodes += 1;
        if is_folder && waiting.len() <= WIDEST {
            waiting.push(path.join(OsStr::from_bytes(name.to_bytes())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn files_are_counted_once_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("deep/er")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("huge"), vec![1; 1 << 20]).unwrap();
        fs::write(inside.join("deep/er/file"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(inside.join("deep/er/file"), inside.join("again")).unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        let found = of(&inside);
        assert!((64 << 10..128 << 10).contains(&found.bytes), "{found:?}");
        assert_eq!((found.inodes, found.incomplete), (4, false), "two folders, a file, a link");
        assert_eq!(of(&inside.join("absent")), Usage::default());
        assert_eq!(of(&inside.join("link")), Usage::default(), "not even at the top");
    }

    #[test]
    fn a_tree_deeper_than_a_path_can_say_is_incomplete() {
        let dir = tempfile::tempdir().unwrap();
        let name = "x".repeat(200);
        let mut at = podwire_linux::beneath::folder(dir.path()).unwrap();
        for _ in 0..25 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
        }
        let found = of(dir.path());
        assert!(found.incomplete && found.inodes >= 20, "{found:?}");
    }
}
