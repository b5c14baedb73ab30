//! Frames of NRI's multiplexer, put together from bytes that arrive in any portions. Pure.
//!
//! A frame is a connection number and a length (big endian, four bytes each) and the payload. Connections are not
//! opened or closed on the wire; each carries a stream of ttrpc messages that may be cut anywhere.

use podwire_wire::ttrpc::{self, Decoder, Frame, FrameError, MESSAGE_LIMIT};

/// The connection on which plugins serve.
pub const PLUGIN_CONN: u32 = 1;
/// The connection on which runtimes serve.
pub const RUNTIME_CONN: u32 = 2;
/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 8;
/// The largest payload of a frame.
pub const FRAME_LIMIT: usize = MESSAGE_LIMIT + ttrpc::HEADER_LEN;
/// The largest first part of a message: Go's reader gives up on a longer one.
/// `conn.Read` in <https://github.com/containerd/nri/blob/v0.12.0/pkg/net/multiplex/mux.go>, behind the buffer of
/// <https://pkg.go.dev/bufio#NewReader>.
const FIRST_PART: usize = 4096;

/// What is wrong with received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MuxError {
    /// A frame announces more than may be sent.
    #[error("a multiplexer frame of {len} bytes exceeds the limit of {FRAME_LIMIT}")]
    TooLarge {
        /// What it announces.
        len: usize,
    },
    /// The message inside is not ttrpc.
    #[error("not ttrpc: {0}")]
    Message(#[from] FrameError),
}

/// The header of a frame: its connection and the length of its payload.
pub fn header(bytes: [u8; HEADER_LEN]) -> Result<(u32, usize), MuxError> {
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let len = word(4) as usize;
    if len > FRAME_LIMIT { Err(MuxError::TooLarge { len }) } else { Ok((word(0), len)) }
}

/// The messages of both connections.
#[derive(Debug, Default)]
pub struct Demux {
    plugin: Decoder,
    runtime: Decoder,
}

impl Demux {
    /// Takes in the payload of a frame; one for a connection that nobody has is dropped.
    pub fn push(&mut self, conn: u32, payload: &[u8]) {
        match conn {
            PLUGIN_CONN => self.plugin.push(payload),
            RUNTIME_CONN => self.runtime.push(payload),
            _ => {}
        }
    }

    /// The next whole message on a connection, if there is one.
    pub fn next(&mut self, conn: u32) -> Result<Option<Frame>, MuxError> {
        Ok(match conn {
            PLUGIN_CONN => self.plugin.next_frame()?,
            RUNTIME_CONN => self.runtime.next_frame()?,
            _ => None,
        })
    }
}

/// Cuts a message as Go's writer does: a first frame that fits its reader's buffer, then all the rest.
pub fn frames(conn: u32, message: &[u8]) -> Vec<u8> {
    let (first, rest) = message.split_at(message.len().min(FIRST_PART));
    let mut out = Vec::with_capacity(message.len() + 2 * HEADER_LEN);
    for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
        out.extend_from_slice(&conn.to_be_bytes());
        out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// Takes any bytes as one side of a connection would, and returns how many whole messages they held.
pub fn scan(mut bytes: &[u8]) -> Result<usize, MuxError> {
    let (mut demux, mut count) = (Demux::default(), 0);
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let (conn, len) = header(*head)?;
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        bytes = rest;
        demux.push(conn, payload);
        while demux.next(conn)?.is_some() {
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_wire::nri::Empty;
    use podwire_wire::ttrpc::Kind;

    #[test]
    fn a_message_is_cut_as_go_expects() {
        let cut = frames(1, &vec![7; 10_000]);
        assert_eq!(cut[..8], [0, 0, 0, 1, 0, 0, 0x10, 0]);
        assert_eq!(cut[8 + 4096..8 + 4096 + 8], [0, 0, 0, 1, 0, 0, 0x17, 0x10]);
        assert_eq!(frames(2, &[1, 2]), [0, 0, 0, 2, 0, 0, 0, 2, 1, 2]);
    }

    #[test]
    fn messages_of_both_connections_are_told_apart_and_others_dropped() {
        let one = ttrpc::encode(1, Kind::Request, &Empty {});
        let mut bytes = Vec::new();
        // A message in two frames, with a frame of the other connection and one of nobody's in between.
        bytes.extend(frames(PLUGIN_CONN, &one[..4]));
        bytes.extend(frames(RUNTIME_CONN, &one));
        bytes.extend(frames(9, &[0xFF; 20]));
        bytes.extend(frames(PLUGIN_CONN, &one[4..]));
        assert_eq!(scan(&bytes), Ok(2));
    }

    #[test]
    fn too_much_is_refused_before_it_is_read() {
        assert!(matches!(scan(&[0, 0, 0, 1, 0xFF, 0, 0, 0]), Err(MuxError::TooLarge { .. })));
        let huge = [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0xFF; 10]].concat();
        assert!(matches!(scan(&huge), Err(MuxError::Message(FrameError::TooLarge { .. }))));
    }
}
