//! Bytes and descriptors over a Unix stream socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::protocol::{HEADER, MAX_FDS, parse_header};

/// Sends as much of `bytes` as the socket takes; the descriptors travel with the first byte.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("more descriptors than one frame carries"));
    }
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(sent)
}

/// Sends all of `bytes` on a blocking socket.
pub(crate) fn send_all(socket: impl AsFd, mut bytes: &[u8], mut fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = send(&socket, bytes, fds)?;
        bytes = &bytes[sent..];
        fds = &[];
    }
    Ok(())
}

/// Receives into `buffer`, appending descriptors to `fds`; 0 is the end of the stream.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    fds: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(received.bytes)
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

/// One frame: its body and its descriptors.
pub(crate) type Frame = (Vec<u8>, Vec<OwnedFd>);

impl Frames {
    /// Reads once from the socket; false at the end of the stream.
    pub(crate) fn fill(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        let read = receive(socket, &mut buffer, &mut self.fds)?;
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read > 0)
    }

    /// Takes bytes that came some other way.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, String> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let (length, fds) = parse_header(*header)?;
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        if self.fds.len() < fds {
            return Err("a frame without its descriptors".to_owned());
        }
        let body = self.bytes[HEADER..HEADER + length].to_vec();
        self.bytes.drain(..HEADER + length);
        if self.bytes.is_empty() && self.bytes.capacity() > 64 << 10 {
            self.bytes = Vec::new();
        }
        Ok(Some((body, self.fds.drain(..fds).collect())))
    }

    /// Takes `N` raw bytes off the front once they are there, for the hello.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.bytes.first_chunk::<N>()?;
        self.bytes.drain(..N);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_frame_arrives_whole_with_its_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let bytes = frame(b"{\"seq\":1}", 1);
        send_all(&a, &bytes[..5], &[file.as_fd()]).unwrap();
        let mut frames = Frames::default();
        assert!(frames.fill(&b).unwrap());
        assert!(frames.next().unwrap().is_none());
        send_all(&a, &bytes[5..], &[]).unwrap();
        assert!(frames.fill(&b).unwrap());
        let (body, fds) = frames.next().unwrap().unwrap();
        assert_eq!(body, b"{\"seq\":1}");
        assert_eq!(fds.len(), 1);
        drop(a);
        assert!(!frames.fill(&b).unwrap());
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_header() {
        let (a, b) = UnixStream::pair().unwrap();
        send_all(&a, &[0xff; 8], &[]).unwrap();
        let mut frames = Frames::default();
        frames.fill(&b).unwrap();
        assert!(frames.next().is_err());
    }
}
