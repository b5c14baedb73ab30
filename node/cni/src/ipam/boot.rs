//! Which boot of the machine this is, and when it began.

use std::sync::OnceLock;

/// The identifier of this boot; empty when the kernel tells none.
pub fn boot_id() -> String {
    own_boot().to_owned()
}

/// A process lives in one boot.
pub(super) fn own_boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| podwire_linux::boot::id().unwrap_or_default())
}

/// When this boot began, in seconds of the wall clock.
pub(crate) fn boot_time() -> Option<i64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
