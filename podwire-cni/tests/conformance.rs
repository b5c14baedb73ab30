//! The conformance suite, all of it, against our own plugins.

use std::path::Path;

use podwire_cni_lib::conformance;

#[test]
fn our_plugins_conform() {
    let dir = tempfile::tempdir().expect("folder");
    for plugin in podwire_cni_lib::plugins::ALL {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_podwire-cni"), dir.path().join(plugin.name))
            .expect("link");
    }
    let report = conformance::run(dir.path());
    assert!(report.passed(), "{report}");
    assert!(
        !report.checks.iter().any(|check| matches!(check.outcome, conformance::Outcome::NotRun(_))),
        "{report}"
    );
}

#[test]
fn the_suite_says_what_it_could_not_run_and_what_failed() {
    let empty = tempfile::tempdir().expect("folder");
    let report = conformance::run(empty.path());
    assert!(
        report.checks.iter().all(|check| matches!(check.outcome, conformance::Outcome::NotRun(_))),
        "{report}"
    );
    // A plugin that says yes to everything does not conform.
    let liars = tempfile::tempdir().expect("folder");
    for name in ["bridge", "host-local", "loopback", "portmap", "tuning"] {
        write_script(&liars.path().join(name), "#!/bin/sh\ncat >/dev/null\nexit 0\n");
    }
    let report = conformance::run(liars.path());
    assert!(!report.passed());
    assert!(report.to_string().contains("FAILED"), "{report}");
}

fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("write");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("mode");
}
