//! Port mappings in nf_tables, one transaction per family.

use ipnet::IpNet;
use podwire_linux::nft::expr::{Side, address, ct_is_dnat, daddr_is_local, dnat_to, dport};
use podwire_linux::nft::{self, Base, CmpOp, Expr, Family, Hook, Table, Transaction, Verdict};

use super::conf::Conf;
use crate::spec::error::{CniError, code};

/// The table of the reference plugin.
pub const TABLE: &str = "cni_hostport";
const ALL: &str = "hostports_all";
const BY_IP: &str = "hostip_hostports";
const PORTS: &str = "hostports";
const MASQ: &str = "masquerading";

fn table(conf: &Conf, v6: bool) -> Table<'_> {
    Table { family: if v6 { Family::Ip6 } else { Family::Ip }, name: &conf.table }
}

/// Makes the node's ports lead to these addresses; the table is laid out only when it is not there yet.
pub fn add(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    for (name, conditions) in [("conditionsV4", &conf.conditions_v4), ("conditionsV6", &conf.conditions_v6)] {
        if let Some(words) = conditions.as_ref().filter(|words| !words.is_empty()) {
            return Err(CniError::new(
                code::UNSUPPORTED_FIELD,
                format!(
                    "field {name:?}: raw conditions such as {:?} need the iptables backend",
                    words.join(" ")
                ),
            ));
        }
    }
    let mut socket = nft::netfilter()?;
    for target in targets {
        let mut tx = Transaction::new();
        forward(&mut tx, conf, *target);
        match tx.commit(&mut socket) {
            Err(error) if error.is_absent() => {}
            other => {
                other?;
                continue;
            }
        }
        let mut tx = Transaction::new();
        lay_out(&mut tx, conf, target.addr().is_ipv6());
        forward(&mut tx, conf, *target);
        tx.commit(&mut socket)?;
    }
    Ok(())
}

/// Tables and chains; those that say where packets go are written anew each time.
fn lay_out(tx: &mut Transaction, conf: &Conf, v6: bool) {
    let table = table(conf, v6);
    tx.add_table(table, Some("CNI portmap plugin"));
    for chain in [PORTS, BY_IP, ALL] {
        tx.add_chain(table, chain, None);
    }
    tx.flush_chain(table, ALL);
    for chain in [BY_IP, PORTS] {
        tx.add_rule(table, ALL, &[Expr::Verdict(Verdict::Jump(chain.into()))], None);
    }
    for (chain, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
        tx.add_chain(table, chain, Some(Base { kind: "nat", hook, priority: -100, drop: false }));
        tx.flush_chain(table, chain);
        let mut rule = daddr_is_local();
        rule.push(Expr::Verdict(Verdict::Jump(ALL.into())));
        tx.add_rule(table, chain, &rule, None);
    }
    if conf.snat {
        tx.add_chain(
            table,
            MASQ,
            Some(Base { kind: "nat", hook: Hook::Postrouting, priority: 100, drop: false }),
        );
    }
}

fn forward(tx: &mut Transaction, conf: &Conf, target: IpNet) {
    let ip = target.addr();
    let v6 = ip.is_ipv6();
    let table = table(conf, v6);
    for mapping in &conf.mappings {
        let Some(host_ip) = mapping.applies(v6) else { continue };
        let mut rule = Vec::new();
        if let Some(host_ip) = host_ip {
            rule.extend(address(Side::Destination, CmpOp::Eq, IpNet::from(host_ip)));
        }
        rule.extend(dport(mapping.protocol_number(), mapping.host_port));
        rule.extend(dnat_to(ip, mapping.container_port));
        tx.add_rule(table, PORTS, &rule, Some(&conf.container));
    }
    if conf.snat {
        let mut sources = vec![IpNet::from(ip)];
        if !v6 {
            sources.push(IpNet::from(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)));
        }
        for source in sources {
            let mut rule = address(Side::Source, CmpOp::Eq, source);
            rule.extend(address(Side::Destination, CmpOp::Eq, IpNet::from(ip)));
            rule.push(Expr::Masquerade { random: false });
            tx.add_rule(table, MASQ, &rule, Some(&conf.container));
        }
        if conf.masq_all {
            let mut rule = address(Side::Destination, CmpOp::Eq, IpNet::from(ip));
            rule.extend(ct_is_dnat());
            rule.push(Expr::Masquerade { random: false });
            tx.add_rule(table, MASQ, &rule, Some(&conf.container));
        }
    }
}

/// Removes the rules of a container.
pub fn del(conf: &Conf) -> Result<(), CniError> {
    remove(conf, |owner| owner == conf.container)
}

/// Removes the rules of containers that are not in `keep`, in a table that is this network's own.
pub fn gc(conf: &Conf, keep: &[(String, String)]) -> Result<(), CniError> {
    // Comments of the shared table do not say which network they are of.
    if conf.table == TABLE {
        return Ok(());
    }
    remove(conf, |owner| !keep.iter().any(|(id, _)| id == owner))
}

fn remove(conf: &Conf, wanted: impl Fn(&str) -> bool) -> Result<(), CniError> {
    let mut socket = nft::netfilter()?;
    for v6 in [false, true] {
        let table = table(conf, v6);
        let mut tx = Transaction::new();
        for rule in socket.nft_rules(table, None)? {
            let ours = [PORTS, BY_IP, MASQ].contains(&rule.chain.as_str());
            if ours && rule.comment.as_deref().is_some_and(&wanted) {
                tx.delete_rule(table, &rule.chain, rule.handle);
            }
        }
        tx.commit(&mut socket)?;
    }
    Ok(())
}

/// Whether every mapping has its rule.
pub fn check(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    let mut socket = nft::netfilter()?;
    for target in targets {
        let v6 = target.addr().is_ipv6();
        let rules = socket.nft_rules(table(conf, v6), None)?;
        let count = |chain: &str| {
            rules
                .iter()
                .filter(|rule| rule.chain == chain && rule.comment.as_deref() == Some(&conf.container))
                .count()
        };
        let ports = conf.mappings.iter().filter(|mapping| mapping.applies(v6).is_some()).count();
        let masq = if conf.snat { 1 + usize::from(!v6) } else { 0 };
        for (chain, wanted) in [(PORTS, ports), (MASQ, masq)] {
            if count(chain) < wanted {
                return Err(CniError::internal(format!("missing hostport rules in {chain:?} chain")));
            }
        }
    }
    Ok(())
}
