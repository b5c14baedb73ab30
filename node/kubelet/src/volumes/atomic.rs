//! Files of a volume replaced all at once: a dated folder, and a symlink that is moved to it.
//!
//! Readers see either all of the old content or all of the new. The layout is upstream's: `..data` points to
//! the dated folder, and every top-level name points through `..data`.
//!
//! Containers see the folder read-only, but what is in it is not trusted all the same: a container of an earlier version
//! may still write to it. Everything is done relative to descriptors, files are only ever made new, no link is followed,
//! and of what is there no more is read than a comparison takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CString, OsStr},
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use podwire_linux::beneath;
use rustix::{
    fs::{Dir, Gid, Mode, OFlags, Uid},
    io::Errno,
};

use super::plain;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// One file to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Content.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, if not root.
    pub owner: Option<u32>,
}

/// Files by relative path.
pub type Payload = BTreeMap<String, File>;

/// Makes `folder` hold exactly `payload`; says whether anything changed.
pub fn write(folder: impl AsFd, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    for name in payload.keys() {
        check(name)?;
    }
    let folder = folder.as_fd();
    let current = dated_now(folder).and_then(|name| beneath::subfolder(folder, Path::new(&name)).ok());
    if current.is_some_and(|dated| is_same(&dated, payload)) {
        return Ok(false);
    }
    let (dated, fresh) = make_dated(folder)?;
    let filled = fill(&fresh, payload, group).and_then(|()| switch(folder, &dated));
    if let Err(error) = filled {
        // The half-written folder was never visible; the first error is the one that matters.
        remove(folder, &dated).ok();
        return Err(error);
    }
    let tops: BTreeSet<&str> = payload.keys().filter_map(|name| name.split('/').next()).collect();
    link_tops(folder, &tops)?;
    drop_stale(folder, &tops, &dated)?;
    Ok(true)
}

/// A path that stays inside: relative, without `..`, and not one of our own names.
fn check(name: &str) -> io::Result<()> {
    let path = Path::new(name);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && !name.is_empty() && !name.starts_with("..") {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid path: {name}")))
}

/// The name `..data` points to, if that is one of ours.
fn dated_now(folder: BorrowedFd<'_>) -> Option<String> {
    let target = rustix::fs::readlinkat(folder, DATA, Vec::new()).ok()?.into_string().ok()?;
    let ours = target.starts_with("..") && target.len() > 2 && !target.contains('/');
    (ours && target != DATA && target != NEW_DATA).then_some(target)
}

/// Whether the folder holds the payload and nothing else.
fn is_same(dated: &OwnedFd, payload: &Payload) -> bool {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::from([PathBuf::new()]);
    for name in payload.keys() {
        folders.extend(Path::new(name).ancestors().skip(1).map(Path::to_owned));
    }
    folders.iter().all(|path| lists_only(dated, path, payload, &folders))
        && payload.iter().all(|(name, file)| holds(dated, Path::new(name), file))
}

/// Whether everything in one folder is of the payload; stops at the first that is not, however many there are.
fn lists_only(dated: &OwnedFd, path: &Path, payload: &Payload, folders: &BTreeSet<PathBuf>) -> bool {
    let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let listed = beneath::subfolder(dated, here).ok().and_then(|folder| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Dir::new(rustix::fs::openat(folder, ".", flags, Mode::empty()).ok()?).ok()
    });
    let Some(entries) = listed else { return false };
    entries.into_iter().all(|entry| {
        let Ok(entry) = entry else { return false };
        let Ok(name) = entry.file_name().to_str() else { return false };
        let full = path.join(name);
        matches!(name, "." | "..")
            || folders.contains(&full)
            || full.to_str().is_some_and(|full| payload.contains_key(full))
    })
}

fn holds(dated: &OwnedFd, path: &Path, file: &File) -> bool {
    let Ok(place) = beneath::place(dated, path) else { return false };
    let same_mode = rustix::fs::fstat(&place).is_ok_and(|stat| stat.st_mode & 0o7777 == file.mode);
    same_mode && beneath::read(dated, path, file.bytes.len()).is_ok_and(|bytes| bytes == file.bytes)
}

/// A new folder with a dated name that is not taken.
fn make_dated(folder: BorrowedFd<'_>) -> io::Result<(String, OwnedFd)> {
    let now = jiff::Zoned::now().strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    for serial in 0u32..1000 {
        let name =
            format!("{now}.{:09}", u64::from(std::process::id()) * 1000 % 999_000_000 + u64::from(serial));
        match rustix::fs::mkdirat(folder, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let opened = beneath::make::folder(folder, OsStr::new(&name), 0o755).map_err(plain)?.0;
                rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o755))?;
                return Ok((name, opened));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("no free name for the new content"))
}

fn fill(fresh: &OwnedFd, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (name, file) in payload {
        let path = Path::new(name);
        let parent = path.parent().unwrap_or(Path::new(""));
        let folder = beneath::make::folders(fresh, parent, 0o755).map_err(plain)?;
        let last = path.file_name().unwrap_or_default();
        // Nobody else reads it before it has its owner and mode.
        let mut made = beneath::make::file(&folder, last, 0o600).map_err(plain)?;
        made.write_all(&file.bytes)?;
        if group.is_some() || file.owner.is_some() {
            rustix::fs::fchown(&made, file.owner.map(Uid::from_raw), group.map(Gid::from_raw))?;
        }
        rustix::fs::fchmod(&made, Mode::from_raw_mode(file.mode))?;
    }
    Ok(())
}

/// Moves `..data` to the new folder in one rename.
fn switch(folder: BorrowedFd<'_>, dated: &str) -> io::Result<()> {
    remove(folder, NEW_DATA)?;
    rustix::fs::symlinkat(dated, folder, NEW_DATA)?;
    match rustix::fs::renameat(folder, NEW_DATA, folder, DATA) {
        // A folder of that name is none of ours.
        Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            remove(folder, DATA)?;
            Ok(rustix::fs::renameat(folder, NEW_DATA, folder, DATA)?)
        }
        other => Ok(other?),
    }
}

fn link_tops(folder: BorrowedFd<'_>, tops: &BTreeSet<&str>) -> io::Result<()> {
    for top in tops {
        let target = Path::new(DATA).join(top);
        let points = rustix::fs::readlinkat(folder, *top, Vec::new());
        if points.is_ok_and(|now| now.as_bytes() == target.as_os_str().as_encoded_bytes()) {
            continue;
        }
        remove(folder, top)?;
        rustix::fs::symlinkat(&target, folder, *top)?;
    }
    Ok(())
}

fn drop_stale(folder: BorrowedFd<'_>, tops: &BTreeSet<&str>, dated: &str) -> io::Result<()> {
    let mut stale = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        let kept = name.to_str().is_ok_and(|name| {
            matches!(name, "." | "..") || name == DATA || name == dated || tops.contains(name)
        });
        if !kept {
            stale.push(name);
        }
    }
    stale.iter().try_for_each(|name| beneath::remove(folder, name))
}

fn remove(folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    beneath::remove(folder, &CString::new(name)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
        sync::atomic::{AtomicBool, Ordering},
    };

    use rustix::fs::FileType;

    use super::*;

    fn file(text: &str) -> File {
        File { bytes: text.as_bytes().to_vec(), mode: 0o644, owner: None }
    }

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect()
    }

    /// Writes into the folder at `path`.
    fn put(path: &Path, payload: &Payload) -> io::Result<bool> {
        write(fs::File::open(path).unwrap(), payload, None)
    }

    #[test]
    fn content_is_replaced_through_one_symlink() {
        let dir = tempfile::tempdir().unwrap();
        assert!(put(dir.path(), &payload(&[("a", "1"), ("sub/b", "2")])).unwrap());
        let before = fs::read_link(dir.path().join("..data")).unwrap();
        assert!(put(dir.path(), &payload(&[("a", "9")])).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "9");
        assert!(!dir.path().join("sub").exists());
        assert!(!dir.path().join(before).exists(), "the old content is removed");
        assert_eq!(fs::read_link(dir.path().join("a")).unwrap(), Path::new("..data/a"));
    }

    #[test]
    fn unchanged_content_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let content = payload(&[("a", "1"), ("deep/er/b", "2")]);
        put(dir.path(), &content).unwrap();
        let before = fs::read_link(dir.path().join("..data")).unwrap();
        assert!(!put(dir.path(), &content).unwrap());
        assert_eq!(fs::read_link(dir.path().join("..data")).unwrap(), before);
        fs::write(dir.path().join("..data/deep/more"), "").unwrap();
        assert!(put(dir.path(), &content).unwrap(), "what does not belong there goes");
        assert!(!dir.path().join("deep/more").exists());
    }

    #[test]
    fn a_key_cannot_leave_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["../x", "/etc/x", "a/../../x", "..data", ""] {
            assert!(put(dir.path(), &payload(&[(bad, "1")])).is_err(), "{bad}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_open_reader_never_sees_half_of_it() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &payload(&[("a", "old"), ("b", "old")])).unwrap();
        let held = dir.path().join(fs::read_link(dir.path().join("..data")).unwrap());
        let pinned = fs::File::open(held.join("a")).unwrap();
        put(dir.path(), &payload(&[("a", "new"), ("b", "new")])).unwrap();
        let both = [
            fs::read_to_string(dir.path().join("a")).unwrap(),
            fs::read_to_string(dir.path().join("b")).unwrap(),
        ];
        assert_eq!(both, ["new", "new"]);
        assert_eq!(io::read_to_string(pinned).unwrap(), "old");
    }

    #[test]
    fn owner_group_and_mode_are_the_files_own() {
        let dir = tempfile::tempdir().unwrap();
        let token = File { bytes: b"t".to_vec(), mode: 0o440, owner: Some(1234) };
        let content = Payload::from([("token".to_owned(), token)]);
        write(fs::File::open(dir.path()).unwrap(), &content, Some(5678)).unwrap();
        let found = fs::metadata(dir.path().join("token")).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1234, 5678, 0o440));
    }

    #[test]
    fn whatever_was_planted_is_replaced_and_never_opened() {
        use rustix::fs::{CWD, makedev, mknodat};
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("d")).unwrap();
        fs::write(outside.path().join("d/a"), "1").unwrap();
        let content = payload(&[("a", "1")]);
        for planted in ["fifo", "device", "folder", "link out", "link to link", "data out"] {
            let dir = tempfile::tempdir().unwrap();
            put(dir.path(), &content).unwrap();
            let data = dir.path().join(DATA);
            let dated = dir.path().join(fs::read_link(&data).unwrap());
            let inside = dated.join("a");
            match planted {
                "fifo" => {
                    fs::remove_file(&inside).unwrap();
                    mknodat(CWD, &inside, FileType::Fifo, Mode::RUSR, 0).unwrap();
                }
                "device" => {
                    fs::remove_file(&inside).unwrap();
                    mknodat(CWD, &inside, FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)).unwrap();
                }
                "folder" => {
                    fs::remove_file(&data).unwrap();
                    fs::create_dir_all(data.join("x/y")).unwrap();
                    fs::remove_file(dir.path().join("a")).unwrap();
                    fs::create_dir(dir.path().join("a")).unwrap();
                }
                "link out" => {
                    fs::remove_dir_all(&dated).unwrap();
                    symlink(outside.path().join("d"), &dated).unwrap();
                }
                "link to link" => {
                    fs::remove_file(&data).unwrap();
                    symlink(NEW_DATA, &data).unwrap();
                    symlink(outside.path().join("d"), dir.path().join(NEW_DATA)).unwrap();
                }
                _ => {
                    fs::remove_file(&data).unwrap();
                    symlink(outside.path().join("d"), &data).unwrap();
                }
            }
            assert!(put(dir.path(), &content).unwrap(), "{planted}: it is not taken for the content");
            assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1", "{planted}");
            assert_eq!(fs::read_link(dir.path().join("a")).unwrap(), Path::new("..data/a"), "{planted}");
            let target = fs::read_link(&data).unwrap();
            assert!(target.to_string_lossy().starts_with("..2"), "{planted}: {target:?}");
            assert_eq!(fs::read_to_string(outside.path().join("d/a")).unwrap(), "1", "{planted}");
        }
    }

    /// Renames, links and plants in the folder as fast as it can, as a container that may write to it would.
    fn torment(folder: &Path, outside: &Path, stop: &AtomicBool) {
        let aside = folder.join("aside");
        let mut turn = 0u32;
        while !stop.load(Ordering::Relaxed) {
            turn += 1;
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                if !name.to_string_lossy().starts_with("..") {
                    continue;
                }
                // Ignored, all of them: the other side is faster at times.
                match turn % 4 {
                    0 => {
                        fs::rename(&path, &aside).ok();
                        symlink(outside, &path).ok();
                    }
                    1 => {
                        fs::remove_file(&path).ok();
                        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).ok();
                    }
                    2 => {
                        fs::rename(&path, &aside).ok();
                        fs::create_dir(&path).ok();
                        symlink(outside.join("victim"), path.join("key")).ok();
                        symlink(outside, path.join("sub")).ok();
                    }
                    _ => {
                        symlink(outside.join("victim"), path.join("key")).ok();
                        symlink(outside, path.join("sub")).ok();
                    }
                }
                fs::remove_dir_all(&aside).ok();
            }
        }
    }

    #[test]
    fn a_container_that_rearranges_the_folder_meanwhile_gains_nothing() {
        let volume = tempfile::tempdir_in("/dev/shm").unwrap();
        let outside = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(outside.path().join("victim"), "safe").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let name = std::thread::Builder::new().name("hostile".into());
            name.spawn_scoped(scope, || torment(volume.path(), outside.path(), &stop)).unwrap();
            for round in 0..2000 {
                // Ignored: what a container spoils is its own loss; the next round tries again.
                put(volume.path(), &payload(&[("key", &format!("k{round}")), ("sub/victim", "s")])).ok();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "safe");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was made outside");
        assert!(put(volume.path(), &payload(&[("key", "last")])).unwrap());
        assert_eq!(fs::read_to_string(volume.path().join("key")).unwrap(), "last");
    }
}
