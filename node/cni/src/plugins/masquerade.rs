//! Masquerading: traffic of a pod that leaves its network takes the node's address.
//!
//! Rules are the reference plugin's: one per address in `masq_checks`, found again by the hashes in their comment, so
//! that DEL needs neither the address nor the namespace.

use ipnet::IpNet;
use podwire_linux::nft::expr::{Side, address, nfproto};
use podwire_linux::nft::{Base, CmpOp, Expr, Family, Hook, Socket, Table, Transaction, Verdict};

use crate::names;
use crate::spec::error::CniError;

/// The table of the reference plugin.
pub const TABLE: &str = "cni_plugins_masquerade";
const CHAIN: &str = "masq_checks";

/// Whose rules.
#[derive(Clone, Copy)]
pub struct Attachment<'a> {
    /// The network.
    pub network: &'a str,
    /// The interface.
    pub ifname: &'a str,
    /// The container.
    pub container: &'a str,
}

fn table(name: &str) -> Table<'_> {
    Table { family: Family::Inet, name }
}

/// Masquerades these addresses, in one transaction.
pub fn add(table_name: &str, who: Attachment<'_>, nets: &[IpNet]) -> Result<(), CniError> {
    let table = table(table_name);
    let mut socket = Socket::netfilter()?;
    let comment = names::masquerade_comment(who.network, who.ifname, who.container);
    let mut tx = Transaction::new();
    tx.add_table(table, Some("Masquerading of pods"));
    tx.add_chain(table, CHAIN, None);
    tx.add_chain(
        table,
        "postrouting",
        Some(Base { kind: "nat", hook: Hook::Postrouting, priority: 100, drop: false }),
    );
    tx.flush_chain(table, "postrouting");
    for multicast in ["224.0.0.0/4", "ff00::/8"] {
        let net: IpNet = multicast.parse().expect("a constant network");
        let mut rule = nfproto(net.addr().is_ipv6());
        rule.extend(address(Side::Destination, CmpOp::Eq, net));
        rule.push(Expr::Verdict(Verdict::Return));
        tx.add_rule(table, "postrouting", &rule, None);
    }
    tx.add_rule(table, "postrouting", &[Expr::Verdict(Verdict::Goto(CHAIN.into()))], None);
    for net in nets {
        let host = IpNet::from(net.addr());
        let mut rule = nfproto(net.addr().is_ipv6());
        rule.extend(address(Side::Source, CmpOp::Eq, host));
        rule.extend(address(Side::Destination, CmpOp::Ne, net.trunc()));
        rule.push(Expr::Masquerade { random: false });
        tx.add_rule(table, CHAIN, &rule, Some(&comment));
    }
    Ok(tx.commit(&mut socket)?)
}

/// Removes the rules of an attachment.
pub fn del(table_name: &str, who: Attachment<'_>) -> Result<(), CniError> {
    let prefix = names::masquerade_prefix(who.network, Some((who.ifname, who.container)));
    remove(table_name, |comment| comment.starts_with(&prefix))
}

/// Removes the rules of a network's attachments that are not in `keep`, given as (container, interface).
pub fn gc(table_name: &str, network: &str, keep: &[(String, String)]) -> Result<(), CniError> {
    let of_network = names::masquerade_prefix(network, None);
    let kept: Vec<String> =
        keep.iter().map(|(id, ifname)| names::masquerade_prefix(network, Some((ifname, id)))).collect();
    remove(table_name, |comment| {
        comment.starts_with(&of_network) && !kept.iter().any(|prefix| comment.starts_with(prefix))
    })
}

/// Whether the rules of an attachment are there.
pub fn count(table_name: &str, who: Attachment<'_>) -> Result<usize, CniError> {
    let prefix = names::masquerade_prefix(who.network, Some((who.ifname, who.container)));
    let rules = Socket::netfilter()?.nft_rules(table(table_name), Some(CHAIN))?;
    Ok(rules
        .iter()
        .filter(|rule| rule.comment.as_deref().is_some_and(|text| text.starts_with(&prefix)))
        .count())
}

fn remove(table_name: &str, wanted: impl Fn(&str) -> bool) -> Result<(), CniError> {
    let table = table(table_name);
    let mut socket = Socket::netfilter()?;
    let rules = socket.nft_rules(table, Some(CHAIN))?;
    let mut tx = Transaction::new();
    for rule in rules.iter().filter(|rule| rule.comment.as_deref().is_some_and(&wanted)) {
        tx.delete_rule(table, CHAIN, rule.handle);
    }
    Ok(tx.commit(&mut socket)?)
}
