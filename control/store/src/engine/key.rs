//! What the index is made of: byte keys, places on disk, one version of a key. Values only.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use crate::Revision;

/// A key: any bytes; text is remembered as such, because the API server's keys are and it asks for them as text.
#[derive(Clone)]
pub(crate) enum Key {
    /// UTF-8.
    Text(Arc<str>),
    /// Anything else.
    Raw(Arc<[u8]>),
}

impl Key {
    /// A key of its own bytes: nothing of the buffer that they came in is kept.
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Raw(bytes.into()),
        }
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Raw(bytes) => bytes,
        }
    }

    /// The key as text, with what is not text replaced.
    pub(crate) fn text(&self) -> Arc<str> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Raw(bytes) => String::from_utf8_lossy(bytes).into(),
        }
    }

    /// Bytes of the key.
    pub(crate) fn len(&self) -> usize {
        self.as_bytes().len()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.as_bytes()).fmt(out)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Where a change lies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it begins.
    pub(crate) offset: u64,
    /// How many bytes it has.
    pub(crate) len: u32,
    /// Which open file, by its number in the index.
    pub(crate) file: u32,
}

/// One key as one write left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kv {
    pub(crate) key: Key,
    pub(crate) value: Bytes,
    /// The write that created this life of the key.
    pub(crate) create: Revision,
    /// This write.
    pub(crate) main: Revision,
    /// Writes of this life of the key, this one included.
    pub(crate) version: u64,
    /// 0 is none.
    pub(crate) lease: i64,
    /// Unix milliseconds; 0 means never.
    pub(crate) expires_ms: u64,
}

impl Kv {
    /// No key, at a revision.
    pub(crate) fn nothing(main: Revision) -> Self {
        Self { key: "".into(), value: Bytes::new(), create: 0, main, version: 0, lease: 0, expires_ms: 0 }
    }

    /// Bytes of key and value.
    pub(crate) fn size(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64
    }
}

/// One write to a key, as the index knows it.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) main: Revision,
    pub(crate) place: Place,
    /// Absent: it is a deletion, or it is on disk only.
    pub(crate) kv: Option<Arc<Kv>>,
    /// Which change of its revision it is.
    pub(crate) sub: u32,
    /// The key was deleted.
    pub(crate) gone: bool,
}

/// Which keys are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Span {
    /// This one.
    One(Bytes),
    /// From the first until before the second.
    Until(Bytes, Bytes),
    /// From this one on.
    From(Bytes),
}

impl Span {
    /// As etcd writes it: no end is one key, an end of one zero byte is no end.
    pub(crate) fn new(key: &Bytes, end: &Bytes) -> Self {
        match end.as_ref() {
            [] => Self::One(key.clone()),
            [0] => Self::From(key.clone()),
            _ => Self::Until(key.clone(), end.clone()),
        }
    }

    /// The first key.
    pub(crate) fn start(&self) -> &Bytes {
        match self {
            Self::One(key) | Self::Until(key, _) | Self::From(key) => key,
        }
    }

    /// Whether a key is meant.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(only) => key == only.as_ref(),
            Self::Until(start, end) => key >= start.as_ref() && key < end.as_ref(),
            Self::From(start) => key >= start.as_ref(),
        }
    }

    /// Whether no key can be meant.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Until(start, end) if end <= start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_their_bytes_whether_text_or_not() {
        let mut keys = [Key::copy(b"b"), Key::copy(&[0xff]), Key::copy("ä".as_bytes()), Key::copy(b"")];
        keys.sort();
        assert_eq!(
            keys.map(|key| key.as_bytes().to_vec()),
            [b"".to_vec(), b"b".to_vec(), "ä".into(), vec![0xff]]
        );
    }

    #[test]
    fn spans_mean_what_etcd_means() {
        let span = |key: &'static [u8], end: &'static [u8]| {
            Span::new(&Bytes::from_static(key), &Bytes::from_static(end))
        };
        assert!(span(b"a", b"").contains(b"a") && !span(b"a", b"").contains(b"ab"));
        assert!(span(b"a", b"c").contains(b"bz") && !span(b"a", b"c").contains(b"c"));
        assert!(span(b"a", b"\0").contains(b"\xff") && !span(b"b", b"\0").contains(b"a"));
        assert!(span(b"b", b"a").is_empty() && span(b"b", b"b").is_empty() && !span(b"b", b"\0").is_empty());
    }
}
