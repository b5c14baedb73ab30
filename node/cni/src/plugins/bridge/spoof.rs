//! Frames of a pod with a foreign source address are dropped, in the reference plugin's chains.

use podwire_linux::nft::expr::{MetaKey, PayloadBase, link_name};
use podwire_linux::nft::{self, Base, CmpOp, Expr, Family, Hook, Register, Table, Transaction, Verdict};
use podwire_linux::rtnl::Mac;

use crate::spec::error::CniError;

const TABLE: Table<'static> = Table { family: Family::Bridge, name: "nat" };
const BASE: &str = "PREROUTING";

fn chains(id: &str) -> (String, String, String) {
    let chain = format!("cni-br-iface-{id}");
    (format!("{chain}-mac"), chain, format!("macspoofchk-{id}"))
}

/// The name of an attachment in chains and comments.
pub fn id(container: &str, ifname: &str) -> String {
    format!("{container}-{ifname}")
}

/// Lets only frames of `mac` in by the host's end `port`.
pub fn add(id: &str, port: &str, mac: Mac) -> Result<(), CniError> {
    let (mac_chain, chain, comment) = chains(id);
    let mut tx = Transaction::new();
    tx.add_table(TABLE, None);
    tx.add_chain(
        TABLE,
        BASE,
        Some(Base { kind: "filter", hook: Hook::Prerouting, priority: -300, drop: false }),
    );
    for name in [&chain, &mac_chain] {
        tx.add_chain(TABLE, name, None);
        tx.flush_chain(TABLE, name);
    }
    let mut enter = link_name(MetaKey::IifName, CmpOp::Eq, port);
    enter.push(Expr::Verdict(Verdict::Jump(chain.clone())));
    tx.add_rule(TABLE, BASE, &enter, Some(&comment));
    tx.add_rule(TABLE, &chain, &[Expr::Verdict(Verdict::Jump(mac_chain.clone()))], Some(&comment));
    let own = [
        Expr::Payload { base: PayloadBase::Link, offset: 6, len: 6, to: Register::R1 },
        Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: mac.0.to_vec() },
        Expr::Verdict(Verdict::Return),
    ];
    tx.add_rule(TABLE, &mac_chain, &own, Some(&comment));
    tx.add_rule(TABLE, &mac_chain, &[Expr::Verdict(Verdict::Drop)], Some(&comment));
    let mut socket = nft::netfilter()?;
    Ok(tx.commit(&mut socket)?)
}

/// Removes the chains of an attachment and what leads to them.
pub fn del(id: &str) -> Result<(), CniError> {
    let (mac_chain, chain, comment) = chains(id);
    let mut socket = nft::netfilter()?;
    let rules = socket.nft_rules(TABLE, None)?;
    let mut tx = Transaction::new();
    for rule in rules.iter().filter(|rule| rule.comment.as_deref() == Some(&comment)) {
        tx.delete_rule(TABLE, &rule.chain, rule.handle);
    }
    if tx.is_empty() {
        return Ok(());
    }
    tx.delete_chain(TABLE, &chain);
    tx.delete_chain(TABLE, &mac_chain);
    Ok(tx.commit(&mut socket)?)
}

/// Whether all four rules are there.
pub fn check(id: &str) -> Result<(), CniError> {
    let (_, _, comment) = chains(id);
    let rules = nft::netfilter()?.nft_rules(TABLE, None)?;
    if rules.iter().filter(|rule| rule.comment.as_deref() == Some(&comment)).count() >= 4 {
        return Ok(());
    }
    Err(CniError::internal(format!("rules against address spoofing of {id} not found")))
}
