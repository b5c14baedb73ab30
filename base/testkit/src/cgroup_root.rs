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
        let own: Vec<PathBuf> =
            hierarchies().iter().map(|top| top.join(self.path.trim_start_matches('/'))).collect();
        // What a failed test left running in its own groups would hold them, and the test's mounts, for ever.
        for _ in 0..50 {
            let left: usize = own.iter().map(|folder| kill_tree(folder)).sum();
            if left == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for folder in own {
            remove_tree(&folder);
        }
    }
}

/// Kills every process in the group and those below; how many there were.
fn kill_tree(folder: &Path) -> usize {
    let mut killed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            killed += kill_tree(&entry.path());
        }
    }
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw)
    {
        // Ignored: it may have ended meanwhile.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        killed += 1;
    }
    killed
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
