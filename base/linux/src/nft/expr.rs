//! Expressions of a rule, and the matches and statements most rules are made of.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::rtnl::wire::{Attrs, Message};

const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;

/// A register: 16 bytes from 1 to 4, 4 bytes from 8 to 23.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(pub u32);

impl Register {
    /// The verdict register.
    pub const VERDICT: Register = Register(0);
    /// The first 16 bytes.
    pub const R1: Register = Register(1);

    /// The n-th register of four bytes, from 0 to 15.
    pub fn word(n: u32) -> Register {
        Register(8 + n)
    }
}

/// How a register is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmpOp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// At most, as numbers in network order.
    Lte = 3,
    /// At least, as numbers in network order.
    Gte = 5,
}

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passes this hook.
    Accept,
    /// It is dropped.
    Drop,
    /// Back to the calling chain.
    Return,
    /// On in another chain, then back.
    Jump(String),
    /// On in another chain for good.
    Goto(String),
}

impl Verdict {
    /// The verdict in the data of an expression or element.
    pub(crate) fn read(data: Attrs<'_>) -> Option<Verdict> {
        let verdict = data.nested(NFTA_DATA_VERDICT)?;
        let chain = || verdict.str(NFTA_VERDICT_CHAIN);
        Some(match verdict.be32(NFTA_VERDICT_CODE)?.cast_signed() {
            0 => Verdict::Drop,
            1 => Verdict::Accept,
            -3 => Verdict::Jump(chain()?),
            -4 => Verdict::Goto(chain()?),
            -5 => Verdict::Return,
            _ => return None,
        })
    }

    pub(crate) fn put(&self, m: &mut Message<'_>) {
        let (code, chain): (i32, Option<&str>) = match self {
            Verdict::Drop => (0, None),
            Verdict::Accept => (1, None),
            Verdict::Jump(chain) => (-3, Some(chain)),
            Verdict::Goto(chain) => (-4, Some(chain)),
            Verdict::Return => (-5, None),
        };
        m.nested(NFTA_DATA_VERDICT, |m| {
            m.attr(NFTA_VERDICT_CODE, &code.to_be_bytes());
            if let Some(chain) = chain {
                m.str(NFTA_VERDICT_CHAIN, chain);
            }
        });
    }
}

/// Where a payload offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadBase {
    /// The link layer.
    Link = 0,
    /// The network layer.
    Network = 1,
    /// The transport layer.
    Transport = 2,
}

/// Facts about a packet that are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaKey {
    /// EtherType.
    Protocol = 1,
    /// Mark.
    Mark = 3,
    /// Name of the link it came by.
    IifName = 6,
    /// Name of the link it leaves by.
    OifName = 7,
    /// The user whose socket it is of.
    SkUid = 10,
    /// IPv4 or IPv6, in an inet table.
    NfProto = 15,
    /// Transport protocol.
    L4Proto = 16,
    /// Name of the bridge it came by.
    BriIifName = 17,
}

/// One expression; its fields are registers and bytes, named as the kernel names them.
#[expect(missing_docs, reason = "each variant's line says what its fields are")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload { base: PayloadBase, offset: u32, len: u32, to: Register },
    /// Loads a fact about the packet.
    Meta { key: MetaKey, to: Register },
    /// Sets the packet's mark (or another fact) from a register.
    MetaSet { key: MetaKey, from: Register },
    /// Compares a register.
    Cmp { op: CmpOp, from: Register, data: Vec<u8> },
    /// `to = (from & mask) ^ xor`.
    Bitwise { from: Register, to: Register, mask: Vec<u8>, xor: Vec<u8> },
    /// Loads a constant.
    Immediate { to: Register, data: Vec<u8> },
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Looks a register up in a set; a map puts its value into `to`, a verdict map into the verdict.
    Lookup { set: String, from: Register, to: Option<Register>, invert: bool },
    /// Loads the state bits of the connection.
    CtState { to: Register },
    /// Loads the status bits of the connection.
    CtStatus { to: Register },
    /// Loads the type of the destination address (2 is local).
    FibDaddrType { to: Register },
    /// Rewrites the destination.
    Dnat { v6: bool, addr: Register, port: Option<Register> },
    /// Rewrites the source to the address of the link it leaves by.
    Masquerade { random: bool },
    /// Counts packets and bytes.
    Counter,
    /// Hands the first bytes of the packet to whoever has the group, see [`Log`](super::log::Log); the rule goes on.
    Log { group: u16, bytes: u32, prefix: String },
}

impl Expr {
    fn name(&self) -> &'static str {
        match self {
            Expr::Payload { .. } => "payload",
            Expr::Meta { .. } | Expr::MetaSet { .. } => "meta",
            Expr::Cmp { .. } => "cmp",
            Expr::Bitwise { .. } => "bitwise",
            Expr::Immediate { .. } | Expr::Verdict(_) => "immediate",
            Expr::Lookup { .. } => "lookup",
            Expr::CtState { .. } | Expr::CtStatus { .. } => "ct",
            Expr::FibDaddrType { .. } => "fib",
            Expr::Dnat { .. } => "nat",
            Expr::Masquerade { .. } => "masq",
            Expr::Counter => "counter",
            Expr::Log { .. } => "log",
        }
    }

    pub(crate) fn put(&self, m: &mut Message<'_>) {
        m.nested(NFTA_LIST_ELEM, |m| {
            m.str(NFTA_EXPR_NAME, self.name()).nested(NFTA_EXPR_DATA, |m| self.body(m));
        });
    }

    fn body(&self, m: &mut Message<'_>) {
        let value = |m: &mut Message<'_>, kind: u16, data: &[u8]| {
            m.nested(kind, |m| {
                m.attr(NFTA_DATA_VALUE, data);
            });
        };
        match self {
            Expr::Payload { base, offset, len, to } => {
                m.be32(1, to.0).be32(2, *base as u32).be32(3, *offset).be32(4, *len);
            }
            Expr::Meta { key, to } => {
                m.be32(1, to.0).be32(2, *key as u32);
            }
            Expr::MetaSet { key, from } => {
                m.be32(2, *key as u32).be32(3, from.0);
            }
            Expr::Cmp { op, from, data } => {
                m.be32(1, from.0).be32(2, *op as u32);
                value(m, 3, data);
            }
            Expr::Bitwise { from, to, mask, xor } => {
                let len = u32::try_from(mask.len()).expect("a register holds at most 64 bytes");
                m.be32(1, from.0).be32(2, to.0).be32(3, len);
                value(m, 4, mask);
                value(m, 5, xor);
            }
            Expr::Immediate { to, data } => {
                m.be32(1, to.0);
                value(m, 2, data);
            }
            Expr::Verdict(verdict) => {
                m.be32(1, Register::VERDICT.0).nested(2, |m| verdict.put(m));
            }
            Expr::Lookup { set, from, to, invert } => {
                m.str(1, set).be32(2, from.0);
                if let Some(to) = to {
                    m.be32(3, to.0);
                }
                if *invert {
                    m.be32(5, 1);
                }
            }
            Expr::CtState { to } => {
                m.be32(1, to.0).be32(2, 0);
            }
            Expr::CtStatus { to } => {
                m.be32(1, to.0).be32(2, 2);
            }
            Expr::FibDaddrType { to } => {
                const DADDR: u32 = 1 << 1;
                const ADDRTYPE: u32 = 3;
                m.be32(1, to.0).be32(2, ADDRTYPE).be32(3, DADDR);
            }
            Expr::Dnat { v6, addr, port } => {
                const DNAT: u32 = 1;
                m.be32(1, DNAT).be32(2, if *v6 { 10 } else { 2 }).be32(3, addr.0).be32(4, addr.0);
                if let Some(port) = port {
                    m.be32(5, port.0).be32(6, port.0);
                }
            }
            Expr::Masquerade { random } => {
                const FULLY_RANDOM: u32 = 1 << 4;
                if *random {
                    m.be32(1, FULLY_RANDOM);
                }
            }
            Expr::Counter => {}
            Expr::Log { group, bytes, prefix } => {
                m.attr(1, &group.to_be_bytes()).str(2, prefix).be32(3, *bytes);
            }
        }
    }
}

/// The transport protocol by number.
pub fn l4proto(number: u8) -> Vec<Expr> {
    vec![
        Expr::Meta { key: MetaKey::L4Proto, to: Register::R1 },
        Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: vec![number] },
    ]
}

/// The destination port of a transport protocol.
pub fn dport(number: u8, port: u16) -> Vec<Expr> {
    let mut exprs = l4proto(number);
    exprs.push(Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to: Register::R1 });
    exprs.push(Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: port.to_be_bytes().to_vec() });
    exprs
}

/// Which address of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Loads the source or destination address.
pub fn load_address(side: Side, v6: bool, to: Register) -> Expr {
    let (offset, len) = match (side, v6) {
        (Side::Source, false) => (12, 4),
        (Side::Destination, false) => (16, 4),
        (Side::Source, true) => (8, 16),
        (Side::Destination, true) => (24, 16),
    };
    Expr::Payload { base: PayloadBase::Network, offset, len, to }
}

/// In an inet table: the packet is of the address' family.
pub fn nfproto(v6: bool) -> Vec<Expr> {
    vec![
        Expr::Meta { key: MetaKey::NfProto, to: Register::R1 },
        Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: vec![if v6 { 10 } else { 2 }] },
    ]
}

/// The source or destination is (not) within `net`.
pub fn address(side: Side, op: CmpOp, net: IpNet) -> Vec<Expr> {
    let v6 = net.addr().is_ipv6();
    let mut exprs = vec![load_address(side, v6, Register::R1)];
    if net.prefix_len() < net.max_prefix_len() {
        let mask = octets(net.netmask());
        let xor = vec![0; mask.len()];
        exprs.push(Expr::Bitwise { from: Register::R1, to: Register::R1, mask, xor });
    }
    exprs.push(Expr::Cmp { op, from: Register::R1, data: octets(net.network()) });
    exprs
}

/// The destination is an address of this machine.
pub fn daddr_is_local() -> Vec<Expr> {
    vec![
        Expr::FibDaddrType { to: Register::R1 },
        Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: 2u32.to_ne_bytes().to_vec() },
    ]
}

/// The connection is in one of these states (bits: 2 established, 4 related, 8 new).
pub fn ct_state(bits: u32) -> Vec<Expr> {
    vec![
        Expr::CtState { to: Register::R1 },
        Expr::Bitwise {
            from: Register::R1,
            to: Register::R1,
            mask: bits.to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expr::Cmp { op: CmpOp::Ne, from: Register::R1, data: vec![0; 4] },
    ]
}

/// The connection's destination was rewritten.
pub fn ct_is_dnat() -> Vec<Expr> {
    const DST_NAT: u32 = 1 << 5;
    vec![
        Expr::CtStatus { to: Register::R1 },
        Expr::Bitwise {
            from: Register::R1,
            to: Register::R1,
            mask: DST_NAT.to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expr::Cmp { op: CmpOp::Ne, from: Register::R1, data: vec![0; 4] },
    ]
}

/// The packet comes or leaves by the link of this name.
pub fn link_name(key: MetaKey, op: CmpOp, name: &str) -> Vec<Expr> {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(16, 0);
    vec![Expr::Meta { key, to: Register::R1 }, Expr::Cmp { op, from: Register::R1, data: padded }]
}

/// Rewrites the destination to an address and port.
pub fn dnat_to(ip: IpAddr, port: u16) -> Vec<Expr> {
    let port_register = Register(2);
    vec![
        Expr::Immediate { to: Register::R1, data: octets(ip) },
        Expr::Immediate { to: port_register, data: port.to_be_bytes().to_vec() },
        Expr::Dnat { v6: ip.is_ipv6(), addr: Register::R1, port: Some(port_register) },
    ]
}

/// An address in network order.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
