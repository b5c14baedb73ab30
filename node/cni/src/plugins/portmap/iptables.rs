//! Port mappings in iptables, as the reference plugin lays them out.

use ipnet::IpNet;

use super::conf::{Conf, Mapping};
use crate::names;
use crate::plugins::iptables::{Iptables, Saved, Script};
use crate::spec::error::CniError;

const DNAT: &str = "CNI-HOSTPORT-DNAT";
const SETMARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQ: &str = "CNI-HOSTPORT-MASQ";
/// The most ports one multiport match takes.
const MULTIPORT: usize = 15;

fn chain(conf: &Conf) -> String {
    names::chain_name("CNI-DN-", &conf.network, &conf.container)
}

fn comment(conf: &Conf) -> String {
    let mut text = format!("dnat {}", names::comment(&conf.network, &conf.container));
    text.truncate(text.floor_char_boundary(255));
    text
}

/// Makes the node's ports lead to these addresses.
pub fn add(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    for target in targets {
        let v6 = target.addr().is_ipv6();
        let tool = Iptables::require(v6)?;
        let saved = tool.save("nat")?;
        let chain = chain(conf);
        let mut script = saved.removal(std::slice::from_ref(&chain));
        if conf.snat && conf.mark_chain.is_none() {
            lay_out_marks(&mut script, &saved, conf);
        }
        script.ensure_chain(&saved, DNAT);
        for hook in ["PREROUTING", "OUTPUT"] {
            if !saved.has_rule(hook, &[&format!("-j {DNAT}")]) {
                script.rule("-A", hook, &["-m", "addrtype", "--dst-type", "LOCAL", "-j", DNAT]);
            }
        }
        script.fresh_chain(&chain);
        for mapping in &conf.mappings {
            forward(&mut script, conf, &chain, mapping, *target);
        }
        enter(&mut script, conf, &chain, v6);
        tool.restore(&script)?;
    }
    Ok(())
}

fn lay_out_marks(script: &mut Script, saved: &Saved, conf: &Conf) {
    let bit = 1u32 << conf.mark_bit;
    let mark = format!("{bit:#x}/{bit:#x}");
    script.ensure_chain(saved, SETMARK);
    if !saved.has_rule(SETMARK, &[&format!("--set-xmark {mark}")]) {
        let note = "CNI portfwd masquerade mark";
        script.rule("-A", SETMARK, &["-m", "comment", "--comment", note, "-j", "MARK", "--set-xmark", &mark]);
    }
    script.ensure_chain(saved, MASQ);
    if !saved.has_rule(MASQ, &[&format!("--mark {mark}"), "-j MASQUERADE"]) {
        script.rule("-A", MASQ, &["-m", "mark", "--mark", &mark, "-j", "MASQUERADE"]);
    }
    if !saved.has_rule("POSTROUTING", &[&format!("-j {MASQ}")]) {
        let note = "CNI portfwd requiring masquerade";
        // Before the masquerading of networks, which would swallow the packets.
        script.rule("-I", "POSTROUTING", &["-m", "comment", "--comment", note, "-j", MASQ]);
    }
}

fn forward(script: &mut Script, conf: &Conf, chain: &str, mapping: &Mapping, target: IpNet) {
    let ip = target.addr();
    let Some(host_ip) = mapping.applies(ip.is_ipv6()) else { return };
    let port = mapping.host_port.to_string();
    let host_ip = host_ip.map(|ip| ip.to_string());
    let mut base = vec!["-p", &mapping.protocol, "--dport", &port];
    if let Some(host_ip) = &host_ip {
        base.extend(["-d", host_ip]);
    }
    if conf.snat {
        let everything = if ip.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
        let pods = if conf.masq_all { everything.to_owned() } else { target.to_string() };
        let set_mark = conf.mark_chain.as_deref().unwrap_or(SETMARK);
        script.rule("-A", chain, &[base.as_slice(), &["-s", &pods, "-j", set_mark]].concat());
        if ip.is_ipv4() && !conf.masq_all {
            script.rule("-A", chain, &[base.as_slice(), &["-s", "127.0.0.1", "-j", set_mark]].concat());
        }
    }
    let to = std::net::SocketAddr::new(ip, mapping.container_port).to_string();
    script.rule("-A", chain, &[base.as_slice(), &["-j", "DNAT", "--to-destination", &to]].concat());
}

fn enter(script: &mut Script, conf: &Conf, chain: &str, v6: bool) {
    let comment = comment(conf);
    let conditions = if v6 { &conf.conditions_v6 } else { &conf.conditions_v4 };
    for protocol in ["sctp", "tcp", "udp"] {
        let ports: Vec<String> = conf
            .mappings
            .iter()
            .filter(|mapping| mapping.protocol == protocol)
            .map(|mapping| mapping.host_port.to_string())
            .collect();
        for ports in ports.chunks(MULTIPORT) {
            let list = ports.join(",");
            let mut rule = vec![
                "-m",
                "comment",
                "--comment",
                &comment,
                "-m",
                "multiport",
                "-p",
                protocol,
                "--destination-ports",
                &list,
            ];
            rule.extend(conditions.iter().flatten().map(String::as_str));
            rule.extend(["-j", chain]);
            script.rule("-A", DNAT, &rule);
        }
    }
}

/// Removes the chain of a container; families without iptables hold nothing.
pub fn del(conf: &Conf) -> Result<(), CniError> {
    let chains = [chain(conf), names::chain_name("CNI-SN-", &conf.network, &conf.container)];
    for tool in [false, true].into_iter().filter_map(Iptables::find) {
        let Some(saved) = tool.save_if_present("nat")? else { continue };
        tool.restore(&saved.removal(&chains))?;
    }
    Ok(())
}

/// Removes the chains of this network's containers that are not kept: the entries' comments name the network.
pub fn gc(conf: &Conf, keep: &[(String, String)]) -> Result<(), CniError> {
    let kept: Vec<String> =
        keep.iter().map(|(id, _)| names::chain_name("CNI-DN-", &conf.network, id)).collect();
    for tool in [false, true].into_iter().filter_map(Iptables::find) {
        let Some(saved) = tool.save_if_present("nat")? else { continue };
        tool.restore(&saved.removal(&stale(&saved, &conf.network, &kept)))?;
    }
    Ok(())
}

/// The chains of a network's containers that are not kept.
pub fn stale(saved: &Saved, network: &str, kept: &[String]) -> Vec<String> {
    let ours = format!("dnat name: \\\"{network}\\\" id:");
    saved
        .rules(DNAT)
        .filter(|rule| rule.contains(&ours))
        .filter_map(|rule| rule.rsplit("-j ").next().map(|name| name.trim().to_owned()))
        .filter(|name| name.starts_with("CNI-DN-") && !kept.contains(name))
        .collect()
}

/// Whether the rules of every mapping are there.
pub fn check(conf: &Conf, targets: &[IpNet]) -> Result<(), CniError> {
    let chain = chain(conf);
    for target in targets {
        let v6 = target.addr().is_ipv6();
        let saved = Iptables::require(v6)?.save("nat")?;
        if !saved.has_chain(&chain) || !saved.has_rule(DNAT, &[&format!("-j {chain}")]) {
            return Err(CniError::internal(format!("chain {chain} not found in iptables table nat")));
        }
        for mapping in conf.mappings.iter().filter(|mapping| mapping.applies(v6).is_some()) {
            let to = std::net::SocketAddr::new(target.addr(), mapping.container_port);
            let parts = [format!("--dport {}", mapping.host_port), format!("--to-destination {to}")];
            if !saved.has_rule(&chain, &[&parts[0], &parts[1]]) {
                return Err(CniError::internal(format!(
                    "rule of port {} in chain {chain} not found",
                    mapping.host_port
                )));
            }
        }
    }
    Ok(())
}
