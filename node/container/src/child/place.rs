//! Places inside the container, found and made without ever leaving its root.
//!
//! Two ways: [`real`] follows no link at all and is for what the kernel's own file systems and devices stand on;
//! [`inside`] follows the links of an image as a process in it would (`/var/run -> /run`), but nothing that only procfs
//! can resolve. What is missing is made, one part after the other, relative to the open folder above it.
//! <https://man7.org/linux/man-pages/man2/openat2.2.html>

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::sys::{self, Errno, INSIDE, STRICT};

/// The kernel follows as many.
/// <https://man7.org/linux/man-pages/man7/path_resolution.7.html>.
const MOST_LINKS: u32 = 40;
const PATH: usize = libc::PATH_MAX as usize;

/// What is made where nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
}

/// A path that is put together without allocating.
struct Text {
    bytes: [u8; PATH],
    len: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; PATH], len: 0 }
    }

    /// The same without leading slashes: a folder is where paths begin.
    fn below(path: &CStr) -> Result<Text, Errno> {
        let mut text = Text::new();
        text.push(path.to_bytes())?;
        Ok(text)
    }

    /// Adds parts at the end.
    fn push(&mut self, parts: &[u8]) -> Result<(), Errno> {
        let slash = usize::from(self.len > 0);
        let parts = trimmed(parts);
        let len = self.len + slash + parts.len();
        // One byte stays for the end of the C string.
        if len >= PATH {
            return Err(libc::ENAMETOOLONG);
        }
        if slash > 0 {
            self.bytes[self.len] = b'/';
        }
        self.bytes[self.len + slash..len].copy_from_slice(parts);
        self.bytes[len] = 0;
        self.len = len;
        Ok(())
    }

    /// Takes the last part away.
    fn pop(&mut self) {
        self.len = self.bytes[..self.len].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.bytes[self.len] = 0;
    }

    /// A copy of the last part.
    fn last(&self) -> Result<Text, Errno> {
        let start =
            self.bytes[..self.len].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let mut last = Text::new();
        last.push(&self.bytes[start..self.len])?;
        Ok(last)
    }

    /// Takes the first part away.
    fn shift(&mut self) -> Result<Option<Text>, Errno> {
        let rest = trimmed(&self.bytes[..self.len]);
        if rest.is_empty() {
            return Ok(None);
        }
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (mut first, mut left) = (Text::new(), Text::new());
        first.push(&rest[..end])?;
        left.push(&rest[end..])?;
        *self = left;
        Ok(Some(first))
    }

    /// As a C string; nothing at all is the folder itself.
    fn c(&self) -> &CStr {
        if self.len == 0 {
            return c".";
        }
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c".")
    }
}

/// Without slashes at the beginning.
fn trimmed(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    &path[slashes..]
}

/// `path` as seen from the root's descriptor.
pub(super) fn relative(path: &CStr) -> &CStr {
    let bytes = path.to_bytes_with_nul();
    let rest = &bytes[bytes.len() - 1 - trimmed(path.to_bytes()).len()..];
    if rest.len() == 1 { c"." } else { CStr::from_bytes_with_nul(rest).unwrap_or(c".") }
}

/// Whether an open file is on procfs, where links can lead anywhere and files are the kernel's.
pub(super) fn is_on_procfs(file: RawFd) -> Result<bool, Errno> {
    sys::fs_of(file).map(|kind| kind == libc::PROC_SUPER_MAGIC)
}

fn make(folder: RawFd, name: &CStr, kind: Kind) -> Result<(), Errno> {
    let made = match kind {
        Kind::Folder => sys::mkdir_at(folder, name, 0o755),
        // Not opened, so whatever somebody puts there instead is not either.
        Kind::File => sys::mknod_at(folder, name, libc::S_IFREG | 0o644, 0),
    };
    match made {
        Err(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// The place `path` below `dir`, reached without following a single link.
pub(super) fn real(dir: RawFd, path: &CStr, kind: Kind) -> Result<RawFd, Errno> {
    let flags = libc::O_PATH | if kind == Kind::Folder { libc::O_DIRECTORY } else { 0 };
    match sys::open_how(dir, relative(path), flags, STRICT) {
        Err(libc::ENOENT) => {}
        other => return other,
    }
    // Mostly only the last part is missing.
    let mut folder = Text::below(path)?;
    let name = folder.last()?;
    folder.pop();
    let above = match real_parent(dir, &folder) {
        Err(libc::ENOENT) => make_folders(dir, &folder)?,
        other => other?,
    };
    let found = make(above, name.c(), kind).and_then(|()| sys::open_how(above, name.c(), flags, STRICT));
    sys::close(above);
    found
}

fn real_parent(dir: RawFd, path: &Text) -> Result<RawFd, Errno> {
    sys::open_how(dir, path.c(), libc::O_PATH | libc::O_DIRECTORY, STRICT)
}

/// Makes one folder after the other and opens the last.
fn make_folders(dir: RawFd, path: &Text) -> Result<RawFd, Errno> {
    let (mut rest, mut done) = (Text::new(), Text::new());
    rest.push(&path.bytes[..path.len])?;
    while let Some(name) = rest.shift()? {
        let above = real_parent(dir, &done)?;
        let made = make(above, name.c(), Kind::Folder);
        sys::close(above);
        made?;
        done.push(name.c().to_bytes())?;
    }
    real_parent(dir, &done)
}

/// The place `path` below `root` as a process in there would find it, links that lead nowhere yet included.
pub(super) fn inside(root: RawFd, path: &CStr, kind: Kind) -> Result<RawFd, Errno> {
    match sys::open_how(root, relative(path), libc::O_PATH, INSIDE) {
        Err(libc::ENOENT) => {}
        other => return other,
    }
    let (mut rest, mut done) = (Text::below(path)?, Text::new());
    let mut links = 0;
    while let Some(name) = rest.shift()? {
        match name.c().to_bytes() {
            b"." => continue,
            b".." => {
                done.pop();
                continue;
            }
            _ => {}
        }
        let above = real_parent(root, &done)?;
        let kind = if rest.len == 0 { kind } else { Kind::Folder };
        let step = step(above, &name, kind);
        sys::close(above);
        match step? {
            None => done.push(name.c().to_bytes())?,
            Some(link) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(libc::ELOOP);
                }
                if link.bytes.first() == Some(&b'/') {
                    done = Text::new();
                }
                let mut longer = Text::new();
                longer.push(&link.bytes[..link.len])?;
                longer.push(&rest.bytes[..rest.len])?;
                rest = longer;
            }
        }
    }
    sys::open_how(root, done.c(), libc::O_PATH, STRICT)
}

/// One part of a path: there or made, or a link with what it says.
fn step(above: RawFd, name: &Text, kind: Kind) -> Result<Option<Text>, Errno> {
    let found = match sys::open_how(above, name.c(), libc::O_PATH | libc::O_NOFOLLOW, STRICT) {
        Ok(found) => found,
        Err(libc::ENOENT) => return make(above, name.c(), kind).map(|()| None),
        Err(errno) => return Err(errno),
    };
    let link = link_text(found);
    sys::close(found);
    link
}

fn link_text(found: RawFd) -> Result<Option<Text>, Errno> {
    if sys::mode_of(found)? & libc::S_IFMT != libc::S_IFLNK {
        return Ok(None);
    }
    // What a link of procfs says is not where it leads.
    if is_on_procfs(found)? {
        return Err(libc::ELOOP);
    }
    let mut text = Text::new();
    text.len = sys::read_link(found, &mut text.bytes[..PATH - 1])?;
    text.bytes[text.len] = 0;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> (tempfile::TempDir, std::fs::File) {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::open(dir.path()).unwrap();
        (dir, file)
    }

    fn c(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    /// Where a place really is, as seen from the root.
    fn shown(root: &Path, found: Result<RawFd, Errno>) -> Result<PathBuf, Errno> {
        let fd = found?;
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        sys::close(fd);
        Ok(path.strip_prefix(root).map_or(path.clone(), Path::to_owned))
    }

    #[test]
    fn a_real_place_is_made_and_no_link_is_followed_to_it() {
        let (dir, root) = root();
        let at = |path: &str, kind| shown(dir.path(), real(root.as_raw_fd(), &c(path), kind));
        assert_eq!(at("/sys/fs/cgroup", Kind::Folder), Ok("sys/fs/cgroup".into()));
        assert_eq!(at("//sys//file", Kind::File), Ok("sys/file".into()));
        assert!(dir.path().join("sys/file").is_file());
        symlink("sys", dir.path().join("link")).unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        symlink("/proc/self/root", dir.path().join("magic")).unwrap();
        for path in ["/link", "/link/fs", "/link/new", "/dangling", "/dangling/x", "/magic", "/magic/x"] {
            assert_eq!(at(path, Kind::Folder), Err(libc::ELOOP), "{path}");
        }
        assert_eq!(at("/sys/file", Kind::Folder), Err(libc::ENOTDIR));
        assert_eq!(at("/sys/file/below", Kind::Folder), Err(libc::ENOTDIR));
        assert!(at("/../escaped", Kind::Folder).is_err());
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn links_of_an_image_lead_back_into_it_even_where_nothing_is_yet() {
        let (dir, root) = root();
        let at = |path: &str, kind| shown(dir.path(), inside(root.as_raw_fd(), &c(path), kind));
        std::fs::create_dir_all(dir.path().join("var/deep")).unwrap();
        symlink("/run", dir.path().join("var/run")).unwrap();
        symlink("../../../../../../up", dir.path().join("var/deep/out")).unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        symlink("../run/systemd/resolv.conf", dir.path().join("etc/resolv.conf")).unwrap();
        assert_eq!(at("/var/run/secrets/x", Kind::Folder), Ok("run/secrets/x".into()));
        assert_eq!(at("/var/run/secrets", Kind::Folder), Ok("run/secrets".into()));
        assert_eq!(at("/var/deep/out/x", Kind::Folder), Ok("up/x".into()));
        assert_eq!(at("/etc/resolv.conf", Kind::File), Ok("run/systemd/resolv.conf".into()));
        assert!(dir.path().join("run/systemd/resolv.conf").is_file());
    }

    #[test]
    fn loops_and_links_into_procfs_are_refused() {
        let (dir, root) = root();
        let at = |path: &str| shown(dir.path(), inside(root.as_raw_fd(), &c(path), Kind::Folder));
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert_eq!(at("/a/x"), Err(libc::ELOOP));
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        podwire_linux::mount::bind(Path::new("/proc"), &dir.path().join("proc"), false).unwrap();
        symlink("/proc/self/root", dir.path().join("host")).unwrap();
        let seen: Vec<_> = ["/host", "/host/new-folder", "/proc/self/root/new-folder", "/proc/self/cwd/x/y"]
            .map(at)
            .into_iter()
            .collect();
        podwire_linux::mount::detach(&dir.path().join("proc")).unwrap();
        assert!(seen.iter().all(|found| *found == Err(libc::ELOOP)), "{seen:?}");
    }
}
