//! The portmap plugin's configuration.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::spec::error::CniError;
use crate::spec::request::Request;
use crate::spec::result::CniResult;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Port of the node.
    pub host_port: u16,
    /// Port of the pod.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// The node's address it is for; absent is every address.
    pub host_ip: Option<IpAddr>,
}

impl Mapping {
    /// The protocol's number.
    pub fn protocol_number(&self) -> u8 {
        match self.protocol.as_str() {
            "udp" => 17,
            "sctp" => 132,
            _ => 6,
        }
    }

    /// Whether it is for a family, and for which address of it.
    pub fn applies(&self, v6: bool) -> Option<Option<IpAddr>> {
        match self.host_ip {
            None => Some(None),
            Some(ip) if ip.is_ipv6() != v6 => None,
            Some(ip) if ip.is_unspecified() => Some(None),
            Some(ip) => Some(Some(ip)),
        }
    }
}

/// The configuration, checked.
#[derive(Debug, Clone)]
pub struct Conf {
    /// The network.
    pub network: String,
    /// The container.
    pub container: String,
    /// `iptables`, `nftables`, or what is there.
    pub backend: Option<String>,
    /// Rewrite the source of traffic that would come back to its sender.
    pub snat: bool,
    /// Rewrite the source of all traffic.
    pub masq_all: bool,
    /// The mark's bit, with iptables.
    pub mark_bit: u32,
    /// A chain that marks, with iptables.
    pub mark_chain: Option<String>,
    /// Raw conditions for IPv4.
    pub conditions_v4: Option<Vec<String>>,
    /// Raw conditions for IPv6.
    pub conditions_v6: Option<Vec<String>>,
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// In which nf_tables table. Ours: lets several instances share a machine.
    pub table: String,
}

impl Conf {
    /// Reads and checks the configuration.
    pub fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        let conditions = |name| {
            Ok::<_, CniError>(if object.get(name).is_some() { Some(object.strings(name)?) } else { None })
        };
        let conf = Conf {
            network: request.network()?,
            container: request.container_id.clone(),
            backend: object.text("backend")?.map(str::to_owned),
            snat: object.bool("snat")?.unwrap_or(true),
            masq_all: object.bool("masqAll")?.unwrap_or(false),
            mark_bit: mark_bit(object.i64("markMasqBit")?)?,
            mark_chain: object.text("externalSetMarkChain")?.map(str::to_owned),
            conditions_v4: conditions("conditionsV4")?,
            conditions_v6: conditions("conditionsV6")?,
            mappings: mappings(request)?,
            table: object.text("nftTable")?.unwrap_or(super::nft::TABLE).to_owned(),
        };
        if conf.mark_chain.is_some() && object.get("markMasqBit").is_some() {
            return Err(CniError::config("cannot specify externalSetMarkChain and markMasqBit"));
        }
        match conf.backend.as_deref() {
            None | Some("iptables" | "nftables") => Ok(conf),
            Some(other) => Err(CniError::config(format!("unrecognized value for backend {other:?}"))),
        }
    }

    /// Whether rules go to iptables: named, or unnamed and not inferred otherwise from the conditions.
    pub fn by_iptables(&self) -> bool {
        if let Some(name) = self.backend.as_deref() {
            return name == "iptables";
        }
        let conditions = [&self.conditions_v4, &self.conditions_v6];
        match conditions.into_iter().flatten().flatten().next() {
            Some(first) => first.starts_with(['-', '!']),
            None => self.mark_chain.is_some() || crate::plugins::iptables::works(),
        }
    }

    /// Whether iptables may hold rules of ours: not when the configuration is one we wrote ourselves.
    pub fn cleans_iptables(&self) -> bool {
        self.table == super::nft::TABLE
    }

    /// The addresses ports lead to: the first of each family on the interface.
    pub fn targets(&self, result: &CniResult, ifname: &str) -> Vec<IpNet> {
        if self.mappings.is_empty() {
            return Vec::new();
        }
        [false, true]
            .into_iter()
            .filter_map(|v6| {
                result.ips_of(ifname).map(|ip| ip.address).find(|net| net.addr().is_ipv6() == v6)
            })
            .collect()
    }
}

fn mark_bit(value: Option<i64>) -> Result<u32, CniError> {
    let bit = value.unwrap_or(13);
    match u32::try_from(bit) {
        Ok(bit) if bit <= 31 => Ok(bit),
        _ => Err(CniError::config("MasqMarkBit must be between 0 and 31")),
    }
}

fn mappings(request: &Request) -> Result<Vec<Mapping>, CniError> {
    let mut found = Vec::new();
    for item in request.object()?.object("runtimeConfig")?.objects("portMappings")? {
        let port = |name: &str| {
            let number = item.i64(name)?.unwrap_or(0);
            match u16::try_from(number) {
                Ok(port) if port > 0 => Ok(port),
                _ => Err(CniError::config(format!("Invalid {name} number: {number} in {}", item.path()))),
            }
        };
        let protocol = item.text("protocol")?.unwrap_or("tcp").to_ascii_lowercase();
        if !["tcp", "udp", "sctp"].contains(&protocol.as_str()) {
            return Err(CniError::config(format!(
                "unknown protocol {protocol:?} in {}",
                item.at("protocol")
            )));
        }
        let (host_port, container_port) = (port("hostPort")?, port("containerPort")?);
        found.push(Mapping {
            host_port,
            container_port,
            protocol,
            host_ip: item.parsed("hostIP", "an address")?,
        });
    }
    Ok(found)
}
