//! Memory that the allocator keeps for later, given back to the kernel.

/// Gives free memory of the heap back; true if there was any. Takes milliseconds for a large heap and holds the allocator's
/// locks meanwhile: for quiet moments.
///
/// glibc keeps what was freed below the top of each of its arenas until asked:
/// <https://man7.org/linux/man-pages/man3/malloc_trim.3.html>.
#[cfg(target_env = "gnu")]
pub fn give_back() -> bool {
    // SAFETY: a plain number; the function may be called at any time from any thread.
    unsafe { libc::malloc_trim(0) != 0 }
}

/// Other C libraries give it back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() -> bool {
    false
}
