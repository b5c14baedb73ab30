//! Numbers of other network namespaces, by which one hears of what changes in them.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::wire::{Batch, NLM_F_ACK};

const RTM_NEWNSID: u16 = 88;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

impl Batch {
    /// Has the kernel number another namespace in the socket's; one that has a number is refused as there already.
    pub fn number(&mut self, netns: BorrowedFd<'_>) {
        self.push("number a namespace", RTM_NEWNSID, NLM_F_ACK, |m| {
            // Any number that is free.
            m.put(&[0; 4]).attr(NETNSA_NSID, &(-1_i32).to_ne_bytes());
            m.attr(NETNSA_FD, &netns.as_raw_fd().to_ne_bytes());
        });
    }
}
