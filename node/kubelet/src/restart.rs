//! When a container is restarted, and how long after it ended. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container as Spec, Pod};

use crate::{
    observed::Container,
    spec::{self, Kind},
};

/// First wait after a second failure.
pub const INITIAL: SignedDuration = SignedDuration::from_secs(10);
/// Longest wait.
pub const CAP: SignedDuration = SignedDuration::from_secs(300);
/// Quiet time after which the waits begin anew.
pub const RESET: SignedDuration = SignedDuration::from_secs(600);

/// How long one container has to wait before its next restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Wait counted from the end of the last run.
    pub wait: SignedDuration,
    /// When it was last raised.
    pub raised: Timestamp,
}

impl Backoff {
    /// When a container that ended at `finished_at` (nanoseconds) may run again.
    pub fn until(&self, finished_at: i64) -> Timestamp {
        let ended = Timestamp::from_nanosecond(i128::from(finished_at)).unwrap_or(self.raised);
        let ended = if finished_at == 0 { self.raised } else { ended };
        ended.checked_add(self.wait).unwrap_or(Timestamp::MAX)
    }

    /// The back-off after one more restart at `now`.
    pub fn raise(old: Option<&Backoff>, cap: SignedDuration, now: Timestamp) -> Backoff {
        let fresh = Backoff { wait: INITIAL.min(cap), raised: now };
        match old {
            Some(old) if now.duration_since(old.raised) <= RESET.max(cap * 2) => {
                Backoff { wait: (old.wait * 2).min(cap), raised: now }
            }
            _ => fresh,
        }
    }
}

/// Whether an ended container is to run again.
pub fn should_restart(pod: &Pod, kind: Kind, container: &Spec, ended: &Container) -> bool {
    if kind == Kind::Ephemeral {
        return false;
    }
    if kind == Kind::Sidecar {
        return true;
    }
    if let Some(action) = rule_for(container, ended.exit_code) {
        return action == "Restart" || action == "RestartAllContainers";
    }
    let policy = container.restart_policy.as_deref().unwrap_or_else(|| spec::restart_policy(pod));
    match policy {
        // An init container that has done its work is not run again, whatever the policy.
        "Always" => kind == Kind::App || ended.exit_code != 0,
        "OnFailure" => ended.exit_code != 0,
        _ => false,
    }
}

/// The action of the first restart rule that names the exit code.
fn rule_for(container: &Spec, exit_code: i32) -> Option<&str> {
    container.restart_policy_rules.as_deref().unwrap_or_default().iter().find_map(|rule| {
        let codes = rule.exit_codes.as_ref()?;
        let listed = codes.values.as_deref().unwrap_or_default().contains(&exit_code);
        let hit = match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        hit.then_some(rule.action.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_a_quiet_time() {
        let first = Backoff::raise(None, CAP, at(0));
        assert_eq!(first.wait, INITIAL);
        let mut last = first;
        for round in 1..8 {
            last = Backoff::raise(Some(&last), CAP, at(round * 100));
        }
        assert_eq!(last.wait, CAP);
        assert_eq!(Backoff::raise(Some(&last), CAP, at(10_000)).wait, INITIAL);
    }

    #[test]
    fn the_wait_counts_from_the_end_of_the_run() {
        let backoff = Backoff { wait: INITIAL, raised: at(50) };
        assert_eq!(backoff.until(100_000_000_000), at(110));
    }
}
