//! Which boot of the machine this is: what names processes, links or mounts means nothing after another one.

use std::{fs, io};

/// The kernel's identifier of this boot.
/// <https://man7.org/linux/man-pages/man4/random.4.html>.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// When this boot began, in seconds of the wall clock.
pub fn began() -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
