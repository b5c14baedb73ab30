//! The bridge plugin's configuration.

use ipnet::IpNet;
use podwire_linux::rtnl::{Mac, VlanRange};

use crate::ipam::delegate;
use crate::ipam::ranges::{from_number, to_number};
use crate::plugins::iface::default_route;
use crate::plugins::masquerade;
use crate::spec::error::CniError;
use crate::spec::json::{Object, wrong};
use crate::spec::request::Request;
use crate::spec::result::{CniResult, Dns, RouteConfig};

/// The configuration, checked.
#[derive(Debug, Clone)]
pub struct Conf {
    /// The network.
    pub network: String,
    /// The bridge.
    pub bridge: String,
    /// The bridge has the gateway's address.
    pub is_gateway: bool,
    /// Pods use it by default.
    pub is_default_gateway: bool,
    /// Take another address from the bridge.
    pub force_address: bool,
    /// How traffic that leaves the network is masqueraded, if it is.
    pub masquerade: Option<masquerade::Conf>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Frames may leave by the port they came in.
    pub hairpin: bool,
    /// The bridge takes every frame.
    pub promisc: bool,
    /// Untagged VLAN of the port.
    pub vlan: u16,
    /// Tagged VLANs of the port.
    pub vlan_trunk: Vec<VlanRange>,
    /// Keep VLAN 1 on the port.
    pub preserve_default_vlan: bool,
    /// Drop frames with a foreign source address.
    pub mac_spoof_check: bool,
    /// Look for duplicates of IPv6 addresses.
    pub enable_dad: bool,
    /// Leave the pod's interface down.
    pub disable_container_interface: bool,
    /// No traffic between ports.
    pub port_isolation: bool,
    /// Hardware address of the pod's interface.
    pub mac: Option<Mac>,
    /// The IPAM plugin.
    pub ipam: Option<String>,
    /// DNS settings that replace IPAM's.
    pub dns: Dns,
}

impl Conf {
    /// Reads and checks the configuration.
    pub fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        let flag = |name| Ok::<_, CniError>(object.bool(name)?.unwrap_or(false));
        let conf = Conf {
            network: request.network()?,
            bridge: object.text("bridge")?.unwrap_or("cni0").to_owned(),
            is_gateway: flag("isGateway")? || flag("isDefaultGateway")?,
            is_default_gateway: flag("isDefaultGateway")?,
            force_address: flag("forceAddress")?,
            masquerade: masquerade::Conf::parse(&object)?,
            mtu: object.u32("mtu")?.filter(|mtu| *mtu > 0),
            hairpin: flag("hairpinMode")?,
            promisc: flag("promiscMode")?,
            vlan: vlan_id(&object, "vlan", 0)?,
            vlan_trunk: vlan_trunk(&object)?,
            preserve_default_vlan: flag("preserveDefaultVlan")?,
            mac_spoof_check: flag("macspoofchk")?,
            enable_dad: flag("enabledad")?,
            disable_container_interface: flag("disableContainerInterface")?,
            port_isolation: flag("portIsolation")?,
            mac: mac(request, &object)?,
            ipam: delegate::kind(request)?,
            dns: Dns::parse(&object.object("dns")?)?,
        };
        conf.check()?;
        Ok(conf)
    }

    fn check(&self) -> Result<(), CniError> {
        if self.hairpin && self.promisc {
            return Err(CniError::config("cannot set hairpin mode and promiscuous mode at the same time"));
        }
        if self.disable_container_interface && self.ipam.is_some() {
            return Err(CniError::config("cannot use IPAM when DisableContainerInterface flag is set"));
        }
        crate::spec::request::check_ifname(&self.bridge).map_err(|_| {
            CniError::config(format!("field \"bridge\": {:?} is not an interface name", self.bridge))
        })?;
        if let Some(gateway) = self.vlan_gateway() {
            crate::spec::request::check_ifname(&gateway).map_err(|_| {
                CniError::config(format!(
                    "field \"bridge\": {:?} is too long: the gateway of its VLAN would be called {gateway:?}",
                    self.bridge
                ))
            })?;
        }
        Ok(())
    }

    /// The interface that has the gateway's address of a VLAN: of the bridge itself, only the untagged network could.
    pub fn vlan_gateway(&self) -> Option<String> {
        (self.is_gateway && self.vlan > 0).then(|| format!("{}.{}", self.bridge, self.vlan))
    }

    /// Fills gateways and default routes in.
    pub fn complete(&self, result: &mut CniResult) {
        for ip in &mut result.ips {
            if ip.gateway.is_none() && self.is_gateway {
                ip.gateway = Some(first_address(ip.address));
            }
            let v6 = ip.address.addr().is_ipv6();
            if let (true, Some(gw)) = (self.is_default_gateway, ip.gateway) {
                let default = default_route(v6);
                let present = result
                    .routes
                    .iter()
                    .any(|route| route.dst == default && route.gw.is_none_or(|other| other == gw));
                if !present {
                    result.routes.push(RouteConfig { gw: Some(gw), ..RouteConfig::to(default) });
                }
            }
        }
    }
}

/// The first address of a network.
fn first_address(net: IpNet) -> std::net::IpAddr {
    from_number(to_number(net.network()) + 1, net.addr().is_ipv6())
}

/// The hardware address asked for: of the runtime, else of `args`, else of `CNI_ARGS`.
pub fn mac(request: &Request, object: &Object<'_>) -> Result<Option<Mac>, CniError> {
    let expected = "a hardware address";
    if let Some(mac) = object.object("runtimeConfig")?.parsed("mac", expected)? {
        return Ok(Some(mac));
    }
    if let Some(mac) = object.object("args")?.object("cni")?.parsed("mac", expected)? {
        return Ok(Some(mac));
    }
    match request.arg("MAC", &["IP", "GATEWAY"])?.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| CniError::config(format!("CNI_ARGS MAC {text:?} is not a hardware address"))),
    }
}

fn vlan_id(object: &Object<'_>, name: &str, least: i64) -> Result<u16, CniError> {
    let id = object.i64(name)?.unwrap_or(0);
    match u16::try_from(id) {
        Ok(id) if i64::from(id) >= least && id <= 4094 => Ok(id),
        _ => Err(CniError::config(format!(
            "invalid VLAN ID {id} in {} (must be between {least} and 4094)",
            object.at(name)
        ))),
    }
}

fn vlan_trunk(object: &Object<'_>) -> Result<Vec<VlanRange>, CniError> {
    let mut trunk = Vec::new();
    for item in object.objects("vlanTrunk")? {
        let present = |name| item.get(name).is_some();
        let (first, last) = match (present("minID"), present("maxID"), present("id")) {
            (true, true, _) => (vlan_id(&item, "minID", 1)?, vlan_id(&item, "maxID", 1)?),
            (false, false, true) => (vlan_id(&item, "id", 1)?, vlan_id(&item, "id", 1)?),
            _ => return Err(wrong(item.path(), "id, or minID and maxID", &serde_json::Value::Null)),
        };
        if first > last {
            return Err(CniError::config(format!("minID is greater than maxID in {}", item.path())));
        }
        trunk.push(VlanRange { first, last, pvid: false, untagged: false });
    }
    Ok(trunk)
}
