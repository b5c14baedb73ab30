//! Pax extended headers: `<length> <key>=<value>\n` records that override header fields.

use super::header::{Header, Mtime};
use super::reader::TarError;

const XATTR: &[u8] = b"SCHILY.xattr.";

/// Applies the records in `data` to `header`; gives whether the path was replaced.
pub(super) fn apply(data: &[u8], header: &mut Header) -> Result<(), TarError> {
    let mut rest = data;
    while !rest.is_empty() {
        let (key, value, after) = record(rest).ok_or(TarError::Pax)?;
        rest = after;
        one(key, value, header)?;
    }
    Ok(())
}

/// Splits the first record off `data`.
fn record(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = data.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
    let body = data.get(space + 1..length)?;
    let body = body.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], &data[length..]))
}

fn one(key: &[u8], value: &[u8], header: &mut Header) -> Result<(), TarError> {
    let number = |field: &'static str| {
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or(TarError::Number { field })
    };
    let id = |field| u32::try_from(number(field)?).map_err(|_| TarError::Number { field });
    match key {
        // An empty value cancels an override: the header's own field stands.
        _ if value.is_empty() && !key.starts_with(XATTR) => {}
        b"path" => header.path = no_nul(value)?,
        b"linkpath" => header.link = no_nul(value)?,
        b"size" => header.size = number("size")?,
        b"uid" => header.uid = id("uid")?,
        b"gid" => header.gid = id("gid")?,
        b"mtime" => header.mtime = mtime(value).ok_or(TarError::Number { field: "mtime" })?,
        _ if key.starts_with(b"GNU.sparse.") => return Err(TarError::Sparse),
        _ if key.starts_with(XATTR) => header.xattrs.push((no_nul(&key[XATTR.len()..])?, value.to_vec())),
        _ => {}
    }
    Ok(())
}

fn no_nul(value: &[u8]) -> Result<Vec<u8>, TarError> {
    if value.contains(&0) { Err(TarError::Pax) } else { Ok(value.to_vec()) }
}

/// `[-]seconds[.fraction]`.
fn mtime(value: &[u8]) -> Option<Mtime> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some(Mtime { seconds: seconds.checked_sub(1)?, nanos: 1_000_000_000 - nanos }),
        _ => Some(Mtime { seconds, nanos }),
    }
}

/// One record, its own length included.
pub(super) fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    while length != body + length.to_string().len() {
        length = body + length.to_string().len();
    }
    let mut out = format!("{length} ").into_bytes();
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
    out
}
