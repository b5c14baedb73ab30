//! What must read as empty, and what must not be written.
//!
//! A restriction of procfs or sysfs is laid on that file system itself, found from its own descriptor: where the image
//! has it mounted makes no difference, and one that cannot be laid is an error. Only what this kernel does not have at
//! all needs none.

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::place;
use super::root::{Trees, new_tree};
use super::sys::{self, Errno, STRICT};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::{Launch, Overlay, Restrictions, Root};

const RDONLY: u64 = 0x1;
/// The number procfs gives to its root.
const PROC_ROOT: libc::ino_t = 1;

impl Child<'_> {
    /// The rest of the restrictions, and the root's own.
    pub(super) fn restrict(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        let nulls = trees.several(launch.restrictions.masked.len());
        cover(trees.inside, &launch.restrictions, trees.range(nulls))?;
        let is_readonly = matches!(
            launch.root,
            Root::Empty | Root::Overlay(Overlay { readonly: true, .. }) | Root::Bind { readonly: true, .. }
        );
        if launch.share_root {
            sys::set_propagation(c"/", libc::MS_SHARED).at(Stage::ReadonlyRoot)?;
        }
        if is_readonly {
            readonly(trees.inside, false).at(Stage::ReadonlyRoot)?;
        }
        Ok(())
    }

    /// That `/proc` is the root of a procfs and nothing that only looks like it.
    pub(super) fn prove_proc(&self) -> Result<(), Failure> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let proc = sys::open_how(libc::AT_FDCWD, c"proc", flags, STRICT).at(Stage::ProveProc)?;
        let genuine = place::is_on_procfs(proc).at(Stage::ProveProc)?
            && sys::stat(proc).at(Stage::ProveProc)?.st_ino == PROC_ROOT;
        sys::close(proc);
        if genuine { Ok(()) } else { Err(libc::ENODEV).at(Stage::ProveProc) }
    }
}

/// Lays restrictions on what lies below the open folder `dir`. The null devices stay open.
pub(super) fn cover(dir: RawFd, restrictions: &Restrictions, nulls: &[RawFd]) -> Result<(), Failure> {
    for (masked, null) in restrictions.masked.iter().zip(nulls) {
        mask(dir, &masked.path, *null).at_index(Stage::MaskedPath, masked.index)?;
    }
    for path in &restrictions.readonly {
        readonly_path(dir, &path.path).at_index(Stage::ReadonlyPath, path.index)?;
    }
    Ok(())
}

/// What is there to be restricted; `None` when there is nothing of that name.
fn find(dir: RawFd, path: &CStr) -> Result<Option<RawFd>, Errno> {
    match sys::open_how(dir, place::relative(path), libc::O_PATH, STRICT) {
        Err(libc::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// Lays nothing over `path`: an empty folder over a folder, the null device over anything else.
fn mask(dir: RawFd, path: &CStr, null: RawFd) -> Result<(), Errno> {
    let Some(target) = find(dir, path)? else { return Ok(()) };
    if sys::mode_of(target)? & libc::S_IFMT == libc::S_IFDIR {
        let empty = new_tree(c"tmpfs", c"tmpfs", &[], RDONLY)?;
        let moved = sys::move_mount(empty, target);
        sys::close(empty);
        moved?;
    } else {
        sys::move_mount(null, target)?;
    }
    sys::close(target);
    Ok(())
}

fn readonly_path(dir: RawFd, path: &CStr) -> Result<(), Errno> {
    let Some(target) = find(dir, path)? else { return Ok(()) };
    let tree = sys::open_tree_of(target)?;
    readonly(tree, true)?;
    sys::move_mount(tree, target)?;
    sys::close(tree);
    sys::close(target);
    Ok(())
}

pub(super) fn readonly(tree: RawFd, recursive: bool) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    sys::mount_setattr(tree, recursive, &attr)
}
