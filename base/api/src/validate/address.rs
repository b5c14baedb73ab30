//! Rules of IP addresses and ranges: those of fields that once took more than they should, and those of new fields.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use super::error::Errors;
use crate::path::Path;

/// A range of addresses. One of IPv4 that is written as IPv6 is of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// The address as it is written.
    given: IpAddr,
    /// The length of the prefix as it is written.
    pub(super) length: u8,
}

impl Range {
    /// Whether the addresses are of IPv4.
    pub(super) fn is_v4(&self) -> bool {
        self.given.to_canonical().is_ipv4()
    }

    fn is_mapped(&self) -> bool {
        self.given.is_ipv6() && self.is_v4()
    }

    fn width(&self) -> u8 {
        if self.given.is_ipv4() { 32 } else { 128 }
    }

    /// The first address.
    fn first(&self) -> IpAddr {
        let free = u32::from(self.width() - self.length);
        match self.given {
            IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(free).unwrap_or(0)).into()),
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(free).unwrap_or(0)).into()),
        }
    }

    /// Whether the first address of another range is one of this.
    pub(super) fn has_start_of(&self, other: &Range) -> bool {
        let (mine, theirs) = (self.given.to_canonical(), other.first().to_canonical());
        let length = if self.is_mapped() { self.length.saturating_sub(96) } else { self.length };
        let at = |given| Range { given, length }.first();
        mine.is_ipv4() == theirs.is_ipv4() && at(mine) == at(theirs)
    }
}

/// An address; numbers of IPv4 may have leading zeros.
pub(super) fn parse(value: &str) -> Option<IpAddr> {
    if let Ok(ip) = value.parse() {
        return Some(ip);
    }
    let (head, tail) = value.split_at(value.rfind(':').map_or(0, |at| at + 1));
    let plain: Vec<&str> = tail.split('.').map(without_zeros).collect();
    if plain.len() != 4 {
        return None;
    }
    plain.join(".").parse::<Ipv4Addr>().ok()?;
    format!("{head}{}", plain.join(".")).parse().ok()
}

fn without_zeros(digits: &str) -> &str {
    let rest = digits.trim_start_matches('0');
    if rest.is_empty() && !digits.is_empty() { "0" } else { rest }
}

/// A range; numbers may have leading zeros and the address may be any of the range.
pub(super) fn parse_range(value: &str) -> Option<Range> {
    let (address, digits) = value.split_once('/')?;
    let given = parse(address)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length = without_zeros(digits).parse().ok()?;
    let range = Range { given, length };
    (length <= range.width()).then_some(range)
}

/// Complaints about an address; the canonical form of one without any.
fn complaints(value: &str) -> Result<String, &'static str> {
    let Some(ip) = parse(value) else {
        return Err("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    };
    if value.parse::<IpAddr>().is_err() {
        return Err("must not have leading 0s");
    }
    if ip.is_ipv6() && ip.to_canonical().is_ipv4() {
        return Err("must not be an IPv4-mapped IPv6 address");
    }
    Ok(ip.to_string())
}

/// Complaints about an address in canonical form.
pub(crate) fn canonical(value: &str) -> Vec<String> {
    match complaints(value) {
        Err(words) => vec![words.to_owned()],
        Ok(canonical) if canonical != value => vec![format!("must be in canonical form ({canonical:?})")],
        Ok(_) => Vec::new(),
    }
}

/// An address in any form, or one of those that were there before.
pub(super) fn legacy(value: &str, before: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    if let Err(words) = complaints(value)
        && !before.contains(value)
    {
        errors.invalid(path, value, words);
    }
}

fn range_complaint(value: &str) -> Result<Range, &'static str> {
    let Some(range) = parse_range(value) else {
        return Err("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    };
    let (address, length) = value.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        return Err("must not have leading 0s in IP or prefix length");
    }
    if range.is_mapped() {
        return Err("must not have an IPv4-mapped IPv6 address");
    }
    if range.first() != range.given {
        return Err("must not have bits set beyond the prefix length");
    }
    Ok(range)
}

/// A range in any form, or one of those that were there before.
pub(super) fn legacy_range(value: &str, before: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    if let Err(words) = range_complaint(value)
        && !before.contains(value)
    {
        errors.invalid(path, value, words);
    }
}

/// The address of an interface with the length of its network's prefix, in canonical form.
pub(super) fn of_interface(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(range) = parse_range(value) else {
        let words = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid(path, value, words);
    };
    let length = i16::from(range.length);
    let length = if range.is_mapped() && length > 32 { length - 96 } else { length };
    let canonical = format!("{}/{length}", range.given.to_canonical());
    if canonical != value {
        errors.invalid(path, value, &format!("must be in canonical form ({canonical:?})"));
    }
}

/// A range in canonical form.
pub(super) fn canonical_range(value: &str, path: &Path<'_>, errors: &mut Errors) {
    match range_complaint(value) {
        Err(words) => errors.invalid(path, value, words),
        Ok(range) => {
            let canonical = format!("{}/{}", range.given, range.length);
            if canonical != value {
                errors.invalid(path, value, &format!("must be in canonical form ({canonical:?})"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_generously_as_once() {
        for good in ["1.2.3.4", "010.0.0.001", "::1", "::ffff:1.2.3.4", "::ffff:01.2.3.4", "0.0.0.0"] {
            assert!(parse(good).is_some(), "{good}");
        }
        for bad in
            ["", "1.2.3", "1.2.3.4.5", "1..2.3", "256.0.0.0", "0300.0.0.0", ":1.2.3.4", "::1%lo", "+1.2.3.4"]
        {
            assert!(parse(bad).is_none(), "{bad}");
        }
        for bad in ["1.2.3.4", "1.2.3.4/", "1.2.3.4/33", "::/129", "1.2.3.4/+8", "1.2.3.4/8/8"] {
            assert!(parse_range(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_range_knows_what_is_in_it() {
        let has =
            |outer: &str, inner: &str| parse_range(outer).unwrap().has_start_of(&parse_range(inner).unwrap());
        assert!(has("10.0.0.0/8", "10.1.0.0/16"));
        assert!(has("0.0.0.0/0", "10.1.0.0/16") && has("::/0", "fd00::/8"));
        assert!(!has("10.0.0.0/8", "11.0.0.0/16") && !has("::/0", "10.0.0.0/8"));
        assert!(has("::ffff:10.0.0.0/104", "10.1.0.0/16"));
    }
}
