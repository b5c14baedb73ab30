//! `podwire device-plugin` as a program: what it tells about a configuration, and its life without a kubelet.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result};
use podwire_testkit::node::bin_dir;

const TUN: &str = "pools: [{resource: podwire.dev/tun, share: 3, select: [{kind: tun}]}]\n";

fn program() -> Command {
    let mut command = Command::new(bin_dir().join("podwire"));
    command.arg("device-plugin").stdin(Stdio::null());
    command
}

fn check(folder: &Path, text: &str) -> Result<Output> {
    let file = folder.join("devices.yaml");
    std::fs::write(&file, text)?;
    Ok(program().arg("--check").arg(file).output()?)
}

#[test]
fn the_program_tells_what_pools_would_offer() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let told = check(folder.path(), TUN)?;
    let expected = "podwire.dev/tun: 1 device, each for 3 containers\n  net/tun: Healthy /dev/net/tun rw\n";
    assert_eq!((String::from_utf8(told.stdout)?.as_str(), told.status.code()), (expected, Some(0)));

    let twice = "pools: [{resource: a.b/one, select: [{kind: tun}]}, {resource: a.b/two, select: [{kind: node, path: '/dev/net/*'}]}]";
    let told = check(folder.path(), twice)?;
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8(told.stdout)?.contains("named by two pools, a.b/one and a.b/two"));

    let told = check(folder.path(), &TUN.replace("share", "shares"))?;
    assert_eq!(told.status.code(), Some(1));
    let said = String::from_utf8(told.stderr)?;
    assert!(said.contains("unknown field `shares`"), "{said}");
    Ok(())
}

#[test]
fn the_program_ends_when_asked_and_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (file, sockets) = (folder.path().join("devices.yaml"), folder.path().join("device-plugins"));
    std::fs::write(&file, TUN)?;
    let mut command = program();
    command.arg("--config").arg(&file).arg("--kubelet-dir").arg(&sockets);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    assert!(line.starts_with("ready "), "{line}");
    assert!(sockets.join("podwire-podwire.dev_tun.sock").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    assert!(child.wait()?.success());
    assert_eq!(std::fs::read_dir(&sockets)?.count(), 0);
    Ok(())
}
