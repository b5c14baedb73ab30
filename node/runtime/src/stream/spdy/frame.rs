//! Frames: eight bytes of header, then control fields or data.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::block::{BlockError, Headers, Packer, Unpacker};

const VERSION: u16 = 3;
const FLAG_FIN: u8 = 1;
/// The largest control frame accepted; header blocks are small.
const MAX_CONTROL: usize = 128 * 1024;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// Why a peer's bytes are not SPDY.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Another version of the protocol.
    #[error("frame of SPDY version {0}")]
    Version(u16),
    /// A control frame larger than any that is needed.
    #[error("control frame of {0} bytes")]
    TooLarge(usize),
    /// A control frame too short for its fields.
    #[error("control frame of type {0} is too short")]
    Short(u16),
    /// Its headers cannot be read.
    #[error("headers of a stream")]
    Headers(#[from] BlockError),
}

/// A frame, or a part of a data frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The new stream.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// What the stream is for.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// The stream.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// Usually none.
        headers: Headers,
    },
    /// Ends a stream at once.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        status: u32,
    },
    /// More headers for a stream.
    Headers {
        /// The stream.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Asks for the same frame back.
    Ping {
        /// Odd if a client asks.
        id: u32,
    },
    /// The sender will take no more streams.
    GoAway {
        /// The last stream it took.
        last: u32,
        /// Why.
        status: u32,
    },
    /// Data of a stream.
    Data {
        /// The stream.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// The data.
        data: Bytes,
    },
    /// A control frame that is not needed, such as SETTINGS or WINDOW_UPDATE.
    Other {
        /// Its type.
        kind: u16,
    },
}

/// Takes a peer's bytes apart.
pub struct Decoder {
    unpacker: Unpacker,
    /// The data frame being received: stream, fin, bytes still to come.
    data: Option<(u32, bool, usize)>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder for one direction of one connection.
    pub fn new() -> Self {
        Self { unpacker: Unpacker::new(), data: None }
    }

    /// Takes the next frame out of `buffer`, or `None` if more bytes are needed.
    ///
    /// A data frame is given in parts as it arrives; only its last part carries `fin`.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some((stream, fin, left)) = self.data {
            if buffer.is_empty() {
                return Ok(None);
            }
            return Ok(Some(self.part(buffer, stream, fin, left)));
        }
        let Some(head) = buffer.first_chunk::<8>() else { return Ok(None) };
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length =
            usize::try_from(u32::from_be_bytes([0, head[5], head[6], head[7]])).expect("24 bits fit");
        if first & 0x8000_0000 == 0 {
            buffer.advance(8);
            return Ok(Some(self.part(buffer, first, flags & FLAG_FIN != 0, length)));
        }
        let version = u16::from_be_bytes([head[0] & 0x7f, head[1]]);
        let kind = u16::from_be_bytes([head[2], head[3]]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > MAX_CONTROL {
            return Err(FrameError::TooLarge(length));
        }
        if buffer.len() < 8 + length {
            return Ok(None);
        }
        buffer.advance(8);
        let mut body = buffer.split_to(length).freeze();
        self.control(kind, flags & FLAG_FIN != 0, &mut body).map(Some)
    }

    fn part(&mut self, buffer: &mut BytesMut, stream: u32, fin: bool, left: usize) -> Frame {
        let take = left.min(buffer.len());
        let data = buffer.split_to(take).freeze();
        let rest = left - take;
        self.data = (rest > 0).then_some((stream, fin, rest));
        Frame::Data { stream, fin: fin && rest == 0, data }
    }

    fn control(&mut self, kind: u16, fin: bool, body: &mut Bytes) -> Result<Frame, FrameError> {
        let needed = match kind {
            SYN_STREAM => 10,
            SYN_REPLY | HEADERS | PING => 4,
            RST_STREAM | GOAWAY => 8,
            _ => 0,
        };
        if body.len() < needed {
            return Err(FrameError::Short(kind));
        }
        let id = |body: &mut Bytes| body.get_u32() & 0x7fff_ffff;
        Ok(match kind {
            SYN_STREAM => {
                let stream = id(body);
                // The associated stream, priority and slot mean nothing here.
                body.advance(6);
                Frame::SynStream { stream, fin, headers: self.unpacker.unpack(body)? }
            }
            SYN_REPLY => {
                let stream = id(body);
                Frame::SynReply { stream, fin, headers: self.unpacker.unpack(body)? }
            }
            HEADERS => {
                let stream = id(body);
                Frame::Headers { stream, fin, headers: self.unpacker.unpack(body)? }
            }
            RST_STREAM => Frame::Reset { stream: id(body), status: body.get_u32() },
            PING => Frame::Ping { id: body.get_u32() },
            GOAWAY => Frame::GoAway { last: id(body), status: body.get_u32() },
            kind => Frame::Other { kind },
        })
    }
}

/// Makes the bytes for a peer.
pub struct Encoder {
    packer: Packer,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder for one direction of one connection.
    pub fn new() -> Self {
        Self { packer: Packer::new() }
    }

    /// Appends `frame` to `out`; data must be shorter than 16 MiB.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        match frame {
            Frame::SynStream { stream, fin, headers } => {
                let block = self.packer.pack(headers);
                let mut fields = stream.to_be_bytes().to_vec();
                fields.extend_from_slice(&[0; 6]);
                control(out, SYN_STREAM, *fin, &[&fields, &block]);
            }
            Frame::SynReply { stream, fin, headers } => {
                let block = self.packer.pack(headers);
                control(out, SYN_REPLY, *fin, &[&stream.to_be_bytes(), &block]);
            }
            Frame::Headers { stream, fin, headers } => {
                let block = self.packer.pack(headers);
                control(out, HEADERS, *fin, &[&stream.to_be_bytes(), &block]);
            }
            Frame::Reset { stream, status } => {
                control(out, RST_STREAM, false, &[&stream.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Ping { id } => control(out, PING, false, &[&id.to_be_bytes()]),
            Frame::GoAway { last, status } => {
                control(out, GOAWAY, false, &[&last.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Data { stream, fin, data } => {
                out.put_u32(stream & 0x7fff_ffff);
                head(out, *fin, data.len());
                out.put_slice(data);
            }
            Frame::Other { kind } => control(out, *kind, false, &[]),
        }
    }
}

fn control(out: &mut BytesMut, kind: u16, fin: bool, parts: &[&[u8]]) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    head(out, fin, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.put_slice(part));
}

/// Flags and the 24 bits of length.
fn head(out: &mut BytesMut, fin: bool, length: usize) {
    debug_assert!(length < 1 << 24, "a frame's length has 24 bits");
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    out.put_u32(length | (u32::from(fin) * u32::from(FLAG_FIN)) << 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> Headers {
        vec![("streamtype".to_owned(), "error".to_owned())]
    }

    fn frames() -> Vec<Frame> {
        vec![
            Frame::SynStream { stream: 1, fin: false, headers: headers() },
            Frame::SynReply { stream: 1, fin: false, headers: vec![] },
            Frame::Data { stream: 1, fin: false, data: Bytes::from_static(b"hello") },
            Frame::Ping { id: 1 },
            Frame::Headers { stream: 1, fin: true, headers: headers() },
            Frame::Reset { stream: 3, status: 5 },
            Frame::Other { kind: 9 },
            Frame::Data { stream: 1, fin: true, data: Bytes::new() },
            Frame::GoAway { last: 3, status: 0 },
        ]
    }

    #[test]
    fn frames_round_trip_whole_and_byte_by_byte() {
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new();
        frames().iter().for_each(|frame| encoder.encode(frame, &mut bytes));
        let (mut decoder, mut buffer) = (Decoder::new(), bytes.clone());
        let mut seen = Vec::new();
        while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
            seen.push(frame);
        }
        assert_eq!(seen, frames());

        let (mut decoder, mut buffer, mut text, mut others) =
            (Decoder::new(), BytesMut::new(), Vec::new(), 0);
        for byte in bytes {
            buffer.extend_from_slice(&[byte]);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                match frame {
                    Frame::Data { data, .. } => text.extend_from_slice(&data),
                    _ => others += 1,
                }
            }
        }
        assert_eq!((text.as_slice(), others), (&b"hello"[..], 7));
    }

    #[test]
    fn hostile_frames_are_refused() {
        let decode = |bytes: &[u8]| Decoder::new().decode(&mut BytesMut::from(bytes));
        assert_eq!(decode(&[0x80, 2, 0, 1, 0, 0, 0, 0]), Err(FrameError::Version(2)));
        assert_eq!(decode(&[0x80, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1]), Err(FrameError::Short(1)));
        assert_eq!(decode(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]), Err(FrameError::TooLarge(0xff_ffff)));
        assert_eq!(decode(&[0x80, 3, 0]), Ok(None));
    }

    #[test]
    fn damaged_streams_never_panic_and_always_end() {
        let mut seed = BytesMut::new();
        let mut encoder = Encoder::new();
        (0..5).for_each(|_| frames().iter().for_each(|frame| encoder.encode(frame, &mut seed)));
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % bound as u64).unwrap()
        };
        let mut refused = 0;
        for _ in 0..2000 {
            let mut bytes = seed.clone();
            for _ in 0..=next(6) {
                let at = next(bytes.len());
                bytes[at] = u8::try_from(next(256)).unwrap();
            }
            bytes.truncate(next(bytes.len()));
            let mut decoder = Decoder::new();
            loop {
                let before = bytes.len();
                match decoder.decode(&mut bytes) {
                    Ok(Some(_)) => assert!(bytes.len() < before, "a frame takes bytes"),
                    Ok(None) => break,
                    Err(_) => {
                        refused += 1;
                        break;
                    }
                }
            }
        }
        assert!(refused > 100, "the damage must reach the decoder: {refused}");
    }
}
