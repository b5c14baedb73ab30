//! Masquerading: traffic of a pod that leaves its network takes the node's address.
//!
//! Rules are the reference plugin's, in nf_tables one per address in `masq_checks`, found again by the hashes in their
//! comment, or in iptables a chain named by a hash; so DEL needs neither the address nor the namespace. Adding is done in
//! the backend the configuration names; removing in both, as the configuration may have been another one at ADD.

use ipnet::IpNet;
use podwire_linux::nft::expr::{Side, address, nfproto};
use podwire_linux::nft::{self, Base, CmpOp, Expr, Family, Hook, Table, Transaction, Verdict};

use super::iptables::{self, Iptables, Script};
use crate::names;
use crate::spec::error::CniError;
use crate::spec::json::Object;

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

/// How to masquerade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// `iptables` or `nftables`; unnamed is what the reference plugin would pick.
    pub backend: Option<String>,
    /// The nf_tables table. Ours: lets several instances share a machine.
    pub table: String,
    /// Networks beyond the pod's own that know its address, such as those of other nodes' pods. Ours.
    pub except: Vec<IpNet>,
}

impl Conf {
    /// Reads `ipMasq` and what goes with it; `None` when it is off.
    pub fn parse(object: &Object<'_>) -> Result<Option<Conf>, CniError> {
        let backend = object.text("ipMasqBackend")?.map(str::to_owned);
        if let Some(other) = backend.as_deref().filter(|name| !["iptables", "nftables"].contains(name)) {
            return Err(CniError::config(format!("unknown ipmasq backend {other:?}")));
        }
        let table = object.text("ipMasqTable")?.unwrap_or(TABLE).to_owned();
        let except = object
            .strings("ipMasqExcept")?
            .iter()
            .map(|text| {
                text.parse().map_err(|_| CniError::config(format!("ipMasqExcept: {text:?} is not a network")))
            })
            .collect::<Result<Vec<IpNet>, CniError>>()?;
        Ok(object.bool("ipMasq")?.unwrap_or(false).then_some(Conf { backend, table, except }))
    }

    fn by_iptables(&self) -> bool {
        match self.backend.as_deref() {
            Some(name) => name == "iptables",
            None => iptables::works(),
        }
    }

    /// Whether iptables may hold rules of ours: not when the configuration is one we wrote ourselves.
    fn cleans_iptables(&self) -> bool {
        self.table == TABLE
    }

    /// Masquerades these addresses.
    pub fn add(&self, who: Attachment<'_>, nets: &[IpNet]) -> Result<(), CniError> {
        if self.by_iptables() {
            add_iptables(who, nets, &self.except)
        } else {
            add(&self.table, who, nets, &self.except)
        }
    }

    /// Removes what masquerades an attachment.
    pub fn del(&self, who: Attachment<'_>) -> Result<(), CniError> {
        let nft = del(&self.table, who);
        if self.cleans_iptables() {
            remove_chains(&[names::chain_name("CNI-", who.network, who.container)])?;
        }
        nft
    }

    /// Removes what masquerades attachments that are gone.
    pub fn gc(&self, network: &str, keep: &[(String, String)]) -> Result<(), CniError> {
        let nft = gc(&self.table, network, keep);
        if self.cleans_iptables() {
            gc_iptables(network, keep)?;
        }
        nft
    }

    /// Whether these addresses are masqueraded.
    pub fn check(&self, who: Attachment<'_>, nets: impl Iterator<Item = IpNet>) -> Result<(), CniError> {
        let nets: Vec<IpNet> = nets.collect();
        if self.by_iptables() {
            return check_iptables(who, &nets);
        }
        let found = count(&self.table, who)?;
        if found >= nets.len() {
            return Ok(());
        }
        Err(CniError::internal(format!(
            "{found} of {} masquerade rules of {} are there",
            nets.len(),
            who.container
        )))
    }
}

fn add_iptables(who: Attachment<'_>, nets: &[IpNet], except: &[IpNet]) -> Result<(), CniError> {
    let chain = names::chain_name("CNI-", who.network, who.container);
    let comment = names::comment(who.network, who.container);
    for v6 in [false, true] {
        let mut of_family = nets.iter().filter(|net| net.addr().is_ipv6() == v6).peekable();
        if of_family.peek().is_none() {
            continue;
        }
        let tool = Iptables::require(v6)?;
        let saved = tool.save("nat")?;
        let mut script = saved.removal(std::slice::from_ref(&chain));
        script.fresh_chain(&chain);
        let multicast = if v6 { "ff00::/8" } else { "224.0.0.0/4" };
        for net in of_family {
            let (inside, source) = (net.to_string(), net.addr().to_string());
            let note = ["-m", "comment", "--comment", &comment];
            script.rule("-A", &chain, &[&["-d", &inside, "-j", "ACCEPT"], note.as_slice()].concat());
            for known in except.iter().filter(|known| known.addr().is_ipv6() == v6) {
                let known = known.trunc().to_string();
                script.rule("-A", &chain, &[&["-d", &known, "-j", "ACCEPT"], note.as_slice()].concat());
            }
            script.rule(
                "-A",
                &chain,
                &[&["!", "-d", multicast, "-j", "MASQUERADE"], note.as_slice()].concat(),
            );
            script.rule("-A", "POSTROUTING", &[&["-s", &source, "-j", &chain], note.as_slice()].concat());
        }
        tool.restore(&script)?;
    }
    Ok(())
}

fn check_iptables(who: Attachment<'_>, nets: &[IpNet]) -> Result<(), CniError> {
    let chain = names::chain_name("CNI-", who.network, who.container);
    for net in nets {
        let saved = Iptables::require(net.addr().is_ipv6())?.save("nat")?;
        let source = format!("-s {}", IpNet::from(net.addr()));
        if !saved.has_rule("POSTROUTING", &[&source, &format!("-j {chain}")])
            || !saved.has_rule(&chain, &["-j MASQUERADE"])
        {
            return Err(CniError::internal(format!("{} is not masqueraded", net.addr())));
        }
    }
    Ok(())
}

/// Removes iptables chains of ours, in both families.
fn remove_chains(chains: &[String]) -> Result<(), CniError> {
    for tool in [false, true].into_iter().filter_map(Iptables::find) {
        let Some(saved) = tool.save_if_present("nat")? else { continue };
        tool.restore(&saved.removal(chains))?;
    }
    Ok(())
}

/// Chains do not tell their network, but the comments of their rules do.
fn gc_iptables(network: &str, keep: &[(String, String)]) -> Result<(), CniError> {
    let kept: Vec<String> = keep.iter().map(|(id, _)| names::chain_name("CNI-", network, id)).collect();
    let ours = iptables::quote(&names::comment(network, ""));
    let ours = ours.trim_end_matches(['"', '\\']).to_owned();
    for tool in [false, true].into_iter().filter_map(Iptables::find) {
        let Some(saved) = tool.save_if_present("nat")? else { continue };
        let stale: Vec<String> = saved
            .chains("CNI-")
            .filter(|chain| chain.len() == 28 && !kept.iter().any(|kept| kept == chain))
            .filter(|chain| saved.rules(chain).any(|rule| rule.contains(&ours)))
            .map(str::to_owned)
            .collect();
        let script: Script = saved.removal(&stale);
        tool.restore(&script)?;
    }
    Ok(())
}

fn table(name: &str) -> Table<'_> {
    Table { family: Family::Inet, name }
}

/// Masquerades these addresses, in one transaction; the table is laid out only when it is not there yet.
fn add(table_name: &str, who: Attachment<'_>, nets: &[IpNet], except: &[IpNet]) -> Result<(), CniError> {
    let table = table(table_name);
    let mut socket = nft::netfilter()?;
    let mut tx = Transaction::new();
    add_rules(&mut tx, table, who, nets, except);
    match tx.commit(&mut socket) {
        Err(error) if error.is_absent() => {}
        other => return Ok(other?),
    }
    let mut tx = Transaction::new();
    lay_out(&mut tx, table);
    add_rules(&mut tx, table, who, nets, except);
    Ok(tx.commit(&mut socket)?)
}

fn lay_out(tx: &mut Transaction, table: Table<'_>) {
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
}

fn add_rules(tx: &mut Transaction, table: Table<'_>, who: Attachment<'_>, nets: &[IpNet], except: &[IpNet]) {
    let comment = names::masquerade_comment(who.network, who.ifname, who.container);
    for net in nets {
        let mut rule = nfproto(net.addr().is_ipv6());
        rule.extend(address(Side::Source, CmpOp::Eq, IpNet::from(net.addr())));
        rule.extend(address(Side::Destination, CmpOp::Ne, net.trunc()));
        for known in except.iter().filter(|known| known.addr().is_ipv6() == net.addr().is_ipv6()) {
            rule.extend(address(Side::Destination, CmpOp::Ne, known.trunc()));
        }
        rule.push(Expr::Masquerade { random: false });
        tx.add_rule(table, CHAIN, &rule, Some(&comment));
    }
}

/// Removes the rules of an attachment.
fn del(table_name: &str, who: Attachment<'_>) -> Result<(), CniError> {
    let prefix = names::masquerade_prefix(who.network, Some((who.ifname, who.container)));
    remove(table_name, |comment| comment.starts_with(&prefix))
}

/// Removes the rules of a network's attachments that are not in `keep`, given as (container, interface).
fn gc(table_name: &str, network: &str, keep: &[(String, String)]) -> Result<(), CniError> {
    let of_network = names::masquerade_prefix(network, None);
    let kept: Vec<String> =
        keep.iter().map(|(id, ifname)| names::masquerade_prefix(network, Some((ifname, id)))).collect();
    remove(table_name, |comment| {
        comment.starts_with(&of_network) && !kept.iter().any(|prefix| comment.starts_with(prefix))
    })
}

/// Whether the rules of an attachment are there.
fn count(table_name: &str, who: Attachment<'_>) -> Result<usize, CniError> {
    let prefix = names::masquerade_prefix(who.network, Some((who.ifname, who.container)));
    let rules = nft::netfilter()?.nft_rules(table(table_name), Some(CHAIN))?;
    Ok(rules
        .iter()
        .filter(|rule| rule.comment.as_deref().is_some_and(|text| text.starts_with(&prefix)))
        .count())
}

fn remove(table_name: &str, wanted: impl Fn(&str) -> bool) -> Result<(), CniError> {
    let table = table(table_name);
    let mut socket = nft::netfilter()?;
    let rules = socket.nft_rules(table, Some(CHAIN))?;
    let mut tx = Transaction::new();
    for rule in rules.iter().filter(|rule| rule.comment.as_deref().is_some_and(&wanted)) {
        tx.delete_rule(table, CHAIN, rule.handle);
    }
    Ok(tx.commit(&mut socket)?)
}
