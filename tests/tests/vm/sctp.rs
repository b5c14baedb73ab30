//! What policies allow of SCTP, by real associations: of the recorded tables every case that names the protocol, and some that do not.

#[path = "../netpolicy_table/cases.rs"]
mod cases;
#[path = "../netpolicy_table/field.rs"]
mod field;
#[path = "../netpolicy_table/ground.rs"]
mod ground;
#[path = "../netpolicy_table/hosts.rs"]
mod hosts;
#[allow(dead_code, unreachable_pub, reason = "the hostile suite uses all of it")]
#[path = "../../hostile/http.rs"]
mod http;
#[path = "../netpolicy_table/table.rs"]
mod table;

use anyhow::{Result, ensure};
use podwire_testkit::isolate;

use self::cases::Case;

/// One of so many cases that do not name SCTP: what is not said of ports holds of all protocols.
const OTHERS: usize = 40;

fn chosen(cases: Vec<Case>) -> Vec<Case> {
    let named = |case: &Case| case.policies.iter().any(|one| one.to_string().to_lowercase().contains("sctp"));
    let (named, others): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(named);
    named.into_iter().chain(others.into_iter().step_by(OTHERS)).collect()
}

#[test]
fn sctp_associations_are_as_the_recorded_tables_say() -> Result<()> {
    ensure!(table::protocols().contains(&"SCTP"), "this kernel has no SCTP");
    isolate()?;
    let (world, network) = cases::read("networkpolicy.json")?;
    let (_, cluster) = cases::read("clusternetworkpolicy.json")?;
    let cases = [chosen(network), chosen(cluster)].concat();
    let ground = ground::ours(&world)?;
    table::table(world, &cases, ground, vec!["SCTP"])
}
