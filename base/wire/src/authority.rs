//! HTTP/2 clients that name a socket's path as the host they call.
//!
//! Go's gRPC sends what it was told to dial as `:authority`, for a unix socket its path, plain or with `%2F` for slashes. That
//! is no authority, and the HTTP/2 library ends such a stream with a protocol error before a service sees it. Here the
//! slashes and percent signs of an authority become hyphens on their way in. A hyphen takes as many bits, so no length
//! changes and both ends agree on the header table. Nothing else is looked at; what cannot be read passes as it is.
//! <https://www.rfc-editor.org/rfc/rfc7541>

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: usize = 24;
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The largest frame that a client may send unless it is told otherwise, which nobody here does.
const LARGEST: usize = 16_384;

/// A connection whose client may call a path its authority.
pub struct PathAuthority<S> {
    inner: S,
    frames: Frames,
    ready: Vec<u8>,
    taken: usize,
}

impl<S> PathAuthority<S> {
    /// Wraps a connection that was just accepted.
    pub fn new(inner: S) -> PathAuthority<S> {
        PathAuthority { inner, frames: Frames::default(), ready: Vec::new(), taken: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PathAuthority<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        while own.taken == own.ready.len() {
            own.ready.clear();
            own.taken = 0;
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut own.inner).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // What a client did not finish is for the library to complain of.
                own.ready.append(&mut own.frames.held);
                if own.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            own.frames.pass(read.filled(), &mut own.ready);
        }
        let count = out.remaining().min(own.ready.len() - own.taken);
        out.put_slice(&own.ready[own.taken..own.taken + count]);
        own.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PathAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Where in the stream of frames the next byte belongs.
#[derive(Default)]
struct Frames {
    /// How much of the preface has passed.
    preface: usize,
    /// The head of a frame, and all of one with headers, until it is complete.
    held: Vec<u8>,
    /// How much of a frame's payload is still to pass as it is.
    through: usize,
}

impl Frames {
    fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.preface < PREFACE {
                let count = bytes.len().min(PREFACE - self.preface);
                self.preface += count;
                out.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                continue;
            }
            if self.through > 0 {
                let count = bytes.len().min(self.through);
                self.through -= count;
                out.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                continue;
            }
            let wanted = self.wanted();
            let count = bytes.len().min(wanted - self.held.len());
            self.held.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.held.len() == self.wanted() {
                self.release(out);
            }
        }
    }

    fn payload(&self) -> usize {
        usize::from(self.held[0]) << 16 | usize::from(self.held[1]) << 8 | usize::from(self.held[2])
    }

    /// How many bytes are held before they are looked at: the head, or all of a frame with headers.
    fn wanted(&self) -> usize {
        if self.held.len() < HEAD || self.held[3] != HEADERS || self.payload() > LARGEST {
            HEAD
        } else {
            HEAD + self.payload()
        }
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        let payload = self.payload();
        if self.held.len() == HEAD + payload && self.held[3] == HEADERS {
            let flags = self.held[4];
            let (padding, priority) = (usize::from(flags & PADDED != 0), flags & PRIORITY != 0);
            let block = HEAD + padding + if priority { 5 } else { 0 };
            if let Some(block) = self.held.get_mut(block..) {
                mend(block);
            }
        } else {
            self.through = payload;
        }
        out.append(&mut self.held);
    }
}

/// Mends the authority in a block of header fields. `None`: the rest of it cannot be read.
fn mend(block: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        if first & 0x80 != 0 {
            (_, at) = integer(block, at, 7)?;
        } else if first & 0xe0 == 0x20 {
            (_, at) = integer(block, at, 5)?;
        } else {
            let (name, next) = integer(block, at, if first & 0x40 != 0 { 6 } else { 4 })?;
            at = next;
            if name == 0 {
                (_, at) = text(block, at)?;
            }
            let (value, next) = text(block, at)?;
            if name == 1 {
                match block[at] & 0x80 {
                    0 => block[value..next]
                        .iter_mut()
                        .filter(|byte| b"/%".contains(byte))
                        .for_each(|byte| *byte = b'-'),
                    _ => mend_coded(&mut block[value..next]),
                }
            }
            at = next;
        }
    }
    Some(())
}

/// A number whose first byte has `bits` for it, and where the next thing begins.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & most;
    if value < most {
        return Some((value, at + 1));
    }
    for (step, byte) in block.get(at + 1..)?.iter().take(4).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * step);
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + step));
        }
    }
    None
}

/// Where a string's bytes begin, and where they end.
fn text(block: &[u8], at: usize) -> Option<(usize, usize)> {
    let (length, begin) = integer(block, at, 7)?;
    let end = begin.checked_add(length).filter(|end| *end <= block.len())?;
    Some((begin, end))
}

/// Codes of HPACK's Huffman code, which is canonical: `%`, `-` and `/` are of six bits.
const PERCENT: u32 = 0x15;
const HYPHEN: u32 = 0x16;
const SLASH: u32 = 0x18;
/// By the length of a code, the first number of that length that is no code. Longer ones are of no character of a path.
const CODES: [(usize, u32); 4] = [(5, 0x0a), (6, 0x2e), (7, 0x7c), (8, 0xfe)];

/// Mends a string in Huffman's code.
fn mend_coded(coded: &mut [u8]) {
    let bits = coded.len() * 8;
    let mut at = 0;
    'symbols: while at < bits {
        for (length, end) in CODES {
            if at + length > bits {
                return;
            }
            let code = (at..at + length)
                .fold(0, |code, bit| code << 1 | u32::from(coded[bit / 8] >> (7 - bit % 8) & 1));
            if code < end {
                if length == 6 && [PERCENT, SLASH].contains(&code) {
                    for bit in 0..6 {
                        let (place, mask) = ((at + bit) / 8, 0x80_u8 >> ((at + bit) % 8));
                        let set = HYPHEN >> (5 - bit) & 1 == 1;
                        coded[place] = if set { coded[place] | mask } else { coded[place] & !mask };
                    }
                }
                at += length;
                continue 'symbols;
            }
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header fields around an authority that look like it and are not.
    fn block(authority: &[u8], coded: bool) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x44, 0x03, b'/', b'a', b'%', 0x41];
        block.push(u8::try_from(authority.len()).unwrap() | if coded { 0x80 } else { 0 });
        block.extend_from_slice(authority);
        block.extend_from_slice(&[0x00, 0x01, b'x', 0x02, b'/', b'%', 0x3f, 0xe1, 0x1f]);
        block
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn a_plain_path_becomes_a_name_and_nothing_else_changes() {
        let mut sent = block(b"/run/a%2Fb.sock", false);
        assert!(mend(&mut sent).is_some());
        assert_eq!(sent, block(b"-run-a-2Fb.sock", false));
    }

    #[test]
    fn a_path_in_huffmans_code_becomes_a_name() {
        // "/tmp/a.sock" and "-tmp-a.sock", "%2Fvar%2Flib" and "-2Fvar-2Flib", as Go encodes them.
        let plain = (
            [0x61, 0x34, 0xd6, 0xc0, 0xd7, 0x41, 0xc9, 0xd7],
            [0x59, 0x34, 0xd6, 0xb0, 0xd7, 0x41, 0xc9, 0xd7],
        );
        let escaped = (
            [0x54, 0x58, 0x7b, 0x8e, 0xc5, 0x45, 0x86, 0x83, 0x47],
            [0x58, 0x58, 0x7b, 0x8e, 0xc5, 0x85, 0x86, 0x83, 0x47],
        );
        for (sent, wanted) in [(&plain.0[..], &plain.1[..]), (&escaped.0, &escaped.1)] {
            let mut block = block(sent, true);
            assert!(mend(&mut block).is_some());
            assert_eq!(block, super::tests::block(wanted, true));
        }
    }

    #[test]
    fn frames_pass_however_they_are_cut() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let padded = |block: &[u8]| [&[2], block, &[0, 0]].concat();
        let stream = |name: &[u8]| {
            let priority = [&[0, 0, 0, 0, 16], block(name, false).as_slice()].concat();
            let frames = [
                frame(4, 0, &[0, 3, 0, 0, 0, 100]),
                frame(HEADERS, 4, &block(name, false)),
                frame(0, 1, b"/%/%"),
                frame(HEADERS, 4 | PADDED, &padded(&block(name, false))),
                frame(HEADERS, 4 | PRIORITY, &priority),
            ];
            [preface.as_slice(), &frames.concat()].concat()
        };
        let (sent, wanted) = (stream(b"/a/b"), stream(b"-a-b"));
        for size in [1, 2, 7, 24, 4096] {
            let (mut frames, mut out) = (Frames::default(), Vec::new());
            sent.chunks(size).for_each(|bytes| frames.pass(bytes, &mut out));
            assert_eq!(out, wanted, "in pieces of {size}");
        }
    }

    #[test]
    fn what_cannot_be_read_passes_as_it_is() {
        for bad in [
            &[0x41][..],
            &[0x41, 0x7f],
            &[0x41, 0x05, b'/'],
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x00, 0xff],
        ] {
            let mut sent = bad.to_vec();
            assert!(mend(&mut sent).is_none(), "{bad:?}");
            assert_eq!(sent, bad);
        }
        mend_coded(&mut []);
        mend_coded(&mut [0xff, 0xff]);
    }
}
