//! Device nodes and the links of `/dev`.
//!
//! What is below `/dev` is made relative to an open folder that is known to be the container's own tmpfs.

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::place::{self, Kind};
use super::root::Trees;
use super::sys::{self, Errno, STRICT};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::{Launch, Node};

impl Child<'_> {
    pub(super) fn devices(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        let root = trees.inside;
        let dev = match trees.dev {
            Some(number) => Some(own_dev(root, number).at_index(Stage::Device, usize::MAX)?),
            None => None,
        };
        sys::umask(0);
        for (index, node) in launch.devices.iter().enumerate() {
            let (folder, name) = folder_of(node, root, dev).at_index(Stage::Device, index)?;
            if launch.user.is_some() {
                let tree = trees.next();
                show(tree, folder, name).at_index(Stage::Device, index)?;
                sys::close(tree);
            } else {
                make(node, folder, name).at_index(Stage::Device, index)?;
            }
            if Some(folder) != dev {
                sys::close(folder);
            }
        }
        if let (true, Some(dev)) = (launch.dev_links, dev) {
            for (to, name) in [
                (c"/proc/self/fd", c"fd"),
                (c"/proc/self/fd/0", c"stdin"),
                (c"/proc/self/fd/1", c"stdout"),
                (c"/proc/self/fd/2", c"stderr"),
                (c"pts/ptmx", c"ptmx"),
            ] {
                match sys::symlink_at(to, dev, name) {
                    // A mount or a device of the plan is there instead.
                    Ok(()) | Err(libc::EEXIST) => {}
                    Err(errno) => return Err(errno).at_index(Stage::Device, usize::MAX),
                }
            }
        }
        sys::umask(0o022);
        Ok(())
    }
}

/// The container's `/dev`, which must still be the file system we put there.
fn own_dev(root: RawFd, number: libc::dev_t) -> Result<RawFd, Errno> {
    let dev = sys::open_how(root, c"dev", libc::O_PATH | libc::O_DIRECTORY, STRICT)?;
    if sys::stat(dev)?.st_dev == number { Ok(dev) } else { Err(libc::EXDEV) }
}

/// The open folder of a node, and its name in there.
fn folder_of(node: &Node, root: RawFd, dev: Option<RawFd>) -> Result<(RawFd, &CStr), Errno> {
    let folder = match (dev, &node.in_dev) {
        (Some(dev), Some(folder)) if folder.is_empty() => dev,
        (Some(dev), Some(folder)) => place::real(dev, folder, Kind::Folder)?,
        _ => place::inside(root, &node.folder, Kind::Folder)?,
    };
    Ok((folder, &node.name))
}

/// In a user namespace nodes cannot be made, only shown.
fn show(tree: RawFd, folder: RawFd, name: &CStr) -> Result<(), Errno> {
    let place = place::real(folder, name, Kind::File)?;
    sys::move_mount(tree, place)?;
    sys::close(place);
    Ok(())
}

fn make(node: &Node, folder: RawFd, name: &CStr) -> Result<(), Errno> {
    match sys::mknod_at(folder, name, node.mode, node.device) {
        Ok(()) => {}
        // A mount has brought it along; anything else of that name is not what was asked for.
        Err(libc::EEXIST) => {
            let found = sys::open_how(folder, name, libc::O_PATH, STRICT)?;
            let stat = sys::stat(found)?;
            sys::close(found);
            let same = stat.st_mode & libc::S_IFMT == node.mode & libc::S_IFMT
                && (stat.st_rdev == node.device || node.mode & libc::S_IFMT == libc::S_IFIFO);
            return if same { Ok(()) } else { Err(libc::EEXIST) };
        }
        Err(errno) => return Err(errno),
    }
    if node.uid != 0 || node.gid != 0 {
        sys::chown_at(folder, name, node.uid, node.gid)?;
    }
    Ok(())
}
