//! What policies say, in the planner's words: who is governed, who may speak with whom, on which ports.
//!
//! Reads NetworkPolicy of networking.k8s.io/v1; `cluster_policy` reads its cluster-wide relative into the same words. Pure.
//! What cannot be understood never widens a rule: it matches nothing, and its place is named in `mistakes`.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/network-policies/>

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podwire_api::selector::LabelSelector;

/// Transport protocols by number.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;

/// Which way a connection is seen from the pod that a policy governs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// As it stands in names: `i` or `e`.
    pub fn letter(self) -> char {
        match self {
            Direction::Ingress => 'i',
            Direction::Egress => 'e',
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}

/// A label selector with its canonical text: two that say the same are equal.
#[derive(Clone, Debug)]
pub struct Selector {
    text: String,
    terms: LabelSelector,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl std::hash::Hash for Selector {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Selector {
    /// Selects everything.
    pub fn everything() -> Selector {
        Selector { text: "*".into(), terms: LabelSelector::default() }
    }

    /// Selects nothing.
    pub fn nothing() -> Selector {
        Selector { text: "!*".into(), terms: LabelSelector::nothing() }
    }

    /// The selector of an object; `Err` says what is wrong with it.
    pub fn read(object: &meta::LabelSelector) -> Result<Selector, String> {
        let labels = object.match_labels.iter().flatten();
        let expressions = object.match_expressions.iter().flatten().map(|one| {
            let mut values = one.values.clone().unwrap_or_default();
            values.sort();
            values.dedup();
            (one.key.as_str(), one.operator.as_str(), values)
        });
        let terms =
            LabelSelector::from_parts(labels.map(|(key, value)| (key.as_str(), value.as_str())), expressions)
                .map_err(|error| error.to_string())?;
        if terms.is_empty() {
            return Ok(Selector::everything());
        }
        let mut parts: Vec<String> = terms.requirements().iter().map(ToString::to_string).collect();
        parts.sort();
        parts.dedup();
        Ok(Selector { text: parts.join(","), terms })
    }

    /// Whether these labels are selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.matches_with(podwire_api::selector::lookup(labels))
    }

    /// A label with its value that everything selected has, if there is one.
    pub fn pair(&self) -> Option<(&str, &str)> {
        use podwire_api::selector::Operator;
        let exact = |term: &&podwire_api::selector::LabelRequirement| {
            matches!(term.operator, Operator::Equals | Operator::In) && term.values.len() == 1
        };
        let term = self.terms.requirements().iter().find(exact)?;
        Some((&term.key, &term.values[0]))
    }
}

/// Namespaces: one by its name, or those that a selector chooses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Namespaces {
    /// The one of this name.
    Named(String),
    /// All with such labels.
    Selected(Selector),
}

/// Pods: chosen by their labels, in chosen namespaces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pods {
    /// Where.
    pub namespaces: Namespaces,
    /// Which of those there.
    pub pods: Selector,
}

impl fmt::Display for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespaces {
            Namespaces::Named(name) => write!(f, "{name}/{}", self.pods),
            Namespaces::Selected(selector) => write!(f, "[{selector}]/{}", self.pods),
        }
    }
}

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Anybody, inside or outside.
    Anybody,
    /// These pods.
    Pods(Pods),
    /// The addresses of these nodes.
    Nodes(Selector),
    /// These addresses, without some of them.
    Block {
        /// The addresses.
        within: IpNet,
        /// Those that are not meant.
        except: Vec<IpNet>,
    },
}

/// A port at the destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Port {
    /// All ports of a protocol.
    All(u8),
    /// The ports of a protocol from one to another.
    Range(u8, u16, u16),
    /// The port that the destination calls so; of one protocol, or of any.
    Named(Option<u8>, String),
}

/// Who may speak on which ports; no port is all traffic, whatever its protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Any of these.
    pub peers: Vec<Peer>,
    /// On any of these; `None` is all traffic.
    pub ports: Option<Vec<Port>>,
    /// Where it is written: `ingress[0]`.
    pub place: String,
}

/// Namespace and name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A NetworkPolicy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Which one.
    pub key: ObjectKey,
    /// Whom it governs in its namespace.
    pub subjects: Selector,
    /// What may come to them; `None` says nothing about it.
    pub ingress: Option<Vec<Allowed>>,
    /// What may go from them; `None` says nothing about it.
    pub egress: Option<Vec<Allowed>>,
    /// What could not be understood.
    pub mistakes: Vec<String>,
}

impl Policy {
    /// What it says about a direction.
    pub fn allowed(&self, direction: Direction) -> Option<&[Allowed]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// Reads an object.
    pub fn read(object: &NetworkPolicy) -> Policy {
        let key = ObjectKey {
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
        };
        let absent = NetworkPolicySpec::default();
        let spec = object.spec.as_ref().unwrap_or(&absent);
        let mut mistakes = Vec::new();
        let subjects = spec.pod_selector.as_ref().map_or(Ok(Selector::everything()), Selector::read);
        let subjects = subjects.unwrap_or_else(|error| {
            // Whom it governs is not known: nobody of the namespace is left open.
            mistakes.push(format!("spec.podSelector: {error}"));
            Selector::everything()
        });
        let types = spec.policy_types.as_deref().unwrap_or_default();
        let has = |name: &str| types.iter().any(|one| one == name);
        let says_egress =
            has("Egress") || (types.is_empty() && spec.egress.iter().flatten().next().is_some());
        let mut reader = Reader { namespace: &key.namespace, mistakes: &mut mistakes };
        let ingress = (types.is_empty() || has("Ingress")).then(|| {
            let rules = spec.ingress.iter().flatten().enumerate();
            rules
                .map(|(at, rule)| {
                    reader.allowed(
                        format!("ingress[{at}]"),
                        "from",
                        rule.from.as_deref(),
                        rule.ports.as_deref(),
                    )
                })
                .collect()
        });
        let egress = says_egress.then(|| {
            let rules = spec.egress.iter().flatten().enumerate();
            rules
                .map(|(at, rule)| {
                    reader.allowed(format!("egress[{at}]"), "to", rule.to.as_deref(), rule.ports.as_deref())
                })
                .collect()
        });
        Policy { key, subjects, ingress, egress, mistakes }
    }
}

struct Reader<'a> {
    namespace: &'a str,
    mistakes: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn allowed(
        &mut self,
        place: String,
        field: &str,
        peers: Option<&[NetworkPolicyPeer]>,
        ports: Option<&[NetworkPolicyPort]>,
    ) -> Allowed {
        let peers = match peers.unwrap_or_default() {
            [] => vec![Peer::Anybody],
            some => {
                let read = some.iter().enumerate().map(|(at, peer)| (at, self.peer(peer)));
                let read: Vec<_> = read.collect();
                self.keep(read, &format!("{place}.{field}"))
            }
        };
        let ports = match ports.unwrap_or_default() {
            [] => None,
            some => {
                let read = some.iter().enumerate().map(|(at, one)| (at, port(one))).collect();
                Some(self.keep(read, &format!("{place}.ports")))
            }
        };
        Allowed { peers, ports, place }
    }

    fn keep<T>(&mut self, read: Vec<(usize, Result<T, String>)>, place: &str) -> Vec<T> {
        let mut kept = Vec::new();
        for (at, one) in read {
            match one {
                Ok(one) => kept.push(one),
                Err(error) => self.mistakes.push(format!("spec.{place}[{at}]: {error}")),
            }
        }
        kept
    }

    fn peer(&self, peer: &NetworkPolicyPeer) -> Result<Peer, String> {
        if let Some(found) = &peer.ip_block {
            return block(found);
        }
        let pods = peer.pod_selector.as_ref().map_or(Ok(Selector::everything()), Selector::read)?;
        let namespaces = match &peer.namespace_selector {
            Some(selector) => Namespaces::Selected(Selector::read(selector)?),
            None if peer.pod_selector.is_some() => Namespaces::Named(self.namespace.to_owned()),
            None => return Err("names nobody".to_owned()),
        };
        Ok(Peer::Pods(Pods { namespaces, pods }))
    }
}

fn block(block: &IPBlock) -> Result<Peer, String> {
    let within = net(&block.cidr)?;
    let except = block.except.iter().flatten().map(|text| net(text)).collect::<Result<_, _>>()?;
    Ok(Peer::Block { within, except })
}

/// A block of addresses as it is written, whatever the bits behind the prefix are.
pub(crate) fn net(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().map_err(|_| format!("{text:?} is no block of addresses"))?;
    Ok(net.trunc())
}

fn protocol(name: &str) -> Result<u8, String> {
    Ok(match name {
        "TCP" => TCP,
        "UDP" => UDP,
        "SCTP" => SCTP,
        other => return Err(format!("protocol {other:?} is not known")),
    })
}

fn port(port: &NetworkPolicyPort) -> Result<Port, String> {
    let protocol = protocol(port.protocol.as_deref().unwrap_or("TCP"))?;
    let number =
        |number: i32| u16::try_from(number).ok().filter(|n| *n > 0).ok_or(format!("{number} is no port"));
    match (&port.port, port.end_port) {
        (None, None) => Ok(Port::All(protocol)),
        (Some(IntOrString::Int(first)), last) => {
            let first = number(*first)?;
            let last = last.map_or(Ok(first), number)?;
            if last < first {
                Err(format!("endPort {last} is below port {first}"))
            } else {
                Ok(Port::Range(protocol, first, last))
            }
        }
        (Some(IntOrString::String(name)), None) => Ok(Port::Named(Some(protocol), name.clone())),
        (_, Some(_)) => Err("endPort needs a port that is a number".to_owned()),
    }
}

/// A protocol of a container's port by its name; TCP when it has none.
pub fn protocol_of(name: Option<&str>) -> Option<u8> {
    protocol(name.unwrap_or("TCP")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: serde_json::Value) -> Policy {
        let object = json!({"metadata": {"namespace": "shop", "name": "p"}, "spec": spec});
        Policy::read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn types_default_to_ingress_and_to_egress_when_there_are_such_rules() {
        let both = |policy: &Policy| (policy.ingress.is_some(), policy.egress.is_some());
        assert_eq!(both(&read(json!({"podSelector": {}}))), (true, false));
        assert_eq!(both(&read(json!({"podSelector": {}, "egress": []}))), (true, false));
        assert_eq!(both(&read(json!({"podSelector": {}, "egress": [{}]}))), (true, true));
        assert_eq!(both(&read(json!({"podSelector": {}, "policyTypes": ["Egress"]}))), (false, true));
        let all = read(json!({"podSelector": {}, "ingress": [{}]})).ingress.unwrap();
        assert_eq!((all[0].peers.as_slice(), all[0].ports.as_ref()), (&[Peer::Anybody][..], None));
        assert_eq!(read(json!({"podSelector": {}, "ingress": []})).ingress.unwrap(), []);
    }

    #[test]
    fn peers_are_of_the_policys_namespace_unless_they_name_others() {
        let policy = read(json!({"podSelector": {}, "ingress": [{"from": [
            {"podSelector": {}},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {"matchLabels": {"c": "d", "a": "z"}}},
            {"ipBlock": {"cidr": "10.1.2.3/8", "except": ["10.2.0.0/16"]}},
        ]}]}));
        let peers = &policy.ingress.unwrap()[0].peers;
        let said: Vec<String> = peers
            .iter()
            .map(|peer| match peer {
                Peer::Pods(pods) => pods.to_string(),
                Peer::Block { within, except } => format!("{within} without {except:?}"),
                Peer::Nodes(selector) => format!("nodes {selector}"),
                Peer::Anybody => "anybody".into(),
            })
            .collect();
        assert_eq!(said, ["shop/*", "[*]/*", "[a=b]/a=z,c=d", "10.0.0.0/8 without [10.2.0.0/16]"]);
    }

    #[test]
    fn what_is_not_understood_widens_nothing() {
        let policy = read(json!({"podSelector": {}, "ingress": [
            {"from": [{"ipBlock": {"cidr": "nonsense"}}], "ports": [{"protocol": "DCCP", "port": 1}]},
            {"ports": [{"port": "web", "endPort": 9}, {"port": 9, "endPort": 8}, {"port": 0}, {"port": "web"}, {}]},
        ]}));
        let rules = policy.ingress.unwrap();
        assert_eq!((rules[0].peers.len(), rules[0].ports.as_deref()), (0, Some(&[][..])));
        assert_eq!(
            rules[1].ports.as_deref().unwrap(),
            [Port::Named(Some(TCP), "web".into()), Port::All(TCP)]
        );
        assert_eq!(policy.mistakes.len(), 5, "{:?}", policy.mistakes);
        assert!(policy.mistakes[0].starts_with("spec.ingress[0].from[0]: "), "{:?}", policy.mistakes);
    }
}
