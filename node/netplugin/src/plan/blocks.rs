//! A block of addresses without some parts of it, as ranges. Pure.

use std::net::IpAddr;

use ipnet::IpNet;

/// The ranges of `within` that no block of `except` covers, in order; first and last address belong to each.
pub(super) fn ranges(within: IpNet, except: &[IpNet]) -> Vec<(IpAddr, IpAddr)> {
    let v6 = within.addr().is_ipv6();
    let mut holes: Vec<(u128, u128)> =
        except.iter().filter(|net| net.addr().is_ipv6() == v6).map(edges).collect();
    holes.sort_unstable();
    let (mut first, last) = edges(&within);
    let mut ranges = Vec::new();
    for (from, to) in holes {
        if from > last {
            break;
        }
        if to < first {
            continue;
        }
        if from > first {
            ranges.push((address(first, v6), address(from - 1, v6)));
        }
        if to >= last {
            return ranges;
        }
        first = to + 1;
    }
    ranges.push((address(first, v6), address(last, v6)));
    ranges
}

fn edges(net: &IpNet) -> (u128, u128) {
    (number(net.network()), number(net.broadcast()))
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

fn address(number: u128, v6: bool) -> IpAddr {
    if v6 {
        return IpAddr::from(number.to_be_bytes());
    }
    let [.., a, b, c, d] = number.to_be_bytes();
    IpAddr::from([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(within: &str, except: &[&str]) -> String {
        let except: Vec<IpNet> = except.iter().map(|text| text.parse().unwrap()).collect();
        let ranges = ranges(within.parse().unwrap(), &except);
        ranges.iter().map(|(a, b)| format!("{a}-{b}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn holes_are_cut_out_wherever_they_are() {
        assert_eq!(said("10.0.0.0/8", &[]), "10.0.0.0-10.255.255.255");
        assert_eq!(
            said("10.0.0.0/30", &["10.0.0.1/32", "10.0.0.2/32"]),
            "10.0.0.0-10.0.0.0 10.0.0.3-10.0.0.3"
        );
        assert_eq!(said("10.0.0.0/30", &["10.0.0.2/31", "10.0.0.3/32"]), "10.0.0.0-10.0.0.1");
        assert_eq!(said("10.0.0.0/30", &["10.0.0.0/30"]), "");
        assert_eq!(said("0.0.0.0/0", &["0.0.0.0/1", "fd00::/8"]), "128.0.0.0-255.255.255.255");
        assert_eq!(said("fd00::/126", &["fd00::1/128"]), "fd00::-fd00:: fd00::2-fd00::3");
        assert_eq!(said("::/0", &["::/1"]), "8000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    }
}
