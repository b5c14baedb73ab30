//! ttrpc on the wire: frames, and the messages in them. Pure; connections are made elsewhere.
//!
//! A frame is a header of ten bytes (length, stream, kind, flags; big endian) and its data. Only unary calls
//! are spoken here: one request frame, one response frame, on the same odd stream number.
//!
//! <https://github.com/containerd/ttrpc/blob/main/PROTOCOL.md>

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

/// Bytes of a frame header.
pub const HEADER_LEN: usize = 10;
/// Most data one frame may carry.
pub const MESSAGE_LIMIT: usize = 4 << 20;

/// Status codes, the same as gRPC's.
pub mod code {
    /// The caller gave something unusable.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// No answer in time.
    pub const DEADLINE_EXCEEDED: i32 = 4;
    /// Too much at once.
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    /// Not possible in this state.
    pub const FAILED_PRECONDITION: i32 = 9;
    /// The method is not known.
    pub const UNIMPLEMENTED: i32 = 12;
    /// Anything else.
    pub const UNKNOWN: i32 = 2;
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request,
    /// Its answer.
    Response,
    /// A part of a stream, which no unary call has.
    Data,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The call it belongs to.
    pub stream: u32,
    /// What it is.
    pub kind: Kind,
    /// Stream flags; zero in unary calls.
    pub flags: u8,
    /// An encoded [`Request`] or [`Response`].
    pub data: Bytes,
}

/// What is wrong with received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame announces more than may be sent.
    #[error("a frame of {len} bytes exceeds the limit of {MESSAGE_LIMIT}")]
    TooLarge {
        /// What it announces.
        len: usize,
    },
    /// A frame of no known kind.
    #[error("a frame of unknown kind {kind}")]
    Kind {
        /// What it says.
        kind: u8,
    },
}

/// Writes a frame; the caller keeps `data` within [`MESSAGE_LIMIT`].
pub fn encode(stream: u32, kind: Kind, message: &impl Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + message.encoded_len());
    let len = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(match kind {
        Kind::Request => 1,
        Kind::Response => 2,
        Kind::Data => 3,
    });
    out.push(0);
    out.extend_from_slice(&message.encode_to_vec());
    out
}

/// Puts frames together from bytes that arrive in any portions.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Takes in what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.buffer.len() < HEADER_LEN {
            return Ok(None);
        }
        let word =
            |at: usize| u32::from_be_bytes(self.buffer[at..at + 4].try_into().expect("the header is there"));
        let (len, stream) = (word(0) as usize, word(4));
        if len > MESSAGE_LIMIT {
            return Err(FrameError::TooLarge { len });
        }
        let kind = match self.buffer[8] {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::Data,
            kind => return Err(FrameError::Kind { kind }),
        };
        if self.buffer.len() < HEADER_LEN + len {
            return Ok(None);
        }
        let flags = self.buffer[9];
        self.buffer.advance(HEADER_LEN);
        Ok(Some(Frame { stream, kind, flags, data: self.buffer.split_to(len).freeze() }))
    }
}

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// The full name of the service.
    #[prost(string, tag = "1")]
    pub service: String,
    /// The method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded argument.
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    /// How long the caller will wait; 0 means for ever.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
    /// Anything else, for example the trace context.
    #[prost(message, repeated, tag = "5")]
    pub metadata: Vec<KeyValue>,
}

/// An answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    /// How it went; absent or code 0 means well.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The encoded result.
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
}

/// Why a call failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// One of [`code`].
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// One piece of metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_from_any_portions() {
        let request = Request { service: "s".into(), method: "m".into(), ..Request::default() };
        let bytes = encode(7, Kind::Request, &request);
        let mut decoder = Decoder::default();
        for (n, byte) in bytes.iter().enumerate() {
            assert_eq!(decoder.next_frame(), Ok(None), "after {n} bytes");
            decoder.push(&[*byte]);
        }
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!((frame.stream, frame.kind), (7, Kind::Request));
        assert_eq!(Request::decode(frame.data).unwrap(), request);
    }

    #[test]
    fn nonsense_is_refused_before_it_is_waited_for() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1, 1, 0]);
        assert!(matches!(decoder.next_frame(), Err(FrameError::TooLarge { .. })));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 0, 0, 0, 1, 9, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Kind { kind: 9 }));
    }
}
