//! static: the addresses the configuration names.

use std::net::IpAddr;

use serde_json::Value;

use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Dns, IpConfig, RouteConfig, parse_net};
use crate::spec::version::Version;

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let result = parse(request)?;
    match request.command {
        Command::Add => result.to_value(request.version()?).map(Some),
        Command::Check => check(&result, &request.required_prev_result()?).map(|()| None),
        // It keeps no state and runs out of nothing.
        Command::Del | Command::Gc | Command::Status | Command::Version => Ok(None),
    }
}

fn check(wanted: &CniResult, prev: &CniResult) -> Result<(), CniError> {
    for ip in &wanted.ips {
        let found = prev.ips.iter().find(|found| found.address.addr() == ip.address.addr());
        match found {
            Some(found) if ip.gateway.is_none() || ip.gateway == found.gateway => {}
            Some(_) => {
                return Err(CniError::internal(format!(
                    "static: the gateway of {} differs from the result's",
                    ip.address
                )));
            }
            None => return Err(CniError::internal(format!("static: {} is not in the result", ip.address))),
        }
    }
    Ok(())
}

fn net(text: &str, field: &str) -> Result<ipnet::IpNet, CniError> {
    parse_net(text.trim()).ok_or_else(|| {
        CniError::config(format!("the '{field}' field is expected to be in CIDR notation, got: '{text}'"))
    })
}

fn parse(request: &Request) -> Result<CniResult, CniError> {
    let object = request.object()?;
    if object.get("ipam").is_none() {
        return Err(CniError::config("IPAM config missing 'ipam' key"));
    }
    let ipam = object.object("ipam")?;
    let plain = |address| IpConfig { interface: None, address, gateway: None };
    let mut ips = Vec::new();
    for item in ipam.objects("addresses")? {
        let address = net(item.str("address")?.unwrap_or_default(), "address")?;
        ips.push(IpConfig { gateway: item.parsed("gateway", "an address")?, ..plain(address) });
    }
    if let Some(list) = request.arg("IP", &["GATEWAY", "MAC"])? {
        for text in list.split(',').filter(|text| !text.trim().is_empty()) {
            ips.push(plain(net(text, "ip")?));
        }
    }
    for text in
        request.arg("GATEWAY", &["IP", "MAC"])?.unwrap_or_default().split(',').filter(|text| !text.is_empty())
    {
        let gateway: IpAddr =
            text.trim().parse().map_err(|_| CniError::config(format!("invalid gateway address: {text}")))?;
        for ip in ips.iter_mut().filter(|ip| ip.address.contains(&gateway)) {
            ip.gateway = Some(gateway);
        }
    }
    for asked in [
        object.object("args")?.object("cni")?.strings("ips")?,
        object.object("runtimeConfig")?.strings("ips")?,
    ] {
        if !asked.is_empty() {
            ips = asked.iter().map(|text| net(text, "ips").map(plain)).collect::<Result<_, _>>()?;
        }
    }
    let v6 = ips.iter().filter(|ip| ip.address.addr().is_ipv6()).count();
    let version = request.version()?;
    if (v6 > 1 || ips.len() - v6 > 1) && version < Version::V0_3 {
        return Err(CniError::config(format!(
            "CNI version {version} does not support more than 1 address per family"
        )));
    }
    let mut routes = Vec::new();
    for route in ipam.objects("routes")? {
        routes.push(RouteConfig::parse(&route)?);
    }
    Ok(CniResult { interfaces: Vec::new(), ips, routes, dns: Dns::parse(&ipam.object("dns")?)? })
}
