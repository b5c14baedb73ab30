//! The new root and everything mounted in it.
//!
//! Sources are taken as detached mounts while the host's tree is still ours; then the root is
//! entered, and from there on every path is the container's own: a hostile symbolic link in an
//! image or a volume can only lead back into the container. File systems of the kernel's are mounted
//! where no link leads to, and are masked before anybody can reach them ([`super::restrict`]).

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};

use podwire_linux::mount::Handing;
use podwire_linux::mount::layers::{MOST_LAYERS, Page, is_refusal};

use super::place::{self, Kind};
use super::restrict::{cover, readonly};
use super::sys::{self, Errno, STRICT};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::{Launch, Mounting, Overlay, Root, Target, What};

const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;
const NOEXEC: u64 = 0x8;
/// More mounts than this are refused when the plan is laid out.
pub(crate) const MOST_SOURCES: usize = 512;

/// Detached mounts waiting for their place. On the stack: the child allocates nothing.
pub(super) struct Trees {
    /// Of the host's: binds, views of cgroups, devices, null devices, in the order of their use.
    host: [RawFd; MOST_SOURCES],
    used: usize,
    taken: usize,
    /// File systems of the container's own, by the number of their mount.
    own: [RawFd; MOST_SOURCES],
    root: Result<RawFd, Errno>,
    /// The container's root, once it is entered.
    pub(super) inside: RawFd,
    /// Device number of the container's own `/dev`.
    pub(super) dev: Option<libc::dev_t>,
}

impl Trees {
    fn push(&mut self, fd: RawFd) -> Result<(), Errno> {
        let slot = self.host.get_mut(self.used).ok_or(libc::E2BIG)?;
        *slot = fd;
        self.used += 1;
        Ok(())
    }

    /// The host's null device, to lay over what must read as empty.
    fn push_null(&mut self) -> Result<(), Errno> {
        let null = sys::open_tree(c"/dev/null", false)?;
        self.push(null)
    }

    pub(super) fn next(&mut self) -> RawFd {
        let fd = self.host[self.taken];
        self.taken += 1;
        fd
    }

    /// The next `count` at once.
    pub(super) fn several(&mut self, count: usize) -> (usize, usize) {
        let first = self.taken;
        self.taken += count;
        (first, self.taken)
    }

    pub(super) fn range(&self, (first, end): (usize, usize)) -> &[RawFd] {
        &self.host[first..end]
    }
}

impl Child<'_> {
    /// Copies of everything of the host's that will be seen inside, and the root.
    pub(super) fn host_trees(&self, launch: &Launch) -> Result<Trees, Failure> {
        let user = launch.user.as_ref().map(AsRawFd::as_raw_fd);
        let mut trees = Trees {
            host: [-1; MOST_SOURCES],
            used: 0,
            taken: 0,
            own: [-1; MOST_SOURCES],
            root: root_tree(launch, user),
            inside: -1,
            dev: None,
        };
        for (index, mount) in launch.mounts.iter().enumerate() {
            match &mount.what {
                What::Bind { source, recursive } => {
                    let tree = sys::open_tree(source, *recursive).at_index(Stage::MountSource, index)?;
                    map_ids(tree, mount, user).at_index(Stage::MountIdmap, index)?;
                    trees.push(tree).at_index(Stage::MountSource, index)?;
                }
                What::CgroupViews { views, .. } => {
                    for (source, _) in views {
                        let tree = sys::open_tree(source, false).at_index(Stage::MountSource, index)?;
                        trees.push(tree).at_index(Stage::MountSource, index)?;
                    }
                }
                What::New { .. } => {}
            }
            for masked in &mount.restrictions.masked {
                trees.push_null().at_index(Stage::MaskedPath, masked.index)?;
            }
        }
        if launch.user.is_some() {
            // In a user namespace nodes cannot be made, only shown.
            for (index, node) in launch.devices.iter().enumerate() {
                let tree = sys::open_tree(&node.path, false).at_index(Stage::Device, index)?;
                let stat = sys::stat(tree).at_index(Stage::Device, index)?;
                // What the host has at this path may be anything.
                if stat.st_rdev != node.device || (stat.st_mode ^ node.mode) & libc::S_IFMT != 0 {
                    return Err(libc::ENODEV).at_index(Stage::Device, index);
                }
                trees.push(tree).at_index(Stage::Device, index)?;
            }
        }
        for masked in &launch.restrictions.masked {
            trees.push_null().at_index(Stage::MaskedPath, masked.index)?;
        }
        Ok(trees)
    }

    /// File systems of the container's own. Made while the host's /proc is still in sight: the
    /// kernel shows a new one in a user namespace only to who could see an old one.
    pub(super) fn own_trees(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        for (index, mount) in launch.mounts.iter().enumerate() {
            let tree = match &mount.what {
                What::Bind { .. } => continue,
                What::New { fstype, source, options } => new_tree(fstype, source, options, mount.attr_set),
                What::CgroupViews { .. } => new_tree(c"tmpfs", c"cgroup", &[], NOSUID | NODEV | NOEXEC),
            };
            trees.own[index] = tree.at_index(Stage::Mount, index)?;
        }
        Ok(())
    }

    /// Mounts the root, makes it `/` and lets the host's tree go.
    pub(super) fn enter_root(&self, trees: &mut Trees) -> Result<(), Failure> {
        // From here on nothing we mount reaches the host, and what the host unmounts goes here too.
        sys::set_propagation(c"/", libc::MS_REC | libc::MS_SLAVE).at(Stage::Pivot)?;
        let tree = trees.root.at(Stage::Root)?;
        // On top of the old root: a place that needs no rights to reach.
        sys::move_mount_to(tree, c"/").at(Stage::Root)?;
        sys::fchdir(tree).at(Stage::Pivot)?;
        sys::close(tree);
        sys::pivot_here().at(Stage::Pivot)?;
        // The old root now lies on top of the new one; taking it off leaves the new one.
        sys::unmount_here().at(Stage::Pivot)?;
        sys::chdir(c"/").at(Stage::Pivot)?;
        trees.inside = sys::open(c"/", libc::O_PATH | libc::O_DIRECTORY, 0).at(Stage::Pivot)?;
        Ok(())
    }

    pub(super) fn mounts(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        for (index, mount) in launch.mounts.iter().enumerate() {
            self.mount(mount, index, trees)?;
        }
        Ok(())
    }

    fn mount(&self, mount: &Mounting, index: usize, trees: &mut Trees) -> Result<(), Failure> {
        match &mount.what {
            What::Bind { .. } => {
                let tree = trees.next();
                let target = bind_target(mount, tree, index, trees.inside)?;
                attributes(tree, mount).at_index(Stage::Mount, index)?;
                sys::move_mount(tree, target).at_index(Stage::Mount, index)?;
                sys::close(target);
                sys::close(tree);
            }
            What::New { .. } => {
                let target = target(mount, Kind::Folder, index, trees.inside)?;
                let tree = trees.own[index];
                propagation(tree, mount).at_index(Stage::Mount, index)?;
                let nulls = trees.several(mount.restrictions.masked.len());
                attach_covered(tree, target, mount, trees.range(nulls), index)?;
                if mount.target.to_bytes() == b"/dev" {
                    trees.dev = Some(sys::stat(tree).at_index(Stage::Mount, index)?.st_dev);
                }
                sys::close(target);
                sys::close(tree);
            }
            What::CgroupViews { views, links } => {
                let target = target(mount, Kind::Folder, index, trees.inside)?;
                let tree = trees.own[index];
                sys::move_mount(tree, target).at_index(Stage::Mount, index)?;
                for (_, name) in views {
                    let view = trees.next();
                    attributes(view, mount).at_index(Stage::Mount, index)?;
                    sys::mkdir_at(tree, name, 0o755).at_index(Stage::Mount, index)?;
                    let flags = libc::O_PATH | libc::O_DIRECTORY;
                    let place = sys::open_how(tree, name, flags, STRICT).at_index(Stage::Mount, index)?;
                    sys::move_mount(view, place).at_index(Stage::Mount, index)?;
                    sys::close(place);
                    sys::close(view);
                }
                for (to, name) in links {
                    sys::symlink_at(to, tree, name).at_index(Stage::Mount, index)?;
                }
                readonly(tree, false).at_index(Stage::Mount, index)?;
                sys::close(target);
                sys::close(tree);
            }
        }
        Ok(())
    }
}

/// Where a mount goes, made when it is missing. Only what is meant to may be in procfs, whichever way leads there.
fn target(mount: &Mounting, kind: Kind, index: usize, root: RawFd) -> Result<RawFd, Failure> {
    let found = match mount.place {
        Target::Real | Target::Proc | Target::InProc => place::real(root, &mount.target, kind),
        Target::Inside => place::inside(root, &mount.target, kind),
    };
    let target = found.at_index(Stage::MountTarget, index)?;
    let meant = matches!(mount.place, Target::Proc | Target::InProc);
    if !meant && place::is_on_procfs(target).at_index(Stage::MountTarget, index)? {
        return Err(libc::EPERM).at_index(Stage::InsideProc, index);
    }
    Ok(target)
}

/// Where a tree of the host's goes. On `/proc` nothing else may pass for procfs.
fn bind_target(mount: &Mounting, tree: RawFd, index: usize, root: RawFd) -> Result<RawFd, Failure> {
    let folder = sys::mode_of(tree).at_index(Stage::MountTarget, index)? & libc::S_IFMT == libc::S_IFDIR;
    if mount.place == Target::Proc && !place::is_on_procfs(tree).at_index(Stage::MountTarget, index)? {
        return Err(libc::EPERM).at_index(Stage::NotProc, index);
    }
    target(mount, if folder { Kind::Folder } else { Kind::File }, index, root)
}

/// Mounts a file system whose masks are on it before anybody can see it.
///
/// Kernels before 6.15 mount nothing on what is not mounted itself and say EINVAL. There the masks come right after,
/// on the mount's own descriptor, so that no path of the image has a part in it either.
fn attach_covered(
    tree: RawFd,
    target: RawFd,
    mount: &Mounting,
    nulls: &[RawFd],
    index: usize,
) -> Result<(), Failure> {
    let covered = match cover(tree, &mount.restrictions, nulls) {
        Err(failure) if failure.errno == libc::EINVAL => false,
        other => other.map(|()| true)?,
    };
    sys::move_mount(tree, target).at_index(Stage::Mount, index)?;
    if !covered {
        cover(tree, &mount.restrictions, nulls)?;
    }
    for null in nulls {
        sys::close(*null);
    }
    Ok(())
}

/// Maps the ids of a detached tree as its mount asks.
fn map_ids(tree: RawFd, mount: &Mounting, user: Option<RawFd>) -> Result<(), Errno> {
    let Some(idmap) = &mount.idmap else { return Ok(()) };
    let through = idmap.user.as_ref().map(AsRawFd::as_raw_fd).or(user).ok_or(libc::EINVAL)?;
    map_tree(tree, through, idmap.recursive)
}

fn map_tree(tree: RawFd, user: RawFd, recursive: bool) -> Result<(), Errno> {
    const IDMAP: u64 = 0x0010_0000;
    let userns_fd = u64::try_from(user).map_err(|_| libc::EBADF)?;
    let attr = libc::mount_attr { attr_set: IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    sys::mount_setattr(tree, recursive, &attr)
}

/// The root as a detached mount, its ids mapped when there is a user namespace.
fn root_tree(launch: &Launch, user: Option<RawFd>) -> Result<RawFd, Errno> {
    match &launch.root {
        Root::Empty => new_tree(c"tmpfs", c"none", &[], NOSUID | NODEV | NOEXEC),
        Root::Bind { path, .. } => {
            let tree = sys::open_tree(path, true)?;
            // The container's root belongs to nobody's peer group.
            let attr =
                libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
            sys::mount_setattr(tree, true, &attr)?;
            if let Some(user) = user {
                map_tree(tree, user, true)?;
            }
            Ok(tree)
        }
        Root::Overlay(layers) => {
            if let Some(user) = user {
                give_to_root(&[&layers.upper, &layers.work], user)?;
            }
            let made = match user {
                None if layers.newest >= Handing::Paths => overlay(layers, None),
                Some(_) if layers.newest >= Handing::Descriptors => overlay(layers, user),
                _ => Err(libc::EINVAL),
            };
            match made {
                Err(errno) if is_refusal(errno) => old_overlay(layers, user, &launch.staging),
                other => other,
            }
        }
    }
}

/// Layers told one by one, with paths; or mapped, without any path, as descriptors.
///
/// The upper folder is not mapped, as overlay writes to it with the host's rights; it belongs to
/// the container's root from the start.
fn overlay(layers: &Overlay, user: Option<RawFd>) -> Result<RawFd, Errno> {
    let fs = sys::fsopen(c"overlay")?;
    let mut mapped = [-1; MOST_LAYERS];
    let made = (|| {
        sys::fsconfig_string(fs, c"source", c"overlay")?;
        for (at, layer) in layers.lower.iter().enumerate() {
            let Some(user) = user else {
                sys::fsconfig_string(fs, c"lowerdir+", layer)?;
                continue;
            };
            let slot = mapped.get_mut(at).ok_or(libc::E2BIG)?;
            *slot = sys::open_tree(layer, false)?;
            map_tree(*slot, user, false)?;
            sys::fsconfig_fd(fs, c"lowerdir+", *slot)?;
        }
        sys::fsconfig_string(fs, c"upperdir", &layers.upper)?;
        sys::fsconfig_string(fs, c"workdir", &layers.work)?;
        sys::fsconfig_flag(fs, c"volatile")?;
        sys::fsconfig_create(fs)?;
        sys::fsmount(fs, 0)
    })();
    sys::close(fs);
    // Overlay has made mounts of its own of them; nothing of the host's may stay within the container's reach.
    close_all(&mapped);
    made
}

fn close_all(files: &[RawFd]) {
    for file in files.iter().take_while(|file| **file >= 0) {
        sys::close(*file);
    }
}

/// The same with all layers in one option string, for kernels that know nothing else and for paths that fit nowhere
/// else. Mounted in a mount namespace aside, which nobody else sees, and taken out of it as a detached mount.
fn old_overlay(layers: &Overlay, user: Option<RawFd>, staging: &CStr) -> Result<RawFd, Errno> {
    let own = sys::open(c"/proc/self/ns/mnt", libc::O_RDONLY, 0)?;
    sys::unshare(libc::CLONE_NEWNS)?;
    let mut open = [-1; MOST_LAYERS + 2];
    let made = (|| {
        sys::set_propagation(c"/", libc::MS_REC | libc::MS_SLAVE)?;
        if let Some(user) = user {
            for layer in &layers.lower {
                let tree = sys::open_tree(layer, false)?;
                // Over its own folder.
                let moved = map_tree(tree, user, false).and_then(|()| sys::move_mount_to(tree, layer));
                sys::close(tree);
                moved?;
            }
        }
        match &layers.options {
            Some(options) => sys::mount_old(c"overlay", staging, 0, options)?,
            None => mount_numbered(layers, staging, &mut open)?,
        }
        sys::open_tree(staging, false)
    })();
    close_all(&open);
    let back = sys::setns(own, libc::CLONE_NEWNS);
    sys::close(own);
    back.and(made)
}

/// Mounts layers that are named by descriptors, which the caller closes.
fn mount_numbered(layers: &Overlay, staging: &CStr, open: &mut [RawFd]) -> Result<(), Errno> {
    let count = layers.lower.len();
    let all = layers.lower.iter().chain([&layers.upper, &layers.work]);
    for (at, folder) in all.enumerate() {
        let slot = open.get_mut(at).ok_or(libc::E2BIG)?;
        *slot = sys::open(folder, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    }
    let mut page = Page::new();
    let upper = Some((open[count], open[count + 1]));
    let options = page.numbered(open[..count].iter().copied(), upper).ok_or(libc::E2BIG)?;
    sys::mount_old(c"overlay", staging, 0, options)
}

/// Gives folders of the host's root to the root of the user namespace.
fn give_to_root(folders: &[&CStr], user: RawFd) -> Result<(), Errno> {
    const NOBODY: u32 = 65_534;
    for folder in folders {
        let tree = sys::open_tree(folder, false)?;
        map_tree(tree, user, false)?;
        // Seen through the map, the host's root has the number that the container's root has here.
        let (uid, gid) = sys::owner_of(tree)?;
        sys::close(tree);
        if uid != NOBODY && gid != NOBODY {
            sys::chown(folder, uid, gid)?;
        }
    }
    Ok(())
}

pub(super) fn new_tree(
    fstype: &CStr,
    source: &CStr,
    options: &[(std::ffi::CString, Option<std::ffi::CString>)],
    attributes: u64,
) -> Result<RawFd, Errno> {
    let fs = sys::fsopen(fstype)?;
    let made = (|| {
        sys::fsconfig_string(fs, c"source", source)?;
        for (key, value) in options {
            match value {
                Some(value) => sys::fsconfig_string(fs, key, value)?,
                None => sys::fsconfig_flag(fs, key)?,
            }
        }
        sys::fsconfig_create(fs)?;
        sys::fsmount(fs, attributes)
    })();
    sys::close(fs);
    made
}

fn attributes(tree: RawFd, mount: &Mounting) -> Result<(), Errno> {
    if mount.attr_set | mount.attr_clear != 0 {
        let attr = libc::mount_attr {
            attr_set: mount.attr_set,
            attr_clr: mount.attr_clear,
            propagation: 0,
            userns_fd: 0,
        };
        sys::mount_setattr(tree, mount.attr_recursive, &attr)?;
    }
    propagation(tree, mount)
}

fn propagation(tree: RawFd, mount: &Mounting) -> Result<(), Errno> {
    if mount.propagation == 0 {
        return Ok(());
    }
    let attr = libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: mount.propagation, userns_fd: 0 };
    sys::mount_setattr(tree, mount.propagation_recursive, &attr)
}
