//! A network namespace for a test: loopback and one address that is not a loopback address, and no way out.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and fails where it unwraps"
)]

use std::process::Command;

/// The address of pods and nodes inside; all of 10.77.0.0/24 is on this machine.
pub(crate) const ADDRESS: &str = "10.77.0.1";

const SCRIPT: &str = r#"ip link set lo up && ip address add 10.77.0.1/24 dev lo && exec "$0" "$@""#;

/// Whether this is the inside. Outside, the test of this name is run once more inside, and fails here if it does there.
pub(crate) fn inside(test: &str) -> bool {
    if std::env::var_os("PODWIRE_INSIDE").is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    // Who is not root is root in there.
    command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("PODWIRE_INSIDE", "1");
    let output = command.output().expect("unshare (util-linux) and ip (iproute2) are there");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(passed, "{test} failed inside:\n{said}\n{complained}");
    false
}
