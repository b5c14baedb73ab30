//! Tries cases one after the other and tells which are not as recorded.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::net::{AddressFamily, SocketType, ipproto};

use super::{
    cases::{Case, World},
    field::Field,
    ground::Ground,
};

/// How long a change of policies may take to be in force on a machine that others load.
const IN_FORCE: Duration = Duration::from_secs(60);
/// How long one connection may take at first, and at most: within one machine an answer takes less than a millisecond, but
/// whoever waits for a processor may wait for seconds.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

#[allow(clippy::print_stderr, reason = "how long it took is worth knowing")]
fn tell(what: &str) {
    eprintln!("{what}");
}

/// Those whose names contain `PODWIRE_CASES` if that is set, otherwise one of `sample`, as cases that stand together are alike.
#[allow(dead_code, reason = "the machine with another kernel chooses its own")]
pub(crate) fn chosen(cases: Vec<Case>, sample: usize) -> Vec<Case> {
    match std::env::var_os("PODWIRE_CASES") {
        Some(part) => cases.into_iter().filter(|case| case.name.contains(&*part.to_string_lossy())).collect(),
        None => cases.into_iter().step_by(sample).collect(),
    }
}

/// What a kernel can be asked about: pods have the kernel of the test.
pub(crate) fn protocols() -> Vec<&'static str> {
    let sctp = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, Some(ipproto::SCTP));
    let mut protocols = vec!["TCP", "UDP"];
    match sctp {
        Ok(_) => protocols.push("SCTP"),
        Err(error) => tell(&format!("this kernel has no SCTP ({error}); that of make vm has")),
    }
    protocols
}

/// Tries the cases of a file on some ground, by these protocols.
pub(crate) fn table(
    world: World,
    cases: &[Case],
    ground: Box<dyn Ground>,
    protocols: Vec<&'static str>,
) -> Result<()> {
    let mut field = Field::new(world, ground, protocols)?;
    let mut policies = cases.iter().flat_map(|case| &case.policies);
    if policies.any(|policy| policy["kind"] == "ClusterNetworkPolicy") {
        field.define_cluster_policies()?;
    }
    if cases.iter().any(|case| case.tries_nodes) {
        field.make_nodes()?;
    }
    let (begun, mut wrong) = (Instant::now(), Vec::new());
    for case in cases {
        field.set(case)?;
        let set = Instant::now();
        // In force within the time, and still so when asked again.
        let (mut equal, mut patience) = (0, PATIENCE.0);
        let mut last = Vec::new();
        while equal < 2 && (equal > 0 || set.elapsed() < IN_FORCE) {
            last = field.differences(case, patience)?;
            equal = if last.is_empty() { equal + 1 } else { 0 };
            if equal == 0 {
                patience = PATIENCE.1.min(patience * 2);
            }
        }
        if equal < 2 {
            tell(&format!("wrong: {}", case.name));
            let shown: Vec<_> = last.iter().take(8).map(String::as_str).collect();
            wrong.push(format!("{}: {} differ\n    {}", case.name, last.len(), shown.join("\n    ")));
        }
    }
    tell(&format!("{} cases in {:?}, {} wrong", cases.len(), begun.elapsed(), wrong.len()));
    if !wrong.is_empty() {
        bail!("{} of {} cases:\n{}\n{}", wrong.len(), cases.len(), wrong.join("\n"), field.log_tail());
    }
    field.down()
}
