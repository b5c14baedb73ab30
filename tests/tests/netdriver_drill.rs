//! `podwire netdriver drill`: our driver passes a short one, and drivers that are broken on purpose do not.

use anyhow::{Result, ensure};
use podwire_testkit::{Node, isolate, node::bin_dir};
use podwire_tests::drill::{Drilled, drill, make_devices};

/// Where a driver meets the kubelet and the runtime.
fn sockets(node: &Node) -> Result<(String, String)> {
    let (root, nri) = (node.data_dir.join("kubelet"), node.names()?.run_dir.join("nri.sock"));
    Ok((root.display().to_string(), nri.display().to_string()))
}

#[test]
fn our_driver_passes_a_short_drill() -> Result<()> {
    isolate()?;
    make_devices(2)?;
    let node = Node::up(&[])?;
    let (root, nri) = sockets(&node)?;
    let command = format!(
        "{} netdriver --hostname-override node1 --filter= --bind-address 127.0.0.1:0 --kubelet-root-dir {root} --nri-socket {nri} --state-dir {} --trace-dir {}",
        bin_dir().join("podwire").display(),
        node.names()?.run_dir.join("netdriver").display(),
        node.data_dir.display(),
    );
    let rounds = [
        "--tries",
        "1",
        "--lasts",
        "1s",
        "--faults",
        "kill,disconnect",
        "--arrows",
        "publish,attach,unprepare",
    ];
    let drilled = drill(&node, "dra.net", &command, &rounds)?;
    ensure!(drilled.code == Some(0), "{}", drilled.all);
    for fault in ["kill", "disconnect"] {
        for at in ["publish", "attach", "unprepare"] {
            ensure!(drilled.counts(fault, at) == Some(vec![0; 4]), "{fault} at {at}: {}", drilled.all);
        }
    }
    node.assert_no_pod_residue()?;
    node.down()
}

/// What the drill says of a driver that is broken in some way, on a node with one device.
fn drill_broken(mode: &str, fault: &str) -> Result<(Node, Drilled)> {
    const NAME: &str = "broken.example.com";
    isolate()?;
    make_devices(1)?;
    let node = Node::up(&[])?;
    let (root, nri) = sockets(&node)?;
    let driver = env!("CARGO_BIN_EXE_broken-driver");
    let podwire = bin_dir().join("podwire");
    let command = format!("{driver} {NAME} {root} {nri} eth1 {mode} {}", podwire.display());
    let rounds = ["--pods", "1", "--tries", "1", "--lasts", "1s", "--bound", "30s", "--arrows", "run"];
    let drilled = drill(&node, NAME, &command, &[&rounds[..], &["--faults", fault]].concat())?;
    ensure!(drilled.code == Some(1), "{}", drilled.all);
    Ok((node, drilled))
}

#[test]
fn the_drill_finds_a_driver_that_attaches_nothing() -> Result<()> {
    let (node, drilled) = drill_broken("idle", "hang")?;
    ensure!(drilled.counts("hang", "run") == Some(vec![1, 0, 0, 0]), "{}", drilled.all);
    ensure!(drilled.out.contains("ran without eth1"), "{}", drilled.all);
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn the_drill_finds_a_driver_that_forgets_devices_when_it_is_killed() -> Result<()> {
    let (node, drilled) = drill_broken("forgetful", "kill")?;
    ensure!(drilled.counts("kill", "run") == Some(vec![0, 1, 0, 0]), "{}", drilled.all);
    ensure!(drilled.out.contains("device eth1 is lost"), "{}", drilled.all);
    node.assert_no_pod_residue()?;
    node.down()
}
