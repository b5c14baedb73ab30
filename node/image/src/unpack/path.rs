//! Cleans the paths of tar entries: no entry can name anything outside its layer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::UnpackError;

/// The longest path accepted, as the kernel's PATH_MAX.
const LONGEST: usize = 4096;

/// The path relative to the layer's root, without `.`, `..` or doubled slashes; empty is the root.
pub(super) fn clean(raw: &[u8]) -> Result<PathBuf, UnpackError> {
    let refuse = |reason| UnpackError::Path { path: display(raw), reason };
    if raw.len() > LONGEST {
        return Err(refuse("longer than 4096 bytes"));
    }
    if raw.contains(&0) {
        return Err(refuse("contains a NUL byte"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop().ok_or_else(|| refuse("leaves the layer"))?;
            }
            part if part.len() > 255 => return Err(refuse("a component is longer than 255 bytes")),
            part => parts.push(part),
        }
    }
    Ok(parts.into_iter().map(OsStr::from_bytes).collect())
}

/// Splits a cleaned, non-empty path into its parent and its name.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// The start of a path as text for an error.
pub(super) fn display(raw: &[u8]) -> String {
    String::from_utf8_lossy(&raw[..raw.len().min(300)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_and_escapes_refused() {
        for (raw, expected) in [
            ("./", ""),
            ("/", ""),
            ("a", "a"),
            ("./a//b/.", "a/b"),
            ("/etc/x", "etc/x"),
            ("a/../b", "b"),
            ("a/..", ""),
        ] {
            assert_eq!(clean(raw.as_bytes()).unwrap(), PathBuf::from(expected), "{raw}");
        }
        for raw in ["..", "../a", "a/../../b", "/../x", "a\0b"] {
            assert!(clean(raw.as_bytes()).is_err(), "{raw:?}");
        }
        assert!(clean("x/".repeat(3000).as_bytes()).is_err());
        assert!(clean("y".repeat(256).as_bytes()).is_err());
    }
}
