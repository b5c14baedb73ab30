//! Sub paths of volumes, bound where no symlink of the volume can lead them out of it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use podwire_linux::beneath::make;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// Why a mount cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    /// The specification names a volume it does not have.
    #[error("mount references volume {name:?} that the pod does not have")]
    NoVolume {
        /// Volume's name.
        name: String,
    },
    /// The sub path leaves the volume.
    #[error("failed to prepare subPath for volumeMount: subPath {path:?} must stay within the volume")]
    Outside {
        /// The sub path.
        path: String,
    },
    /// The kernel refused.
    #[error("failed to prepare subPath for volumeMount: {path:?}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Binds `sub` of the volume at `base` to `target` below the kubelet's folder `root`; gives the whole target.
///
/// The container may rewrite its volume while this runs, so the sub path is opened with the kernel's promise
/// to stay beneath, and what was opened is what is bound.
pub(super) fn bind(base: &Path, sub: &str, root: &Path, target: &Path) -> Result<PathBuf, MountError> {
    if Path::new(sub).components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(MountError::Outside { path: sub.to_owned() });
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| MountError::Io { path, source }
    };
    let full = base.join(sub);
    let opened = open_or_make(base, sub).map_err(failed(&full))?;
    let is_dir = rustix::fs::fstat(&opened)
        .map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
        .map_err(|e| failed(&full)(e.into()))?;
    let whole = root.join(target);
    // An earlier attempt may have bound an older content here.
    podwire_linux::mount::detach_all_under(&whole).map_err(|e| failed(&whole)(io::Error::other(e)))?;
    let point = mount_point(root, target, is_dir).map_err(failed(&whole))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    podwire_linux::mount::detached(&path, true)
        .and_then(|tree| podwire_linux::mount::attach_at(&tree, &point))
        .map_err(|e| failed(&whole)(io::Error::other(e)))?;
    Ok(whole)
}

/// An empty folder or file to mount on, of the kind that is to be mounted.
fn mount_point(root: &Path, target: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    let parent = super::folders(root, target.parent().unwrap_or(Path::new("")))?;
    let name = target.file_name().unwrap_or_default();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(found) = openat(&parent, name, flags, Mode::empty()) {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind.is_dir() == is_dir && (kind.is_dir() || kind.is_file()) {
            return Ok(found);
        }
        podwire_linux::beneath::remove(&parent, &std::ffi::CString::new(name.as_encoded_bytes())?)?;
    }
    if is_dir {
        return make::folder(&parent, name, 0o750).map(|(folder, _)| folder).map_err(super::plain);
    }
    make::file(&parent, name, 0o640).map(OwnedFd::from).map_err(super::plain)
}

/// Opens the sub path beneath the base, making folders that are missing.
fn open_or_make(base: &Path, sub: &str) -> io::Result<OwnedFd> {
    let root = openat(CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match beneath(&root, Path::new(sub)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let mut walked = PathBuf::new();
    let mut folder = root.try_clone()?;
    for part in Path::new(sub).components() {
        let Component::Normal(name) = part else { continue };
        walked.push(name);
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = beneath(&root, &walked)?;
    }
    Ok(folder)
}

fn beneath(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symlink_cannot_lead_out_of_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("evil")).unwrap();
        assert!(open_or_make(dir.path(), "evil").is_err());
        assert!(open_or_make(dir.path(), "evil/passwd").is_err());
        let outside = bind(dir.path(), "../x", dir.path(), Path::new("t"));
        assert!(matches!(outside, Err(MountError::Outside { .. })));
    }

    #[test]
    fn a_mount_point_is_of_the_kind_it_is_for_and_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let volume = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pods")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("pods/t")).unwrap();
        std::fs::write(volume.path().join("file"), "x").unwrap();
        for sub in ["file", "folder", "file"] {
            let bound = bind(volume.path(), sub, dir.path(), Path::new("pods/t")).unwrap();
            assert_eq!(bound.is_dir(), sub == "folder");
        }
        let bound = dir.path().join("pods/t");
        let seen = std::fs::read_to_string(&bound);
        podwire_linux::mount::detach_all_under(dir.path()).unwrap();
        assert_eq!(seen.unwrap(), "x");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        std::os::unix::fs::symlink(outside.path(), dir.path().join("way")).unwrap();
        assert!(bind(volume.path(), "file", dir.path(), Path::new("way/t")).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_symlink_inside_the_volume_is_followed_and_missing_folders_are_made() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        assert!(open_or_make(dir.path(), "link/deep").is_ok());
        assert!(dir.path().join("real/deep").is_dir());
    }
}
