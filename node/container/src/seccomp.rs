//! System call filters: from an OCI profile to BPF, without any library.
//!
//! Per architecture the rules become ranges of call numbers with one outcome each, found by
//! binary search: about eight comparisons for any call. Compiling takes far longer than
//! installing, so the daemon compiles once per profile ([`Cache`]) and sends the program.

mod compile;
mod profile;
mod syscalls;

use std::sync::Mutex;

use oci_spec::runtime::LinuxSeccomp;

pub use compile::{CompileError, compile};
pub use profile::default_profile;

use crate::plan::FilterPlan;

/// The number of a call on x86-64.
pub(crate) fn number(name: &str) -> Option<u32> {
    syscalls::numbers(name)?[0]
}

/// Filters compiled so far. A node uses a handful of profiles.
#[derive(Debug, Default)]
pub struct Cache {
    filters: Mutex<Vec<(LinuxSeccomp, FilterPlan)>>,
}

const KEPT: usize = 64;

impl Cache {
    /// The program for `profile`, compiled at most once.
    pub fn compile(&self, profile: &LinuxSeccomp) -> Result<FilterPlan, CompileError> {
        let mut filters = self.filters.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, filter)) = filters.iter().find(|(known, _)| known == profile) {
            return Ok(filter.clone());
        }
        let filter = compile(profile)?;
        if filters.len() >= KEPT {
            filters.remove(0);
        }
        filters.push((profile.clone(), filter.clone()));
        Ok(filter)
    }
}
