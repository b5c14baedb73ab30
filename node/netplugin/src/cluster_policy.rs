//! ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2 in the planner's words.
//!
//! Read from the object as it is, for its definition belongs to the cluster and may be newer than we are. An Accept with a part
//! that we do not know matches nothing; a Deny or a Pass with such a part denies everything, as the API demands of those who do
//! not understand it. Peers by domain name are such parts: who has a name is not known to those who see packets. Pure.
//!
//! <https://network-policy-api.sigs.k8s.io/>

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde_json::Value;

use crate::plan::Labels;
use crate::policy::{Allowed, Direction, Namespaces, Peer, Pods, Port, SCTP, Selector, TCP, UDP, net};

/// When a cluster policy speaks: before NetworkPolicies or after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// Before.
    Admin,
    /// After, for pods that no NetworkPolicy governs.
    Baseline,
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Allows, for good.
    Accept,
    /// Denies, for good.
    Deny,
    /// Leaves the tier.
    Pass,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterRule {
    /// Of which direction.
    pub direction: Direction,
    /// What it does.
    pub action: Action,
    /// With whom and on which ports.
    pub whom: Allowed,
}

/// A ClusterNetworkPolicy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterPolicy {
    /// Its name.
    pub name: String,
    /// When it speaks.
    pub tier: Tier,
    /// The lower speaks first.
    pub priority: u32,
    /// Whom it governs.
    pub subjects: Pods,
    /// Its rules, in order.
    pub rules: Vec<ClusterRule>,
    /// What could not be understood.
    pub mistakes: Vec<String>,
}

impl ClusterPolicy {
    /// Whether it governs a pod of a namespace with such labels.
    pub fn governs(&self, namespace: &str, namespace_labels: Option<&Labels>, labels: &Labels) -> bool {
        let there = match &self.subjects.namespaces {
            Namespaces::Named(name) => name == namespace,
            Namespaces::Selected(selector) => namespace_labels.is_some_and(|labels| selector.matches(labels)),
        };
        there && self.subjects.pods.matches(labels)
    }

    /// Whether it speaks of nodes.
    pub fn means_nodes(&self) -> bool {
        self.rules.iter().flat_map(|rule| &rule.whom.peers).any(|peer| matches!(peer, Peer::Nodes(_)))
    }

    /// Reads an object; one whose tier is not known governs nobody, which is told.
    pub fn read(object: &Value) -> Result<ClusterPolicy, String> {
        let spec = &object["spec"];
        let name = object["metadata"]["name"].as_str().ok_or("metadata.name: absent")?.to_owned();
        let tier = match spec["tier"].as_str() {
            Some("Admin") => Tier::Admin,
            Some("Baseline") => Tier::Baseline,
            other => return Err(format!("spec.tier: {other:?} is not known")),
        };
        let priority = spec["priority"].as_u64().and_then(|number| u32::try_from(number).ok());
        let priority = priority.ok_or("spec.priority: not a number")?;
        let mut mistakes = Vec::new();
        let subjects = pods(&spec["subject"]).unwrap_or_else(|error| {
            mistakes.push(format!("spec.subject: {error}; it governs every pod"));
            everybody()
        });
        let mut rules = Vec::new();
        for (direction, field, peers) in
            [(Direction::Ingress, "ingress", "from"), (Direction::Egress, "egress", "to")]
        {
            for (at, rule) in spec[field].as_array().into_iter().flatten().enumerate() {
                let place = match rule["name"].as_str() {
                    Some(name) if !name.is_empty() => format!("{field}[{at}] {name:?}"),
                    _ => format!("{field}[{at}]"),
                };
                rules.push(read_rule(direction, rule, peers, place, &mut mistakes));
            }
        }
        Ok(ClusterPolicy { name, tier, priority, subjects, rules, mistakes })
    }
}

fn everybody() -> Pods {
    Pods { namespaces: Namespaces::Selected(Selector::everything()), pods: Selector::everything() }
}

fn read_rule(
    direction: Direction,
    rule: &Value,
    field: &str,
    place: String,
    mistakes: &mut Vec<String>,
) -> ClusterRule {
    let action = match rule["action"].as_str() {
        Some("Accept") => Action::Accept,
        Some("Pass") => Action::Pass,
        Some("Deny") => Action::Deny,
        other => {
            mistakes.push(format!("spec.{place}.action: {other:?} is not known"));
            Action::Deny
        }
    };
    let before = mistakes.len();
    let mut understood = Vec::new();
    for (at, one) in rule[field].as_array().into_iter().flatten().enumerate() {
        match peer(one, direction) {
            Ok(found) => understood.extend(found),
            Err(error) => mistakes.push(format!("spec.{place}.{field}[{at}]: {error}")),
        }
    }
    let ports = match rule["protocols"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => None,
        some => {
            let mut ports = Vec::new();
            for (at, one) in some.iter().enumerate() {
                match port(one) {
                    Ok(found) => ports.push(found),
                    Err(error) => mistakes.push(format!("spec.{place}.protocols[{at}]: {error}")),
                }
            }
            Some(ports)
        }
    };
    if mistakes.len() > before {
        let (action, peers) = match action {
            Action::Accept => (Action::Accept, Vec::new()),
            Action::Deny | Action::Pass => (Action::Deny, vec![Peer::Anybody]),
        };
        return ClusterRule { direction, action, whom: Allowed { peers, ports: None, place } };
    }
    ClusterRule { direction, action, whom: Allowed { peers: understood, ports, place } }
}

fn selector(object: &Value) -> Result<Selector, String> {
    let object: meta::LabelSelector =
        serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    Selector::read(&object)
}

fn pods(object: &Value) -> Result<Pods, String> {
    match (object.get("namespaces"), object.get("pods")) {
        (Some(namespaces), None) => {
            Ok(Pods { namespaces: Namespaces::Selected(selector(namespaces)?), pods: Selector::everything() })
        }
        (None, Some(pods)) => Ok(Pods {
            namespaces: Namespaces::Selected(selector(&pods["namespaceSelector"])?),
            pods: selector(&pods["podSelector"])?,
        }),
        _ => Err("neither namespaces nor pods".to_owned()),
    }
}

fn peer(object: &Value, direction: Direction) -> Result<Vec<Peer>, String> {
    if object.as_object().is_some_and(|fields| fields.len() > 1) {
        return Err("more than one field, of which only one may be there".to_owned());
    }
    if let Some(nodes) = object.get("nodes").filter(|_| direction == Direction::Egress) {
        return Ok(vec![Peer::Nodes(selector(nodes)?)]);
    }
    if let Some(networks) = object["networks"].as_array().filter(|_| direction == Direction::Egress) {
        let block = |text: &Value| {
            let within = net(text.as_str().ok_or("not a block of addresses")?)?;
            Ok(Peer::Block { within, except: Vec::new() })
        };
        return networks.iter().map(block).collect();
    }
    if object.get("domainNames").is_some() {
        return Err("domainNames is not enforced here".to_owned());
    }
    Ok(vec![Peer::Pods(pods(object)?)])
}

fn port(object: &Value) -> Result<Port, String> {
    if let Some(name) = object["destinationNamedPort"].as_str() {
        return Ok(Port::Named(None, name.to_owned()));
    }
    let (protocol, found) = [("tcp", TCP), ("udp", UDP), ("sctp", SCTP)]
        .into_iter()
        .find_map(|(name, number)| object.get(name).map(|found| (number, found)))
        .ok_or("no protocol that is known")?;
    let Some(destination) = found.get("destinationPort") else { return Ok(Port::All(protocol)) };
    let number = |value: &Value| value.as_u64().and_then(|n| u16::try_from(n).ok()).ok_or("not a port");
    if let Some(range) = destination.get("range") {
        return Ok(Port::Range(protocol, number(&range["start"])?, number(&range["end"])?));
    }
    let only = number(&destination["number"])?;
    Ok(Port::Range(protocol, only, only))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: Value) -> ClusterPolicy {
        ClusterPolicy::read(&json!({"metadata": {"name": "c"}, "spec": spec})).unwrap()
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let policy = read(json!({
            "tier": "Admin", "priority": 7, "subject": {"namespaces": {"matchLabels": {"a": "b"}}},
            "egress": [
                {"action": "Pass", "to": [{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"x": "y"}}}}],
                 "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"udp": {}}, {"destinationNamedPort": "web"},
                               {"sctp": {"destinationPort": {"range": {"start": 1, "end": 9}}}}]},
                {"action": "Deny", "to": [{"networks": ["10.0.0.0/8", "fd00::/8"]}]},
            ],
        }));
        assert_eq!((policy.tier, policy.priority, policy.mistakes.len()), (Tier::Admin, 7, 0));
        let ports = policy.rules[0].whom.ports.as_deref().unwrap();
        let named = Port::Named(None, "web".into());
        assert_eq!(ports, [Port::Range(TCP, 80, 80), Port::All(UDP), named, Port::Range(SCTP, 1, 9)]);
        assert_eq!((policy.rules[1].action, policy.rules[1].whom.peers.len()), (Action::Deny, 2));
    }

    #[test]
    fn nodes_are_peers_of_egress_only_and_alone() {
        let peers = |direction: &str, field: &str, peer: Value| {
            let policy = read(json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
                direction: [{"action": "Accept", field: [peer]}]}));
            (policy.rules[0].whom.peers.clone(), policy.mistakes)
        };
        let (found, mistakes) = peers("egress", "to", json!({"nodes": {"matchLabels": {"a": "b"}}}));
        let [Peer::Nodes(selector)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((selector.to_string(), mistakes.len()), ("a=b".to_owned(), 0));
        let everything = Peer::Nodes(Selector::everything());
        assert_eq!(peers("egress", "to", json!({"nodes": {}})).0, [everything]);
        let operator = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        for (direction, field, peer) in [
            ("ingress", "from", json!({"nodes": {}})),
            ("egress", "to", json!({"nodes": {}, "namespaces": {}})),
            ("egress", "to", json!({"nodes": operator})),
            ("egress", "to", json!({"nodes": null})),
            ("egress", "to", json!({})),
        ] {
            let (found, mistakes) = peers(direction, field, peer.clone());
            assert_eq!((found.len(), mistakes.len()), (0, 1), "{peer}: {mistakes:?}");
        }
    }

    #[test]
    fn what_is_not_known_accepts_nothing_and_denies_everything() {
        let rule = |action: &str| {
            let policy = read(json!({
                "tier": "Baseline", "priority": 1, "subject": {"namespaces": {}},
                "egress": [{"action": action, "to": [{"namespaces": {}}, {"domainNames": ["a.example"]}]}],
            }));
            assert_eq!(policy.mistakes.len(), 1);
            let rule = policy.rules[0].clone();
            (rule.action, rule.whom.peers)
        };
        assert_eq!(rule("Accept"), (Action::Accept, vec![]));
        assert_eq!(rule("Deny"), (Action::Deny, vec![Peer::Anybody]));
        assert_eq!(rule("Pass"), (Action::Deny, vec![Peer::Anybody]));
        assert!(ClusterPolicy::read(&json!({"metadata": {"name": "c"}, "spec": {"tier": "New"}})).is_err());
    }
}
