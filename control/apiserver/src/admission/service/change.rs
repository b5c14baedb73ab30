//! What a changed service keeps of its addresses and ports, and what a change of its type takes away.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{has_node_ports, node_port, ports};

/// Fields about addresses, which go together.
const ADDRESS_FIELDS: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

/// Whether a service of this kind has a port where nodes answer for its health.
pub(super) fn has_health_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn has_address(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

/// Puts in what the client left out and the service has.
pub(super) fn carry_over(new: &mut Value, old: &Value) {
    let (spec, before) = (&mut new["spec"], &old["spec"]);
    if has_address(spec) && before["clusterIP"].is_string() {
        let moved = spec["clusterIP"].is_string() && spec["clusterIP"] != before["clusterIP"];
        if moved && spec["clusterIPs"] == before["clusterIPs"] {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
        for key in ADDRESS_FIELDS {
            if spec[key].is_null() && !before[key].is_null() {
                spec[key] = before[key].clone();
            }
        }
    }
    if has_node_ports(spec) && has_node_ports(before) {
        carry_ports(spec, before);
    }
    if has_health_port(spec) && has_health_port(before) && node_port(&spec["healthCheckNodePort"]).is_none() {
        spec["healthCheckNodePort"] = before["healthCheckNodePort"].clone();
    }
}

/// A port without a node port keeps the one that the port of its name had, unless another has that now.
fn carry_ports(spec: &mut Value, before: &Value) {
    let used = node_ports(spec);
    let had: Vec<(Value, u16)> = ports(before)
        .iter()
        .filter_map(|port| Some((port["name"].clone(), node_port(&port["nodePort"])?)))
        .filter(|(_, node)| !used.contains(node))
        .collect();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let kept = had.iter().find(|(name, _)| *name == port["name"]);
        if let (None, Some((_, kept))) = (node_port(&port["nodePort"]), kept) {
            port["nodePort"] = (*kept).into();
        }
    }
}

fn node_ports(spec: &Value) -> HashSet<u16> {
    ports(spec).iter().filter_map(|port| node_port(&port["nodePort"])).collect()
}

/// Takes out what the new type does not have and the client sent back unchanged.
pub(super) fn drop_what_the_type_forbids(new: &mut Value, old: &Value) {
    let (spec, before) = (&mut new["spec"], &old["spec"]);
    let remove = |spec: &mut Value, key: &str| {
        if spec[key] == before[key]
            && let Some(fields) = spec.as_object_mut()
        {
            fields.remove(key);
        }
    };
    if has_address(before) && !has_address(spec) {
        for key in ADDRESS_FIELDS {
            remove(spec, key);
        }
        remove(spec, "internalTrafficPolicy");
    }
    if has_node_ports(before) && !has_node_ports(spec) {
        if node_ports(spec) == node_ports(before) {
            for port in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                port.remove("nodePort");
            }
        }
        let external = spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty());
        if !external || !has_address(spec) {
            remove(spec, "externalTrafficPolicy");
        }
    }
    if before["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        remove(spec, "allocateLoadBalancerNodePorts");
    }
    if has_health_port(before) && !has_health_port(spec) {
        remove(spec, "healthCheckNodePort");
    }
}
