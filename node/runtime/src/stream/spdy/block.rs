//! Header blocks: zlib with the protocol's dictionary, names and values with their lengths.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Names and values in order; names are lower case on the wire.
pub type Headers = Vec<(String, String)>;

/// The most bytes a header block may unpack to.
pub const MAX_BLOCK: usize = 64 * 1024;

/// Why a header block cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The compressed bytes are damaged.
    #[error("header block is damaged")]
    Damaged,
    /// The block unpacks to more than [`MAX_BLOCK`].
    #[error("header block is larger than {MAX_BLOCK} bytes")]
    TooLarge,
    /// The unpacked block is not names and values.
    #[error("header block is malformed")]
    Malformed,
}

/// Words of the dictionary that are preceded by their length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The rest of the dictionary, as it is.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary of SPDY version 3.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS.split_ascii_whitespace() {
        // The one word with a space in it.
        let word = word.replace('_', " ");
        let length = u32::try_from(word.len()).expect("words are short");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// Unpacks the header blocks of one direction.
pub(super) struct Unpacker(Decompress);

impl Unpacker {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn unpack(&mut self, block: &[u8]) -> Result<Headers, BlockError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, BlockError> {
        let start = self.0.total_in();
        let mut out = Vec::with_capacity(1024);
        loop {
            let used = usize::try_from(self.0.total_in() - start).map_err(|_| BlockError::Damaged)?;
            let input = &block[used.min(block.len())..];
            let before = (self.0.total_in(), self.0.total_out());
            match self.0.decompress_vec(input, &mut out, FlushDecompress::Sync) {
                Ok(Status::StreamEnd) => return Err(BlockError::Damaged),
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|_| BlockError::Damaged)?;
                    continue;
                }
                Err(_) => return Err(BlockError::Damaged),
            }
            if out.len() > MAX_BLOCK {
                return Err(BlockError::TooLarge);
            }
            let moved = (self.0.total_in(), self.0.total_out()) != before;
            let room = out.len() < out.capacity();
            if usize::try_from(self.0.total_in() - start).is_ok_and(|used| used >= block.len()) && room {
                return Ok(out);
            }
            if !moved && room {
                return Err(BlockError::Damaged);
            }
            out.reserve(4096);
        }
    }
}

/// Reads an unpacked block.
fn parse(bytes: &[u8]) -> Result<Headers, BlockError> {
    let mut rest = bytes;
    let count = number(&mut rest)?;
    // Each pair takes at least eight bytes.
    if count > bytes.len() / 8 {
        return Err(BlockError::Malformed);
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(&mut rest)?;
        let value = text(&mut rest)?;
        headers.push((name.to_ascii_lowercase(), value));
    }
    Ok(headers)
}

fn number(rest: &mut &[u8]) -> Result<usize, BlockError> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or(BlockError::Malformed)?;
    *rest = tail;
    usize::try_from(u32::from_be_bytes(*head)).map_err(|_| BlockError::Malformed)
}

fn text(rest: &mut &[u8]) -> Result<String, BlockError> {
    let length = number(rest)?;
    let (head, tail) = rest.split_at_checked(length).ok_or(BlockError::Malformed)?;
    *rest = tail;
    String::from_utf8(head.to_vec()).map_err(|_| BlockError::Malformed)
}

/// Packs the header blocks of one direction.
pub(super) struct Packer(Compress);

impl Packer {
    pub(super) fn new() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).expect("a fresh compressor takes a dictionary");
        Self(compress)
    }

    pub(super) fn pack(&mut self, headers: &Headers) -> Vec<u8> {
        let mut plain = Vec::new();
        let mut put = |bytes: &[u8]| {
            plain.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            plain.extend_from_slice(bytes);
        };
        for (name, value) in headers {
            put(name.to_ascii_lowercase().as_bytes());
            put(value.as_bytes());
        }
        let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
        let plain = [&count.to_be_bytes(), plain.as_slice()].concat();
        let start = self.0.total_in();
        let mut out = Vec::with_capacity(plain.len() + 64);
        loop {
            let used = usize::try_from(self.0.total_in() - start).unwrap_or(plain.len());
            self.0
                .compress_vec(&plain[used.min(plain.len())..], &mut out, FlushCompress::Sync)
                .expect("a compressor takes any bytes");
            // Room left in the output means that everything was flushed into it.
            if out.len() < out.capacity() {
                return out;
            }
            out.reserve(1024);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let bytes = dictionary();
        assert_eq!(bytes.len(), 1423);
        // Adler-32, by which zlib names a dictionary.
        let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        assert_eq!((b << 16) | a, 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_of_one_direction_share_a_context() {
        let (mut packer, mut unpacker) = (Packer::new(), Unpacker::new());
        let headers =
            vec![("streamtype".to_owned(), "stdout".to_owned()), ("port".to_owned(), "80".to_owned())];
        for round in 0..50 {
            let packed = packer.pack(&headers);
            assert_eq!(unpacker.unpack(&packed).unwrap(), headers, "round {round}");
        }
        assert_eq!(unpacker.unpack(&packer.pack(&vec![])).unwrap(), vec![]);
        let long = vec![("a".to_owned(), "x".repeat(30_000))];
        assert_eq!(unpacker.unpack(&packer.pack(&long)).unwrap(), long);
        assert_eq!(unpacker.unpack(&packer.pack(&headers)).unwrap(), headers);
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let huge = vec![("a".to_owned(), "x".repeat(MAX_BLOCK))];
        assert_eq!(Unpacker::new().unpack(&Packer::new().pack(&huge)), Err(BlockError::TooLarge));
        assert_eq!(Unpacker::new().unpack(b"garbage"), Err(BlockError::Damaged));
        assert!(Unpacker::new().unpack(b"").is_err());
        assert_eq!(parse(&[0xff; 8]), Err(BlockError::Malformed));
        assert_eq!(parse(&[0, 0, 0, 1, 0, 0, 0, 9, b'a']), Err(BlockError::Malformed));
    }
}
