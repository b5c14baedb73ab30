//! Reads a file as a container would see it, from the unpacked layers of its image, without mounting anything.
//!
//! Knows overlay's whiteouts and opaque folders, and follows links inside the image only.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Component, Path, PathBuf},
};

/// Links followed before a path counts as a loop.
const LINK_LIMIT: u32 = 16;
/// Larger passwd files are not believed.
const SIZE_LIMIT: u64 = 8 << 20;

/// The text of `path` in the topmost layer that has it; empty if no layer has.
pub(crate) fn read(layers: &[PathBuf], path: &str) -> io::Result<String> {
    match find(layers, path)? {
        Some(found) => {
            if fs::symlink_metadata(&found)?.len() > SIZE_LIMIT {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("{path} in the image is too large"),
                ));
            }
            Ok(String::from_utf8_lossy(&fs::read(&found)?).into_owned())
        }
        None => Ok(String::new()),
    }
}

/// Where the regular file or folder `path` of the image really is.
pub(crate) fn find(layers: &[PathBuf], path: &str) -> io::Result<Option<PathBuf>> {
    let mut parts: Vec<String> = split(Path::new(path)).into_iter().rev().collect();
    let mut seen = PathBuf::new();
    let mut links = 0;
    while let Some(part) = parts.pop() {
        if part == ".." {
            seen.pop();
            continue;
        }
        let next = seen.join(&part);
        let Some(found) = topmost(layers, &next)? else { return Ok(None) };
        if fs::symlink_metadata(&found)?.is_symlink() {
            links += 1;
            if links > LINK_LIMIT {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{path} in the image is a link loop"),
                ));
            }
            let target = fs::read_link(&found)?;
            if target.is_absolute() {
                seen = PathBuf::new();
            }
            parts.extend(split(&target).into_iter().rev());
        } else {
            seen = next;
        }
    }
    topmost(layers, &seen)
}

fn split(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            Component::ParentDir => Some("..".to_owned()),
            _ => None,
        })
        .collect()
}

/// The entry `relative` (whose parents are plain folders) in the first layer that decides about it.
fn topmost(layers: &[PathBuf], relative: &Path) -> io::Result<Option<PathBuf>> {
    for layer in layers {
        let mut hidden_below = false;
        let mut path = layer.clone();
        let mut present = true;
        for part in relative.components() {
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(entry) if entry.file_type().is_char_device() && entry.rdev() == 0 => return Ok(None),
                Ok(entry) => {
                    let last = path.strip_prefix(layer).is_ok_and(|rest| rest == relative);
                    if !last {
                        hidden_below |= !entry.is_dir() || opaque(&path);
                    }
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    present = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if present {
            return Ok(Some(path));
        }
        if hidden_below {
            return Ok(None);
        }
    }
    Ok(None)
}

fn opaque(folder: &Path) -> bool {
    let mut value = [0_u8; 4];
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        rustix::fs::lgetxattr(folder, *name, &mut value).is_ok_and(|length| length == 1 && value[0] == b'y')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn layers() -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let layers = vec![dir.path().join("top"), dir.path().join("bottom")];
        for layer in &layers {
            fs::create_dir_all(layer.join("etc")).unwrap();
        }
        (dir, layers)
    }

    #[test]
    fn the_topmost_layer_that_has_the_file_counts() {
        let (_keep, layers) = layers();
        fs::write(layers[1].join("etc/passwd"), "bottom").unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "bottom");
        fs::write(layers[0].join("etc/passwd"), "top").unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "top");
        assert_eq!(read(&layers, "/etc/group").unwrap(), "");
    }

    #[test]
    fn a_whiteout_hides_what_is_below() {
        let (_keep, layers) = layers();
        fs::write(layers[1].join("etc/passwd"), "bottom").unwrap();
        let hidden = layers[0].join("etc/passwd");
        rustix::fs::mknodat(rustix::fs::CWD, &hidden, rustix::fs::FileType::CharacterDevice, 0o600.into(), 0)
            .unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "");
    }

    #[test]
    fn links_stay_inside_the_image() {
        let (_keep, layers) = layers();
        fs::create_dir_all(layers[1].join("data")).unwrap();
        fs::write(layers[1].join("data/users"), "linked").unwrap();
        symlink("/data/users", layers[0].join("etc/passwd")).unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "linked");
        symlink("../../../../../../etc/passwd", layers[0].join("etc/shadow")).unwrap();
        assert_eq!(read(&layers, "/etc/shadow").unwrap(), "linked");
        symlink("loop", layers[0].join("etc/loop")).unwrap();
        assert!(read(&layers, "/etc/loop").is_err());
    }
}
