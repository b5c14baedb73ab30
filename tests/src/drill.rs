//! `podwire netdriver drill` on a whole node: devices for it, a class of them, and what it says.

use std::process::{Command, Output};

use anyhow::{Context, Result};
use podwire_linux::rtnl::{Batch, LinkChange, LinkRef, Peer, Socket, Veth};
use podwire_testkit::{Node, node::bin_dir};

/// Makes devices of the node, `eth1` and so on, each one end of a wire.
pub fn make_devices(count: usize) -> Result<()> {
    let mut socket = Socket::route()?;
    for at in 1..=count {
        let (name, far) = (format!("eth{at}"), format!("far{at}"));
        let mut batch = Batch::new();
        let peer = Peer { name: &far, netns: None, mac: None };
        batch.add_veth(&Veth { name: &name, up: true, master: None, mtu: None, mac: None, peer });
        batch.set_link(LinkRef::Name(&far), &LinkChange { up: Some(true), ..LinkChange::default() });
        socket.exchange(&mut batch)?;
    }
    Ok(())
}

/// What a drill did and said.
pub struct Drilled {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its table, and what it found.
    pub out: String,
    /// All of that and the logs beside it, for who has to find out why.
    pub all: String,
}

/// Drills the driver that a command starts, with devices of its own class.
pub fn drill(node: &Node, driver: &str, command: &str, rounds: &[&str]) -> Result<Drilled> {
    let chosen =
        format!("device.driver == \"{driver}\" && device.attributes[\"dra.net\"].ifName.startsWith(\"eth\")");
    node.apply(&format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: drill}}\nspec: {{selectors: [{{cel: {{expression: '{chosen}'}}}}]}}\n"
    ))?;
    let log = node.data_dir.join("driver.log");
    let Output { status, stdout, stderr } = Command::new(bin_dir().join("podwire"))
        .args([
            "netdriver",
            "drill",
            "--node-name",
            "node1",
            "--device-class",
            "drill",
            "--driver-name",
            driver,
        ])
        .args(["--image", "localhost/pod-app:latest", "--arg", "sleep", "--arg", "600"])
        .args(["--driver-command", command, "--driver-log"])
        .arg(&log)
        .args(rounds)
        .arg("--kubeconfig")
        .arg(node.kubeconfig())
        .output()
        .context("run the drill")?;
    let out = String::from_utf8_lossy(&stdout).into_owned();
    let (driver, err) = (std::fs::read_to_string(log).unwrap_or_default(), String::from_utf8_lossy(&stderr));
    let all = format!("{status}\n{out}\n{err}\n{driver}\n{}", node.log_tail());
    Ok(Drilled { code: status.code(), out, all })
}

impl Drilled {
    /// The counts of a row: pods without a device, devices lost and shared, objects stuck.
    pub fn counts(&self, fault: &str, at: &str) -> Option<Vec<usize>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut rows = self.out.lines().map(words);
        let row = rows.find(|row| row.len() > 6 && row[0] == fault && row[1] == at)?;
        row[3..7].iter().map(|word| word.parse().ok()).collect()
    }
}
