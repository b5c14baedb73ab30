//! Which boot of the machine this is, asked once.

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
