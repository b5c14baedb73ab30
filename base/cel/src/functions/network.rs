//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr};

use super::{Native, Res, unfit};
use crate::error::EvalError;
use crate::value::Value;

/// An address, IPv4 or IPv6, without a zone and not one mapped into the other.
pub type Address = IpAddr;

/// An address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address as it was written.
    pub address: Address,
    /// How many bits of it are the network's.
    pub bits: u8,
}

impl Network {
    /// Bytes that the prefix takes up.
    pub(crate) fn prefix_bytes(&self) -> usize {
        usize::from(self.bits).div_ceil(8)
    }

    fn masked(&self) -> Network {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        };
        Network { address, bits: self.bits }
    }

    fn contains(&self, address: Address) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Network { address, bits: self.bits }.masked().address == self.masked().address
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "ip" => |args| match args {
            [Value::String(text)] => parse_ip(text).map(Value::Ip),
            [Value::Cidr(network)] => Ok(Value::Ip(network.address)),
            _ => unfit(),
        },
        "isIP" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
            _ => unfit(),
        },
        "ip.isCanonical" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text)?.to_string() == **text)),
            _ => unfit(),
        },
        "family" => |args| match args {
            [Value::Ip(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
            _ => unfit(),
        },
        "isUnspecified" => |args| asked(args, |address| address.is_unspecified()),
        "isLoopback" => |args| asked(args, |address| address.is_loopback()),
        "isLinkLocalMulticast" => |args| asked(args, is_link_local_multicast),
        "isLinkLocalUnicast" => |args| asked(args, is_link_local_unicast),
        "isGlobalUnicast" => |args| asked(args, is_global_unicast),
        "cidr" => |args| match args {
            [Value::String(text)] => parse_cidr(text).map(Value::Cidr),
            _ => unfit(),
        },
        "isCIDR" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
            _ => unfit(),
        },
        "containsIP" => |args| match args {
            [Value::Cidr(network), Value::Ip(address)] => Ok(Value::Bool(network.contains(*address))),
            [Value::Cidr(network), Value::String(text)] => Ok(Value::Bool(network.contains(parse_ip(text)?))),
            _ => unfit(),
        },
        "containsCIDR" => |args| match args {
            [Value::Cidr(network), Value::Cidr(other)] => Ok(Value::Bool(within(network, other))),
            [Value::Cidr(network), Value::String(text)] => {
                Ok(Value::Bool(within(network, &parse_cidr(text)?)))
            }
            _ => unfit(),
        },
        "prefixLength" => |args| match args {
            [Value::Cidr(network)] => Ok(Value::Int(i64::from(network.bits))),
            _ => unfit(),
        },
        "masked" => |args| match args {
            [Value::Cidr(network)] => Ok(Value::Cidr(network.masked())),
            _ => unfit(),
        },
        _ => return None,
    })
}

fn asked<'a>(args: &mut [Value<'a>], question: fn(&Address) -> bool) -> Res<'a> {
    match args {
        [Value::Ip(address)] => Ok(Value::Bool(question(address))),
        _ => unfit(),
    }
}

fn within(network: &Network, other: &Network) -> bool {
    network.bits <= other.bits && network.contains(other.address)
}

fn is_link_local_multicast(address: &Address) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: &Address) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: &Address) -> bool {
    let nowhere = match address {
        IpAddr::V4(address) => address.is_unspecified() || *address == Ipv4Addr::BROADCAST,
        IpAddr::V6(address) => address.is_unspecified(),
    };
    !nowhere && !address.is_loopback() && !address.is_multicast() && !is_link_local_unicast(address)
}

fn parse_ip(text: &str) -> Result<Address, EvalError> {
    let parsed = || text.parse::<IpAddr>().ok();
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<std::net::Ipv6Addr>().is_ok()
    {
        return Err(EvalError::new(format!("IP address {text:?} with zone value is not allowed")));
    }
    let address = parsed().ok_or_else(|| {
        EvalError::new(format!("IP Address {text:?} parse error during conversion from string"))
    })?;
    if is_mapped(&address) {
        return Err(EvalError::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed")));
    }
    Ok(address)
}

fn is_mapped(address: &Address) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_cidr(text: &str) -> Result<Network, EvalError> {
    let refused =
        || EvalError::new(format!("network address parse error during conversion from string: {text:?}"));
    let (address, bits) = text.rsplit_once('/').ok_or_else(refused)?;
    let address: IpAddr = address.parse().map_err(|_| refused())?;
    let plain = bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse().ok().filter(|bits| plain && *bits <= most).ok_or_else(refused)?;
    match is_mapped(&address) {
        true => Err(refused()),
        false => Ok(Network { address, bits }),
    }
}
