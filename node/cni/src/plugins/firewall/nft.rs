//! The firewall in nf_tables: one table, one transaction, rules that tell whose they are.

use ipnet::IpNet;
use podwire_linux::nft::expr::{MetaKey, Side, address, ct_state, link_name, nfproto};
use podwire_linux::nft::{self, Base, CmpOp, Expr, Family, Hook, Socket, Table, Transaction, Verdict};

use super::{Conf, Ingress};
use crate::names;
use crate::spec::error::CniError;

/// The table when the configuration names none.
pub const TABLE: &str = "cni_firewall";
const PODS: &str = "pods";
const ADMIN: &str = "admin";
const STAGE_1: &str = "isolation_stage_1";
const STAGE_2: &str = "isolation_stage_2";
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;

fn table(conf: &Conf) -> Table<'_> {
    Table { family: Family::Inet, name: &conf.table }
}

fn jump(chain: &str) -> Expr {
    Expr::Verdict(Verdict::Jump(chain.into()))
}

/// Accepts the traffic of these addresses.
pub fn add(conf: &Conf, ips: &[IpNet], bridge: Option<&str>) -> Result<(), CniError> {
    let table = table(conf);
    let mut socket = nft::netfilter()?;
    let mut tx = Transaction::new();
    tx.add_table(table, Some("CNI firewall"));
    for chain in [PODS, ADMIN, STAGE_1, STAGE_2] {
        tx.add_chain(table, chain, None);
    }
    tx.add_chain(
        table,
        "forward",
        Some(Base { kind: "filter", hook: Hook::Forward, priority: 0, drop: false }),
    );
    tx.flush_chain(table, "forward");
    for chain in [STAGE_1, ADMIN, PODS] {
        tx.add_rule(table, "forward", &[jump(chain)], None);
    }
    if let Some(bridge) = bridge {
        isolate(&mut tx, &mut socket, conf, bridge)?;
    }
    let comment = names::masquerade_comment(&conf.network, &conf.ifname, &conf.container);
    for ip in ips {
        let mut to = nfproto(ip.addr().is_ipv6());
        to.extend(address(Side::Destination, CmpOp::Eq, *ip));
        to.extend(ct_state(ESTABLISHED_OR_RELATED));
        to.push(Expr::Verdict(Verdict::Accept));
        tx.add_rule(table, PODS, &to, Some(&comment));
        let mut from = nfproto(ip.addr().is_ipv6());
        from.extend(address(Side::Source, CmpOp::Eq, *ip));
        from.push(Expr::Verdict(Verdict::Accept));
        tx.add_rule(table, PODS, &from, Some(&comment));
    }
    Ok(tx.commit(&mut socket)?)
}

fn isolate(tx: &mut Transaction, socket: &mut Socket, conf: &Conf, bridge: &str) -> Result<(), CniError> {
    let table = table(conf);
    let note = format!("bridge {bridge}");
    let found = socket.nft_rules(table, None)?;
    let present = |chain: &str, note: &str| {
        found.iter().any(|rule| rule.chain == chain && rule.comment.as_deref() == Some(note))
    };
    if !present(STAGE_1, &note) {
        let mut leave = link_name(MetaKey::IifName, CmpOp::Eq, bridge);
        leave.extend(link_name(MetaKey::OifName, CmpOp::Ne, bridge));
        leave.push(jump(STAGE_2));
        tx.add_rule(table, STAGE_1, &leave, Some(&note));
    }
    let within = format!("within {bridge}");
    if conf.ingress == Ingress::Isolated && !present(STAGE_1, &within) {
        let mut stay = link_name(MetaKey::IifName, CmpOp::Eq, bridge);
        stay.extend(link_name(MetaKey::OifName, CmpOp::Eq, bridge));
        stay.push(Expr::Verdict(Verdict::Drop));
        tx.add_rule(table, STAGE_1, &stay, Some(&within));
    }
    if !present(STAGE_2, &note) {
        let mut enter = link_name(MetaKey::OifName, CmpOp::Eq, bridge);
        enter.push(Expr::Verdict(Verdict::Drop));
        tx.add_rule(table, STAGE_2, &enter, Some(&note));
    }
    Ok(())
}

/// Removes the rules of an attachment.
pub fn del(conf: &Conf) -> Result<(), CniError> {
    let own = names::masquerade_prefix(&conf.network, Some((&conf.ifname, &conf.container)));
    remove(conf, |comment| comment.starts_with(&own))
}

/// Removes the rules of attachments of this network that are gone.
pub fn gc(conf: &Conf, keep: &[(String, String)]) -> Result<(), CniError> {
    let network = names::masquerade_prefix(&conf.network, None);
    let kept: Vec<String> =
        keep.iter().map(|(id, ifname)| names::masquerade_prefix(&conf.network, Some((ifname, id)))).collect();
    remove(conf, |comment| comment.starts_with(&network) && !kept.iter().any(|own| comment.starts_with(own)))
}

fn remove(conf: &Conf, wanted: impl Fn(&str) -> bool) -> Result<(), CniError> {
    let table = table(conf);
    let mut socket = nft::netfilter()?;
    let mut tx = Transaction::new();
    for rule in socket.nft_rules(table, Some(PODS))? {
        if rule.comment.as_deref().is_some_and(&wanted) {
            tx.delete_rule(table, PODS, rule.handle);
        }
    }
    Ok(tx.commit(&mut socket)?)
}

/// Whether everything is in place.
pub fn check(conf: &Conf, ips: &[IpNet], bridge: Option<&str>) -> Result<(), CniError> {
    let rules = nft::netfilter()?.nft_rules(table(conf), None)?;
    let own = names::masquerade_prefix(&conf.network, Some((&conf.ifname, &conf.container)));
    let count = |chain: &str, wanted: &dyn Fn(&str) -> bool| {
        rules.iter().filter(|rule| rule.chain == chain && rule.comment.as_deref().is_some_and(wanted)).count()
    };
    if rules.iter().filter(|rule| rule.chain == "forward").count() < 3 {
        return Err(CniError::internal(format!("table {} does not see forwarded traffic", conf.table)));
    }
    if count(PODS, &|comment| comment.starts_with(&own)) < 2 * ips.len() {
        return Err(CniError::internal(format!("rules of container {} not found", conf.container)));
    }
    if let Some(bridge) = bridge
        && count(STAGE_2, &|comment| comment == format!("bridge {bridge}")) == 0
    {
        return Err(CniError::internal(format!("isolation of {bridge} not found")));
    }
    Ok(())
}
