//! NetworkPolicies beside upstream: the recorded tables are what cyclonus says when it is asked anew, and `podwire netplugin`
//! alone beside containerd, kubelet and kube-apiserver passes them.

#![cfg(feature = "interop")]

#[path = "netpolicy_table/cases.rs"]
mod cases;
#[path = "netpolicy_table/field.rs"]
mod field;
#[path = "netpolicy_table/ground.rs"]
mod ground;
#[path = "netpolicy_table/hosts.rs"]
mod hosts;
#[allow(dead_code, unreachable_pub, reason = "the hostile suite uses all of it")]
#[path = "../hostile/http.rs"]
mod http;
#[path = "netpolicy_table/table.rs"]
mod table;
#[path = "netpolicy_table/upstream.rs"]
mod upstream;

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use podwire_testkit::{isolate, node::peer};

#[test]
fn the_recorded_tables_are_what_cyclonus_says() -> Result<()> {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/policy/cases/networkpolicy.json");
    let output = Command::new(peer("policy")?).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (now, then) = (String::from_utf8(output.stdout)?, std::fs::read_to_string(recorded)?);
    let differs = now.lines().zip(then.lines()).find(|(now, then)| now != then);
    ensure!(differs.is_none() && now.len() == then.len(), "now and then: {differs:#?}");
    Ok(())
}

/// One case of `sample`, or those that `PODWIRE_CASES` names: with nothing in it all of them, which takes minutes.
fn beside_upstream(file: &str, sample: usize) -> Result<()> {
    isolate()?;
    let (world, cases) = cases::read(file)?;
    let ground = upstream::Upstream::start(&world)?;
    table::table(world, &table::chosen(cases, sample), Box::new(ground), table::protocols())
}

#[test]
fn on_containerd_with_kube_apiserver_connections_are_as_cyclonus_says() -> Result<()> {
    beside_upstream("networkpolicy.json", 12)
}

#[test]
fn on_containerd_with_kube_apiserver_cluster_policies_are_as_specified() -> Result<()> {
    beside_upstream("clusternetworkpolicy.json", 4)
}
