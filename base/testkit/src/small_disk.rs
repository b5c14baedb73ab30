//! A file system with little room, to see what a full one does.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Result;

/// A tmpfs of a few pages, gone at its end.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// One with room for `bytes`.
    pub fn new(bytes: u64) -> Result<SmallDisk> {
        let dir = tempfile::Builder::new().prefix("pwdisk").tempdir()?;
        podwire_linux::mount::tmpfs(dir.path(), bytes, 0o755)?;
        Ok(SmallDisk { dir })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all the room there is left.
    pub fn fill(&self) -> Result<()> {
        let mut filler = std::fs::File::create(self.filler())?;
        while filler.write_all(&[0; 4096]).is_ok() {}
        Ok(())
    }

    /// Gives that room back.
    pub fn empty(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Ignored: a test that failed must not fail again here.
        podwire_linux::mount::detach_all_under(self.path()).ok();
    }
}
