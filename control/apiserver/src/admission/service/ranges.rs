//! Ranges that addresses of services come from: which addresses they have, and which of them is tried first.
//!
//! Pure: nothing here knows which addresses are taken.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use podwire_api::condition;
use serde_json::Value;

/// The lower part of a range is left to those who ask for an address by name: a sixteenth, within these bounds.
const RESERVED: std::ops::RangeInclusive<u128> = 16..=256;

/// A range of addresses, without that of the network itself and, of IPv4, that for everybody in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    v4: bool,
    first: u128,
    last: u128,
    /// How many of the first ones are given to nobody who asks for any, while there are others.
    reserved: u128,
}

impl Range {
    /// The addresses of `base/prefix`.
    pub(super) fn new(base: IpAddr, prefix: u8) -> Self {
        let (number, width, v4) = match base {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32, true),
            IpAddr::V6(v6) => (u128::from(v6), 128, false),
        };
        let bits = width - u32::from(prefix).min(width);
        // All but the host's bits.
        let hosts = 1_u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
        let network = number & !hosts;
        let size = hosts.saturating_add(1);
        let reserved =
            if size <= *RESERVED.start() { 0 } else { (size / 16).clamp(*RESERVED.start(), *RESERVED.end()) };
        let end = network | hosts;
        Self {
            v4,
            first: network.saturating_add(1),
            last: if v4 { end.saturating_sub(1) } else { end },
            reserved,
        }
    }

    /// Reads `10.96.0.0/16`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/')?;
        Some(Self::new(base.parse().ok()?, prefix.parse().ok()?))
    }

    /// The first address.
    pub(super) fn first(&self) -> IpAddr {
        self.address(self.first)
    }

    fn address(&self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if self.v4 => Ipv4Addr::from(number).into(),
            _ => Ipv6Addr::from(number).into(),
        }
    }

    /// Whether an address is one that a service may have.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let (number, v4) = match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), true),
            IpAddr::V6(v6) => (u128::from(v6), false),
        };
        v4 == self.v4 && (self.first..=self.last).contains(&number)
    }

    /// Every address once: from a place that `number` chooses on, and those that are reserved last.
    pub(super) fn from(self, number: u64) -> impl Iterator<Item = IpAddr> {
        let middle = (self.first + self.reserved).min(self.last.saturating_add(1));
        let upper = Turn::new(middle, self.last, number);
        let lower = Turn::new(self.first, middle - 1, number);
        upper.chain(lower).map(move |number| self.address(number))
    }
}

/// The numbers from `first` to `last`, beginning somewhere in between.
struct Turn {
    first: u128,
    last: u128,
    next: u128,
    left: u128,
}

impl Turn {
    fn new(first: u128, last: u128, number: u64) -> Self {
        let count = if last < first { 0 } else { (last - first).saturating_add(1) };
        let next = first + u128::from(number).checked_rem(count).unwrap_or(0);
        Self { first, last, next, left: count }
    }
}

impl Iterator for Turn {
    type Item = u128;

    fn next(&mut self) -> Option<u128> {
        self.left = self.left.checked_sub(1)?;
        let now = self.next;
        self.next = if now == self.last { self.first } else { now + 1 };
        Some(now)
    }
}

/// The ranges of a `ServiceCIDR` that addresses may be taken of now.
pub(super) fn open(object: &Value) -> Vec<Range> {
    let refused = condition::find(condition::of(object), "Ready").is_some_and(|one| one["status"] != "True");
    if refused || object["metadata"]["deletionTimestamp"].is_string() {
        return Vec::new();
    }
    let cidrs = object["spec"]["cidrs"].as_array().map(Vec::as_slice).unwrap_or_default();
    cidrs.iter().filter_map(Value::as_str).filter_map(Range::parse).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_have_no_first_address_and_those_of_ipv4_no_last() {
        for (cidr, first, last, out) in [
            ("10.96.0.0/16", "10.96.0.1", "10.96.255.254", ["10.96.0.0", "10.96.255.255", "10.97.0.1"]),
            ("10.96.7.9/24", "10.96.7.1", "10.96.7.254", ["10.96.7.0", "10.96.7.255", "::a60:701"]),
            ("fd00::/112", "fd00::1", "fd00::ffff", ["fd00::", "fd00::1:0", "10.96.0.1"]),
        ] {
            let range = range(cidr);
            assert_eq!(range.first(), ip(first));
            assert!(range.contains(ip(first)) && range.contains(ip(last)), "{cidr}");
            assert!(out.iter().all(|out| !range.contains(ip(out))), "{cidr}");
        }
        assert!(Range::parse("10.96.0.0").is_none() && Range::parse("x/8").is_none());
    }

    #[test]
    fn every_address_is_tried_once_and_the_reserved_ones_last() {
        let all: Vec<IpAddr> = range("10.0.0.0/24").from(77).collect();
        assert_eq!(all.len(), 254);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 254);
        assert_eq!(all[0], ip("10.0.0.94"), "16 are reserved, and 77 further on");
        let reserved: BTreeSet<_> = all[238..].iter().copied().collect();
        assert_eq!((reserved.first(), reserved.last()), (Some(&ip("10.0.0.1")), Some(&ip("10.0.0.16"))));
        assert_eq!(range("10.0.0.0/16").from(0).next(), Some(ip("10.0.1.1")), "256 at most");
        assert_eq!(range("10.0.0.0/28").from(3).count(), 14, "nothing is reserved of few");
        assert_eq!(range("10.0.0.0/32").from(3).count(), 0);
        assert_eq!(range("::/0").from(u64::MAX).take(3).count(), 3);
        assert_eq!(range("0.0.0.0/0").from(9).next(), Some(ip("0.0.1.10")));
    }

    #[test]
    fn a_range_that_is_not_ready_or_goes_gives_no_addresses() {
        let open = |object: Value| open(&object).len();
        let spec = json!({"cidrs": ["10.0.0.0/24", "fd00::/112"]});
        assert_eq!(open(json!({"spec": spec})), 2);
        let status = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
        assert_eq!(open(json!({"spec": spec, "status": status("True")})), 2);
        assert_eq!(open(json!({"spec": spec, "status": status("False")})), 0);
        assert_eq!(open(json!({"spec": spec, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})), 0);
    }
}
