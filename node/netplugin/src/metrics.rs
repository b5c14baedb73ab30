//! What the plugin counts, in the text form that Prometheus reads. Pure but for the look at the kernel's counters.

use std::fmt::Write;

use crate::keeper::Status;
use crate::table::Table;

/// The page.
pub(crate) fn text(status: &Status, table: &str) -> String {
    let counts = status.counts;
    let mut page = String::new();
    let mut figure = |name: &str, kind: &str, help: &str, value: u64| {
        // Ignored: a String takes everything.
        write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{table=\"{table}\"}} {value}\n")
            .ok();
    };
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    figure("podwire_netplugin_policies", "gauge", "NetworkPolicies known.", number(counts.policies));
    let wide = number(counts.cluster_policies);
    figure("podwire_netplugin_cluster_policies", "gauge", "ClusterNetworkPolicies known.", wide);
    figure("podwire_netplugin_pods", "gauge", "Pods of the cluster known.", number(counts.pods));
    figure(
        "podwire_netplugin_sandboxes",
        "gauge",
        "Sandboxes of this node with their rules.",
        number(counts.sandboxes),
    );
    figure("podwire_netplugin_selectors", "gauge", "Distinct selectors.", number(counts.selectors));
    figure("podwire_netplugin_elements", "gauge", "Elements of all sets.", number(counts.elements));
    figure("podwire_netplugin_transactions_total", "counter", "Transactions.", status.transactions);
    figure(
        "podwire_netplugin_refusals_total",
        "counter",
        "Transactions the kernel refused.",
        status.refusals,
    );
    figure("podwire_netplugin_cut_total", "counter", "Connections cut by changes of policies.", status.cut);
    figure("podwire_netplugin_loaded", "gauge", "Whether the table is as planned.", u64::from(status.loaded));
    let name = "podwire_netplugin_dropped_packets_total";
    // Ignored: a table that cannot be read has nothing to tell; that it is so shows above.
    let dropped = Table::dropped(table).unwrap_or_default();
    write!(page, "# HELP {name} Packets dropped, by the rule.\n# TYPE {name} counter\n").ok();
    for (rule, packets) in dropped {
        writeln!(page, "{name}{{table=\"{table}\",rule={rule:?}}} {packets}").ok();
    }
    page
}
