//! Rules of network policies, of the addresses of services, and of the ranges those are from.

use std::collections::HashSet;

use serde_json::Value;

use super::error::{Errors, Shown, list, text};
use super::{address, meta};
use crate::path::Path;
use crate::syntax;

/// A policy, new or changed from `old`: what was there before it was looked at so closely may stay.
pub(crate) fn policy(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &new["spec"];
    let before = Before {
        lenient: old.is_some_and(|old| meta::is_bad_selector(&old["spec"]["podSelector"])),
        ranges: old.map(ranges).unwrap_or_default(),
    };
    meta::label_selector_with(&spec["podSelector"], before.lenient, &path.child("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = path.child(direction);
        for (i, rule) in list(&spec[direction]).iter().enumerate() {
            let here = rules.index(i);
            let ports = here.child("ports");
            for (j, port) in list(&rule["ports"]).iter().enumerate() {
                policy_port(port, &ports.index(j), errors);
            }
            let at = here.child(peers);
            for (j, one) in list(&rule[peers]).iter().enumerate() {
                peer(one, &before, &at.index(j), errors);
            }
        }
    }
    let (here, types) = (path.child("policyTypes"), list(&spec["policyTypes"]));
    if types.len() > 2 {
        return errors.invalid(&here, &spec["policyTypes"], "may not specify more than two policyTypes");
    }
    for (i, kind) in types.iter().enumerate() {
        if !matches!(text(kind), "Ingress" | "Egress") {
            errors.not_supported(&here.index(i), kind, &["Ingress", "Egress"]);
        }
    }
}

/// What of the stored policy is let be.
struct Before<'a> {
    /// The values of selectors are.
    lenient: bool,
    /// These ranges are.
    ranges: HashSet<&'a str>,
}

/// Every range in a policy.
fn ranges(policy: &Value) -> HashSet<&str> {
    let of = |direction: &str, peers: &'static str| {
        list(&policy["spec"][direction]).iter().flat_map(move |rule| list(&rule[peers]))
    };
    of("ingress", "from")
        .chain(of("egress", "to"))
        .map(|peer| &peer["ipBlock"])
        .flat_map(|block| {
            std::iter::once(text(&block["cidr"])).chain(list(&block["except"]).iter().map(text))
        })
        .collect()
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(protocol) = port["protocol"].as_str()
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        errors.not_supported(&path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (here, at_end, end) = (path.child("port"), path.child("endPort"), port["endPort"].as_i64());
    match &port["port"] {
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            if let Some(words) = syntax::port_number(number) {
                errors.invalid(&here, number, words);
            }
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(&at_end, number, "must be greater than or equal to `port`");
            }
            if let Some(words) = syntax::port_number(end) {
                errors.invalid(&at_end, end, words);
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(&at_end, end, "may not be specified when `port` is non-numeric");
            }
            errors.all_invalid(&here, name, syntax::port_name(name));
        }
        _ => {
            if let Some(end) = end {
                errors.invalid(&at_end, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn peer(peer: &Value, before: &Before<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut given = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer[field].is_object() {
            given += 1;
            meta::label_selector_with(&peer[field], before.lenient, &path.child(field), errors);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        ip_block(block, &before.ranges, &path.child("ipBlock"), errors);
        if given > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if given == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn ip_block(block: &Value, before: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let (here, cidr) = (path.child("cidr"), text(&block["cidr"]));
    if cidr.is_empty() {
        return errors.required(&here, "");
    }
    address::legacy_range(cidr, before, &here, errors);
    let Some(whole) = address::parse_range(cidr) else { return };
    let here = path.child("except");
    for (i, except) in list(&block["except"]).iter().map(text).enumerate() {
        address::legacy_range(except, before, &here.index(i), errors);
        let Some(part) = address::parse_range(except) else { continue };
        if !whole.has_start_of(&part) || whole.length >= part.length {
            errors.invalid(&here.index(i), except, "must be a strict subset of `cidr`");
        }
    }
}

/// The address of a service: who has it.
pub(crate) fn ip_address(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let (path, parent) = (spec.child("parentRef"), &object["spec"]["parentRef"]);
    if !parent.is_object() {
        return errors.required(&path, "");
    }
    let group = text(&parent["group"]);
    if !group.is_empty() {
        errors.all_invalid(&path.child("group"), group, syntax::dns_subdomain(group));
    }
    for (field, needed) in [("resource", true), ("name", true), ("namespace", false)] {
        match text(&parent[field]) {
            "" if needed => errors.required(&path.child(field), ""),
            name => errors.all_invalid(&path.child(field), name, syntax::path_segment(name)),
        }
    }
}

/// An address stays with whom it was given to.
pub(crate) fn ip_address_update(new: &Value, old: &Value, errors: &mut Errors) {
    ip_address(new, errors);
    let (parent, before) = (&new["spec"]["parentRef"], &old["spec"]["parentRef"]);
    let fields = [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")];
    let same = parent.is_object() == before.is_object()
        && fields.iter().all(|(_, key)| text(&parent[*key]) == text(&before[*key]));
    if same {
        return;
    }
    let shown: Vec<String> =
        fields.iter().map(|(go, key)| format!("\"{go}\":{}", Value::from(text(&parent[*key])))).collect();
    let shown = if parent.is_object() { format!("{{{}}}", shown.join(",")) } else { "null".to_owned() };
    errors.invalid(&Path::root("spec").child("parentRef"), Shown(shown), "field is immutable");
}

/// The ranges that addresses of services are from: one, or one of each family.
pub(crate) fn service_range(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let (path, given) = (spec.child("cidrs"), &object["spec"]["cidrs"]);
    let cidrs: Vec<&str> = list(given).iter().map(text).collect();
    if cidrs.is_empty() {
        return errors.required(&path, "at least one CIDR required");
    }
    if cidrs.len() > 2 {
        return errors.invalid(
            &path,
            Shown(format!("{{\"CIDRs\":{given}}}")),
            "may only hold up to 2 values",
        );
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        address::canonical_range(cidr, &path.index(i), errors);
    }
    if let [Some(first), Some(second)] = cidrs.iter().map(|c| address::parse_range(c)).collect::<Vec<_>>()[..]
        && first.is_v4() == second.is_v4()
    {
        let words =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, given, words);
    }
}

/// Ranges stay; one of the other family may come.
pub(crate) fn service_range_update(new: &Value, old: &Value, errors: &mut Errors) {
    const WORDS: &str = "field is immutable";
    let spec = Path::root("spec");
    let path = spec.child("cidrs");
    let (now, before) = (list(&new["spec"]["cidrs"]), list(&old["spec"]["cidrs"]));
    if now.len() != before.len() && (before.len(), now.len()) != (1, 2) {
        return errors.invalid(&path, &new["spec"]["cidrs"], WORDS);
    }
    for (i, (now, _)) in now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before) {
        errors.invalid(&path.index(i), now, WORDS);
    }
    if now.len() != before.len() {
        service_range(new, errors);
    }
}
