//! What every table has: base chains where packets come by, the floor, and the maps that lead to groups.
//!
//! Ways out of pods and into them have a base chain each, for an accept ends only its own. Packets from this machine itself
//! pass neither: nothing hooks the output, so that probes come through whatever policies say.

use ipnet::IpNet;
use podwire_linux::nft::expr::{self, CmpOp, MetaKey, PayloadBase, Side};
use podwire_linux::nft::transaction::SetValue;
use podwire_linux::nft::{Base, Element, Expr, Hook, Register, Set, Table, Transaction, Verdict};

use super::code::{denied, shared_set};
use super::{Frame, make_set};
use crate::plan::inside::entry;
use crate::plan::tables::{Family, Kind};
use crate::plan::{known, maps_of};
use crate::policy::Direction;

const EGRESS: &str = "leaving";
const INGRESS: &str = "entering";
const TO_NODE: &str = "to-node";
/// What a pod itself hands on, in its own table.
const THROUGH: [&str; 2] = ["through-in", "through-out"];
const LINKS: &str = "pod-links";
/// After destinations were rewritten, before the host's own filter and before sources are rewritten.
const FIRST: i32 = -10;
const SECOND: i32 = -9;

/// Names that belong to every table.
pub(super) fn is_own_chain(name: &str) -> bool {
    [EGRESS, INGRESS, TO_NODE].contains(&name)
        || THROUGH.contains(&name)
        || [Family::V4, Family::V6].iter().any(|f| inner(*f).contains(&name.to_owned()))
}

/// The set of names of links.
pub(super) fn is_own_set(name: &str) -> bool {
    name == LINKS
}

fn inner(family: Family) -> [String; 2] {
    [EGRESS, INGRESS].map(|name| format!("{name}{}", family.digit()))
}

/// Writes it all anew; one transaction, so that packets see the old or the new.
pub(super) fn write(tx: &mut Transaction, table: Table<'_>, frame: &Frame, log: Option<u16>) {
    tx.add_table(table, Some("NetworkPolicy, by podwire netplugin"));
    write_links(tx, table, &frame.links);
    for family in [Family::V4, Family::V6] {
        make_set(tx, table, &known(family), family, Kind::Addresses);
        make_set(tx, table, &shared_set(family), family, Kind::Peers);
        for map in Direction::BOTH.into_iter().flat_map(|direction| maps_of(direction, family)) {
            make_set(tx, table, &map, family, Kind::Ways);
        }
        let [egress, ingress] = inner(family);
        for (name, direction) in [(&egress, Direction::Egress), (&ingress, Direction::Ingress)] {
            tx.add_chain(table, name, None);
            tx.flush_chain(table, name);
            for (rule, note) in decide(frame, family, direction, log) {
                tx.add_rule(table, name, &rule, Some(note));
            }
        }
    }
    for (name, hook, priority, to) in [
        (EGRESS, Hook::Forward, FIRST, EGRESS),
        (INGRESS, Hook::Forward, SECOND, INGRESS),
        (TO_NODE, Hook::Input, FIRST, EGRESS),
    ] {
        tx.add_chain(table, name, Some(Base { kind: "filter", hook, priority, drop: false }));
        tx.flush_chain(table, name);
        for (rule, note) in begin(hook, to) {
            tx.add_rule(table, name, &rule, Some(note));
        }
    }
}

fn write_links(tx: &mut Transaction, table: Table<'_>, links: &[String]) {
    // The name of a link: sixteen bytes, filled up with zeros.
    let names = Set { name: LINKS, key_type: 41, key_len: 16, interval: false, value: SetValue::None };
    tx.add_set(table, &names);
    tx.flush_set(table, LINKS);
    let links: Vec<Element> =
        links.iter().map(|name| Element { key: link(name), ..Element::default() }).collect();
    tx.add_elements(table, LINKS, &links, false);
}

/// Writes what a table in a pod's own namespace has: `passing` are the links whose packets this machine judges, and
/// whatever comes or goes by another is judged here, also by one that the pod is given later.
pub(super) fn write_inside(tx: &mut Transaction, table: Table<'_>, passing: &[String]) {
    tx.add_table(table, Some("NetworkPolicy for links beside the node, by podwire netplugin"));
    write_links(tx, table, passing);
    for family in [Family::V4, Family::V6] {
        make_set(tx, table, &shared_set(family), family, Kind::Peers);
    }
    for direction in Direction::BOTH {
        for family in [Family::V4, Family::V6] {
            tx.add_chain(table, &entry(direction, family), None);
        }
    }
    let [through_in, through_out] = THROUGH;
    for (name, hook, priority, direction) in [
        (INGRESS, Hook::Input, FIRST, Direction::Ingress),
        (EGRESS, Hook::Output, FIRST, Direction::Egress),
        (through_in, Hook::Forward, FIRST, Direction::Ingress),
        (through_out, Hook::Forward, SECOND, Direction::Egress),
    ] {
        tx.add_chain(table, name, Some(Base { kind: "filter", hook, priority, drop: false }));
        tx.flush_chain(table, name);
        let key = if direction == Direction::Ingress { MetaKey::IifName } else { MetaKey::OifName };
        let judged_outside = vec![
            Expr::Meta { key, to: Register::R1 },
            Expr::Lookup { set: LINKS.into(), from: Register::R1, to: None, invert: false },
            Expr::Verdict(Verdict::Accept),
        ];
        tx.add_rule(table, name, &judged_outside, Some("judged by the node"));
        for (rule, note) in goes_on(|family| entry(direction, family)) {
            tx.add_rule(table, name, &rule, Some(note));
        }
    }
}

fn link(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// What a base chain does before it asks about anybody.
fn begin(hook: Hook, to: &str) -> Vec<(Vec<Expr>, &'static str)> {
    let mut rules = Vec::new();
    if hook == Hook::Input {
        let mut own = expr::link_name(MetaKey::IifName, CmpOp::Eq, "lo");
        own.push(Expr::Verdict(Verdict::Accept));
        rules.push((own, "this machine with itself"));
    }
    rules.extend(goes_on(|family| format!("{to}{}", family.digit())));
    rules
}

/// Answers and neighbour discovery pass; everything else goes on by its family.
fn goes_on(to: impl Fn(Family) -> String) -> Vec<(Vec<Expr>, &'static str)> {
    const ESTABLISHED: u32 = 2;
    const RELATED: u32 = 4;
    let mut rules = Vec::new();
    let mut known = expr::ct_state(ESTABLISHED | RELATED);
    known.push(Expr::Verdict(Verdict::Accept));
    rules.push((known, "answers, and what goes on"));
    let mut neighbours = expr::nfproto(true);
    neighbours.extend(expr::l4proto(58));
    neighbours.extend([
        Expr::Payload { base: PayloadBase::Transport, offset: 0, len: 1, to: Register::R1 },
        Expr::Cmp { op: CmpOp::Gte, from: Register::R1, data: vec![133] },
        Expr::Cmp { op: CmpOp::Lte, from: Register::R1, data: vec![137] },
        Expr::Verdict(Verdict::Accept),
    ]);
    rules.push((neighbours, "neighbour discovery"));
    for family in [Family::V4, Family::V6] {
        let mut way = expr::nfproto(family == Family::V6);
        way.push(Expr::Verdict(Verdict::Goto(to(family))));
        rules.push((way, "by family"));
    }
    rules
}

/// The floor, then the maps in the order of decisions.
fn decide(
    frame: &Frame,
    family: Family,
    direction: Direction,
    log: Option<u16>,
) -> Vec<(Vec<Expr>, &'static str)> {
    const BEHIND: &str = "floor: a link of pods, and no pod whose rules stand";
    const WITHIN: &str = "floor: a pod's address, and no pod whose rules stand";
    let v6 = family == Family::V6;
    let (side, key) = match direction {
        Direction::Egress => (Side::Source, MetaKey::IifName),
        Direction::Ingress => (Side::Destination, MetaKey::OifName),
    };
    let unknown = |note: &str| {
        let asked = [
            expr::load_address(side, v6, Register::R1),
            Expr::Lookup { set: known(family), from: Register::R1, to: None, invert: true },
        ];
        asked.into_iter().chain(denied(log, note)).chain([Expr::Verdict(Verdict::Drop)])
    };
    let mut rules = Vec::new();
    let mut behind = vec![
        Expr::Meta { key, to: Register::R1 },
        Expr::Lookup { set: LINKS.into(), from: Register::R1, to: None, invert: false },
    ];
    behind.extend(unknown(BEHIND));
    rules.push((behind, BEHIND));
    let within = |net: &&IpNet| Family::of(net.addr()) == family;
    for net in frame.floor.iter().filter(within) {
        let mut floor = expr::address(side, CmpOp::Eq, *net);
        floor.extend(unknown(WITHIN));
        rules.push((floor, WITHIN));
    }
    for map in maps_of(direction, family) {
        let lead = vec![
            expr::load_address(side, v6, Register::R1),
            Expr::Lookup { set: map, from: Register::R1, to: Some(Register::VERDICT), invert: false },
        ];
        rules.push((lead, "policies"));
    }
    rules
}
