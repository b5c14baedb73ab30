//! Volumes whose content is an image's: CRI's image volumes, and the folders an image itself declares as volumes.
//!
//! An image of one layer is shown as it lies; one of several is first mounted, read-only, in the container's own folder,
//! where its removal finds it. What a volume shows is looked up inside the image: no link leads out of it. Setuid files and
//! device nodes come along; on the node nobody but root gets as far as the container's folder.

use std::{
    fs, io,
    os::fd::AsRawFd,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
};

use podwire_image::Image;
use podwire_linux::mount::{self, Handing};
use podwire_wire::cri;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::{
    container::spec::{UserNamespace, mounts::Resolved},
    context::Context,
    error::OpError,
};

/// Where volumes of one container are made.
pub(crate) struct Volumes<'a> {
    ctx: &'a Context,
    id: &'a str,
    /// Holders of the images in use, to be discarded with the container.
    pub(crate) holders: Vec<String>,
}

impl<'a> Volumes<'a> {
    pub(crate) fn new(ctx: &'a Context, id: &'a str) -> Self {
        Volumes { ctx, id, holders: Vec::new() }
    }

    /// The folder or file an image volume shows.
    pub(crate) fn image(&mut self, requested: &cri::Mount) -> Result<Resolved, OpError> {
        let refuse = |why: String| OpError::Precondition { why: format!("ImageVolumeMountFailed: {why}") };
        let spec = requested.image.clone().unwrap_or_default();
        if !requested.readonly {
            return Err(OpError::invalid("an image volume must be read-only"));
        }
        let found = self.ctx.images.find(&spec.image);
        let image = found.ok_or_else(|| OpError::NotFound { what: "image", id: spec.image.clone() })?;
        let sub_path = Path::new(&requested.image_sub_path);
        if sub_path.is_absolute() || sub_path.components().any(|part| part == std::path::Component::ParentDir)
        {
            return Err(OpError::invalid(format!(
                "image sub path {sub_path:?} must be relative and stay below"
            )));
        }
        let root = self.show(&image, true)?;
        let source = inside(&root, sub_path)
            .map_err(|error| refuse(format!("image {} has no {sub_path:?}: {error}", spec.image)))?;
        let mut shown = requested.clone();
        if let Some(spec) = shown.image.as_mut() {
            spec.image_ref.clone_from(&image.id);
        }
        Ok(Resolved { requested: shown, source })
    }

    /// Folders the image declares as volumes and nobody mounts anything on: writable, with what the image has there.
    pub(crate) fn declared(
        &mut self,
        image: &Image,
        mounts: &[cri::Mount],
        users: Option<&UserNamespace>,
    ) -> Result<Vec<Resolved>, OpError> {
        let declared = image.config.config().as_ref().and_then(|config| config.volumes().clone());
        let mut list = Vec::new();
        for target in declared.unwrap_or_default() {
            let path = crate::container::spec::mounts::clean(&target);
            let taken = |requested: &cri::Mount| {
                crate::container::spec::mounts::clean(&requested.container_path) == path
            };
            if path == Path::new("/") || mounts.iter().any(taken) {
                continue;
            }
            let source = self.folder().join(format!("declared-{}", list.len()));
            let root = self.show(image, false)?;
            self.ctx.make_container_dir(self.id).map_err(OpError::failed("make the container's folder"))?;
            let shift = users.map_or((0, 0), |users| {
                (crate::sandbox::root_of(&users.uids), crate::sandbox::root_of(&users.gids))
            });
            fill(&root, &path, &source, shift).map_err(OpError::failed(format!("make volume {target}")))?;
            let requested = cri::Mount {
                container_path: path.to_string_lossy().into_owned(),
                host_path: source.to_string_lossy().into_owned(),
                ..Default::default()
            };
            list.push(Resolved { requested, source });
        }
        Ok(list)
    }

    fn folder(&self) -> PathBuf {
        self.ctx.container_dir(self.id).join("volumes")
    }

    /// The merged files of an image; with `hold` they stay although the image may be removed.
    fn show(&mut self, image: &Image, hold: bool) -> Result<PathBuf, OpError> {
        if hold {
            let holder = format!("{}.{}", self.id, self.holders.len());
            self.ctx.images.prepare(&holder, image).map_err(OpError::failed("hold the volume's image"))?;
            self.holders.push(holder);
        }
        if let [only] = image.layers.as_slice() {
            return Ok(only.clone());
        }
        let target = self.folder().join(image.id.trim_start_matches("sha256:"));
        if target.exists() {
            return Ok(target);
        }
        self.ctx.make_container_dir(self.id).map_err(OpError::failed("make the container's folder"))?;
        fs::create_dir_all(&target).map_err(OpError::failed("make the volume's folder"))?;
        if !image.layers.is_empty() {
            let layers = mount::Overlay { lower: &image.layers, upper: None, newest: Handing::default() };
            mount::overlay(&layers, &target)
                .map_err(OpError::failed("ImageVolumeMountFailed: mount the image"))?;
        }
        Ok(target)
    }
}

/// Takes back what was made for a container that will not be. Blocks.
pub(crate) fn undo(ctx: &Context, id: &str, holders: &[String]) -> Result<(), OpError> {
    let folder = ctx.container_dir(id);
    if folder.exists() {
        mount::detach_all_under(&folder).map_err(OpError::failed("unmount a container's volumes"))?;
        fs::remove_dir_all(&folder).map_err(OpError::failed("remove a container's volumes"))?;
    }
    for holder in holders {
        ctx.images.discard(holder).map_err(OpError::failed("let go of a volume's image"))?;
    }
    Ok(())
}

/// Where `path` really is below `root`, which no link leaves.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() {
        return Ok(root.to_owned());
    }
    let base =
        rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::openat2(
        &base,
        relative,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// A folder with what the image has at `path`, or an empty one.
fn fill(root: &Path, path: &Path, target: &Path, shift: (u32, u32)) -> io::Result<()> {
    fs::create_dir_all(target)?;
    match inside(root, path) {
        Ok(source) if source.is_dir() => copy_folder(&source, target, shift),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => chown(target, Some(shift.0), Some(shift.1)),
        Err(error) => Err(error),
    }
}

/// An owner of the image's as the node knows it. One that has no number there would come out as somebody else's.
fn shifted(id: u32, shift: u32) -> io::Result<u32> {
    id.checked_add(shift).filter(|id| *id != u32::MAX).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("owner {id} has no place in the user namespace"))
    })
}

/// Copies everything below `source`, with owners and modes.
fn copy_folder(source: &Path, target: &Path, shift: (u32, u32)) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        let meta = fs::symlink_metadata(&from)?;
        let kind = meta.file_type();
        if kind.is_dir() {
            fs::create_dir(&to)?;
            copy_folder(&from, &to, shift)?;
            continue;
        }
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            lchown(&to, Some(shifted(meta.uid(), shift.0)?), Some(shifted(meta.gid(), shift.1)?))?;
            continue;
        }
        if kind.is_file() {
            fs::copy(&from, &to)?;
        } else if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
            let what = rustix::fs::FileType::from_raw_mode(meta.mode());
            rustix::fs::mknodat(CWD, &to, what, Mode::from_raw_mode(meta.mode() & 0o7777), meta.rdev())?;
        } else {
            // A socket without its listener means nothing.
            continue;
        }
        chown(&to, Some(shifted(meta.uid(), shift.0)?), Some(shifted(meta.gid(), shift.1)?))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    }
    let meta = fs::metadata(source)?;
    chown(target, Some(shifted(meta.uid(), shift.0)?), Some(shifted(meta.gid(), shift.1)?))?;
    fs::set_permissions(target, fs::Permissions::from_mode(meta.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_volume_shows_is_looked_up_inside_the_image() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("/a/b", dir.path().join("absolute")).unwrap();
        symlink("../../../../../../etc", dir.path().join("a/out")).unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(inside(&root, Path::new("absolute")).unwrap(), root.join("a/b"));
        assert_eq!(inside(&root, Path::new("")).unwrap(), root);
        assert!(inside(&root, Path::new("a/out/passwd")).is_err(), "the host's files are out of reach");
        assert!(inside(&root, Path::new("../../etc/passwd")).is_err());
    }

    #[test]
    fn an_owner_beyond_the_user_namespace_is_nobody_elses() {
        assert_eq!(shifted(1000, 65_536).unwrap(), 66_536);
        // Wrapped around these would be the host's root and its neighbours.
        for id in [u32::MAX, u32::MAX - 65_535, u32::MAX - 65_536] {
            assert!(shifted(id, 65_536).is_err(), "{id}");
        }
    }

    #[test]
    fn a_copy_keeps_modes_links_and_shifts_owners() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("data/deep")).unwrap();
        fs::write(from.join("data/deep/file"), "x").unwrap();
        fs::set_permissions(from.join("data/deep/file"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(from.join("data"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink("deep/file", from.join("data/link")).unwrap();
        fill(&from, Path::new("/data"), &to, (1000, 2000)).unwrap();
        let file = fs::metadata(to.join("deep/file")).unwrap();
        assert_eq!((file.mode() & 0o7777, file.uid(), file.gid()), (0o640, 1000, 2000));
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o1777);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("deep/file"));
        let empty = dir.path().join("empty");
        fill(&from, Path::new("/nothing"), &empty, (0, 0)).unwrap();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    }
}
