//! Tables in pods' own namespaces, for links whose packets never pass this machine: macvlan, ipvlan, a function or a device
//! that was moved there.
//!
//! Only pods that have such a link have one. It is laid before the pod's first process; it stays when the plugin does not, and
//! whoever takes over reads it back. Whoever has CAP_NET_ADMIN in the pod can change it: docs/netplugin.md says so.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;

use podwire_linux::netns::{self, Netns};
use podwire_linux::nft::conntrack::Connection;

use crate::links::Looked;
use crate::plan::Planner;
use crate::plan::evaluate::{Flow, judge_inside};
use crate::plan::inside::Touched;
use crate::plan::tables::Tables;
use crate::policy::Direction;
use crate::table::{self, Table};

/// The table's name; the namespace is the pod's alone.
pub const TABLE: &str = "podwire_policy";

/// Why a pod has no table of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its namespace.
    #[error("enter the pod's network namespace")]
    Namespace(#[from] netns::Error),
    /// Its table.
    #[error("write policies into the pod's network namespace")]
    Table(#[from] table::Error),
}

/// A pod's own table: what it is to hold, and the way to it.
struct Pod {
    table: Table,
    tables: Tables,
    addresses: Vec<IpAddr>,
    /// It is not known whether the kernel has what was planned.
    stale: bool,
}

impl Pod {
    /// Makes the kernel's table what the plan says, whatever it holds.
    fn correct(&mut self, planner: &Planner, id: &str) -> Result<(), table::Error> {
        self.tables = Tables::default();
        planner.inside(id, &mut self.tables, &Touched::All);
        self.table.lay_floor()?;
        let change = self.tables.against(&self.table.read()?);
        self.table.apply(&change)?;
        self.stale = false;
        Ok(())
    }

    fn follow(&mut self, planner: &Planner, id: &str, touched: &Touched) -> Result<(), table::Error> {
        planner.inside(id, &mut self.tables, touched);
        let change = self.tables.take();
        if change.is_empty() { Ok(()) } else { self.table.apply(&change) }
    }
}

/// The pods that have a table of their own, by sandbox.
#[derive(Default)]
pub(crate) struct Inside(HashMap<String, Pod>);

impl Inside {
    /// Opens the way to a pod's table; nothing is written yet, so that a table of an earlier process goes on deciding.
    pub(crate) fn open(&mut self, id: &str, netns: &Path, looked: &Looked) -> Result<(), Error> {
        // A pod speaks to itself by its loopback, whatever policies say.
        let passing: Vec<String> = looked.passing.iter().cloned().chain(["lo".to_owned()]).collect();
        let table = Netns::open(netns)?.run(|| Table::open_inside(TABLE, passing))??;
        let pod = Pod { table, tables: Tables::default(), addresses: looked.addresses.clone(), stale: true };
        self.0.insert(id.to_owned(), pod);
        Ok(())
    }

    /// Puts a pod's rules in place, if it has a table of its own.
    pub(crate) fn put(&mut self, planner: &Planner, id: &str) -> Result<(), Error> {
        match self.0.get_mut(id) {
            Some(pod) => Ok(pod.correct(planner, id)?),
            None => Ok(()),
        }
    }

    /// A pod is gone, and its namespace with all that is in it.
    pub(crate) fn gone(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Of a list that is complete: whatever is not in it is gone.
    pub(crate) fn keep(&mut self, listed: &HashSet<String>) {
        self.0.retain(|id, _| listed.contains(id));
    }

    /// Brings all of them in line with the plan, `None` when it has not changed, and those that were refused when that is
    /// `due`; whether all that was tried could be done.
    pub(crate) fn follow(&mut self, planner: &Planner, touched: Option<&Touched>, due: bool) -> bool {
        let mut done = true;
        for (id, pod) in &mut self.0 {
            let followed = match touched {
                _ if pod.stale && due => pod.correct(planner, id),
                _ if pod.stale => Ok(()),
                Some(touched) => pod.follow(planner, id, touched).or_else(|error| {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        sandbox = id,
                        error,
                        "a change in a pod's own table was refused; it is corrected"
                    );
                    pod.correct(planner, id)
                }),
                None => Ok(()),
            };
            if let Err(error) = followed {
                pod.stale = true;
                done = false;
                let error: &dyn std::error::Error = &error;
                tracing::error!(sandbox = id, error, "a pod's own table cannot be written; will retry");
            }
        }
        done
    }

    /// Forgets connections that are no longer allowed; how many.
    pub(crate) fn cut(&mut self) -> usize {
        let mut count = 0;
        for (id, pod) in &mut self.0 {
            let (tables, own) = (&pod.tables, &pod.addresses);
            let denied = |one: &Connection| {
                let flow = Flow {
                    source: one.source,
                    destination: one.answers,
                    protocol: one.protocol,
                    port: one.port,
                };
                let side = |ip: IpAddr, direction| {
                    own.contains(&ip) && !judge_inside(tables, flow, direction).allowed
                };
                // A pod's words to itself are nobody's business.
                !(own.contains(&one.source) && own.contains(&one.answers))
                    && (side(one.source, Direction::Egress) || side(one.answers, Direction::Ingress))
            };
            match pod.table.forget(denied) {
                Ok(cut) => count += cut,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        sandbox = id,
                        error,
                        "connections that policies no longer allow may go on"
                    );
                }
            }
        }
        count
    }
}
