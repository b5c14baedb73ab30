//! Reads a file as a container would see it, from the unpacked layers of its image, without mounting anything.
//!
//! Knows overlay's whiteouts and opaque folders, and follows links inside the image only. Layers are somebody else's
//! work: every look into one is relative to its open folder and follows nothing there, and only a regular file of
//! reasonable size is opened, so that a device or FIFO named `etc/passwd` neither blocks nor never ends.

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
};

use podwire_linux::beneath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

/// Links followed before a path counts as a loop.
const LINK_LIMIT: u32 = 16;
/// Larger passwd files are not believed.
const SIZE_LIMIT: usize = 8 << 20;

/// Why a file of an image was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("open layer {layer:?}")]
    Layer { layer: PathBuf, source: beneath::Error },
    #[error("{path} in the image is a link loop")]
    Loop { path: String },
    #[error("look at {path:?} in the image")]
    Look { path: PathBuf, source: io::Error },
    #[error("{path} in the image")]
    Read { path: String, source: beneath::Error },
}

/// The text of `path` in the topmost layer that has it; empty if no layer has.
pub(crate) fn read(layers: &[PathBuf], path: &str) -> Result<String, Error> {
    let open = |layer: &PathBuf| {
        beneath::folder(layer).map_err(|source| Error::Layer { layer: layer.clone(), source })
    };
    let layers: Vec<OwnedFd> = layers.iter().map(open).collect::<Result<_, _>>()?;
    let Some((layer, real)) = find(&layers, path)? else { return Ok(String::new()) };
    let refused = |source| Error::Read { path: path.to_owned(), source };
    let bytes = beneath::read(layer, &real, SIZE_LIMIT).map_err(refused)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The layer that has `path`, and where it really is in there.
fn find<'a>(layers: &'a [OwnedFd], path: &str) -> Result<Option<(&'a OwnedFd, PathBuf)>, Error> {
    let mut parts: Vec<OsString> = split(Path::new(path)).into_iter().rev().collect();
    let mut seen = PathBuf::new();
    let mut found = None;
    let mut links = 0;
    while let Some(part) = parts.pop() {
        if part == ".." {
            seen.pop();
            continue;
        }
        let next = seen.join(&part);
        let Some((layer, link)) = topmost(layers, &next)? else { return Ok(None) };
        match link {
            None => {
                seen = next;
                found = Some(layer);
            }
            Some(target) => {
                links += 1;
                if links > LINK_LIMIT {
                    return Err(Error::Loop { path: path.to_owned() });
                }
                if target.is_absolute() {
                    seen = PathBuf::new();
                }
                parts.extend(split(&target).into_iter().rev());
            }
        }
    }
    Ok(found.map(|layer| (layer, seen)))
}

fn split(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

/// One entry of a layer.
enum Entry {
    Absent,
    Whiteout,
    Folder { opaque: bool },
    Link(PathBuf),
    Other,
}

/// The first layer that decides about `relative`, whose parents are plain folders, and what a link there says.
fn topmost<'a>(
    layers: &'a [OwnedFd],
    relative: &Path,
) -> Result<Option<(&'a OwnedFd, Option<PathBuf>)>, Error> {
    'layers: for layer in layers {
        let mut hidden_below = false;
        for prefix in prefixes(relative) {
            let last = prefix == relative;
            let entry = look(layer, &prefix).map_err(|source| Error::Look { path: prefix, source })?;
            match entry {
                Entry::Whiteout => return Ok(None),
                Entry::Absent if hidden_below => return Ok(None),
                Entry::Absent => continue 'layers,
                Entry::Link(target) if last => return Ok(Some((layer, Some(target)))),
                _ if last => return Ok(Some((layer, None))),
                Entry::Folder { opaque } => hidden_below |= opaque,
                // Something else stands where layers below have a folder.
                Entry::Link(_) | Entry::Other => return Ok(None),
            }
        }
    }
    Ok(None)
}

/// `a`, `a/b` and `a/b/c` of `a/b/c`.
fn prefixes(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.components().scan(PathBuf::new(), |prefix, part| {
        prefix.push(part);
        Some(prefix.clone())
    })
}

/// What a layer has at `path`; nothing is followed and nothing is opened for reading.
fn look(layer: &OwnedFd, path: &Path) -> io::Result<Entry> {
    let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = match rustix::fs::openat2(layer, path, flags, Mode::empty(), strict) {
        Ok(place) => place,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Entry::Absent),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::statat(&place, "", AtFlags::EMPTY_PATH)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if stat.st_rdev == 0 => Entry::Whiteout,
        FileType::Directory => Entry::Folder { opaque: opaque(&place) },
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&place, "", Vec::new())?;
            Entry::Link(PathBuf::from(OsString::from_vec(target.into_bytes())))
        }
        _ => Entry::Other,
    })
}

/// Whether overlay shows nothing of the layers below in this folder.
fn opaque(folder: &OwnedFd) -> bool {
    // A place has no attributes of its own; our own link to it has.
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(folder));
    let mut value = [0_u8; 4];
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        rustix::fs::getxattr(&own, *name, &mut value).is_ok_and(|length| length == 1 && value[0] == b'y')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

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

    #[test]
    fn an_opaque_folder_or_a_file_in_its_place_hides_what_is_below() {
        let (_keep, layers) = layers();
        fs::write(layers[1].join("etc/passwd"), "bottom").unwrap();
        let top = layers[0].join("etc");
        rustix::fs::setxattr(&top, "trusted.overlay.opaque", b"y", rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "");
        fs::remove_dir(&top).unwrap();
        fs::write(&top, "no folder").unwrap();
        assert_eq!(read(&layers, "/etc/passwd").unwrap(), "");
    }

    #[test]
    fn only_regular_files_of_reasonable_size_are_read() {
        use rustix::fs::{CWD, FileType, makedev, mknodat};
        let (_keep, layers) = layers();
        let file = layers[0].join("etc/passwd");
        fs::write(layers[1].join("etc/passwd"), "bottom").unwrap();
        for (kind, number) in [
            (FileType::Fifo, 0),
            (FileType::CharacterDevice, makedev(1, 5)),
            (FileType::CharacterDevice, makedev(5, 0)),
            (FileType::BlockDevice, makedev(7, 0)),
            (FileType::Socket, 0),
        ] {
            mknodat(CWD, &file, kind, 0o600.into(), number).unwrap();
            let refused = read(&layers, "/etc/passwd");
            assert!(
                matches!(&refused, Err(Error::Read { source: beneath::Error::NotRegular { .. }, .. })),
                "{kind:?} {refused:?}"
            );
            // The same by way of a link of the image.
            symlink("passwd", layers[0].join("etc/group")).unwrap();
            assert!(read(&layers, "/etc/group").is_err(), "{kind:?}");
            fs::remove_file(layers[0].join("etc/group")).unwrap();
            fs::remove_file(&file).unwrap();
        }
        fs::create_dir(&file).unwrap();
        assert!(read(&layers, "/etc/passwd").is_err(), "a folder");
        fs::remove_dir(&file).unwrap();
        fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(
            read(&layers, "/etc/passwd"),
            Err(Error::Read { source: beneath::Error::TooLarge { .. }, .. })
        ));
    }

    #[test]
    fn no_link_of_a_layer_leads_to_files_of_the_host() {
        let (keep, layers) = layers();
        fs::write(keep.path().join("secret"), "of the host").unwrap();
        let secret = keep.path().join("secret").display().to_string();
        for target in [secret.as_str(), "../../secret", "/proc/self/root/etc/hostname", "/proc/self/fd/0"] {
            symlink(target, layers[0].join("etc/passwd")).unwrap();
            assert_eq!(read(&layers, "/etc/passwd").unwrap(), "", "{target}");
            fs::remove_file(layers[0].join("etc/passwd")).unwrap();
        }
        // Nor does one in the place of a folder.
        fs::remove_dir(layers[0].join("etc")).unwrap();
        symlink(keep.path(), layers[0].join("etc")).unwrap();
        assert_eq!(read(&layers, "/etc/secret").unwrap(), "");
    }
}
