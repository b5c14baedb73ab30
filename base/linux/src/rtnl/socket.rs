//! A synchronous netlink socket: one send per batch, one answer per message.
//!
//! A socket belongs to the network namespace of the thread that opened it, for ever; it may be used from any thread.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::wire::{Attrs, Batch, HEADER, NLM_F_DUMP_INTR};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const SOL_NETLINK: libc::c_int = 270;
const NETLINK_EXT_ACK: libc::c_int = 11;
const NETLINK_GET_STRICT_CHK: libc::c_int = 12;

/// How long an answer may take: the kernel answers within the send itself, so only a defect gets here.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Why an exchange with the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket itself failed.
    #[error("netlink {attempt}")]
    Socket {
        /// What was attempted on the socket.
        attempt: &'static str,
        /// The kernel's reason.
        #[source]
        source: Errno,
    },
    /// The kernel refused one of the messages.
    #[error("{0}")]
    Refused(Refusal),
    /// A dump was disturbed by changes each time it was tried.
    #[error("netlink dump was interrupted {tries} times")]
    Interrupted {
        /// How often it was tried.
        tries: u32,
    },
    /// The object asked for was not in the answer.
    #[error("netlink {attempt}: nothing in the answer")]
    NoAnswer {
        /// What was asked.
        attempt: &'static str,
    },
}

impl Error {
    /// The errno behind it, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Socket { source, .. } => Some(*source),
            Error::Refused(refusal) => Some(refusal.errno),
            Error::Interrupted { .. } | Error::NoAnswer { .. } => None,
        }
    }

    /// Whether the kernel said that the object does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::NODEV | Errno::NOENT | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NXIO)
        )
    }

    /// Whether the kernel said that the object exists already.
    pub fn is_present(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }
}

/// The kernel's no to one message.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Position of the message in its batch.
    pub index: usize,
    /// What the message attempted.
    pub attempt: &'static str,
    /// The error number.
    pub errno: Errno,
    /// The kernel's own words, when it had any.
    pub text: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.attempt, std::io::Error::from(self.errno))?;
        match &self.text {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

/// One object the kernel sent back.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Position of the request in its batch.
    pub index: usize,
    /// Message type.
    pub kind: u16,
    /// Fixed header and attributes.
    pub body: Vec<u8>,
}

impl Reply {
    /// The attributes behind a fixed header of `skip` bytes.
    pub fn attrs(&self, skip: usize) -> Attrs<'_> {
        Attrs(self.body.get(skip..).unwrap_or(&[]))
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects sent back, in order.
    pub replies: Vec<Reply>,
    /// Messages the kernel refused, in order.
    pub refusals: Vec<Refusal>,
    /// A dump in the batch was disturbed by a change.
    pub interrupted: bool,
}

/// A netlink socket.
pub struct Socket {
    fd: OwnedFd,
    seq: u32,
    buf: Vec<u8>,
}

impl Socket {
    /// Opens rtnetlink in the calling thread's network namespace.
    pub fn route() -> Result<Self, Error> {
        Self::open(None, true)
    }

    /// Opens nfnetlink in the calling thread's network namespace.
    pub fn netfilter() -> Result<Self, Error> {
        Self::open(Some(netlink::NETFILTER), false)
    }

    /// Opens generic netlink in the calling thread's network namespace.
    pub fn generic() -> Result<Self, Error> {
        Self::open(Some(netlink::GENERIC), false)
    }

    fn open(protocol: Option<rustix::net::Protocol>, strict: bool) -> Result<Self, Error> {
        let fail = |attempt| move |source| Error::Socket { attempt, source };
        let fd =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
                .map_err(fail("open socket"))?;
        rustix::net::sockopt::set_socket_timeout(
            &fd,
            rustix::net::sockopt::Timeout::Recv,
            Some(ANSWER_WITHIN),
        )
        .map_err(fail("set time-out"))?;
        // Ignored: both options only improve answers; old kernels lack them.
        set_option(&fd, NETLINK_EXT_ACK).ok();
        if strict {
            set_option(&fd, NETLINK_GET_STRICT_CHK).ok();
        }
        Ok(Self { fd, seq: 1, buf: vec![0; 64 * 1024] })
    }

    /// Sends the batch and collects every answer; refused messages are listed, not an error.
    pub fn run(&mut self, batch: &mut Batch) -> Result<Outcome, Error> {
        if batch.is_empty() {
            return Ok(Outcome::default());
        }
        let base = self.stamp(batch);
        self.send(&batch.buf)?;
        let mut outcome = Outcome::default();
        let mut open: Vec<bool> = batch.marks.iter().map(|mark| mark.acked).collect();
        while open.iter().any(|waiting| *waiting) {
            let len = self.receive()?;
            read_answers(&self.buf[..len], base, batch, &mut open, &mut outcome);
        }
        Ok(outcome)
    }

    /// Sends the batch; the first refused message is the error.
    pub fn exchange(&mut self, batch: &mut Batch) -> Result<Vec<Reply>, Error> {
        let outcome = self.run(batch)?;
        match outcome.refusals.into_iter().next() {
            Some(refusal) => Err(Error::Refused(refusal)),
            None => Ok(outcome.replies),
        }
    }

    /// Runs a dump built by `build`, again while the kernel says that it was disturbed.
    pub fn dump(&mut self, build: impl Fn(&mut Batch)) -> Result<Vec<Reply>, Error> {
        const TRIES: u32 = 50;
        for _ in 0..TRIES {
            let mut batch = Batch::new();
            build(&mut batch);
            let outcome = self.run(&mut batch)?;
            if let Some(refusal) = outcome.refusals.into_iter().next() {
                return Err(Error::Refused(refusal));
            }
            if !outcome.interrupted {
                return Ok(outcome.replies);
            }
        }
        Err(Error::Interrupted { tries: TRIES })
    }

    /// Sends a whole nfnetlink transaction: on any refusal the kernel has applied nothing.
    pub(crate) fn transact(&mut self, batch: &mut Batch) -> Result<Vec<Reply>, Error> {
        let base = self.stamp(batch);
        self.send(&batch.buf)?;
        let mut outcome = Outcome::default();
        let mut open: Vec<bool> = batch.marks.iter().map(|mark| mark.acked).collect();
        while open.iter().any(|waiting| *waiting) && outcome.refusals.is_empty() {
            let len = self.receive()?;
            read_answers(&self.buf[..len], base, batch, &mut open, &mut outcome);
        }
        self.drain(base, batch, &mut open, &mut outcome)?;
        match outcome.refusals.into_iter().next() {
            Some(refusal) => Err(Error::Refused(refusal)),
            None => Ok(outcome.replies),
        }
    }

    /// Hands over messages that came without being asked for, type and body; waits for none and takes no more than so many
    /// datagrams. Tells whether more may be there.
    pub(crate) fn unasked(&mut self, most: usize, mut each: impl FnMut(u16, &[u8])) -> Result<bool, Error> {
        for _ in 0..most {
            match rustix::net::recv(&self.fd, self.buf.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((len, _)) => read_messages(self.buf.get(..len).unwrap_or(&[]), &mut each),
                Err(Errno::AGAIN) => return Ok(false),
                // More came than there was room for: the rest is lost, what is here is not.
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(source) => return Err(Error::Socket { attempt: "receive", source }),
            }
        }
        Ok(true)
    }

    fn drain(
        &mut self,
        base: u32,
        batch: &Batch,
        open: &mut [bool],
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        loop {
            match rustix::net::recv(&self.fd, self.buf.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((len, _)) => read_answers(&self.buf[..len], base, batch, open, outcome),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(source) => return Err(Error::Socket { attempt: "receive", source }),
            }
        }
    }

    /// Gives every message of the batch its sequence number and returns the first.
    fn stamp(&mut self, batch: &mut Batch) -> u32 {
        let base = self.seq;
        for (offset, mark) in (0u32..).zip(&batch.marks) {
            let at = mark.start + 8;
            batch.buf[at..at + 4].copy_from_slice(&base.wrapping_add(offset).to_ne_bytes());
        }
        let count = u32::try_from(batch.marks.len()).expect("a batch is far below 4 billion messages");
        self.seq = base.wrapping_add(count);
        base
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                // A whole ruleset is larger than what a socket takes unless told.
                Err(Errno::MSGSIZE) if self.grow(bytes.len())? => {}
                Err(source) => return Err(Error::Socket { attempt: "send", source }),
            }
        }
    }

    /// Lets the socket take so many bytes at once; tells whether it took fewer before.
    fn grow(&self, len: usize) -> Result<bool, Error> {
        let fail = |source| Error::Socket { attempt: "grow", source };
        let before = rustix::net::sockopt::socket_send_buffer_size(&self.fd).map_err(fail)?;
        rustix::net::sockopt::set_socket_send_buffer_size_force(&self.fd, len + 4096).map_err(fail)?;
        Ok(rustix::net::sockopt::socket_send_buffer_size(&self.fd).map_err(fail)? > before)
    }

    fn receive(&mut self) -> Result<usize, Error> {
        loop {
            match rustix::net::recv(&self.fd, self.buf.as_mut_slice(), RecvFlags::empty()) {
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(source) => return Err(Error::Socket { attempt: "receive", source }),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The messages in what was received, type and body each; what is torn ends it.
fn read_messages(mut bytes: &[u8], each: &mut impl FnMut(u16, &[u8])) {
    while let Some(header) = bytes.get(..HEADER) {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = bytes.get(HEADER..len) else { return };
        each(u16::from_ne_bytes([header[4], header[5]]), body);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
}

pub(crate) fn set_option(fd: &OwnedFd, option: libc::c_int) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let len = libc::socklen_t::try_from(size_of_val(&on)).expect("an int is four bytes");
    // SAFETY: `on` lives across the call and `len` is its size.
    let code = unsafe { libc::setsockopt(fd.as_raw_fd(), SOL_NETLINK, option, (&raw const on).cast(), len) };
    if code == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

pub(crate) fn read_answers(
    mut bytes: &[u8],
    base: u32,
    batch: &Batch,
    open: &mut [bool],
    outcome: &mut Outcome,
) {
    while let Some(header) = bytes.get(..HEADER) {
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let len = word(0) as usize;
        let (kind, flags, seq) = (half(4), half(6), word(8));
        let Some(body) = bytes.get(HEADER..len) else { return };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        let index = seq.wrapping_sub(base) as usize;
        let Some(waiting) = open.get_mut(index) else { continue };
        if flags & NLM_F_DUMP_INTR != 0 {
            outcome.interrupted = true;
        }
        match kind {
            NLMSG_ERROR | NLMSG_DONE => {
                *waiting = false;
                let code =
                    body.get(..4).map_or(0, |code| i32::from_ne_bytes([code[0], code[1], code[2], code[3]]));
                if code != 0 {
                    outcome.refusals.push(Refusal {
                        index,
                        attempt: batch.marks[index].attempt,
                        errno: refused(code),
                        text: if kind == NLMSG_ERROR { words(body, flags) } else { None },
                    });
                }
            }
            _ => outcome.replies.push(Reply { index, kind, body: body.to_vec() }),
        }
    }
}

/// The error number of an answer. A code that is none, which the kernel never sends, is a refusal all the same.
fn refused(code: i32) -> Errno {
    let number = code.checked_neg().filter(|number| (1..4096).contains(number));
    number.map_or(Errno::PROTO, Errno::from_raw_os_error)
}

/// The extended acknowledgement's sentence, behind the echoed request.
fn words(body: &[u8], flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let echoed = body.get(4..8).map(|len| u32::from_ne_bytes([len[0], len[1], len[2], len[3]]) as usize)?;
    let skip = if flags & NLM_F_CAPPED != 0 { HEADER } else { echoed.next_multiple_of(4) };
    Attrs(body.get(4 + skip..)?).str(NLMSGERR_ATTR_MSG)
}
