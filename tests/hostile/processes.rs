//! Processes of a node as the kernel knows them: their memory, who holds a lock, who is in a group.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// The most memory that a process ever had, in bytes.
pub fn peak_memory(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("it is a zombie")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes << 10)
}

/// The supervisor's process: who holds its lock.
pub fn supervisor(run_dir: &Path) -> Option<Pid> {
    let inode = fs::metadata(run_dir.join("supervisor/supervisor.lock")).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let held = locks.lines().find(|line| line.contains("FLOCK") && line.contains(&format!(":{inode} ")))?;
    Pid::from_raw(held.split_whitespace().nth(4)?.parse().ok()?)
}

/// Ends the supervisor of a run folder, if there is one.
pub fn kill_supervisor(run_dir: &Path) {
    if let Some(pid) = supervisor(run_dir) {
        // Ignored: it may end by itself at this moment.
        kill_process(pid, Signal::KILL).ok();
    }
}

/// The folders of a node's groups, in every hierarchy, parents first.
fn groups(root: &str) -> Vec<PathBuf> {
    let mut tops: Vec<PathBuf> =
        fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|top| top.path()).collect();
    tops.push("/sys/fs/cgroup".into());
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = tops.iter().map(|top| top.join(root.trim_start_matches('/'))).collect();
    while let Some(folder) = folders.pop() {
        let below = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        folders.extend(below.filter(|path| path.is_dir()));
        found.push(folder);
    }
    found
}

/// Ends every process in a node's groups.
pub fn kill_group(root: &str) {
    for folder in groups(root) {
        let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // Ignored: it may end by itself at this moment.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Takes away what a node that does not work any more left on the machine.
pub fn sweep(run_dir: &Path, cgroup_root: &str) {
    kill_supervisor(run_dir);
    kill_group(cgroup_root);
    // Ignored, all of it: what cannot be taken away stays to be seen.
    podwire_linux::mount::detach_all_under(run_dir).ok();
    fs::remove_dir_all(run_dir).ok();
    podwire_testkit::eventually("the groups are empty", Duration::from_secs(5), || {
        let left = groups(cgroup_root)
            .iter()
            .rev()
            .filter(|folder| folder.is_dir() && fs::remove_dir(folder).is_err())
            .count();
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    })
    .ok();
}
