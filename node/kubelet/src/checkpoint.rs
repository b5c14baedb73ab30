//! A small file that is replaced as a whole: what the kubelet must know again after a restart.
//!
//! Nothing is synced to the disk: what is written down dies with the boot, and the file says which boot it was.

use std::{fs, io, path::Path};

use podwire_linux::beneath;

/// What an earlier kubelet left under `name` in `folder`, if anything; links are not followed.
pub(crate) fn read(folder: &Path, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
    let bytes = beneath::folder(folder).and_then(|dir| beneath::read(dir, Path::new(name), most));
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Puts `bytes` in the place of `name` in `folder`, wholly or not at all.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let part = folder.join(format!(".{name}"));
    // A link in the place of the part is removed, not followed.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new();
    let mut file =
        std::os::unix::fs::OpenOptionsExt::mode(file.write(true).create_new(true), 0o600).open(&part)?;
    io::Write::write_all(&mut file, bytes)?;
    fs::rename(&part, folder.join(name))
}
