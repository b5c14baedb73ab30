//! Programs in the kernel: the system call, and what runs on the packets of a network device.
//!
//! [`detach`] takes all of them off a device: XDP, TCX and classifiers of traffic control. They are not put back: who attached them
//! has them. <https://docs.ebpf.io/linux/syscall/>

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::rtnl::{self, Batch, Socket, Xdp};

const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
const LINK_DETACH: libc::c_int = 34;
const LINK_OF_XDP: u32 = 6;
/// On the way in and out.
const TCX: [u32; 2] = [46, 47];
/// Programs of one device and direction: the kernel takes no more than 64.
const MOST: u32 = 64;

/// Why programs could not be taken off a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("{attempt}")]
    Refused {
        /// What was attempted.
        attempt: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The same, over rtnetlink.
    #[error(transparent)]
    Link(#[from] rtnl::Error),
    /// Several attachments look like that of the device's program.
    #[error("which attachment of program {program} is the device's cannot be told")]
    Ambiguous {
        /// The number of the program.
        program: u32,
    },
}

/// Carries out one command.
pub(crate) fn call<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `attr` is one of the kernel's layouts for `command`, which it may write to, and outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(result).unwrap_or(-1)) }
}

#[repr(C)]
#[derive(Default)]
struct Query {
    link: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    unused: u32,
    program_flags: u64,
    attachments: u64,
    attachment_flags: u64,
    revision: u64,
}

#[repr(C)]
#[derive(Default)]
struct Detach {
    link: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// An object by its number, or the next one after it.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Ask {
    object: u32,
    len: u32,
    info: u64,
}

/// What is told of an attachment; of XDP the device comes first of what depends on its kind.
#[repr(C)]
#[derive(Default)]
struct Attachment {
    kind: u32,
    id: u32,
    program: u32,
    unused: u32,
    link: u32,
    rest: [u32; 15],
}

fn by_id(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    let fd = call(command, &mut ById { id, ..ById::default() })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn refused(attempt: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Refused { attempt, source }
}

/// Programs and their attachments, zero where a program has none, of a direction.
fn tcx(link: u32, attach_type: u32) -> Result<Vec<(u32, u32)>, Error> {
    let (mut programs, mut attachments) = ([0_u32; MOST as usize], [0_u32; MOST as usize]);
    let mut query = Query {
        link,
        attach_type,
        programs: programs.as_mut_ptr() as u64,
        attachments: attachments.as_mut_ptr() as u64,
        count: MOST,
        ..Query::default()
    };
    match call(PROG_QUERY, &mut query) {
        // The kernel is older than these, or nothing was ever there.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
            return Ok(Vec::new());
        }
        done => done.map_err(refused("list programs of the device"))?,
    };
    let count = query.count.min(MOST) as usize;
    Ok(programs.into_iter().zip(attachments).take(count).collect())
}

fn detach_tcx(link: u32) -> Result<usize, Error> {
    let mut off = 0;
    for attach_type in TCX {
        for (program, attachment) in tcx(link, attach_type)? {
            let done = if attachment == 0 {
                by_id(PROG_GET_FD_BY_ID, program).and_then(|program| {
                    let program = program.as_raw_fd().cast_unsigned();
                    call(PROG_DETACH, &mut Detach { link, program, attach_type, flags: 0 })
                })
            } else {
                end(attachment)
            };
            off += usize::from(gone(done, "detach a program of the device")?);
        }
    }
    Ok(off)
}

/// Ends an attachment that has a number.
fn end(attachment: u32) -> io::Result<libc::c_int> {
    let fd = by_id(LINK_GET_FD_BY_ID, attachment)?;
    call(LINK_DETACH, &mut fd.as_raw_fd().cast_unsigned())
}

/// Whether something was there; that it has gone meanwhile is what was wanted.
fn gone(done: io::Result<libc::c_int>, attempt: &'static str) -> Result<bool, Error> {
    match done {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        done => done.map(|_| true).map_err(refused(attempt)),
    }
}

fn detach_xdp(socket: &mut Socket, link: u32) -> Result<usize, Error> {
    let mut off = 0;
    for Xdp { mode, program } in socket.xdp(link)? {
        let mut batch = Batch::new();
        batch.set_xdp(link, None, mode);
        match socket.exchange(&mut batch) {
            // Who attached it holds it by a number.
            Err(error) if error.errno() == Some(rustix::io::Errno::BUSY) => {}
            done => {
                done?;
                off += 1;
                continue;
            }
        }
        let found = attachments(|one| (one.kind, one.program, one.link) == (LINK_OF_XDP, program, link))?;
        // A device of another namespace may have the same number.
        let [one] = found.as_slice() else { return Err(Error::Ambiguous { program }) };
        off += usize::from(gone(end(*one), "detach the XDP program of the device")?);
    }
    Ok(off)
}

fn attachments(wanted: impl Fn(&Attachment) -> bool) -> Result<Vec<u32>, Error> {
    let (mut found, mut last) = (Vec::new(), 0);
    loop {
        let mut ask = ById { id: last, ..ById::default() };
        match call(LINK_GET_NEXT_ID, &mut ask) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            done => done.map_err(refused("list attachments of programs"))?,
        };
        last = ask.next;
        let Ok(fd) = by_id(LINK_GET_FD_BY_ID, last) else { continue };
        let mut told = Attachment::default();
        let len = u32::try_from(size_of::<Attachment>()).expect("some words");
        let mut ask = Ask { object: fd.as_raw_fd().cast_unsigned(), len, info: &raw mut told as u64 };
        call(OBJ_GET_INFO_BY_FD, &mut ask).map_err(refused("ask about an attachment of a program"))?;
        if wanted(&told) {
            found.push(last);
        }
    }
}

/// Takes all programs off a device of the calling thread's network namespace; says how many there were.
pub fn detach(link: u32) -> Result<usize, Error> {
    let mut socket = Socket::route()?;
    let filters = socket.del_classifiers(link)?;
    Ok(filters + detach_tcx(link)? + detach_xdp(&mut socket, link)?)
}

#[cfg(test)]
mod tests;
