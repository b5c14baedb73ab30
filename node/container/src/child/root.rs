//! The new root and everything mounted in it.
//!
//! Sources are taken as detached mounts while the host's tree is still ours; then the root is
//! entered, and from there on every path is the container's own: a hostile symbolic link in an
//! image or a volume can only lead back into the container.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};

use super::sys::{self, Errno};
use super::{At, Child};
use crate::failure::{Failure, Stage};
use crate::prepare::{Launch, Mounting, Root, What};

const RDONLY: u64 = 0x1;
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
}

impl Trees {
    fn push(&mut self, fd: RawFd) -> Result<(), Errno> {
        let slot = self.host.get_mut(self.used).ok_or(libc::E2BIG)?;
        *slot = fd;
        self.used += 1;
        Ok(())
    }

    fn next(&mut self) -> RawFd {
        let fd = self.host[self.taken];
        self.taken += 1;
        fd
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
            root: root_tree(&launch.root, user),
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
        }
        if launch.user.is_some() {
            // In a user namespace nodes cannot be made, only shown.
            for (index, node) in launch.devices.iter().enumerate() {
                let tree = sys::open_tree(&node.path, false).at_index(Stage::Device, index)?;
                trees.push(tree).at_index(Stage::Device, index)?;
            }
        }
        for index in 0..launch.masked.len() {
            let null = sys::open_tree(c"/dev/null", false).at_index(Stage::MaskedPath, index)?;
            trees.push(null).at_index(Stage::MaskedPath, index)?;
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
    pub(super) fn enter_root(&self, launch: &Launch, trees: &Trees) -> Result<(), Failure> {
        // From here on nothing we mount reaches the host, and what the host unmounts goes here too.
        sys::set_propagation(c"/", libc::MS_REC | libc::MS_SLAVE).at(Stage::Pivot)?;
        match (trees.root, &launch.root) {
            (Ok(tree), _) => {
                // On top of the old root: a place that needs no rights to reach.
                sys::move_mount_to(tree, c"/").at(Stage::Root)?;
                sys::fchdir(tree).at(Stage::Pivot)?;
                sys::close(tree);
            }
            (Err(_), Root::Overlay { options, .. }) if launch.user.is_none() => {
                sys::mount_old(c"overlay", &launch.staging, 0, options).at(Stage::Root)?;
                sys::chdir(&launch.staging).at(Stage::Pivot)?;
            }
            (Err(errno), _) => return Err(Failure { stage: Stage::Root, errno, index: 0 }),
        }
        sys::pivot_here().at(Stage::Pivot)?;
        // The old root now lies on top of the new one; taking it off leaves the new one.
        sys::unmount_here().at(Stage::Pivot)?;
        sys::chdir(c"/").at(Stage::Pivot)
    }

    pub(super) fn mounts(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        for (index, mount) in launch.mounts.iter().enumerate() {
            self.mount(mount, index, trees)?;
        }
        Ok(())
    }

    fn mount(&self, mount: &Mounting, index: usize, trees: &mut Trees) -> Result<(), Failure> {
        let failed = |stage| move |errno| Failure { stage, errno, index: u32::try_from(index).unwrap_or(0) };
        match &mount.what {
            What::Bind { .. } => {
                let tree = trees.next();
                let folder =
                    sys::mode_of(tree).map_err(failed(Stage::MountTarget))? & libc::S_IFMT == libc::S_IFDIR;
                let target = target(&mount.target, folder).map_err(failed(Stage::MountTarget))?;
                attributes(tree, mount).map_err(failed(Stage::Mount))?;
                sys::move_mount(tree, target).map_err(failed(Stage::Mount))?;
                sys::close(target);
                sys::close(tree);
            }
            What::New { .. } => {
                let target = target(&mount.target, true).map_err(failed(Stage::MountTarget))?;
                let tree = trees.own[index];
                propagation(tree, mount).map_err(failed(Stage::Mount))?;
                sys::move_mount(tree, target).map_err(failed(Stage::Mount))?;
                sys::close(target);
                sys::close(tree);
            }
            What::CgroupViews { views, links } => {
                let target = target(&mount.target, true).map_err(failed(Stage::MountTarget))?;
                let tree = new_tree(c"tmpfs", c"cgroup", &[], NOSUID | NODEV | NOEXEC)
                    .map_err(failed(Stage::Mount))?;
                sys::move_mount(tree, target).map_err(failed(Stage::Mount))?;
                for (_, name) in views {
                    let view = trees.next();
                    attributes(view, mount).map_err(failed(Stage::Mount))?;
                    let place = folder_in(tree, name).map_err(failed(Stage::Mount))?;
                    sys::move_mount(view, place).map_err(failed(Stage::Mount))?;
                    sys::close(place);
                    sys::close(view);
                }
                for (to, name) in links {
                    sys::symlink_at(to, tree, name).map_err(failed(Stage::Mount))?;
                }
                readonly(tree, false).map_err(failed(Stage::Mount))?;
                sys::close(target);
                sys::close(tree);
            }
        }
        Ok(())
    }

    pub(super) fn devices(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        sys::umask(0);
        for (index, node) in launch.devices.iter().enumerate() {
            if launch.user.is_some() {
                let tree = trees.next();
                let place = target(&node.path, false).at_index(Stage::Device, index)?;
                sys::move_mount(tree, place).at_index(Stage::Device, index)?;
                sys::close(place);
                sys::close(tree);
                continue;
            }
            make_parents(&node.path).at_index(Stage::Device, index)?;
            match sys::mknod(&node.path, node.mode, node.device) {
                Ok(()) | Err(libc::EEXIST) => {}
                Err(errno) => return Err(errno).at_index(Stage::Device, index),
            }
            if node.uid != 0 || node.gid != 0 {
                sys::chown(&node.path, node.uid, node.gid).at_index(Stage::Device, index)?;
            }
        }
        if launch.dev_links {
            for (to, name) in [
                (c"/proc/self/fd", c"/dev/fd"),
                (c"/proc/self/fd/0", c"/dev/stdin"),
                (c"/proc/self/fd/1", c"/dev/stdout"),
                (c"/proc/self/fd/2", c"/dev/stderr"),
                (c"pts/ptmx", c"/dev/ptmx"),
            ] {
                match sys::symlink_at(to, libc::AT_FDCWD, name) {
                    Ok(()) | Err(libc::EEXIST) => {}
                    Err(errno) => return Err(errno).at_index(Stage::Device, usize::MAX),
                }
            }
        }
        sys::umask(0o022);
        Ok(())
    }

    /// What must read as empty, and what must not be written.
    pub(super) fn restrict(&self, launch: &Launch, trees: &mut Trees) -> Result<(), Failure> {
        for (index, path) in launch.masked.iter().enumerate() {
            mask(path, trees.next()).at_index(Stage::MaskedPath, index)?;
        }
        for (index, path) in launch.readonly.iter().enumerate() {
            readonly_path(path).at_index(Stage::ReadonlyPath, index)?;
        }
        let is_readonly = matches!(
            launch.root,
            Root::Empty | Root::Overlay { readonly: true, .. } | Root::Bind { readonly: true, .. }
        );
        if launch.share_root {
            sys::set_propagation(c"/", libc::MS_SHARED).at(Stage::ReadonlyRoot)?;
        }
        if is_readonly {
            let root = sys::open(c"/", libc::O_PATH, 0).at(Stage::ReadonlyRoot)?;
            readonly(root, false).at(Stage::ReadonlyRoot)?;
            sys::close(root);
        }
        Ok(())
    }
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
fn root_tree(root: &Root, user: Option<RawFd>) -> Result<RawFd, Errno> {
    match root {
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
        Root::Overlay { lower, upper, work, .. } => {
            let fs = sys::fsopen(c"overlay")?;
            let made = match user {
                None => overlay(fs, lower, upper, work),
                Some(user) => mapped_overlay(fs, lower, upper, work, user),
            };
            sys::close(fs);
            made
        }
    }
}

fn overlay(fs: RawFd, lower: &[std::ffi::CString], upper: &CStr, work: &CStr) -> Result<RawFd, Errno> {
    sys::fsconfig_string(fs, c"source", c"overlay")?;
    for layer in lower {
        sys::fsconfig_string(fs, c"lowerdir+", layer)?;
    }
    sys::fsconfig_string(fs, c"upperdir", upper)?;
    sys::fsconfig_string(fs, c"workdir", work)?;
    // Ignored: a kernel without it syncs the upper folder, which is only slower.
    sys::fsconfig_flag(fs, c"volatile").ok();
    sys::fsconfig_create(fs)?;
    sys::fsmount(fs, 0)
}

/// The same with layers whose ids are mapped, which have no path and are given as descriptors.
/// Those stay open: a detached mount ends with its descriptor, and execve closes them.
///
/// The upper folder is not mapped, as overlay writes to it with the host's rights; it belongs to
/// the container's root from the start.
fn mapped_overlay(
    fs: RawFd,
    lower: &[std::ffi::CString],
    upper: &CStr,
    work: &CStr,
    user: RawFd,
) -> Result<RawFd, Errno> {
    sys::fsconfig_string(fs, c"source", c"overlay")?;
    let mut by_path = false;
    for layer in lower {
        let tree = sys::open_tree(layer, false)?;
        map_tree(tree, user, false)?;
        if !by_path {
            match sys::fsconfig_fd(fs, c"lowerdir+", tree) {
                Ok(()) => continue,
                // Before 6.13 overlay takes paths only.
                Err(libc::EINVAL | libc::EBADF) => {
                    by_path = true;
                    sys::unshare(libc::CLONE_NEWNS)?;
                    sys::set_propagation(c"/", libc::MS_REC | libc::MS_SLAVE)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        // Over its own folder, in a mount namespace that nobody else sees.
        sys::move_mount_to(tree, layer)?;
        sys::fsconfig_string(fs, c"lowerdir+", layer)?;
    }
    give_to_root(&[upper, work], user)?;
    sys::fsconfig_string(fs, c"upperdir", upper)?;
    sys::fsconfig_string(fs, c"workdir", work)?;
    // Ignored: a kernel without it syncs the upper folder, which is only slower.
    sys::fsconfig_flag(fs, c"volatile").ok();
    sys::fsconfig_create(fs)?;
    sys::fsmount(fs, 0)
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

fn new_tree(
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

fn readonly(tree: RawFd, recursive: bool) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    sys::mount_setattr(tree, recursive, &attr)
}

fn folder_in(dir: RawFd, name: &CStr) -> Result<RawFd, Errno> {
    match sys::mkdir_at(dir, name, 0o755) {
        Ok(()) | Err(libc::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    sys::open_at(dir, name, libc::O_PATH | libc::O_DIRECTORY)
}

/// Opens a mount point, making it first when it is missing.
fn target(path: &CStr, folder: bool) -> Result<RawFd, Errno> {
    match sys::open_plain(path, libc::O_PATH) {
        Err(libc::ENOENT) => {}
        other => return other,
    }
    make_parents(path)?;
    if folder {
        match sys::mkdir(path, 0o755) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    } else {
        let file = sys::open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644)?;
        sys::close(file);
    }
    sys::open_plain(path, libc::O_PATH)
}

/// Makes every folder above `path`.
pub(super) fn make_parents(path: &CStr) -> Result<(), Errno> {
    let bytes = path.to_bytes();
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    if bytes.len() >= buffer.len() {
        return Err(libc::ENAMETOOLONG);
    }
    buffer[..bytes.len()].copy_from_slice(bytes);
    for at in 1..bytes.len() {
        if bytes[at] != b'/' {
            continue;
        }
        buffer[at] = 0;
        let prefix = CStr::from_bytes_until_nul(&buffer).map_err(|_| libc::EINVAL)?;
        match sys::mkdir(prefix, 0o755) {
            Ok(()) | Err(libc::EEXIST | libc::EROFS) => {}
            Err(errno) => return Err(errno),
        }
        buffer[at] = b'/';
    }
    Ok(())
}

/// Lays nothing over `path`: an empty folder over a folder, the null device over anything else.
fn mask(path: &CStr, null: RawFd) -> Result<(), Errno> {
    let target = match sys::open_plain(path, libc::O_PATH) {
        Ok(target) => target,
        Err(libc::ENOENT | libc::ENOTDIR) => {
            sys::close(null);
            return Ok(());
        }
        Err(errno) => return Err(errno),
    };
    let mut tree = null;
    if sys::mode_of(target)? & libc::S_IFMT == libc::S_IFDIR {
        sys::close(null);
        tree = new_tree(c"tmpfs", c"tmpfs", &[], RDONLY)?;
    }
    sys::move_mount(tree, target)?;
    sys::close(tree);
    sys::close(target);
    Ok(())
}

fn readonly_path(path: &CStr) -> Result<(), Errno> {
    let target = match sys::open_plain(path, libc::O_PATH) {
        Ok(target) => target,
        Err(libc::ENOENT | libc::ENOTDIR) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let tree = sys::open_tree_of(target)?;
    readonly(tree, true)?;
    sys::move_mount(tree, target)?;
    sys::close(tree);
    sys::close(target);
    Ok(())
}
