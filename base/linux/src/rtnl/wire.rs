//! Netlink's wire format: several messages built into one buffer, and attributes walked in replies.
//!
//! Knows nothing of any netlink family. See <https://docs.kernel.org/userspace-api/netlink/intro.html>.

use std::net::IpAddr;

/// Length of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// The request flag every message carries.
pub const NLM_F_REQUEST: u16 = 0x1;
/// Asks for an acknowledgement.
pub const NLM_F_ACK: u16 = 0x4;
/// Asks the kernel to send the object it made back to the sender.
pub const NLM_F_ECHO: u16 = 0x8;
/// Replace what exists (new requests).
pub const NLM_F_REPLACE: u16 = 0x100;
/// Fail if it exists (new requests).
pub const NLM_F_EXCL: u16 = 0x200;
/// Create if absent (new requests).
pub const NLM_F_CREATE: u16 = 0x400;
/// Add at the end (new requests).
pub const NLM_F_APPEND: u16 = 0x800;
/// All objects (get requests).
pub const NLM_F_DUMP: u16 = 0x300;
/// Set by the kernel when a dump was disturbed by a change.
pub const NLM_F_DUMP_INTR: u16 = 0x10;

const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Several netlink messages, sent in one system call.
#[derive(Default)]
pub struct Batch {
    pub(crate) buf: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
}

/// Where a message of a batch begins and what it attempts.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) start: usize,
    pub(crate) attempt: &'static str,
    pub(crate) acked: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Appends one message; `attempt` names it in errors ("create veth").
    pub fn push(
        &mut self,
        attempt: &'static str,
        kind: u16,
        flags: u16,
        fill: impl FnOnce(&mut Message<'_>),
    ) {
        let start = self.buf.len();
        self.marks.push(Mark {
            start,
            attempt,
            acked: flags & NLM_F_ACK != 0 || flags & NLM_F_DUMP == NLM_F_DUMP,
        });
        self.buf.extend_from_slice(&[0; HEADER]);
        self.buf[start + 4..start + 6].copy_from_slice(&kind.to_ne_bytes());
        self.buf[start + 6..start + 8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        fill(&mut Message { buf: &mut self.buf });
        let len = u32::try_from(self.buf.len() - start).expect("a netlink message is far below 4 GiB");
        self.buf[start..start + 4].copy_from_slice(&len.to_ne_bytes());
        pad(&mut self.buf);
    }
}

/// The body of a message under construction.
pub struct Message<'a> {
    buf: &'a mut Vec<u8>,
}

impl Message<'_> {
    /// Appends raw bytes (the family's fixed header).
    pub fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.buf.extend_from_slice(bytes);
        pad(self.buf);
        self
    }

    /// Appends an attribute.
    pub fn attr(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let len = u16::try_from(value.len() + 4).expect("a netlink attribute is at most 64 KiB");
        self.buf.extend_from_slice(&len.to_ne_bytes());
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        self.buf.extend_from_slice(value);
        pad(self.buf);
        self
    }

    /// Appends a one-byte attribute.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.attr(kind, &[value])
    }

    /// Appends a two-byte attribute in host order.
    pub fn u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a four-byte attribute in host order.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends an eight-byte attribute in host order.
    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a four-byte attribute in network order.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends an eight-byte attribute in network order.
    pub fn be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends a NUL-terminated string.
    pub fn str(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Appends an address in network order.
    pub fn ip(&mut self, kind: u16, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(ip) => self.attr(kind, &ip.octets()),
            IpAddr::V6(ip) => self.attr(kind, &ip.octets()),
        }
    }

    /// Appends an attribute made of what `fill` appends.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message<'_>)) -> &mut Self {
        self.container(kind | NLA_F_NESTED, fill)
    }

    /// Like [`Self::nested`] without the nested flag, for families that predate it.
    pub fn container(&mut self, kind: u16, fill: impl FnOnce(&mut Message<'_>)) -> &mut Self {
        let start = self.buf.len();
        self.buf.extend_from_slice(&[0; 4]);
        fill(&mut Message { buf: self.buf });
        let len = u16::try_from(self.buf.len() - start).expect("a netlink attribute is at most 64 KiB");
        self.buf[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.buf[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self
    }
}

fn pad(buf: &mut Vec<u8>) {
    while !buf.len().is_multiple_of(4) {
        buf.push(0);
    }
}

/// Attributes of a reply; malformed tails end the walk.
#[derive(Clone, Copy)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Attrs<'a> {
    /// The value of the first attribute of this type.
    pub fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// The attributes nested in the first attribute of this type.
    pub fn nested(self, kind: u16) -> Option<Attrs<'a>> {
        self.find(kind).map(Attrs)
    }

    /// A string value without its NUL.
    pub fn str(self, kind: u16) -> Option<String> {
        let value = self.find(kind)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }

    /// A four-byte value in host order.
    pub fn u32(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.find(kind)?.get(..4)?.try_into().ok()?))
    }

    /// A four-byte value in network order.
    pub fn be32(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.find(kind)?.get(..4)?.try_into().ok()?))
    }

    /// An eight-byte value in network order.
    pub fn be64(self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.find(kind)?.get(..8)?.try_into().ok()?))
    }

    /// A one-byte value.
    pub fn u8(self, kind: u16) -> Option<u8> {
        self.find(kind)?.first().copied()
    }

    /// An address, told apart by its length.
    pub fn ip(self, kind: u16) -> Option<IpAddr> {
        let value = self.find(kind)?;
        if let Ok(octets) = <[u8; 4]>::try_from(value) {
            return Some(IpAddr::from(octets));
        }
        <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
    }
}

impl<'a> IntoIterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);
    type IntoIter = AttrIter<'a>;

    fn into_iter(self) -> AttrIter<'a> {
        AttrIter(self.0)
    }
}

/// Walks attributes.
pub struct AttrIter<'a>(&'a [u8]);

impl<'a> Iterator for AttrIter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.get(..4)?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_found_again() {
        let mut batch = Batch::new();
        batch.push("test", 7, NLM_F_ACK, |m| {
            m.put(&[1, 2, 3]).str(3, "eth0").nested(9, |m| {
                m.u8(1, 5).be32(2, 0x0102_0304);
            });
        });
        assert_eq!(batch.buf.len(), HEADER + 4 + 12 + 4 + 8 + 8);
        let attrs = Attrs(&batch.buf[HEADER + 4..]);
        assert_eq!(attrs.str(3).as_deref(), Some("eth0"));
        let inner = attrs.nested(9).expect("nested");
        assert_eq!(inner.u8(1), Some(5));
        assert_eq!(inner.be32(2), Some(0x0102_0304));
        assert_eq!(attrs.find(4), None);
    }

    #[test]
    fn a_torn_attribute_ends_the_walk() {
        assert_eq!(Attrs(&[200, 0, 1, 0, 9]).into_iter().count(), 0);
        assert_eq!(Attrs(&[2, 0, 1, 0, 9, 9, 9, 9]).into_iter().count(), 0);
    }
}
