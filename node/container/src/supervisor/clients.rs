//! Connections: requests in, answers and events out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::epoll::EventFlags;
use serde::Serialize;

use super::poll::{Poll, Token};
use crate::protocol::{FdRole, HELLO, Outgoing, RawRequest, Refusal, frame, hello, parse_hello};
use crate::socket::{Frames, send};

/// A connection that does not read this much is dropped; it can connect again and list.
const MOST_QUEUED: usize = 16 << 20;

/// Whom to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) client: u64,
    pub(super) seq: u64,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    token: Token,
    frames: Frames,
    greeted: bool,
    queue: VecDeque<Queued>,
    queued: usize,
    wants_write: bool,
}

#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

impl Client {
    pub(super) fn new(stream: UnixStream, token: Token) -> Client {
        let greeting = Queued { bytes: hello().to_vec(), sent: 0, fds: Vec::new() };
        Client {
            stream,
            token,
            frames: Frames::default(),
            greeted: false,
            queue: VecDeque::from([greeting]),
            queued: HELLO,
            // Registered for writing, so that the greeting goes out.
            wants_write: true,
        }
    }

    pub(super) fn stream(&self) -> (&UnixStream, Token) {
        (&self.stream, self.token)
    }

    /// Reads what is there. `Err` means that the connection is over.
    pub(super) fn requests(&mut self) -> Result<Vec<(RawRequest, Vec<OwnedFd>)>, String> {
        loop {
            match self.frames.fill(&self.stream) {
                Ok(true) => {}
                Ok(false) => return Err("closed".to_owned()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        if !self.greeted {
            let Some(greeting) = self.frames.take::<HELLO>() else { return Ok(Vec::new()) };
            parse_hello(greeting)?;
            self.greeted = true;
        }
        let mut requests = Vec::new();
        while let Some((body, fds)) = self.frames.next()? {
            let request = serde_json::from_slice(&body).map_err(|e| format!("not a request: {e}"))?;
            requests.push((request, fds));
        }
        Ok(requests)
    }

    /// Queues one frame. `Err` means that the connection is over.
    pub(super) fn queue(
        &mut self,
        outgoing: &Outgoing,
        fds: Vec<OwnedFd>,
        poll: &mut Poll,
    ) -> Result<(), String> {
        let body = serde_json::to_vec(outgoing).map_err(|e| e.to_string())?;
        let bytes = frame(&body, fds.len());
        self.queued += bytes.len();
        if self.queued > MOST_QUEUED {
            return Err("it does not read its answers".to_owned());
        }
        self.queue.push_back(Queued { bytes, sent: 0, fds });
        self.flush(poll)
    }

    /// Writes what the socket takes. `Err` means that the connection is over.
    pub(super) fn flush(&mut self, poll: &mut Poll) -> Result<(), String> {
        while let Some(front) = self.queue.front_mut() {
            let fds: Vec<_> = front.fds.iter().map(AsFd::as_fd).collect();
            match send(&self.stream, &front.bytes[front.sent..], &fds) {
                Ok(sent) => {
                    drop(fds);
                    front.fds.clear();
                    front.sent += sent;
                    self.queued -= sent;
                    if front.sent == front.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        let wants = !self.queue.is_empty();
        if wants != self.wants_write {
            self.wants_write = wants;
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            poll.change(&self.stream, self.token, flags).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// An answer with a value.
pub(super) fn ok<T: Serialize>(seq: u64, value: &T) -> Outgoing {
    let raw = serde_json::value::to_raw_value(value).expect("answers are plain data");
    Outgoing { seq: Some(seq), ok: Some(raw), error: None, event: None }
}

/// An answer that says no.
pub(super) fn refused(seq: u64, refusal: Refusal) -> Outgoing {
    Outgoing { seq: Some(seq), ok: None, error: Some(refusal), event: None }
}

/// Roles and descriptors apart, as they travel.
pub(super) fn unzip(fds: Vec<(FdRole, OwnedFd)>) -> (Vec<FdRole>, Vec<OwnedFd>) {
    fds.into_iter().unzip()
}
