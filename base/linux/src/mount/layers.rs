//! Overlay mounts on every kernel: in which words layers are handed over, and what fits into them.
//!
//! Three ways, newest first; what a kernel refuses is tried the next older way:
//!
//! 1. each layer as a descriptor (Linux 6.13), for layers without a path: `node/container` alone has such;
//! 2. each layer as a path of its own, `lowerdir+` (6.7), of at most 255 bytes;
//! 3. all in one option string for mount(2) (any), of less than a page.
//!
//! The kernel undoes escapes in some of these words and not in others, and which ones changed: a path with a sign that
//! could need one is never written out. It goes the third way, named by an open descriptor, as do all paths when they are
//! too long together.
//!
//! The option strings are written into memory that is there: a child between clone and execve can do it.
//! <https://docs.kernel.org/filesystems/overlayfs.html>

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use serde::{Deserialize, Serialize};

use super::{Error, attach, error, make_private};

/// The most layers overlay stacks.
pub const MOST_LAYERS: usize = 500;
/// The kernel copies one page of options, the smallest there is, and ends it with a zero.
pub const PAGE: usize = 4096;

/// The newest way of handing layers over that is tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handing {
    /// All in one option string.
    Options,
    /// Path by path.
    Paths,
    /// Descriptor by descriptor where there is no path.
    #[default]
    Descriptors,
}

impl Handing {
    /// It is the newest way; what old journals and requests mean by saying nothing.
    pub fn is_newest(&self) -> bool {
        *self == Handing::default()
    }
}

/// A kernel that does not know a way answers so, as does one that finds a value too long or with a comma in it.
pub fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::EINVAL | libc::EOPNOTSUPP | libc::EBADF | libc::ENOSYS)
}

/// The path means the same to every kernel wherever it is written: no sign in it separates or escapes.
pub fn is_plain(path: &Path) -> bool {
    // Blanks, too: the kernel drops those at the ends.
    !path.as_os_str().as_bytes().iter().any(|byte| b":,\\ \0".contains(byte))
}

/// Layers, top first, under a folder that takes the writes, or read-only without one.
#[derive(Debug, Clone)]
pub struct Overlay<'a> {
    /// Unpacked layers, top first; at least one with an upper folder, at least two without.
    pub lower: &'a [PathBuf],
    /// The upper folder and overlay's work folder beside it.
    pub upper: Option<(&'a Path, &'a Path)>,
    /// The newest way to try.
    pub newest: Handing,
}

/// Mounts an overlay on `target`, kept from travelling to other namespaces' copies of it.
///
/// One that is only looked at (without an upper folder) gives nobody rights: neither setuid files nor devices count.
pub fn overlay(layers: &Overlay<'_>, target: &Path) -> Result<(), Error> {
    let (upper, work) = layers.upper.unzip();
    let plain = layers.lower.iter().map(PathBuf::as_path).chain(upper).chain(work).all(is_plain);
    let refused = match layers.newest {
        Handing::Options => true,
        _ if !plain => true,
        _ => match path_by_path(layers) {
            Ok(tree) => {
                attach(&tree, target)?;
                false
            }
            Err(source) if source.raw_os_error().is_some_and(is_refusal) => true,
            Err(source) => return Err(error("make an overlay for", target)(source)),
        },
    };
    if refused {
        by_options(layers, target).map_err(error("mount an overlay on", target))?;
    }
    make_private(target)
}

fn path_by_path(layers: &Overlay<'_>) -> io::Result<OwnedFd> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "source", "overlay")?;
    for layer in layers.lower {
        fsconfig_set_string(&fs, "lowerdir+", layer)?;
    }
    let attributes = match layers.upper {
        Some((upper, work)) => {
            fsconfig_set_string(&fs, "upperdir", upper)?;
            fsconfig_set_string(&fs, "workdir", work)?;
            rustix::mount::fsconfig_set_flag(&fs, "volatile")?;
            MountAttrFlags::empty()
        }
        None => {
            MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
        }
    };
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn by_options(layers: &Overlay<'_>, target: &Path) -> io::Result<()> {
    let flags = match layers.upper {
        Some(_) => MountFlags::empty(),
        None => MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
    };
    let mut page = Page::new();
    if let Some(options) = options(layers.lower, layers.upper) {
        return Ok(rustix::mount::mount("overlay", target, "overlay", flags, options.as_c_str())?);
    }
    let open = |path: &Path| {
        rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let lower: Vec<OwnedFd> = layers.lower.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
    let upper =
        layers.upper.map(|(upper, work)| Ok::<_, io::Error>((open(upper)?, open(work)?))).transpose()?;
    let numbers = upper.as_ref().map(|(upper, work)| (upper.as_raw_fd(), work.as_raw_fd()));
    let options = page.numbered(lower.iter().map(AsRawFd::as_raw_fd), numbers).ok_or_else(too_many)?;
    Ok(rustix::mount::mount("overlay", target, "overlay", flags, options)?)
}

fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::ArgumentListTooLong,
        "so many layers do not fit into the options of a mount",
    )
}

/// All paths in one option string; `None` when they are too long together or one is not plain.
pub fn options(lower: &[PathBuf], upper: Option<(&Path, &Path)>) -> Option<CString> {
    let pair = upper.map(|(upper, work)| (Place::Path(upper), Place::Path(work)));
    Page::new().write(lower.iter().map(|path| Place::Path(path)), pair).map(CStr::to_owned)
}

/// How a folder is named in an option string.
enum Place<'a> {
    Path(&'a Path),
    /// By an open descriptor of this process.
    Number(RawFd),
}

/// Memory for one option string.
pub struct Page {
    bytes: [u8; PAGE],
    used: usize,
}

impl Default for Page {
    fn default() -> Self {
        Page::new()
    }
}

impl Page {
    /// An empty one.
    pub const fn new() -> Page {
        Page { bytes: [0; PAGE], used: 0 }
    }

    /// The options for folders that are open; `None` when they do not fit. Allocates nothing.
    pub fn numbered(
        &mut self,
        lower: impl Iterator<Item = RawFd>,
        upper: Option<(RawFd, RawFd)>,
    ) -> Option<&CStr> {
        let upper = upper.map(|(upper, work)| (Place::Number(upper), Place::Number(work)));
        self.write(lower.map(Place::Number), upper)
    }

    fn write<'p>(
        &mut self,
        lower: impl Iterator<Item = Place<'p>>,
        upper: Option<(Place<'p>, Place<'p>)>,
    ) -> Option<&CStr> {
        self.used = 0;
        self.push(b"lowerdir=")?;
        for (at, layer) in lower.enumerate() {
            if at == MOST_LAYERS {
                return None;
            }
            if at > 0 {
                self.push(b":")?;
            }
            self.place(&layer)?;
        }
        if let Some((upper, work)) = upper {
            self.push(b",upperdir=")?;
            self.place(&upper)?;
            self.push(b",workdir=")?;
            self.place(&work)?;
            self.push(b",volatile")?;
        }
        self.push(b"\0")?;
        CStr::from_bytes_with_nul(&self.bytes[..self.used]).ok()
    }

    fn place(&mut self, place: &Place<'_>) -> Option<()> {
        match place {
            Place::Path(path) if !is_plain(path) => None,
            Place::Path(path) => self.push(path.as_os_str().as_bytes()),
            Place::Number(number) => {
                self.push(b"/proc/self/fd/")?;
                let mut digits = [0; 10];
                let mut at = digits.len();
                let mut rest = u32::try_from(*number).ok()?;
                loop {
                    at -= 1;
                    digits[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        return self.push(&digits[at..]);
                    }
                }
            }
        }
    }

    fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.used + text.len();
        self.bytes.get_mut(self.used..end)?.copy_from_slice(text);
        self.used = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::mount::{detach, parse_mountinfo};

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn plain_paths_are_written_out() {
        let upper = Some((Path::new("/d/u"), Path::new("/d/w")));
        let text = options(&paths(&["/d/a", "/d/b"]), upper).unwrap();
        assert_eq!(text.to_str().unwrap(), "lowerdir=/d/a:/d/b,upperdir=/d/u,workdir=/d/w,volatile");
        assert_eq!(options(&paths(&["/d/a", "/d/b"]), None).unwrap().to_str().unwrap(), "lowerdir=/d/a:/d/b");
    }

    #[test]
    fn a_path_with_a_sign_that_means_something_is_never_written_out() {
        for odd in ["/d/a:b", "/d/a,userxattr", "/d/a\\:b", "/d/a b"] {
            assert_eq!(options(&paths(&["/d/a", odd]), None), None, "{odd}");
            assert_eq!(options(&paths(&["/d/a"]), Some((Path::new(odd), Path::new("/w")))), None, "{odd}");
            assert_eq!(options(&paths(&["/d/a"]), Some((Path::new("/u"), Path::new(odd)))), None, "{odd}");
        }
    }

    #[test]
    fn options_end_before_the_page_does() {
        let long = PathBuf::from(format!("/{}", "x".repeat(PAGE - "lowerdir=".len() - 2)));
        assert_eq!(options(std::slice::from_ref(&long), None).unwrap().to_bytes().len(), PAGE - 1);
        let longer = long.join("y");
        assert_eq!(options(&[longer], None), None);
        // What is too long as paths fits as numbers, up to a bound that is said.
        let mut page = Page::new();
        assert!(page.numbered(100..300, Some((300, 301))).is_some());
        assert!(page.numbered(1000..1250, None).is_none());
        assert!(page.numbered(std::iter::repeat_n(1, MOST_LAYERS + 1), None).is_none());
        let text = page.numbered([7, 0, 2_147_483_647].into_iter(), None).unwrap().to_str().unwrap();
        assert_eq!(text, "lowerdir=/proc/self/fd/7:/proc/self/fd/0:/proc/self/fd/2147483647");
    }

    fn layers(dir: &Path, count: usize) -> Vec<PathBuf> {
        let layers: Vec<_> = (0..count).map(|number| dir.join(format!("layer{number}"))).collect();
        for (number, layer) in layers.iter().enumerate() {
            fs::create_dir_all(layer).unwrap();
            fs::write(layer.join("which"), number.to_string()).unwrap();
            fs::write(layer.join(format!("own{number}")), "").unwrap();
        }
        layers
    }

    /// The same layers by every way, in a folder whose name has every sign that could mean something.
    #[test]
    fn every_way_shows_the_same_whatever_the_paths_are() {
        for (folder, count) in
            [("plain", 3), ("odd: a,b\\c", 3), (&"n".repeat(200), 2), (&"m".repeat(100), 60)]
        {
            for newest in [Handing::Descriptors, Handing::Paths, Handing::Options] {
                let dir = tempfile::tempdir().unwrap();
                let dir = dir.path().join(folder);
                let lower = layers(&dir, count);
                let (upper, work, target) = (dir.join("upper"), dir.join("work"), dir.join("target"));
                for made in [&upper, &work, &target] {
                    fs::create_dir(made).unwrap();
                }
                let what = format!("{folder:.20} {count} {newest:?}");
                overlay(&Overlay { lower: &lower, upper: Some((&upper, &work)), newest }, &target)
                    .expect(&what);
                assert_eq!(fs::read_to_string(target.join("which")).unwrap(), "0", "{what}");
                assert_eq!(fs::read_dir(&target).unwrap().count(), count + 1, "{what}");
                fs::write(target.join("new"), "x").unwrap();
                assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), "x", "{what}");
                assert!(detach(&target).unwrap());
            }
        }
    }

    #[test]
    fn an_overlay_that_is_only_looked_at_gives_nobody_rights() {
        for newest in [Handing::Paths, Handing::Options] {
            let dir = tempfile::tempdir().unwrap();
            let lower = layers(dir.path(), 2);
            let target = dir.path().join("target");
            fs::create_dir(&target).unwrap();
            fs::set_permissions(lower[0].join("own0"), fs::Permissions::from_mode(0o4755)).unwrap();
            overlay(&Overlay { lower: &lower, upper: None, newest }, &target).unwrap();
            assert_eq!(fs::metadata(target.join("own0")).unwrap().mode() & 0o7777, 0o4755);
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let mounts = parse_mountinfo(&table);
            let seen = mounts.iter().find(|mount| mount.target == target).unwrap().options.clone();
            assert!(detach(&target).unwrap());
            for wanted in ["ro", "nosuid", "nodev"] {
                assert!(seen.split(',').any(|option| option == wanted), "{newest:?}: {wanted} in {seen}");
            }
        }
    }
}
