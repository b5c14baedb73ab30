//! Trees that others have filled, removed: however deep they are, three descriptors and no stack are enough.
//!
//! Folders found inside a folder are moved up into the tree's top before they are emptied, so that nothing is ever
//! looked at more than two levels down. No link is followed and no mount is entered: what is mounted somewhere in the
//! tree makes the removal fail, not the mounted content vanish.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

/// How often a folder is listed anew while somebody keeps adding to it.
const ROUNDS: usize = 64;

/// Removes what has this name in `folder`, with everything in it. That it is not there is no error.
pub fn remove(folder: impl AsFd, name: &CStr) -> io::Result<()> {
    let folder = folder.as_fd();
    match unlink(folder, name) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    for _ in 0..ROUNDS {
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            // Somebody has put something else there.
            Err(Errno::NOTDIR) => unlink(folder, name)?,
            Err(error) => return Err(error.into()),
        }
        match open(folder, name) {
            Ok(top) => Emptying { top, serial: 0, moved: Vec::new() }.run()?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("somebody keeps filling the folder that is to be removed"))
}

/// Removes what is at `path`; only its last part is not trusted.
pub fn remove_path(path: &Path) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let name = path.file_name().ok_or_else(invalid)?;
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| invalid())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path.parent().ok_or_else(invalid)?, flags, Mode::empty()) {
        Ok(parent) => remove(parent, &name),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unlink(folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(folder, name, AtFlags::empty())
}

fn open(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, flags, Mode::empty(), stay)
}

struct Emptying {
    top: OwnedFd,
    serial: u64,
    /// Folders that were deeper and now lie in the top one.
    moved: Vec<CString>,
}

impl Emptying {
    fn run(mut self) -> io::Result<()> {
        let top = self.top.try_clone()?;
        for entry in Dir::read_from(&top)? {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                self.drop_entry(entry.file_name(), entry.file_type())?;
            }
            while let Some(next) = self.moved.pop() {
                self.drop_entry(&next, FileType::Directory)?;
            }
        }
        Ok(())
    }

    /// Removes an entry of the top folder; folders in it are moved beside it.
    fn drop_entry(&mut self, name: &CStr, kind: FileType) -> io::Result<()> {
        if kind != FileType::Directory {
            match unlink(&self.top, name) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            // The next round sees what it has become.
            Err(Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let inner = match open(&self.top, name) {
            Ok(inner) => inner,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for entry in Dir::read_from(&inner)? {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                self.drop_inner(&inner, entry.file_name(), entry.file_type())?;
            }
        }
        match rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            // Not empty after all: the next round looks again.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn drop_inner(&mut self, inner: &OwnedFd, name: &CStr, kind: FileType) -> io::Result<()> {
        if kind != FileType::Directory {
            match unlink(inner, name) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match rustix::fs::unlinkat(inner, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        loop {
            let place = CString::new(format!("..moved-{}", self.serial)).expect("no byte of it is zero");
            self.serial += 1;
            match rustix::fs::renameat_with(inner, name, &self.top, &place, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.moved.push(place);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join("..moved-0/x/y")).unwrap();
        fs::write(tree.join("a/b/c/file"), "x").unwrap();
        symlink(outside.path(), tree.join("a/link")).unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        remove_path(&tree).unwrap();
        remove_path(&dir.path().join("link")).unwrap();
        remove_path(&dir.path().join("absent")).unwrap();
        remove_path(&dir.path().join("no/where")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_tree_deeper_than_any_stack_or_table_of_descriptors_is_removed() {
        // In memory: a disk may take milliseconds for each of so many folders.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let name = c"d";
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, name, flags, Mode::empty()).unwrap();
        }
        drop(at);
        let small = std::thread::Builder::new().name("small".into()).stack_size(64 * 1024);
        let path = dir.path().join("d");
        small.spawn(move || remove_path(&path)).unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_mount_in_the_tree_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let point = dir.path().join("tree/deep/point");
        fs::create_dir_all(&point).unwrap();
        crate::mount::bind(outside.path(), &point, false).unwrap();
        let refused = remove_path(&dir.path().join("tree"));
        let kept = fs::read_dir(outside.path()).unwrap().count();
        crate::mount::detach_all_under(dir.path()).unwrap();
        assert!(refused.is_err());
        assert_eq!(kept, 1);
        remove_path(&dir.path().join("tree")).unwrap();
    }
}
