//! A small file system in memory: what fills it, or breaks on it, cannot touch the machine's own disk.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

/// A tmpfs; unmounted when dropped.
pub struct SmallDisk {
    folder: PathBuf,
    made: bool,
}

impl SmallDisk {
    /// A disk in a new folder; `options` begins with its size, as tmpfs takes it.
    pub fn new(options: &str) -> Result<SmallDisk> {
        let folder = tempfile::Builder::new().prefix("podwire-hostile-").tempdir()?.keep();
        let mut disk = SmallDisk::over(&folder, options)?;
        disk.made = true;
        Ok(disk)
    }

    /// A disk over a folder that is there or is made for it, and stays.
    pub fn over(folder: &Path, options: &str) -> Result<SmallDisk> {
        fs::create_dir_all(folder)?;
        let options = std::ffi::CString::new(format!("size={options},mode=755"))?;
        mount("tmpfs", folder, "tmpfs", MountFlags::empty(), options.as_c_str())
            .context("mount a small disk")?;
        Ok(SmallDisk { folder: folder.to_owned(), made: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Takes every byte that is left; the file that holds them.
    pub fn fill(&self) -> Result<PathBuf> {
        let ballast = self.folder.join("ballast");
        let mut file = fs::File::create(&ballast)?;
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        Ok(ballast)
    }

    /// Makes it read-only, or writable again.
    pub fn read_only(&self, yes: bool) -> Result<()> {
        let flags = if yes { MountFlags::RDONLY } else { MountFlags::empty() };
        Ok(mount_remount(&self.folder, flags, "")?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Ignored: nothing more can be done in drop; a folder that is left shows what went wrong.
        unmount(&self.folder, UnmountFlags::DETACH).ok();
        if self.made {
            fs::remove_dir(&self.folder).ok();
        }
    }
}
