//! A mesh's redirection as rules of nf_tables in the pod's own namespace: what istio's and linkerd's init containers do, in
//! one transaction and before the pod's first process.
//!
//! The node itself is never redirected: its probes reach the application. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use podwire_linux::nft::expr::{
    CmpOp, Expr, MetaKey, Register, Side, Verdict, address, daddr_is_local, dnat_to, dport, l4proto,
    link_name, nfproto,
};

use super::plan::Facts;
use super::spec::{Mesh, Redirect};

const TCP: u8 = 6;

/// The rules of both chains, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redirection {
    /// What comes to the pod, before routing.
    pub inbound: Vec<Vec<Expr>>,
    /// What leaves it.
    pub outbound: Vec<Vec<Expr>>,
}

fn and(parts: impl IntoIterator<Item = Vec<Expr>>, end: Vec<Expr>) -> Vec<Expr> {
    parts.into_iter().flatten().chain(end).collect()
}

fn leave_alone() -> Vec<Expr> {
    vec![Expr::Verdict(Verdict::Return)]
}

/// The packet is of a socket of this user.
fn of_user(uid: u32) -> Vec<Expr> {
    vec![
        Expr::Meta { key: MetaKey::SkUid, to: Register::R1 },
        Expr::Cmp { op: CmpOp::Eq, from: Register::R1, data: uid.to_ne_bytes().to_vec() },
    ]
}

fn of_block(side: Side, net: IpNet) -> Vec<Expr> {
    and([nfproto(net.addr().is_ipv6())], address(side, CmpOp::Eq, net))
}

fn inbound(redirect: &Redirect, facts: &Facts) -> Vec<Vec<Expr>> {
    let mut rules = vec![and([link_name(MetaKey::IifName, CmpOp::Eq, "lo")], leave_alone())];
    let gateways = facts.gateways.iter().map(|gateway| of_block(Side::Source, IpNet::from(*gateway)));
    rules.extend(gateways.map(|from| and([from], leave_alone())));
    let ports = redirect.exclude_ports.iter().chain([&redirect.port]);
    rules.extend(ports.map(|port| and([dport(TCP, *port)], leave_alone())));
    // The proxy listens on every address; the pod's first of each family is as good as any.
    for v6 in [false, true] {
        let own = facts.addresses.iter().map(IpNet::addr).find(|ip| ip.is_ipv6() == v6);
        rules.extend(own.map(|ip| and([nfproto(v6), l4proto(TCP)], dnat_to(ip, redirect.port))));
    }
    rules
}

fn outbound(redirect: &Redirect) -> Vec<Vec<Expr>> {
    let mut rules: Vec<Vec<Expr>> =
        redirect.exclude_uids.iter().map(|uid| and([of_user(*uid)], leave_alone())).collect();
    rules.push(and([daddr_is_local()], leave_alone()));
    rules.extend(
        redirect.exclude_cidrs.iter().map(|net| and([of_block(Side::Destination, *net)], leave_alone())),
    );
    rules.extend(redirect.exclude_ports.iter().map(|port| and([dport(TCP, *port)], leave_alone())));
    for own in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        rules.push(and([nfproto(own.is_ipv6()), l4proto(TCP)], dnat_to(own, redirect.port)));
    }
    rules
}

/// The rules of a mesh in a pod with these addresses.
pub fn redirection(mesh: &Mesh, facts: &Facts) -> Redirection {
    Redirection {
        inbound: mesh.inbound.as_ref().map(|redirect| inbound(redirect, facts)).unwrap_or_default(),
        outbound: mesh.outbound.as_ref().map(outbound).unwrap_or_default(),
    }
}
