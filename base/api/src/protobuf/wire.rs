//! The wire format itself: varints, tags and lengths.

use super::ProtobufError;

pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

pub(crate) fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3, out);
    varint(value, out);
}

pub(crate) fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    head(field, value.len(), out);
    out.extend_from_slice(value);
}

/// What comes before so many bytes of a field.
pub(crate) fn head(field: u32, length: usize, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 2, out);
    varint(length as u64, out);
}

pub(crate) fn double(field: u32, value: f64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A field's payload.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    pub(crate) fn wire_type(self) -> u8 {
        match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Fixed32(_) => 5,
        }
    }
}

/// Reads fields one after another.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(ProtobufError::Truncated)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], ProtobufError> {
        let count =
            usize::try_from(count).ok().filter(|c| *c <= self.rest.len()).ok_or(ProtobufError::Truncated)?;
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// The next field, none at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => {
                let taken = self.take(8)?;
                Payload::Fixed64(u64::from_le_bytes(taken.try_into().map_err(|_| ProtobufError::Truncated)?))
            }
            2 => {
                let length = self.varint()?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                let taken = self.take(4)?;
                Payload::Fixed32(u32::from_le_bytes(taken.try_into().map_err(|_| ProtobufError::Truncated)?))
            }
            other => {
                return Err(ProtobufError::WireType {
                    number,
                    wire_type: u8::try_from(other).unwrap_or_default(),
                });
            }
        };
        Ok(Some((number, payload)))
    }
}
