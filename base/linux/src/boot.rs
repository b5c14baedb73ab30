//! Which boot of the machine this is: what names processes, links or mounts means nothing after another one.

use std::{fs, io};

/// The kernel's identifier of this boot.
/// <https://man7.org/linux/man-pages/man4/random.4.html>.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
