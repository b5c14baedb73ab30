//! Files of a volume replaced all at once: a dated folder, and a symlink that is moved to it.
//!
//! Readers see either all of the old content or all of the new. The layout is upstream's: `..data` points to
//! the dated folder, and every top-level name points through `..data`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Component, Path, PathBuf},
};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// One file to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Content.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, if not root.
    pub owner: Option<u32>,
}

/// Files by relative path.
pub type Payload = BTreeMap<String, File>;

/// Makes `folder` hold exactly `payload`; says whether anything changed.
pub fn write(folder: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    for name in payload.keys() {
        check(name)?;
    }
    let current = fs::read_link(folder.join(DATA)).ok();
    if current.as_ref().is_some_and(|dated| is_same(&folder.join(dated), payload)) {
        return Ok(false);
    }
    let dated = dated_name(folder)?;
    let fresh = folder.join(&dated);
    fs::create_dir(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    let filled = fill(&fresh, payload, group).and_then(|()| switch(folder, &dated));
    if let Err(error) = filled {
        // The half-written folder was never visible; the first error is the one that matters.
        fs::remove_dir_all(&fresh).ok();
        return Err(error);
    }
    let tops: BTreeSet<&str> = payload.keys().filter_map(|name| name.split('/').next()).collect();
    link_tops(folder, &tops)?;
    drop_stale(folder, &tops, &dated)?;
    Ok(true)
}

/// A path that stays inside: relative, without `..`, and not one of our own names.
fn check(name: &str) -> io::Result<()> {
    let path = Path::new(name);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && !name.is_empty() && !name.starts_with("..") {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid path: {name}")))
}

fn is_same(dated: &Path, payload: &Payload) -> bool {
    let mut found = Vec::new();
    if list(dated, Path::new(""), &mut found).is_err() || found.len() != payload.len() {
        return false;
    }
    payload.iter().all(|(name, file)| {
        let path = dated.join(name);
        let same_mode = fs::metadata(&path).is_ok_and(|m| m.permissions().mode() & 0o7777 == file.mode);
        same_mode && fs::read(&path).is_ok_and(|bytes| bytes == file.bytes)
    })
}

fn list(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() { list(root, &path, found)? } else { found.push(path) }
    }
    Ok(())
}

/// A dated name that is not taken.
fn dated_name(folder: &Path) -> io::Result<String> {
    let now = jiff::Zoned::now().strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    for serial in 0u32..1000 {
        let name =
            format!("{now}.{:09}", u64::from(std::process::id()) * 1000 % 999_000_000 + u64::from(serial));
        if !folder.join(&name).exists() {
            return Ok(name);
        }
    }
    Err(io::Error::other("no free name for the new content"))
}

fn fill(fresh: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (name, file) in payload {
        let path = fresh.join(name);
        if let Some(parent) = path.parent().filter(|p| *p != fresh) {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        if group.is_some() || file.owner.is_some() {
            chown(&path, file.owner, group)?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// Moves `..data` to the new folder in one rename.
fn switch(folder: &Path, dated: &str) -> io::Result<()> {
    let next = folder.join(NEW_DATA);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(dated, &next)?;
    fs::rename(&next, folder.join(DATA))
}

fn link_tops(folder: &Path, tops: &BTreeSet<&str>) -> io::Result<()> {
    for top in tops {
        match symlink(Path::new(DATA).join(top), folder.join(top)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn drop_stale(folder: &Path, tops: &BTreeSet<&str>, dated: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == DATA || name == dated || tops.contains(&*name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?
        } else {
            fs::remove_file(entry.path())?
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { bytes: text.as_bytes().to_vec(), mode: 0o644, owner: None }
    }

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect()
    }

    #[test]
    fn content_is_replaced_through_one_symlink() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
        let before = fs::read_link(dir.path().join("..data")).unwrap();
        assert!(write(dir.path(), &payload(&[("a", "9")]), None).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "9");
        assert!(!dir.path().join("sub").exists());
        assert!(!dir.path().join(before).exists(), "the old content is removed");
        assert_eq!(fs::read_link(dir.path().join("a")).unwrap(), Path::new("..data/a"));
    }

    #[test]
    fn unchanged_content_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")]), None).unwrap();
        let before = fs::read_link(dir.path().join("..data")).unwrap();
        assert!(!write(dir.path(), &payload(&[("a", "1")]), None).unwrap());
        assert_eq!(fs::read_link(dir.path().join("..data")).unwrap(), before);
    }

    #[test]
    fn a_key_cannot_leave_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["../x", "/etc/x", "a/../../x", "..data", ""] {
            assert!(write(dir.path(), &payload(&[(bad, "1")]), None).is_err(), "{bad}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_open_reader_never_sees_half_of_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "old"), ("b", "old")]), None).unwrap();
        let held = dir.path().join(fs::read_link(dir.path().join("..data")).unwrap());
        let pinned = fs::File::open(held.join("a")).unwrap();
        write(dir.path(), &payload(&[("a", "new"), ("b", "new")]), None).unwrap();
        let both = [
            fs::read_to_string(dir.path().join("a")).unwrap(),
            fs::read_to_string(dir.path().join("b")).unwrap(),
        ];
        assert_eq!(both, ["new", "new"]);
        assert_eq!(io::read_to_string(pinned).unwrap(), "old");
    }
}
