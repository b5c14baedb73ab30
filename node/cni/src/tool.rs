//! What `podwire cni` does, as functions whose results can be printed: the work of cnitool, and a doctor.

pub mod doctor;

use serde_json::Value;

use crate::networks::conflist::{self, Conflist};
use crate::networks::{AddResult, Attachment, Error, Networks};

pub use crate::conformance::run as conformance;
pub use doctor::{Finding, Kind, Report, doctor};

/// Attaches to a network by name, or to the first one.
pub fn add(networks: &Networks, network: Option<&str>, attachment: &Attachment) -> Result<AddResult, Error> {
    match network {
        None => networks.ensure(attachment),
        Some(name) => networks.ensure_in(&named(networks, name)?, attachment),
    }
}

/// Detaches.
pub fn del(networks: &Networks, attachment: &Attachment) -> Result<(), Error> {
    networks.detach(attachment)
}

/// Compares with what was recorded.
pub fn check(networks: &Networks, attachment: &Attachment) -> Result<(), Error> {
    networks.check(attachment)
}

/// Removes everything of attachments that are not in `keep`.
pub fn gc(networks: &Networks, keep: &[Attachment]) -> Result<(), Error> {
    networks.gc(keep)
}

/// Whether pods can be attached.
pub fn status(networks: &Networks) -> Result<String, Error> {
    networks.status()?;
    let conflist = networks.current()?;
    let kinds: Vec<&str> = (0..conflist.plugins.len()).map(|step| conflist.kind(step)).collect();
    Ok(format!("network {} is ready (CNI {}, plugins {})", conflist.name, conflist.version, kinds.join(", ")))
}

fn named(networks: &Networks, name: &str) -> Result<Conflist, Error> {
    conflist::load_named(&networks.config.conf_dir, name)
}

/// One row of the table of attachments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The container.
    pub container: String,
    /// The interface.
    pub ifname: String,
    /// The network.
    pub network: String,
    /// The addresses.
    pub addresses: String,
    /// `attached`, or why it still needs cleaning.
    pub state: String,
}

/// A table for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(pub Vec<Row>);

/// The attachments that exist or still need cleaning.
pub fn list(networks: &Networks) -> Result<Table, Error> {
    let mut rows: Vec<Row> = networks
        .attachments()?
        .into_iter()
        .map(|(attachment, result)| Row {
            container: attachment.container_id,
            ifname: attachment.ifname,
            network: result.network,
            addresses: result.ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            state: "attached".into(),
        })
        .collect();
    for pending in networks.pending()? {
        rows.retain(|row| row.container != pending.container_id || row.ifname != pending.ifname);
        rows.push(Row {
            container: pending.container_id,
            ifname: pending.ifname,
            network: pending.network,
            addresses: String::new(),
            state: pending.reason,
        });
    }
    rows.sort_by(|a, b| (&a.network, &a.container, &a.ifname).cmp(&(&b.network, &b.container, &b.ifname)));
    Ok(Table(rows))
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let header = ["CONTAINER", "INTERFACE", "NETWORK", "ADDRESSES", "STATE"].map(str::to_owned);
        let rows = self.0.iter().map(|row| {
            [
                row.container.clone(),
                row.ifname.clone(),
                row.network.clone(),
                row.addresses.clone(),
                row.state.clone(),
            ]
        });
        let cells: Vec<[String; 5]> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        for row in &cells {
            let padded =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width));
            writeln!(f, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A result as the specification prints it.
pub fn printed(value: &Value) -> String {
    crate::plugins::main::pretty(value)
}
