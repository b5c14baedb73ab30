//! A cgroup root for a kubelet under test, so that its pods are not at the machine's root.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;

/// A cgroup of a test's own in every hierarchy; removed when dropped.
pub struct CgroupRoot {
    path: String,
}

impl CgroupRoot {
    /// Makes it; the name carries this process and a number, so that several may live.
    pub fn create() -> Result<CgroupRoot> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = format!("/podwire-peer-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        for top in hierarchies() {
            fs::create_dir_all(top.join(path.trim_start_matches('/')))?;
        }
        Ok(CgroupRoot { path })
    }

    /// Its path below every hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }
}

fn hierarchies() -> Vec<PathBuf> {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return vec!["/sys/fs/cgroup".into()];
    }
    fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect()
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        for top in hierarchies() {
            remove_tree(&top.join(self.path.trim_start_matches('/')));
        }
    }
}

fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_tree(&entry.path());
        }
    }
    // Ignored: a group that is still in use is left for the kernel to show.
    fs::remove_dir(folder).ok();
}
