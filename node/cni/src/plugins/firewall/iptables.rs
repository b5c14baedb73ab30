//! The firewall in iptables, as the reference plugin lays it out.

use ipnet::IpNet;

use super::{Conf, Ingress};
use crate::plugins::iptables::{Iptables, Saved, Script};
use crate::spec::error::CniError;

const FORWARD: &str = "CNI-FORWARD";
const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";
const RULES: &str = "CNI firewall plugin rules";
const ADMIN: &str = "CNI firewall plugin admin overrides";
const ISOLATION: &str = "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)";

fn families(ips: &[IpNet]) -> impl Iterator<Item = (bool, Vec<IpNet>)> {
    [false, true].into_iter().filter_map(|v6| {
        let of_family: Vec<IpNet> = ips.iter().filter(|ip| ip.addr().is_ipv6() == v6).copied().collect();
        (!of_family.is_empty()).then_some((v6, of_family))
    })
}

/// Opens the filter for these addresses.
pub fn add(conf: &Conf, ips: &[IpNet], bridge: Option<&str>) -> Result<(), CniError> {
    for (v6, ips) in families(ips) {
        let tool = Iptables::require(v6)?;
        let saved = tool.save("filter")?;
        let mut script = Script::new("filter");
        script.ensure_chain(&saved, FORWARD);
        script.ensure_chain(&saved, &conf.admin_chain);
        if let Some(bridge) = bridge {
            isolate(&mut script, &saved, bridge, conf.ingress == Ingress::Isolated);
        }
        if !saved.has_rule("FORWARD", &[&format!("-j {FORWARD}")]) {
            script.rule("-A", "FORWARD", &["-m", "comment", "--comment", RULES, "-j", FORWARD]);
        }
        if !saved.has_rule(FORWARD, &[&format!("-j {}", conf.admin_chain)]) {
            script.rule("-I", FORWARD, &["-m", "comment", "--comment", ADMIN, "-j", &conf.admin_chain]);
        }
        for ip in ips {
            let ip = ip.to_string();
            let (to, from) = (format!("-d {ip}"), format!("-s {ip}"));
            if !saved.has_rule(FORWARD, &[&to, "--ctstate RELATED,ESTABLISHED", "-j ACCEPT"]) {
                let state =
                    ["-d", &ip, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"];
                script.rule("-A", FORWARD, &state);
            }
            if !saved.has_rule(FORWARD, &[&from, "-j ACCEPT"]) {
                script.rule("-A", FORWARD, &["-s", &ip, "-j", "ACCEPT"]);
            }
        }
        tool.restore(&script)?;
    }
    Ok(())
}

fn isolate(script: &mut Script, saved: &Saved, bridge: &str, isolated: bool) {
    let named = |policy: &str| format!("{RULES} (ingressPolicy: {policy})");
    let policy = named(if isolated { "isolated" } else { "same-bridge" });
    for chain in [STAGE_1, STAGE_2] {
        if script.ensure_chain(saved, chain) {
            script.rule("-A", chain, &["-j", "RETURN", "-m", "comment", "--comment", ISOLATION]);
        }
    }
    if !saved.has_rule("FORWARD", &[&format!("-j {STAGE_1}")]) {
        script.rule("-I", "FORWARD", &["-j", STAGE_1, "-m", "comment", "--comment", ISOLATION]);
    }
    let (from, to) = (format!("-i {bridge}"), format!("-o {bridge}"));
    if !saved.has_rule(STAGE_1, &[&from, &format!("! {to}"), &format!("-j {STAGE_2}")]) {
        let rule = ["-i", bridge, "!", "-o", bridge, "-j", STAGE_2, "-m", "comment", "--comment", &policy];
        script.rule("-I", STAGE_1, &rule);
    }
    if isolated && !saved.has_rule(STAGE_1, &[&from, &to, "-j DROP"]) {
        let rule = ["-i", bridge, "-o", bridge, "-j", "DROP", "-m", "comment", "--comment", &policy];
        script.rule("-I", STAGE_1, &rule);
    }
    if !saved.has_rule(STAGE_2, &[&to, "-j DROP"]) {
        script.rule("-I", STAGE_2, &["-o", bridge, "-j", "DROP", "-m", "comment", "--comment", ISOLATION]);
    }
}

/// Removes the rules of these addresses.
pub fn del(ips: &[IpNet]) -> Result<(), CniError> {
    for (v6, ips) in families(ips) {
        let Some(tool) = Iptables::find(v6) else { continue };
        // A table that the kernel does not have holds no rules of ours.
        let Some(saved) = tool.save_if_present("filter")? else { continue };
        let mut script = Script::new("filter");
        let texts: Vec<String> =
            ips.iter().flat_map(|ip| [format!(" -d {ip} "), format!(" -s {ip} ")]).collect();
        let ours = |rule: &str| texts.iter().any(|text| format!(" {rule} ").contains(text));
        for line in saved.deletions(FORWARD, ours) {
            script.line(&line);
        }
        tool.restore(&script)?;
    }
    Ok(())
}

/// Whether everything is in place; changes nothing.
pub fn check(conf: &Conf, ips: &[IpNet], bridge: Option<&str>) -> Result<(), CniError> {
    let missing = |what: &str| CniError::internal(format!("expected {what} not found"));
    for (v6, ips) in families(ips) {
        let saved = Iptables::require(v6)?.save("filter")?;
        if !saved.has_rule("FORWARD", &[&format!("-j {FORWARD}")]) {
            return Err(missing("rule of FORWARD that leads to CNI-FORWARD"));
        }
        if !saved.has_rule(FORWARD, &[&format!("-j {}", conf.admin_chain)]) {
            return Err(missing(&format!("rule of CNI-FORWARD that leads to {}", conf.admin_chain)));
        }
        for ip in ips {
            let (to, from) = (format!("-d {ip}"), format!("-s {ip}"));
            if !saved.has_rule(FORWARD, &[&to, "-j ACCEPT"])
                || !saved.has_rule(FORWARD, &[&from, "-j ACCEPT"])
            {
                return Err(missing(&format!("rules of {ip}")));
            }
        }
        if let Some(bridge) = bridge
            && !saved.has_rule(STAGE_2, &[&format!("-o {bridge}"), "-j DROP"])
        {
            return Err(missing(&format!("isolation of {bridge}")));
        }
    }
    Ok(())
}
