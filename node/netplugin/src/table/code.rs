//! Rules and elements in the kernel's words, and back. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::nft::expr::{self, CmpOp, MetaKey, PayloadBase};
use podwire_linux::nft::{Element, Expr, Register, Verdict};

use crate::plan::peer_set;
use crate::plan::tables::{Family, Key, Match, Side};

/// The bytes of a key; each part of a longer one fills four.
pub(super) fn key(key: Key) -> Vec<u8> {
    match key {
        Key::Address(ip) => expr::octets(ip),
        Key::Service(ip, protocol, port) => {
            let mut bytes = expr::octets(ip);
            bytes.extend([protocol, 0, 0, 0]);
            bytes.extend(port.to_be_bytes());
            bytes.extend([0, 0]);
            bytes
        }
    }
}

/// A set of addresses that is a part of one that all selectors share. The kernel finds sets by walking a list: with one for
/// each selector, thousands of rules that each name one take seconds to load.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// The set it is in.
    pub(super) within: String,
    /// What its keys there end with.
    pub(super) selector: Vec<u8>,
}

/// How many bytes say which selector; as many as its name has.
pub(super) const SELECTOR: u8 = 12;

/// The set that the selectors of a family share.
pub(super) fn shared_set(family: Family) -> String {
    format!("peers{}", family.digit())
}

/// Where a set is, if it is a part of another.
pub(super) fn shared(set: &str) -> Option<Shared> {
    let (family, name) = [Family::V4, Family::V6]
        .into_iter()
        .find_map(|family| Some((family, set.strip_prefix(&peer_set(family, ""))?)))?;
    let selector = hex::decode(name).ok().filter(|bytes| bytes.len() == usize::from(SELECTOR))?;
    Some(Shared { within: shared_set(family), selector })
}

/// The set and the address that an element of a shared set stands for.
pub(super) fn shared_in(family: Family, bytes: &[u8]) -> Option<(String, Key)> {
    let (ip, selector) = bytes.split_at_checked(bytes.len().checked_sub(usize::from(SELECTOR))?)?;
    Some((peer_set(family, &hex::encode(selector)), key_in(ip)?))
}

/// The key in such bytes.
pub(super) fn key_in(bytes: &[u8]) -> Option<Key> {
    let address = |bytes: &[u8]| match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    };
    if let Some(ip) = address(bytes) {
        return Some(Key::Address(ip));
    }
    let (ip, rest) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    Some(Key::Service(address(ip)?, *rest.first()?, u16::from_be_bytes([*rest.get(4)?, *rest.get(5)?])))
}

/// Ranges as an interval set has them: where each begins, and the first address behind it.
pub(super) fn ranges(blocks: &[(IpAddr, IpAddr)]) -> Vec<Element> {
    let mut elements = Vec::new();
    for (first, last) in blocks {
        elements.push(Element { key: expr::octets(*first), ..Element::default() });
        if let Some(behind) = next(*last) {
            let key = expr::octets(behind);
            elements.push(Element { key, interval_end: true, ..Element::default() });
        }
    }
    elements
}

/// The ranges in the elements of such a set.
pub(super) fn ranges_in(mut edges: Vec<(IpAddr, bool)>) -> Vec<(IpAddr, IpAddr)> {
    // Where one ends and another begins at once, the end comes first.
    edges.sort_by_key(|(at, ends)| (*at, !*ends));
    let mut ranges = Vec::new();
    let mut begun: Option<IpAddr> = None;
    for (at, ends) in edges {
        match (begun.take(), ends) {
            (Some(first), true) => ranges.extend(before(at).map(|last| (first, last))),
            (_, false) => begun = Some(at),
            (None, true) => {}
        }
    }
    let top = |ip: IpAddr| if ip.is_ipv6() { IpAddr::from([0xff; 16]) } else { IpAddr::from([0xff; 4]) };
    ranges.extend(begun.map(|first| (first, top(first))));
    ranges
}

fn next(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => Some(IpAddr::V4(u32::from(ip).checked_add(1)?.into())),
        IpAddr::V6(ip) => Some(IpAddr::V6(u128::from(ip).checked_add(1)?.into())),
    }
}

fn before(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => Some(IpAddr::V4(u32::from(ip).checked_sub(1)?.into())),
        IpAddr::V6(ip) => Some(IpAddr::V6(u128::from(ip).checked_sub(1)?.into())),
    }
}

fn side(side: Side) -> expr::Side {
    match side {
        Side::Source => expr::Side::Source,
        Side::Destination => expr::Side::Destination,
    }
}

fn look_up(set: &str) -> Expr {
    Expr::Lookup { set: set.to_owned(), from: Register::R1, to: None, invert: false }
}

const PORT: Expr = Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to: Register::R1 };

/// How much of a denied packet is told: the longest header of IPv4, and ports.
pub(crate) const LOGGED: u32 = 64;

/// Counts a packet that is dropped, and hands it to whoever hears of denied connections, if anybody can.
pub(super) fn denied(log: Option<u16>, note: &str) -> Vec<Expr> {
    /// What the kernel takes.
    const LONGEST: usize = 127;
    let prefix = note[..note.floor_char_boundary(LONGEST)].to_owned();
    let log = log.map(|group| Expr::Log { group, bytes: LOGGED, prefix });
    std::iter::once(Expr::Counter).chain(log).collect()
}

/// A rule as expressions; what it denies is told to the group `log`.
pub(super) fn rule(rule: &crate::plan::tables::Rule, family: Family, log: Option<u16>) -> Vec<Expr> {
    let v6 = family == Family::V6;
    let mut exprs = Vec::new();
    for one in &rule.matches {
        match one {
            Match::Member(of, set) => match shared(set) {
                Some(shared) => exprs.extend([
                    expr::load_address(side(*of), v6, Register::R1),
                    Expr::Immediate { to: Register::word(if v6 { 4 } else { 1 }), data: shared.selector },
                    look_up(&shared.within),
                ]),
                None => exprs.extend([expr::load_address(side(*of), v6, Register::R1), look_up(set)]),
            },
            Match::Within(of, net) => exprs.extend(expr::address(side(*of), CmpOp::Eq, *net)),
            Match::Service(set) => {
                let words = if v6 { 4 } else { 1 };
                exprs.extend([
                    expr::load_address(expr::Side::Destination, v6, Register::R1),
                    Expr::Meta { key: MetaKey::L4Proto, to: Register::word(words) },
                    Expr::Payload {
                        base: PayloadBase::Transport,
                        offset: 2,
                        len: 2,
                        to: Register::word(words + 1),
                    },
                    look_up(set),
                ]);
            }
            Match::Protocol(number) => exprs.extend(expr::l4proto(*number)),
            Match::Ports(first, last) => {
                let compare =
                    |op, port: &u16| Expr::Cmp { op, from: Register::R1, data: port.to_be_bytes().to_vec() };
                exprs.push(PORT);
                if first == last {
                    exprs.push(compare(CmpOp::Eq, first));
                } else {
                    exprs.extend([compare(CmpOp::Gte, first), compare(CmpOp::Lte, last)]);
                }
            }
        }
    }
    if rule.counted {
        exprs.extend(denied(log, &rule.note));
    }
    exprs.push(Expr::Verdict(rule.verdict.clone()));
    exprs
}

/// What such expressions ask, and their verdict; `None` for what we never write.
pub(super) fn rule_in(exprs: &[Expr]) -> Option<(Vec<Match>, Verdict)> {
    let (Expr::Verdict(verdict), mut rest) = exprs.split_last()? else { return None };
    let mut matches = Vec::new();
    while !rest.is_empty() {
        let (one, used) = next_match(rest)?;
        matches.push(one);
        rest = &rest[used..];
    }
    Some((matches, verdict.clone()))
}

/// The block that a rule of the floor is about.
pub(super) fn block_in(exprs: &[Expr]) -> Option<IpNet> {
    match next_match(exprs)? {
        (Match::Within(_, net), _) => Some(net),
        _ => None,
    }
}

fn next_match(exprs: &[Expr]) -> Option<(Match, usize)> {
    let number = |data: &[u8]| Some(u16::from_be_bytes(data.try_into().ok()?));
    match exprs {
        [Expr::Meta { key: MetaKey::L4Proto, .. }, Expr::Cmp { op: CmpOp::Eq, data, .. }, ..] => {
            Some((Match::Protocol(*data.first()?), 2))
        }
        [Expr::Payload { base: PayloadBase::Transport, .. }, Expr::Cmp { op: CmpOp::Eq, data, .. }, ..] => {
            let port = number(data)?;
            Some((Match::Ports(port, port), 2))
        }
        [
            Expr::Payload { base: PayloadBase::Transport, .. },
            Expr::Cmp { op: CmpOp::Gte, data: first, .. },
            Expr::Cmp { op: CmpOp::Lte, data: last, .. },
            ..,
        ] => Some((Match::Ports(number(first)?, number(last)?), 3)),
        [Expr::Payload { .. }, Expr::Meta { .. }, Expr::Payload { .. }, Expr::Lookup { set, .. }, ..] => {
            Some((Match::Service(set.clone()), 4))
        }
        [
            Expr::Payload { offset, len, .. },
            Expr::Immediate { data, .. },
            Expr::Lookup { invert: false, to: None, .. },
            ..,
        ] => {
            let family = if *len == 16 { Family::V6 } else { Family::V4 };
            Some((Match::Member(side_at(*offset, *len)?, peer_set(family, &hex::encode(data))), 3))
        }
        [Expr::Payload { offset, len, .. }, Expr::Lookup { set, invert: false, to: None, .. }, ..] => {
            Some((Match::Member(side_at(*offset, *len)?, set.clone()), 2))
        }
        [
            Expr::Payload { offset, len, .. },
            Expr::Bitwise { mask, .. },
            Expr::Cmp { op: CmpOp::Eq, data, .. },
            ..,
        ] => Some((Match::Within(side_at(*offset, *len)?, block(data, mask)?), 3)),
        [Expr::Payload { offset, len, .. }, Expr::Cmp { op: CmpOp::Eq, data, .. }, ..] => {
            let whole = vec![0xff; data.len()];
            Some((Match::Within(side_at(*offset, *len)?, block(data, &whole)?), 2))
        }
        _ => None,
    }
}

fn side_at(offset: u32, len: u32) -> Option<Side> {
    match (offset, len) {
        (12, 4) | (8, 16) => Some(Side::Source),
        (16, 4) | (24, 16) => Some(Side::Destination),
        _ => None,
    }
}

fn block(data: &[u8], mask: &[u8]) -> Option<IpNet> {
    let Key::Address(ip) = key_in(data)? else { return None };
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    IpNet::new(ip, u8::try_from(ones).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tables::Rule;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let all = [
            vec![],
            vec![Match::Member(Side::Source, "p".into()), Match::Protocol(6), Match::Ports(80, 80)],
            vec![
                Match::Within(Side::Destination, "10.0.0.0/8".parse().unwrap()),
                Match::Protocol(17),
                Match::Ports(1, 9),
            ],
            vec![Match::Within(Side::Source, "10.0.0.1/32".parse().unwrap()), Match::Service("n".into())],
        ];
        for matches in all {
            let rule = Rule {
                matches: matches.clone(),
                verdict: Verdict::Accept,
                note: String::new(),
                counted: false,
            };
            assert_eq!(rule_in(&super::rule(&rule, Family::V4, None)), Some((matches, Verdict::Accept)));
        }
        let peers = |family| peer_set(family, &"0a".repeat(usize::from(SELECTOR)));
        for family in [Family::V4, Family::V6] {
            let matches = vec![Match::Member(Side::Destination, peers(family)), Match::Protocol(6)];
            let rule = Rule {
                matches: matches.clone(),
                verdict: Verdict::Accept,
                note: String::new(),
                counted: false,
            };
            let written = super::rule(&rule, family, None);
            assert!(written.contains(&look_up(&shared_set(family))), "{written:?}");
            assert_eq!(rule_in(&written), Some((matches, Verdict::Accept)));
        }
        let net = Match::Within(Side::Source, "fd00::/8".parse().unwrap());
        let rule =
            Rule { matches: vec![net.clone()], verdict: Verdict::Drop, note: String::new(), counted: false };
        assert_eq!(rule_in(&super::rule(&rule, Family::V6, None)), Some((vec![net], Verdict::Drop)));
    }

    #[test]
    fn keys_and_ranges_are_read_as_they_were_written() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let v6: IpAddr = "fd00::1".parse().unwrap();
        for one in [Key::Address(v4), Key::Address(v6), Key::Service(v4, 6, 80), Key::Service(v6, 17, 53)] {
            assert_eq!(key_in(&key(one)), Some(one));
        }
        for ip in [v4, v6] {
            let set = peer_set(Family::of(ip), &"0a".repeat(usize::from(SELECTOR)));
            let within = shared(&set).unwrap();
            assert_eq!(within.within, shared_set(Family::of(ip)));
            let bytes = [key(Key::Address(ip)), within.selector].concat();
            assert_eq!(shared_in(Family::of(ip), &bytes), Some((set, Key::Address(ip))));
        }
        for other in ["known4", "p4-", "p4-00", "p4-zz", "n4-0a0a0a0a0a0a0a0a0a0a0a0a"] {
            assert_eq!(shared(other), None, "{other}");
        }
        let top: IpAddr = IpAddr::from([255; 4]);
        let blocks = vec![(IpAddr::from([0; 4]), v4), (IpAddr::from([10, 0, 0, 2]), top)];
        let edges = |one: &Element| {
            let Some(Key::Address(ip)) = key_in(&one.key) else { panic!("an address") };
            (ip, one.interval_end)
        };
        // Two ranges that touch: the end of the one is where the other begins.
        let found = ranges_in(ranges(&blocks).iter().map(edges).collect());
        assert_eq!(found, blocks);
    }
}
