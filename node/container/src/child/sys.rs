//! System calls for code between clone and execve: raw, without allocation, errors as numbers.

use std::ffi::{CStr, c_int, c_long};
use std::os::fd::RawFd;

/// An error number of the kernel.
pub(super) type Errno = i32;

fn check(result: c_long) -> Result<c_long, Errno> {
    // SAFETY: errno is this thread's own.
    if result < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result) }
}

/// One raw system call. Every argument is passed as a machine word.
macro_rules! call {
    ($number:expr $(, $arg:expr)*) => {
        // SAFETY: numbers, and pointers to memory that outlives the call, as the call's page asks.
        check(unsafe { libc::syscall($number $(, $arg)*) })
    };
}

fn fd(result: c_long) -> RawFd {
    RawFd::try_from(result).unwrap_or(-1)
}

pub(super) fn open(path: &CStr, flags: c_int, mode: u32) -> Result<RawFd, Errno> {
    call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, mode).map(fd)
}

/// Not one link on the way, and never up.
pub(super) const STRICT: u64 = 0x08 | 0x04 | 0x02;
/// Links lead back into the folder that is looked below; nothing magic (`/proc/*/fd` and the like).
pub(super) const INSIDE: u64 = 0x10 | 0x02;

/// Opens `path` as seen from `dir`, its links treated as `resolve` says. Absolute paths need [`INSIDE`].
pub(super) fn open_how(dir: RawFd, path: &CStr, flags: c_int, resolve: u64) -> Result<RawFd, Errno> {
    #[repr(C)]
    struct How {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    /// The kernel gives up when something is renamed or mounted anywhere meanwhile.
    /// EAGAIN: <https://man7.org/linux/man-pages/man2/openat2.2.html>.
    const TRIES: u32 = 64;
    let flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    let how = How { flags, mode: 0, resolve };
    let mut tries = 0;
    loop {
        match call!(libc::SYS_openat2, dir, path.as_ptr(), &raw const how, size_of::<How>()) {
            Err(libc::EAGAIN) if tries < TRIES => tries += 1,
            other => return other.map(fd),
        }
    }
}

pub(super) fn close(fd: RawFd) {
    // Nothing can be done about a failed close.
    call!(libc::SYS_close, fd).ok();
}

/// Closes all from `first` to `last`.
pub(super) fn close_range(first: RawFd, last: u32) -> Result<(), Errno> {
    call!(libc::SYS_close_range, first, last, 0).map(drop)
}

pub(super) fn read(fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match call!(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) {
            Err(libc::EINTR) => {}
            other => return other.map(|n| usize::try_from(n).unwrap_or(0)),
        }
    }
}

pub(super) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    call!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()).map(|n| usize::try_from(n).unwrap_or(0))
}

/// Writes a whole small file.
pub(super) fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = open(path, libc::O_WRONLY, 0)?;
    let written = write(file, bytes);
    close(file);
    written.map(drop)
}

/// The same for a file that must be procfs's, not one that somebody laid over it.
pub(super) fn write_proc_file(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = open(path, libc::O_WRONLY, 0)?;
    let written = (|| {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        call!(libc::SYS_fstatfs, file, &raw mut found)?;
        if found.f_type != libc::PROC_SUPER_MAGIC { Err(libc::EXDEV) } else { write(file, bytes) }
    })();
    close(file);
    written.map(drop)
}

pub(super) fn dup_to(from: RawFd, to: RawFd) -> Result<(), Errno> {
    if from == to {
        return call!(libc::SYS_fcntl, from, libc::F_SETFD, 0).map(drop);
    }
    call!(libc::SYS_dup3, from, to, 0).map(drop)
}

pub(super) fn setns(fd: RawFd, flags: c_int) -> Result<(), Errno> {
    call!(libc::SYS_setns, fd, flags).map(drop)
}

pub(super) fn unshare(flags: c_int) -> Result<(), Errno> {
    call!(libc::SYS_unshare, flags).map(drop)
}

pub(super) fn setsid() -> Result<(), Errno> {
    call!(libc::SYS_setsid).map(drop)
}

/// Leaves the session keyring that was inherited for a new one without a name.
pub(super) fn new_session_keyring() -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: c_int = 1;
    match call!(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) {
        // Without the call, or behind a filter that we cannot take off either, nobody inside reaches any key.
        Ok(_) | Err(libc::ENOSYS | libc::EPERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(super) fn sethostname(name: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_sethostname, name.as_ptr(), name.to_bytes().len()).map(drop)
}

pub(super) fn setdomainname(name: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_setdomainname, name.as_ptr(), name.to_bytes().len()).map(drop)
}

pub(super) fn mkdir_at(dir: RawFd, name: &CStr, mode: u32) -> Result<(), Errno> {
    call!(libc::SYS_mkdirat, dir, name.as_ptr(), mode).map(drop)
}

pub(super) fn symlink_at(to: &CStr, dir: RawFd, name: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_symlinkat, to.as_ptr(), dir, name.as_ptr()).map(drop)
}

pub(super) fn mknod_at(dir: RawFd, name: &CStr, mode: u32, device: u64) -> Result<(), Errno> {
    call!(libc::SYS_mknodat, dir, name.as_ptr(), mode, device).map(drop)
}

/// What the open link `link` says, and how long that is.
pub(super) fn read_link(link: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    call!(libc::SYS_readlinkat, link, c"".as_ptr(), buffer.as_mut_ptr(), buffer.len())
        .map(|n| usize::try_from(n).unwrap_or(0))
}

pub(super) fn chown(path: &CStr, uid: u32, gid: u32) -> Result<(), Errno> {
    call!(libc::SYS_fchownat, libc::AT_FDCWD, path.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW).map(drop)
}

pub(super) fn chown_at(dir: RawFd, name: &CStr, uid: u32, gid: u32) -> Result<(), Errno> {
    call!(libc::SYS_fchownat, dir, name.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW).map(drop)
}

pub(super) fn chown_fd(file: RawFd, uid: u32, gid: u32) -> Result<(), Errno> {
    call!(libc::SYS_fchown, file, uid, gid).map(drop)
}

/// What the kernel knows of an open file.
pub(super) fn stat(file: RawFd) -> Result<libc::stat, Errno> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call!(libc::SYS_fstat, file, &raw mut stat)?;
    Ok(stat)
}

/// The mode of an open file.
pub(super) fn mode_of(file: RawFd) -> Result<u32, Errno> {
    stat(file).map(|stat| stat.st_mode)
}

/// The kind of file system an open file is on.
pub(super) fn fs_of(file: RawFd) -> Result<c_long, Errno> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    call!(libc::SYS_fstatfs, file, &raw mut stat)?;
    Ok(stat.f_type)
}

/// User and group of an open file.
pub(super) fn owner_of(file: RawFd) -> Result<(u32, u32), Errno> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call!(libc::SYS_fstat, file, &raw mut stat)?;
    Ok((stat.st_uid, stat.st_gid))
}

pub(super) fn chdir(path: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_chdir, path.as_ptr()).map(drop)
}

pub(super) fn fchdir(dir: RawFd) -> Result<(), Errno> {
    call!(libc::SYS_fchdir, dir).map(drop)
}

/// The path of the working folder, and how long it is; one outside the root does not begin with a slash.
pub(super) fn getcwd(buffer: &mut [u8]) -> Result<usize, Errno> {
    call!(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()).map(|n| usize::try_from(n).unwrap_or(0))
}

pub(super) fn umask(mask: u32) {
    // Cannot fail.
    call!(libc::SYS_umask, mask).ok();
}

/// Changes propagation of the mount at `path`.
pub(super) fn set_propagation(path: &CStr, flags: u64) -> Result<(), Errno> {
    let none = std::ptr::null::<u8>();
    call!(libc::SYS_mount, none, path.as_ptr(), none, flags, none).map(drop)
}

/// The old mount call, for kernels whose overlay takes its layers only as one string.
pub(super) fn mount_old(fstype: &CStr, target: &CStr, flags: u64, options: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_mount, fstype.as_ptr(), target.as_ptr(), fstype.as_ptr(), flags, options.as_ptr())
        .map(drop)
}

pub(super) fn unmount_here() -> Result<(), Errno> {
    call!(libc::SYS_umount2, c".".as_ptr(), libc::MNT_DETACH).map(drop)
}

pub(super) fn pivot_here() -> Result<(), Errno> {
    call!(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()).map(drop)
}

/// A detached copy of the mounts at `path`.
pub(super) fn open_tree(path: &CStr, recursive: bool) -> Result<RawFd, Errno> {
    const CLONE: u32 = 1;
    let flags = CLONE
        | libc::O_CLOEXEC.cast_unsigned()
        | if recursive { libc::AT_RECURSIVE.cast_unsigned() } else { 0 };
    call!(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags).map(fd)
}

/// A detached copy of the mount that is open as `file`.
pub(super) fn open_tree_of(file: RawFd) -> Result<RawFd, Errno> {
    const CLONE: u32 = 1;
    let flags = CLONE | libc::O_CLOEXEC.cast_unsigned() | libc::AT_EMPTY_PATH.cast_unsigned();
    call!(libc::SYS_open_tree, file, c"".as_ptr(), flags | libc::AT_RECURSIVE.cast_unsigned()).map(fd)
}

/// Mounts the detached `tree` on the open `target`.
pub(super) fn move_mount(tree: RawFd, target: RawFd) -> Result<(), Errno> {
    const F_EMPTY: u32 = 0x4;
    const T_EMPTY: u32 = 0x40;
    call!(libc::SYS_move_mount, tree, c"".as_ptr(), target, c"".as_ptr(), F_EMPTY | T_EMPTY).map(drop)
}

/// Mounts the detached `tree` on `target`.
pub(super) fn move_mount_to(tree: RawFd, target: &CStr) -> Result<(), Errno> {
    const F_EMPTY: u32 = 0x4;
    call!(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, target.as_ptr(), F_EMPTY).map(drop)
}

/// Changes attributes and propagation of an open mount.
pub(super) fn mount_setattr(tree: RawFd, recursive: bool, attr: &libc::mount_attr) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<libc::mount_attr>();
    call!(libc::SYS_mount_setattr, tree, c"".as_ptr(), flags, std::ptr::from_ref(attr), size).map(drop)
}

pub(super) fn fsopen(fstype: &CStr) -> Result<RawFd, Errno> {
    call!(libc::SYS_fsopen, fstype.as_ptr(), 1).map(fd)
}

pub(super) fn fsconfig_flag(fs: RawFd, key: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_fsconfig, fs, 0, key.as_ptr(), std::ptr::null::<u8>(), 0).map(drop)
}

pub(super) fn fsconfig_string(fs: RawFd, key: &CStr, value: &CStr) -> Result<(), Errno> {
    call!(libc::SYS_fsconfig, fs, 1, key.as_ptr(), value.as_ptr(), 0).map(drop)
}

pub(super) fn fsconfig_fd(fs: RawFd, key: &CStr, file: RawFd) -> Result<(), Errno> {
    call!(libc::SYS_fsconfig, fs, 5, key.as_ptr(), std::ptr::null::<u8>(), file).map(drop)
}

pub(super) fn fsconfig_create(fs: RawFd) -> Result<(), Errno> {
    let none = std::ptr::null::<u8>();
    call!(libc::SYS_fsconfig, fs, 6, none, none, 0).map(drop)
}

pub(super) fn fsmount(fs: RawFd, attributes: u64) -> Result<RawFd, Errno> {
    call!(libc::SYS_fsmount, fs, 1, attributes).map(fd)
}

pub(super) fn ioctl(file: RawFd, request: u64, arg: u64) -> Result<c_long, Errno> {
    call!(libc::SYS_ioctl, file, request, arg)
}

pub(super) fn prctl(option: c_int, a: u64, b: u64) -> Result<c_long, Errno> {
    call!(libc::SYS_prctl, option, a, b, 0, 0)
}

pub(super) fn setrlimit(resource: u32, soft: u64, hard: u64) -> Result<(), Errno> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    call!(libc::SYS_prlimit64, 0, resource, &raw const limit, std::ptr::null::<u8>()).map(drop)
}

/// The calling thread's class and level for block I/O.
pub(super) fn ioprio_set(priority: i32) -> Result<(), Errno> {
    const WHO_PROCESS: c_int = 1;
    call!(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority).map(drop)
}

/// The calling thread's scheduling policy; the kernel's first version of the structure.
pub(super) fn sched_setattr(plan: &crate::plan::SchedulerPlan) -> Result<(), Errno> {
    #[repr(C)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attr = Attr {
        size: 48,
        policy: plan.policy,
        flags: plan.flags,
        nice: plan.nice,
        priority: plan.priority,
        runtime: plan.runtime,
        deadline: plan.deadline,
        period: plan.period,
    };
    call!(libc::SYS_sched_setattr, 0, &raw const attr, 0).map(drop)
}

/// Where the calling thread's memory comes from.
pub(super) fn set_mempolicy(mode: u32, nodes: &[u64]) -> Result<(), Errno> {
    if nodes.is_empty() {
        return call!(libc::SYS_set_mempolicy, mode, std::ptr::null::<u64>(), 0).map(drop);
    }
    // The kernel takes one bit less than it is told.
    // `get_nodes` in <https://github.com/torvalds/linux/blob/v6.12/mm/mempolicy.c>.
    call!(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), nodes.len() * 64 + 1).map(drop)
}

/// The hard limit in force.
pub(super) fn hard_limit(resource: u32) -> Result<u64, Errno> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    call!(libc::SYS_prlimit64, 0, resource, std::ptr::null::<u8>(), &raw mut limit)?;
    Ok(limit.rlim_max)
}

pub(super) fn setgroups(groups: &[u32]) -> Result<(), Errno> {
    call!(libc::SYS_setgroups, groups.len(), groups.as_ptr()).map(drop)
}

pub(super) fn setresgid(gid: u32) -> Result<(), Errno> {
    call!(libc::SYS_setresgid, gid, gid, gid).map(drop)
}

pub(super) fn setresuid(uid: u32) -> Result<(), Errno> {
    call!(libc::SYS_setresuid, uid, uid, uid).map(drop)
}

/// Sets the effective, permitted and inheritable capabilities.
pub(super) fn capset(effective: u64, permitted: u64, inheritable: u64) -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    #[allow(clippy::cast_possible_truncation)]
    let half = |set: u64, upper: bool| if upper { (set >> 32) as u32 } else { set as u32 };
    let data = [
        half(effective, false),
        half(permitted, false),
        half(inheritable, false),
        half(effective, true),
        half(permitted, true),
        half(inheritable, true),
    ];
    call!(libc::SYS_capset, header.as_ptr(), data.as_ptr()).map(drop)
}

pub(super) fn seccomp_filter(flags: u64, program: &[libc::sock_filter]) -> Result<(), Errno> {
    const SET_MODE_FILTER: c_int = 1;
    let len = u16::try_from(program.len()).map_err(|_| libc::EINVAL)?;
    let prog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    call!(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const prog).map(drop)
}

/// Only returns when it fails.
pub(super) fn execve(
    path: &CStr,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
) -> Errno {
    match call!(libc::SYS_execve, path.as_ptr(), argv, env) {
        Ok(_) => 0,
        Err(errno) => errno,
    }
}

/// Sleeps until a signal is handled.
pub(super) fn sleep_until_signal() {
    let none = std::ptr::null::<u8>();
    // Always ends with EINTR.
    call!(libc::SYS_ppoll, none, 0, none, none, 0).ok();
}

/// Sends one descriptor over a socket.
pub(super) fn send_fd(socket: RawFd, file: RawFd) -> Result<(), Errno> {
    #[repr(C, align(8))]
    struct Control {
        len: usize,
        level: c_int,
        kind: c_int,
        fd: RawFd,
        pad: c_int,
    }
    let byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_ptr().cast_mut().cast(), iov_len: 1 };
    let mut control = Control { len: 20, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, fd: file, pad: 0 };
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    call!(libc::SYS_sendmsg, socket, &raw const message, libc::MSG_NOSIGNAL).map(drop)
}

/// Restores default handling of a signal.
pub(super) fn default_signal(signal: c_int) {
    // The kernel's struct sigaction: handler, flags, restorer, mask.
    let action = [0_u64; 4];
    call!(libc::SYS_rt_sigaction, signal, action.as_ptr(), std::ptr::null::<u8>(), 8).ok();
}

/// Unblocks every signal.
pub(super) fn unblock_signals() {
    let none = 0_u64;
    call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, std::ptr::null::<u8>(), 8).ok();
}

/// Ignores a signal.
pub(super) fn ignore_signal(signal: c_int) {
    let action = [1_u64, 0, 0, 0];
    call!(libc::SYS_rt_sigaction, signal, action.as_ptr(), std::ptr::null::<u8>(), 8).ok();
}

/// Clones with our own parent as the child's; 0 in the child.
pub(super) fn clone_sibling(flags: u64) -> Result<c_long, Errno> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | u64::from(libc::CLONE_PARENT.cast_unsigned());
    call!(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>())
}

/// Ends this process at once.
pub(super) fn exit(code: c_int) -> ! {
    loop {
        call!(libc::SYS_exit_group, code).ok();
    }
}
