//! Ranges of addresses and what is wrong with them. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::spec::error::CniError;
use crate::spec::json::Object;
use crate::spec::result::parse_net;

/// A range within a subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet.
    pub subnet: IpNet,
    /// First address given out.
    pub start: IpAddr,
    /// Last address given out.
    pub end: IpAddr,
    /// Never given out.
    pub gateway: IpAddr,
}

/// Ranges of which one address is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(pub Vec<Range>);

/// An address as a number.
pub fn to_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// A number as an address of a family.
pub fn from_number(number: u128, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from(number))
    } else {
        IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)))
    }
}

impl Range {
    /// Reads a range and fills in what it leaves out.
    pub fn parse(object: &Object<'_>) -> Result<Range, CniError> {
        let text = object.str("subnet")?.unwrap_or_default();
        if text.is_empty() {
            return Err(CniError::config(format!("invalid range: {} is missing", object.at("subnet"))));
        }
        let subnet = parse_net(text)
            .ok_or_else(|| CniError::config(format!("{}: {text:?} is not a subnet", object.at("subnet"))))?;
        Range::new(
            subnet,
            object.parsed("rangeStart", "an address")?,
            object.parsed("rangeEnd", "an address")?,
            object.parsed("gateway", "an address")?,
        )
        .map_err(|error| error.context(&format!("invalid range {}", object.path())))
    }

    /// A range of a subnet; what is absent gets its default.
    pub fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Range, CniError> {
        let v6 = subnet.addr().is_ipv6();
        if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
            return Err(CniError::config(format!("network {subnet} too small to allocate from")));
        }
        if subnet.addr() != subnet.network() {
            return Err(CniError::config(format!(
                "network has host bits set: for a subnet mask of length {} the network address is {}",
                subnet.prefix_len(),
                subnet.network()
            )));
        }
        let first = from_number(to_number(subnet.network()) + 1, v6);
        let last_number = to_number(subnet.broadcast());
        let last = from_number(if v6 { last_number } else { last_number - 1 }, v6);
        let inside = |name: &str, ip: IpAddr| {
            if subnet.contains(&ip) && ip.is_ipv6() == v6 {
                Ok(ip)
            } else {
                Err(CniError::config(format!("{name} {ip} not in network {subnet}")))
            }
        };
        let range = Range {
            subnet,
            start: start.map_or(Ok(first), |ip| inside("rangeStart", ip))?,
            end: end.map_or(Ok(last), |ip| inside("rangeEnd", ip))?,
            gateway: gateway.unwrap_or(first),
        };
        if to_number(range.start) > to_number(range.end) {
            return Err(CniError::config(format!("start {} is after end {}", range.start, range.end)));
        }
        Ok(range)
    }

    /// Whether an address may be given out of it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv6() == self.start.is_ipv6()
            && (to_number(self.start)..=to_number(self.end)).contains(&to_number(ip))
    }

    /// How many addresses it spans.
    pub fn size(&self) -> u128 {
        to_number(self.end) - to_number(self.start) + 1
    }

    /// Whether two ranges share an address.
    pub fn overlaps(&self, other: &Range) -> bool {
        self.start.is_ipv6() == other.start.is_ipv6()
            && to_number(self.start) <= to_number(other.end)
            && to_number(other.start) <= to_number(self.end)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

impl RangeSet {
    /// Refuses a set that mixes families or overlaps itself.
    pub fn check(&self) -> Result<(), CniError> {
        let Some(first) = self.0.first() else { return Err(CniError::config("empty range set")) };
        for (at, range) in self.0.iter().enumerate() {
            if range.subnet.addr().is_ipv6() != first.subnet.addr().is_ipv6() {
                return Err(CniError::config("mixed address families"));
            }
            if let Some(other) = self.0[..at].iter().find(|other| other.overlaps(range)) {
                return Err(CniError::config(format!("subnets {other} and {range} overlap")));
            }
        }
        Ok(())
    }

    /// Whether it hands out IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.0.first().is_some_and(|range| range.subnet.addr().is_ipv6())
    }

    /// The range an address belongs to.
    pub fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(ip))
    }

    /// Whether two sets share an address.
    pub fn overlaps(&self, other: &RangeSet) -> bool {
        self.0.iter().any(|range| other.0.iter().any(|other| range.overlaps(other)))
    }
}

impl std::fmt::Display for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(Range::to_string).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("net")
    }

    #[test]
    fn defaults_leave_out_network_and_broadcast() {
        let v4 = Range::new(net("10.1.2.0/24"), None, None, None).expect("range");
        assert_eq!((v4.start.to_string(), v4.end.to_string()), ("10.1.2.1".into(), "10.1.2.254".into()));
        assert_eq!(v4.gateway.to_string(), "10.1.2.1");
        let v6 = Range::new(net("fd00::/120"), None, None, None).expect("range");
        assert_eq!((v6.start.to_string(), v6.end.to_string()), ("fd00::1".into(), "fd00::ff".into()));
    }

    #[test]
    fn wrong_ranges_are_refused() {
        let ip = |text: &str| Some(text.parse().expect("ip"));
        assert!(Range::new(net("10.1.2.0/31"), None, None, None).is_err());
        assert!(Range::new(net("10.1.2.5/24"), None, None, None).is_err());
        assert!(Range::new(net("10.1.2.0/24"), ip("10.1.3.1"), None, None).is_err());
        assert!(Range::new(net("10.1.2.0/24"), ip("10.1.2.9"), ip("10.1.2.8"), None).is_err());
        let range = |text: &str| Range::new(net(text), None, None, None).expect("range");
        assert!(RangeSet(vec![range("10.1.2.0/24"), range("10.1.2.0/25")]).check().is_err());
        assert!(RangeSet(vec![range("10.1.2.0/24"), range("fd00::/64")]).check().is_err());
        assert!(RangeSet(vec![]).check().is_err());
    }
}
