//! host-local: addresses of this node's own ranges, kept in files.
//!
//! Configuration, files and messages are the reference plugin's; GC and STATUS are answered, which it does not.

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::Value;

use crate::ipam::owners::Owner;
use crate::ipam::ranges::{Range, RangeSet};
use crate::ipam::store::{EXHAUSTED, Store};
use crate::spec::error::{CniError, code};
use crate::spec::json::Object;
use crate::spec::request::{Command, Request};
use crate::spec::result::{CniResult, Dns, IpConfig, RouteConfig};
use crate::spec::version::Version;

/// Where reservations are when nobody says otherwise.
pub const DATA_DIR: &str = "/var/lib/cni/networks";

/// The configuration, checked.
#[derive(Debug)]
pub struct Conf {
    /// The network.
    pub network: String,
    /// One address is taken from each.
    pub sets: Vec<RangeSet>,
    /// Routes handed on.
    pub routes: Vec<RouteConfig>,
    /// Where reservations are.
    pub data_dir: PathBuf,
    /// A file DNS settings are read from.
    pub resolv_conf: Option<PathBuf>,
    /// Addresses asked for.
    pub requested: Vec<IpAddr>,
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    let owner = Owner { container: request.container_id.clone(), ifname: request.ifname.clone() };
    match request.command {
        Command::Add => add(&conf, &owner)?.to_value(request.version()?).map(Some),
        Command::Del => {
            Store::open(&conf.data_dir, &conf.network)?.release(&owner, &conf.sets)?;
            Ok(None)
        }
        Command::Check => check(&conf, &owner, request.prev_result()?.as_ref()).map(|()| None),
        Command::Gc => {
            let keep = request.valid_attachments()?;
            let wanted = |owner: &Owner| {
                keep.iter().any(|(id, name)| {
                    *id == owner.container && (owner.ifname.is_empty() || *name == owner.ifname)
                })
            };
            for (ip, owner) in Store::open(&conf.data_dir, &conf.network)?.sweep(wanted)? {
                tracing::info!(%ip, owner = ?owner, network = conf.network, "released a reservation nobody uses");
            }
            Ok(None)
        }
        Command::Status => status(&conf).map(|()| None),
        Command::Version => Ok(None),
    }
}

fn add(conf: &Conf, owner: &Owner) -> Result<CniResult, CniError> {
    let mut result = CniResult { routes: conf.routes.clone(), ..CniResult::default() };
    if let Some(path) = &conf.resolv_conf {
        result.dns = read_resolv_conf(path)?;
    }
    let wanted = place_requests(&conf.sets, &conf.requested)?;
    let store = Store::open(&conf.data_dir, &conf.network)?;
    let addresses = store.reserve(owner, &conf.sets, &wanted)?;
    store.unlock();
    for (set, ip) in conf.sets.iter().zip(addresses) {
        let range = set.range_of(ip).expect("the store reserves within the set");
        let address =
            ipnet::IpNet::new(ip, range.subnet.prefix_len()).expect("a subnet's prefix fits its family");
        result.ips.push(IpConfig { interface: None, address, gateway: Some(range.gateway) });
    }
    Ok(result)
}

/// Gives every requested address its set.
fn place_requests(sets: &[RangeSet], requested: &[IpAddr]) -> Result<Vec<Option<IpAddr>>, CniError> {
    let mut wanted = vec![None; sets.len()];
    let mut unplaced = Vec::new();
    for ip in requested {
        let free =
            sets.iter().enumerate().find(|(at, set)| wanted[*at].is_none() && set.range_of(*ip).is_some());
        match free {
            Some((at, _)) => wanted[at] = Some(*ip),
            None => unplaced.push(ip.to_string()),
        }
    }
    if unplaced.is_empty() {
        Ok(wanted)
    } else {
        Err(CniError::internal(format!("failed to allocate all requested IPs: {}", unplaced.join(","))))
    }
}

fn check(conf: &Conf, owner: &Owner, prev: Option<&CniResult>) -> Result<(), CniError> {
    // Looking at a folder does not make it.
    let held = if conf.data_dir.join(&conf.network).is_dir() {
        Store::open(&conf.data_dir, &conf.network)?.owned(owner, &conf.sets)?
    } else {
        Vec::new()
    };
    if held.is_empty() {
        return Err(CniError::internal(format!(
            "host-local: Failed to find address added by container {}",
            owner.container
        )));
    }
    let in_ranges = |ip: IpAddr| conf.sets.iter().any(|set| set.range_of(ip).is_some());
    let lost = prev
        .into_iter()
        .flat_map(|prev| &prev.ips)
        .map(|ip| ip.address.addr())
        .find(|ip| in_ranges(*ip) && !held.contains(ip));
    match lost {
        None => Ok(()),
        Some(ip) => Err(CniError::internal(format!(
            "host-local: {ip} is no longer reserved for container {}",
            owner.container
        ))),
    }
}

fn status(conf: &Conf) -> Result<(), CniError> {
    let store = Store::open(&conf.data_dir, &conf.network)
        .map_err(|error| CniError { code: code::UNAVAILABLE, ..error })?;
    for set in &conf.sets {
        if !store.has_room(set)? {
            let size: u128 = set.0.iter().map(Range::size).sum();
            return Err(CniError::new(
                code::UNAVAILABLE,
                format!("{EXHAUSTED}: {set} ({} of {size} in use)", store.in_use(set)?),
            ));
        }
    }
    Ok(())
}

impl Conf {
    /// Reads and checks the configuration.
    pub fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        if object.get("ipam").is_none() {
            return Err(CniError::config("IPAM config missing 'ipam' key"));
        }
        let ipam = object.object("ipam")?;
        let runtime = object.object("runtimeConfig")?;
        let mut sets = Vec::new();
        for (path, list) in runtime.list("ipRanges")? {
            sets.push(read_set(list, &path)?);
        }
        if ipam.text("subnet")?.is_some() {
            sets.push(RangeSet(vec![Range::parse(&ipam)?]));
        }
        for (path, list) in ipam.list("ranges")? {
            sets.push(read_set(list, &path)?);
        }
        check_sets(&sets, request.version()?)?;
        let mut routes = Vec::new();
        for route in ipam.objects("routes")? {
            routes.push(RouteConfig::parse(&route)?);
        }
        Ok(Conf {
            network: request.network()?,
            sets,
            routes,
            data_dir: data_dir(&ipam)?,
            resolv_conf: ipam.text("resolvConf")?.map(PathBuf::from),
            requested: requested(request, &object, &runtime)?,
        })
    }
}

/// A relative path would lie wherever the caller of the plugin happens to be.
fn data_dir(ipam: &Object<'_>) -> Result<PathBuf, CniError> {
    let path = PathBuf::from(ipam.text("dataDir")?.unwrap_or(DATA_DIR));
    if path.is_absolute() {
        return Ok(path);
    }
    Err(CniError::config(format!("{}: {path:?} is not an absolute path", ipam.at("dataDir"))))
}

fn requested(request: &Request, object: &Object<'_>, runtime: &Object<'_>) -> Result<Vec<IpAddr>, CniError> {
    let mut texts = Vec::new();
    if let Some(ip) = request.arg("IP", &["MAC", "GATEWAY"])? {
        texts.push(ip);
    }
    texts.extend(object.object("args")?.object("cni")?.strings("ips")?);
    texts.extend(runtime.strings("ips")?);
    let bad = |text: &str| CniError::config(format!("requested IP {text:?} is not an address"));
    texts
        .iter()
        .map(|text| text.split('/').next().unwrap_or_default().parse().map_err(|_| bad(text)))
        .collect()
}

fn read_set(value: &Value, path: &str) -> Result<RangeSet, CniError> {
    let Value::Array(items) = value else {
        return Err(crate::spec::json::wrong(path, "a list of ranges", value));
    };
    let ranges =
        items.iter().enumerate().map(|(at, item)| Range::parse(&Object::of(item, &format!("{path}[{at}]"))?));
    Ok(RangeSet(ranges.collect::<Result<_, _>>()?))
}

fn check_sets(sets: &[RangeSet], version: Version) -> Result<(), CniError> {
    if sets.is_empty() {
        return Err(CniError::config("no IP ranges specified"));
    }
    for (at, set) in sets.iter().enumerate() {
        set.check().map_err(|error| error.context(&format!("invalid range set {at}")))?;
        if let Some(other) = sets[..at].iter().position(|other| other.overlaps(set)) {
            return Err(CniError::config(format!("range set {other} overlaps with {at}")));
        }
    }
    let v6 = sets.iter().filter(|set| set.is_ipv6()).count();
    if (v6 > 1 || sets.len() - v6 > 1) && version < Version::V0_3 {
        return Err(CniError::config(format!(
            "CNI version {version} does not support more than 1 address per family"
        )));
    }
    Ok(())
}

fn read_resolv_conf(path: &std::path::Path) -> Result<Dns, CniError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CniError::new(code::IO, format!("read resolvConf {}: {error}", path.display())))?;
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.nameservers.extend(words.next().map(str::to_owned)),
            Some("domain") => words.next().unwrap_or_default().clone_into(&mut dns.domain),
            Some("search") => dns.search.extend(words.map(str::to_owned)),
            Some("options") => dns.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    Ok(dns)
}
