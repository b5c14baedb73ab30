//! The pod's side of an interface: addresses and routes planned, applied in one batch, checked again later.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use podwire_linux::rtnl::{Batch, Link, LinkChange, LinkRef, NewAddress, Route, Scope, Socket};
use podwire_linux::sysctl;

use crate::spec::error::CniError;
use crate::spec::result::{CniResult, RouteConfig};

/// What the pod's interface is to become.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Settings, as (key, value); a missing IPv6 stack is no error.
    pub sysctls: Vec<(String, String)>,
    /// Addresses.
    pub addresses: Vec<IpNet>,
    /// Routes, of the interface.
    pub routes: Vec<RouteConfig>,
    /// Tell neighbours of the IPv4 addresses when the interface comes up.
    pub announce: bool,
    /// Wait for the kernel to find duplicates of IPv6 addresses.
    pub detect_duplicates: bool,
}

/// The default route of a family.
pub fn default_route(v6: bool) -> IpNet {
    if v6 {
        IpNet::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).expect("0 is a prefix length")
    } else {
        IpNet::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).expect("0 is a prefix length")
    }
}

/// Plans the interface called `name` from a result: addresses, and routes whose next hop is filled in.
pub fn plan(name: &str, result: &CniResult, detect_duplicates: bool) -> Plan {
    let gateway = |v6: bool| result.ips.iter().filter_map(|ip| ip.gateway).find(|gw| gw.is_ipv6() == v6);
    let mut plan = Plan { detect_duplicates, ..Plan::default() };
    plan.addresses.extend(result.ips.iter().map(|ip| ip.address));
    for route in &result.routes {
        let gw = route.gw.or_else(|| {
            if route.scope == Some(Scope::LINK.0) { None } else { gateway(route.dst.addr().is_ipv6()) }
        });
        plan.routes.push(RouteConfig { gw, ..route.clone() });
    }
    if plan.addresses.iter().any(|net| net.addr().is_ipv6()) {
        let key = |link: &str, key: &str| format!("net/ipv6/conf/{link}/{key}");
        plan.sysctls.push((key("lo", "disable_ipv6"), "0".into()));
        plan.sysctls.push((key(name, "disable_ipv6"), "0".into()));
        plan.sysctls.push((key(name, "keep_addr_on_down"), "1".into()));
        plan.sysctls.push((key(name, "accept_dad"), if detect_duplicates { "1" } else { "0" }.into()));
        if detect_duplicates {
            plan.sysctls.push((key(name, "enhanced_dad"), "1".into()));
        }
    }
    plan.announce = plan.addresses.iter().any(|net| net.addr().is_ipv4());
    plan
}

/// Carries a plan out in the calling thread's namespace; returns the link as it is then.
pub fn apply(plan: &Plan, link: u32, socket: &mut Socket) -> Result<Link, CniError> {
    for (key, value) in &plan.sysctls {
        set_if_present(key, value)?;
    }
    let mut batch = Batch::new();
    if plan.announce {
        // By netlink: the kernel looks a path of /proc/sys/net up among those of all namespaces.
        batch.set_link(LinkRef::Index(link), &LinkChange { announce: Some(true), ..LinkChange::default() });
    }
    for net in &plan.addresses {
        batch.add_address(&NewAddress { link, net: *net, no_dad: !plan.detect_duplicates, broadcast: true });
    }
    batch.set_link(LinkRef::Index(link), &LinkChange { up: Some(true), ..LinkChange::default() });
    for route in &plan.routes {
        batch.add_route(&kernel_route(route, link));
    }
    batch.get_link(LinkRef::Index(link));
    let replies = socket.exchange(&mut batch)?;
    let link_now = replies
        .iter()
        .find_map(Link::parse)
        .ok_or_else(|| CniError::internal("the new link has vanished"))?;
    if plan.detect_duplicates {
        settle(socket, link)?;
    }
    Ok(link_now)
}

/// The route of a result as the kernel takes it.
pub fn kernel_route(route: &RouteConfig, link: u32) -> Route {
    Route {
        destination: route.dst.trunc(),
        gateway: route.gw,
        link,
        source: None,
        table: route.table,
        priority: route.priority,
        scope: route.scope.map(Scope),
        mtu: route.mtu,
        advmss: route.advmss,
    }
}

/// Waits until no address is tentative any more.
pub fn settle(socket: &mut Socket, link: u32) -> Result<(), CniError> {
    use podwire_linux::rtnl::addr::{IFA_F_DADFAILED, IFA_F_TENTATIVE};
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let addresses = socket.addresses(link)?;
        if let Some(bad) = addresses.iter().find(|address| address.flags & IFA_F_DADFAILED != 0) {
            return Err(CniError::internal(format!("address {} is used by somebody else", bad.net)));
        }
        if addresses.iter().all(|address| address.flags & IFA_F_TENTATIVE == 0) {
            return Ok(());
        }
        if std::time::Instant::now() > deadline {
            return Err(CniError::internal("IPv6 addresses are still tentative after 5 s"));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Sets a setting; one the kernel does not have (no IPv6, an older kernel) is skipped.
pub fn set_if_present(key: &str, value: &str) -> Result<(), CniError> {
    match sysctl::ensure(key, value) {
        Ok(_) => Ok(()),
        Err(error) if error.is_absent() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets packets of these families through this machine.
pub fn enable_forwarding(result: &CniResult) -> Result<(), CniError> {
    for v6 in [false, true] {
        if result.ips.iter().any(|ip| ip.address.addr().is_ipv6() == v6) {
            let key = if v6 { "net/ipv6/conf/all/forwarding" } else { "net/ipv4/ip_forward" };
            sysctl::ensure(key, "1")?;
        }
    }
    Ok(())
}

/// Compares the pod's interface with a result, in the calling thread's namespace; returns the link.
pub fn check(name: &str, result: &CniResult) -> Result<Link, CniError> {
    let mut socket = Socket::route()?;
    let link = socket
        .link(LinkRef::Name(name))?
        .ok_or_else(|| CniError::internal(format!("container interface {name} not found")))?;
    if !link.is_up() {
        return Err(CniError::internal(format!("container interface {name} is down")));
    }
    check_addresses(&mut socket, &link, result)?;
    check_routes(&mut socket, &link, result)?;
    Ok(link)
}

/// Whether the pod's interface has the hardware address of the result.
pub fn check_mac(link: &Link, result: &CniResult) -> Result<(), CniError> {
    let wanted = result
        .container_interface(&link.name)
        .ok_or_else(|| CniError::internal(format!("prevResult has no interface {}", link.name)))?;
    let found = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    if wanted.mac.is_empty() || wanted.mac.eq_ignore_ascii_case(&found) {
        return Ok(());
    }
    Err(CniError::internal(format!(
        "interface {} has the address {found} instead of {}",
        link.name, wanted.mac
    )))
}

fn check_addresses(socket: &mut Socket, link: &Link, result: &CniResult) -> Result<(), CniError> {
    let found = socket.addresses(link.index)?;
    for ip in result.ips_of(&link.name) {
        if !found.iter().any(|address| address.net == ip.address) {
            return Err(CniError::internal(format!("failed to find IP {} on {}", ip.address, link.name)));
        }
    }
    Ok(())
}

fn check_routes(socket: &mut Socket, link: &Link, result: &CniResult) -> Result<(), CniError> {
    // As ADD made them: a next hop that the result leaves out is the gateway of the pod's address.
    let routes = plan(&link.name, result, false).routes;
    for v6 in [false, true] {
        let mut wanted = routes.iter().filter(|route| route.dst.addr().is_ipv6() == v6).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        // A later plugin may have moved a route to another table or link, but not to another next hop.
        let found = socket.routes(None, v6)?;
        for route in wanted {
            let table = route.table;
            let same = |other: &Route| {
                other.destination == route.dst.trunc()
                    && other.gateway == route.gw
                    && table.is_none_or(|table| other.table == Some(table))
            };
            if !found.iter().any(same) {
                let by = route.gw.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
                return Err(CniError::internal(format!(
                    "expected route {}{by} not found on {}",
                    route.dst, link.name
                )));
            }
        }
    }
    Ok(())
}
