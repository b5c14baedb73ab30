//! Attach sessions: copies of a container's output from now on, and its stdin.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::container::{Container, Phase};
use super::poll::{Poll, Source, Stream, Token};
use crate::protocol::FdRole;
use crate::request::AttachRequest;

/// A session this far behind is ended: it must not hold the container back.
const MOST_BEHIND: usize = 4 << 20;

/// One stream of one session.
#[derive(Debug)]
pub(super) struct Sink {
    stream: Stream,
    fd: OwnedFd,
    token: Token,
    behind: Vec<u8>,
}

impl Container {
    /// The descriptors of a new session; the container keeps its ends.
    pub(super) fn attach(
        &mut self,
        streams: AttachRequest,
        poll: &mut Poll,
        next_sink: &mut u64,
    ) -> io::Result<Vec<(FdRole, OwnedFd)>> {
        let mut fds = Vec::new();
        let terminal = self.process.master.is_some();
        if streams.stdin {
            let end = self.process.master.as_ref().or(self.stdin.as_ref());
            if let Some(end) = end {
                fds.push((FdRole::Stdin, end.try_clone()?));
            }
        }
        for (wanted, stream, role) in [
            (streams.stdout, Stream::Stdout, FdRole::Stdout),
            (streams.stderr && !terminal, Stream::Stderr, FdRole::Stderr),
        ] {
            if !wanted {
                continue;
            }
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            if !matches!(self.phase, Phase::Exited(_)) {
                let number = *next_sink;
                *next_sink += 1;
                let sink = Sink::new(poll, &self.id, number, stream, write, Vec::new())?;
                self.sinks.insert(number, sink);
            }
            fds.push((role, read));
        }
        Ok(fds)
    }

    pub(super) fn copy_to_sinks(&mut self, stream: Stream, bytes: &[u8], poll: &mut Poll) {
        let mut over = Vec::new();
        for (number, sink) in self.sinks.iter_mut().filter(|(_, sink)| sink.stream == stream) {
            sink.behind.extend_from_slice(bytes);
            if !sink.catch_up(poll) {
                over.push(*number);
            }
        }
        for number in over {
            self.end_sink(number, poll);
        }
    }

    /// A session's pipe can take more, or its reader is gone.
    pub(super) fn sink_event(&mut self, number: u64, flags: EventFlags, poll: &mut Poll) {
        let Some(sink) = self.sinks.get_mut(&number) else { return };
        if flags.contains(EventFlags::ERR) || !sink.catch_up(poll) {
            self.end_sink(number, poll);
        }
    }

    fn end_sink(&mut self, number: u64, poll: &mut Poll) {
        if let Some(sink) = self.sinks.remove(&number) {
            poll.remove(&sink.fd, sink.token);
        }
    }

    pub(super) fn close_sinks(&mut self, poll: &mut Poll) {
        for (_, mut sink) in std::mem::take(&mut self.sinks) {
            // The last bytes go out if the reader left room for them.
            sink.catch_up(poll);
            poll.remove(&sink.fd, sink.token);
        }
    }
}

impl Sink {
    /// Watches `fd`, the writing end of a session's pipe; `behind` is still to be written.
    pub(super) fn new(
        poll: &mut Poll,
        container: &str,
        number: u64,
        stream: Stream,
        fd: OwnedFd,
        behind: Vec<u8>,
    ) -> io::Result<Sink> {
        let flags = if behind.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
        let token = poll.add(&fd, Source::Sink(container.to_owned(), number), flags)?;
        Ok(Sink { stream, fd, token, behind })
    }

    /// What a successor needs of it.
    pub(super) fn parts(&self) -> (Stream, &OwnedFd, &[u8]) {
        (self.stream, &self.fd, &self.behind)
    }

    /// Writes what the pipe takes; false when the session is over.
    fn catch_up(&mut self, poll: &mut Poll) -> bool {
        while !self.behind.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, &self.behind)) {
                Ok(written) => {
                    self.behind.drain(..written);
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        let flags = if self.behind.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
        self.behind.len() <= MOST_BEHIND && poll.change(&self.fd, self.token, flags).is_ok()
    }
}
