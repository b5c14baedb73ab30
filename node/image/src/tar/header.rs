//! One tar header block: decoding from and encoding to 512 bytes.

use super::reader::TarError;

/// The size of a header and the unit of padding.
pub(crate) const BLOCK: usize = 512;

/// What an entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// Another name of a file in the same archive.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
}

/// A modification time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mtime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// One entry's description, long names and pax records applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The path as written in the archive.
    pub path: Vec<u8>,
    /// The target of a link.
    pub link: Vec<u8>,
    /// What the entry makes.
    pub kind: Kind,
    /// Permission bits, without the file type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content that follow.
    pub size: u64,
    /// When the file was last changed.
    pub mtime: Mtime,
    /// Device numbers, major and minor.
    pub device: (u32, u32),
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A header block before long names and pax records are applied.
pub(super) struct Raw {
    pub(super) header: Header,
    pub(super) typeflag: u8,
}

/// Decodes a block; the caller has seen that it is not all zero.
pub(super) fn decode(block: &[u8; BLOCK]) -> Result<Raw, TarError> {
    check_sum(block)?;
    let typeflag = block[156];
    let ustar = &block[257..263] == b"ustar\0";
    let mut path = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    if ustar && !prefix.is_empty() {
        path = [prefix, b"/", &path].concat();
    }
    let id = |field: &[u8], name| {
        u32::try_from(number(field, name)?).map_err(|_| TarError::Number { field: name })
    };
    let kind = match typeflag {
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        _ if path.ends_with(b"/") => Kind::Directory,
        _ => Kind::File,
    };
    let device = match kind {
        Kind::CharDevice | Kind::BlockDevice => {
            (id(&block[329..337], "devmajor")?, id(&block[337..345], "devminor")?)
        }
        _ => (0, 0),
    };
    let size = number(&block[124..136], "size")?;
    let header = Header {
        path,
        link: text(&block[157..257]).to_vec(),
        kind,
        mode: id(&block[100..108], "mode")? & 0o7777,
        uid: id(&block[108..116], "uid")?,
        gid: id(&block[116..124], "gid")?,
        size: u64::try_from(size).map_err(|_| TarError::Number { field: "size" })?,
        mtime: Mtime { seconds: number(&block[136..148], "mtime")?, nanos: 0 },
        device,
        xattrs: Vec::new(),
    };
    Ok(Raw { header, typeflag })
}

/// The bytes of a field up to its first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|byte| *byte == 0).unwrap_or(field.len())]
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), TarError> {
    let stored = number(&block[148..156], "checksum")?;
    let (mut unsigned, mut signed) = (0i64, 0i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    if stored == unsigned || stored == signed { Ok(()) } else { Err(TarError::Checksum) }
}

/// Octal text, or base-256 if the first bit is set.
fn number(field: &[u8], name: &'static str) -> Result<i64, TarError> {
    let bad = || TarError::Number { field: name };
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i64 = if negative { -1 } else { 0 };
        for (at, byte) in field.iter().enumerate() {
            let byte = if at == 0 && !negative { byte & 0x7f } else { *byte };
            value = value.checked_mul(256).ok_or_else(bad)? | i64::from(byte);
        }
        return Ok(value);
    }
    let digits = text(field);
    let digits = digits.trim_ascii();
    let mut value = 0i64;
    for digit in digits {
        if !(b'0'..=b'7').contains(digit) {
            return Err(bad());
        }
        value = value.checked_mul(8).and_then(|v| v.checked_add(i64::from(digit - b'0'))).ok_or_else(bad)?;
    }
    Ok(value)
}

/// Encodes a ustar block; false if a field does not fit and a pax record must carry it.
pub(super) fn encode(header: &Header, typeflag: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let path_len = header.path.len().min(100);
    block[..path_len].copy_from_slice(&header.path[..path_len]);
    let link_len = header.link.len().min(100);
    block[157..157 + link_len].copy_from_slice(&header.link[..link_len]);
    octal(&mut block[100..108], u64::from(header.mode));
    octal(&mut block[108..116], u64::from(header.uid));
    octal(&mut block[116..124], u64::from(header.gid));
    octal(&mut block[124..136], header.size);
    octal(&mut block[136..148], u64::try_from(header.mtime.seconds).unwrap_or(0));
    block[156] = typeflag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    octal(&mut block[329..337], u64::from(header.device.0));
    octal(&mut block[337..345], u64::from(header.device.1));
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut block[148..155], sum);
    block
}

/// Octal with a final NUL; base-256 if it does not fit.
fn octal(field: &mut [u8], value: u64) {
    let width = field.len() - 1;
    let digits = format!("{value:0width$o}");
    if digits.len() <= width {
        field[..width].copy_from_slice(digits.as_bytes());
        field[width] = 0;
    } else {
        let bytes = value.to_be_bytes();
        field.fill(0);
        let start = field.len().saturating_sub(8);
        let take = field.len().min(8);
        field[start..].copy_from_slice(&bytes[8 - take..]);
        field[0] |= 0x80;
    }
}
