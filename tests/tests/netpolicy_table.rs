//! What policies allow, tried with real connections of nine pods in three namespaces, both families, TCP and UDP, beside
//! what cyclonus 0.5.6 says of NetworkPolicies and what the specification says of ClusterNetworkPolicies.
//!
//! The expected side is recorded in `tests/peers/policy`. SCTP is tried where the kernel has it; that of `make vm` must.

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

use anyhow::Result;
use podwire_testkit::isolate;

/// Tries the cases of a file: all of them with the real peers, which takes minutes.
fn table(file: &str, sample: usize) -> Result<()> {
    isolate()?;
    let (world, cases) = cases::read(file)?;
    let cases = table::chosen(cases, if cfg!(feature = "interop") { 1 } else { sample });
    let ground = ground::ours(&world)?;
    table::table(world, &cases, ground, table::protocols())
}

#[test]
fn connections_are_as_cyclonus_says_of_network_policies() -> Result<()> {
    table("networkpolicy.json", 14)
}

#[test]
fn connections_are_as_the_specification_says_of_cluster_network_policies() -> Result<()> {
    table("clusternetworkpolicy.json", 5)
}

#[test]
fn the_recorded_tables_are_whole_and_of_every_kind() -> Result<()> {
    let (world, network) = cases::read("networkpolicy.json")?;
    let (_, cluster) = cases::read("clusternetworkpolicy.json")?;
    assert!(network.len() + cluster.len() >= 200, "{} and {}", network.len(), cluster.len());
    let ports = [("TCP/80", "UDP/81"), ("TCP/8080", "SCTP/80")];
    for case in network.iter().chain(&cluster) {
        for (a, b) in ports {
            for pod in 0..world.pods.len() {
                assert!(case.allows(0, pod, pod, a) && case.allows(1, pod, pod, b), "{}: itself", case.name);
            }
        }
    }
    Ok(())
}
