//! Output of containers: from their pipes to the log file and to whoever is attached.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;

use super::container::Container;
use super::log::Lines;
use super::poll::{Poll, Source, Stream, Token, now};

/// Read at once from one pipe before the others get their turn.
const CHUNK: usize = 64 << 10;
/// Read at once from what a container left when it ended: as much as a pipe can hold that a container may have made
/// larger (`/proc/sys/fs/pipe-max-size`). What is beyond comes in turn with everybody else's.
const MOST_LEFT: u64 = 1 << 20;

/// One stream of a container.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: Stream,
    pub(super) fd: OwnedFd,
    token: Option<Token>,
    lines: Lines,
}

impl Output {
    /// Starts to listen to `fd`.
    pub(super) fn new(poll: &mut Poll, container: &str, stream: Stream, fd: OwnedFd) -> io::Result<Output> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let token = poll.add(&fd, Source::Output(container.to_owned(), stream), EventFlags::IN)?;
        Ok(Output { stream, fd, token: Some(token), lines: Lines::default() })
    }

    /// The same, going on with the beginning of a line.
    pub(super) fn with_rest(
        poll: &mut Poll,
        container: &str,
        stream: Stream,
        fd: OwnedFd,
        rest: Vec<u8>,
    ) -> io::Result<Output> {
        let mut output = Output::new(poll, container, stream, fd)?;
        output.lines = Lines::with_rest(rest);
        Ok(output)
    }

    pub(super) fn is_open(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn rest(&self) -> &[u8] {
        self.lines.rest()
    }

    fn close(&mut self, poll: &mut Poll) {
        if let Some(token) = self.token.take() {
            poll.remove(&self.fd, token);
        }
    }
}

/// What one read gave.
enum Got {
    Bytes(usize),
    Nothing,
    End,
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> Got {
    match rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut *buffer)) {
        Ok(0) => Got::End,
        Ok(count) => Got::Bytes(count),
        Err(rustix::io::Errno::AGAIN) => Got::Nothing,
        // A terminal whose other side is closed says so with EIO.
        Err(_) => Got::End,
    }
}

impl Container {
    /// Moves one chunk of a stream.
    pub(super) fn pump(&mut self, stream: Stream, poll: &mut Poll) {
        self.pump_at_most(stream, CHUNK, poll);
    }

    /// Moves at most `most` bytes of a stream; `None` when there was nothing.
    fn pump_at_most(&mut self, stream: Stream, most: usize, poll: &mut Poll) -> Option<usize> {
        let at = self.outputs.iter().position(|o| o.stream == stream && o.token.is_some())?;
        let mut buffer = [0; CHUNK];
        let buffer = &mut buffer[..most.min(CHUNK)];
        match read(&self.outputs[at].fd, buffer) {
            Got::Bytes(count) => {
                self.record(at, &buffer[..count]);
                self.copy_to_sinks(stream, &buffer[..count], poll);
                Some(count)
            }
            Got::Nothing => None,
            Got::End => {
                self.end_of_stream(at, poll);
                None
            }
        }
    }

    /// Moves what was there when the writer ended. Not until there is nothing: others may hold the same pipe and write
    /// without pause, and what they write is not the container's last word.
    pub(super) fn drain(&mut self, poll: &mut Poll) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut left = self.waiting(stream);
            while left > 0 {
                let Some(moved) = self.pump_at_most(stream, left, poll) else { break };
                left -= moved;
            }
        }
    }

    /// How much of a stream is to be moved at once.
    fn waiting(&self, stream: Stream) -> usize {
        let Some(output) = self.outputs.iter().find(|o| o.stream == stream && o.token.is_some()) else {
            return 0;
        };
        // What a terminal is about to pass on does not count as readable yet.
        let counted = if rustix::termios::isatty(&output.fd) {
            MOST_LEFT
        } else {
            rustix::io::ioctl_fionread(&output.fd).unwrap_or(MOST_LEFT)
        };
        // One byte more, to see the end of a stream whose writers are gone.
        usize::try_from(counted.saturating_add(1).min(MOST_LEFT)).unwrap_or(CHUNK)
    }

    fn record(&mut self, at: usize, bytes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        let output = &mut self.outputs[at];
        let at = now();
        let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 4 + 64);
        output.lines.push(bytes, output.stream, at, &mut text);
        if let Some(news) = log.write(&text, at) {
            super::note(&format!("container {}: {news}", self.id));
        }
    }

    fn end_of_stream(&mut self, at: usize, poll: &mut Poll) {
        let output = &mut self.outputs[at];
        output.close(poll);
        let at = now();
        let mut text = Vec::new();
        output.lines.finish(output.stream, at, &mut text);
        if let Some(log) = &mut self.log
            && let Some(news) = log.write(&text, at)
        {
            super::note(&format!("container {}: {news}", self.id));
        }
        if self.outputs.iter().all(|o| o.token.is_none()) {
            self.close_sinks(poll);
        }
    }

    /// Lets go of the streams, whoever else may still hold them.
    pub(super) fn close_outputs(&mut self, poll: &mut Poll) {
        for at in 0..self.outputs.len() {
            if self.outputs[at].token.is_some() {
                self.end_of_stream(at, poll);
            }
        }
        self.close_sinks(poll);
    }
}
