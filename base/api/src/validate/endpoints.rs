//! Rules of what stands behind a service: endpoints, and the slices that took their place.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::address;
use super::error::{Errors, Seen, list, text};
use crate::path::Path;
use crate::syntax;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Endpoints, new or changed from `old`; subsets that did not change are not looked at again.
pub(crate) fn endpoints(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if old.is_some_and(|old| old["subsets"] == new["subsets"]) {
        return;
    }
    let path = Path::root("subsets");
    for (i, subset) in list(&new["subsets"]).iter().enumerate() {
        let here = path.index(i);
        let groups = ["addresses", "notReadyAddresses"];
        if groups.iter().all(|group| list(&subset[*group]).is_empty()) {
            errors.required(&here, "must specify `addresses` or `notReadyAddresses`");
        }
        for group in groups {
            let at = here.child(group);
            for (j, one) in list(&subset[group]).iter().enumerate() {
                endpoint_address(one, &at.index(j), errors);
            }
        }
        let (at, ports) = (here.child("ports"), list(&subset["ports"]));
        for (j, port) in ports.iter().enumerate() {
            endpoint_port(port, ports.len() > 1, &at.index(j), errors);
        }
    }
}

fn endpoint_address(one: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, ip, host) = (path.child("ip"), text(&one["ip"]), text(&one["hostname"]));
    address::legacy(ip, &HashSet::new(), &here, errors);
    if !host.is_empty() {
        errors.all_invalid(&path.child("hostname"), host, syntax::dns_label(host));
    }
    if let Some(node) = one["nodeName"].as_str() {
        errors.all_invalid(&path.child("nodeName"), node, syntax::dns_subdomain(node));
    }
    reachable(ip, &here, errors);
}

/// An address that others than its owner can reach.
fn reachable(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(ip) = address::parse(value) else {
        return errors.invalid(path, value, "must be a valid IP address");
    };
    let ip = ip.to_canonical();
    if ip.is_unspecified() {
        errors.invalid(path, value, &format!("may not be unspecified ({value})"));
    }
    if ip.is_loopback() {
        errors.invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (unicast, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if unicast {
        errors.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        let words = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid(path, value, words);
    }
}

fn endpoint_port(port: &Value, named: bool, path: &Path<'_>, errors: &mut Errors) {
    match text(&port["name"]) {
        "" if named => errors.required(&path.child("name"), ""),
        "" => {}
        name => errors.all_invalid(&path.child("name"), name, syntax::dns_label(name)),
    }
    let number = port["port"].as_i64().unwrap_or(0);
    if let Some(words) = syntax::port_number(number) {
        errors.invalid(&path.child("port"), number, words);
    }
    errors.one_of(&path.child("protocol"), &port["protocol"], PROTOCOLS);
    if let Some(protocol) = port["appProtocol"].as_str() {
        errors.all_invalid(&path.child("appProtocol"), protocol, syntax::qualified_name(protocol));
    }
}

/// A slice, new or changed from `old`; endpoints that did not change are not looked at again.
pub(crate) fn slice(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let kind = text(&new["addressType"]);
    errors.one_of(&Path::root("addressType"), &new["addressType"], &["FQDN", "IPv4", "IPv6"]);
    slice_ports(list(&new["ports"]), errors);
    if old.is_none_or(|old| old["endpoints"] != new["endpoints"]) {
        slice_endpoints(list(&new["endpoints"]), kind, errors);
    }
    if let Some(old) = old {
        errors.immutable_text(&Path::root("addressType"), &new["addressType"], &old["addressType"]);
    }
}

fn slice_ports(ports: &[Value], errors: &mut Errors) {
    const MOST: usize = 20_000;
    let path = Path::root("ports");
    if ports.len() > MOST {
        return errors.too_many(&path, ports.len(), MOST);
    }
    let mut names = Seen::default();
    for (i, port) in ports.iter().enumerate() {
        let (here, name) = (path.index(i), text(&port["name"]));
        if !name.is_empty() {
            errors.all_invalid(&here.child("name"), name, syntax::dns_label(name));
        }
        if names.again(name) {
            errors.duplicate(&here.child("name"), name);
        }
        match port["protocol"].as_str() {
            None => errors.required(&here.child("protocol"), ""),
            Some(protocol) if !PROTOCOLS.contains(&protocol) => {
                errors.not_supported(&here.child("protocol"), protocol, PROTOCOLS);
            }
            Some(_) => {}
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.all_invalid(&here.child("appProtocol"), protocol, syntax::qualified_name(protocol));
        }
    }
}

fn slice_endpoints(endpoints: &[Value], kind: &str, errors: &mut Errors) {
    const MOST: usize = 1000;
    const MOST_ADDRESSES: usize = 100;
    let path = Path::root("endpoints");
    if endpoints.len() > MOST {
        return errors.too_many(&path, endpoints.len(), MOST);
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let here = path.index(i);
        let (at, addresses) = (here.child("addresses"), list(&endpoint["addresses"]));
        if addresses.is_empty() {
            errors.required(&at, "must contain at least 1 address");
        } else if addresses.len() > MOST_ADDRESSES {
            errors.too_many(&at, addresses.len(), MOST_ADDRESSES);
        }
        for (j, one) in addresses.iter().map(text).enumerate() {
            slice_address(one, kind, &at, j, errors);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            errors.all_invalid(&here.child("nodeName"), node, syntax::dns_subdomain(node));
        }
        if let Some(host) = endpoint["hostname"].as_str() {
            errors.all_invalid(&here.child("hostname"), host, syntax::dns_label(host));
        }
        hints(&endpoint["hints"], &here.child("hints"), errors);
    }
}

fn slice_address(one: &str, kind: &str, path: &Path<'_>, at: usize, errors: &mut Errors) {
    let here = path.index(at);
    let before = errors.len();
    let is_v4 = address::parse(one).is_some_and(|ip| ip.to_canonical().is_ipv4());
    match kind {
        "IPv4" => address::legacy(one, &HashSet::new(), &here, errors),
        "IPv6" => errors.all_invalid(&here, one, address::canonical(one)),
        "FQDN" => return domain_name(one, &here, errors),
        _ => return,
    }
    if errors.len() > before {
        return;
    }
    if is_v4 != (kind == "IPv4") {
        errors.invalid(path, one, &format!("must be an {kind} address"));
    }
    reachable(one, &here, errors);
}

fn domain_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let complaints = syntax::dns_subdomain(name);
    if !complaints.is_empty() {
        return errors.invalid(path, name, &complaints.join(","));
    }
    if !name.contains('.') {
        let words = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, name, words);
    }
    let bad = name.split('.').map(|label| (label, syntax::dns_label(label))).find(|(_, bad)| !bad.is_empty());
    if let Some((label, complaints)) = bad {
        errors.invalid(path, label, &complaints.join(","));
    }
}

fn hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 8;
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 2] = [("forZones", syntax::label_value), ("forNodes", syntax::dns_subdomain)];
    for (field, rule) in rules {
        let (here, given) = (path.child(field), list(&hints[field]));
        if given.len() > MOST {
            return errors.too_many(&here, given.len(), MOST);
        }
        let mut names = Seen::default();
        for (i, name) in given.iter().map(|hint| text(&hint["name"])).enumerate() {
            let at = here.index(i);
            if names.again(name) {
                errors.duplicate(&at.child("name"), name);
            }
            errors.all_invalid(&at.child("name"), name, rule(name));
        }
    }
}
