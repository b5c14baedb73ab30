//! tuning: settings of the pod's kernel and of its interface.
//!
//! What the interface was like is kept in a file and restored by DEL; settings of the namespace die with it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use podwire_linux::netns::Netns;
use podwire_linux::rtnl::link::{IFF_ALLMULTI, IFF_PROMISC};
use podwire_linux::rtnl::{Batch, Link, LinkChange, LinkRef, Mac, Socket};
use podwire_linux::sysctl;
use serde_json::{Map, Value, json};

use crate::spec::error::{CniError, code};
use crate::spec::json::Object;
use crate::spec::request::{Command, Request};

const DATA_DIR: &str = "/run/cni/tuning";
const ALLOWLIST: &str = "/etc/cni/tuning/allowlist.conf";

struct Conf {
    data_dir: PathBuf,
    /// Settings by their path below /proc/sys.
    sysctls: BTreeMap<String, String>,
    wanted: Wanted,
}

/// What the interface is to be like.
#[derive(Default, Clone, Copy)]
struct Wanted {
    mac: Option<Mac>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    tx_queue: Option<u32>,
}

impl Wanted {
    fn parse(object: &Object<'_>) -> Result<Wanted, CniError> {
        Ok(Wanted {
            mac: object.parsed("mac", "a hardware address")?,
            promisc: object.bool("promisc")?,
            mtu: object.u32("mtu")?.filter(|mtu| *mtu > 0),
            allmulti: object.bool("allmulti")?,
            tx_queue: object.u32("txQLen")?,
        })
    }

    fn or(self, other: Wanted) -> Wanted {
        Wanted {
            mac: self.mac.or(other.mac),
            promisc: self.promisc.or(other.promisc),
            mtu: self.mtu.or(other.mtu),
            allmulti: self.allmulti.or(other.allmulti),
            tx_queue: self.tx_queue.or(other.tx_queue),
        }
    }

    fn is_empty(self) -> bool {
        self.mac.is_none()
            && self.promisc.is_none()
            && self.mtu.is_none()
            && self.allmulti.is_none()
            && self.tx_queue.is_none()
    }

    fn change(self) -> LinkChange<'static> {
        LinkChange {
            mac: self.mac,
            promisc: self.promisc,
            mtu: self.mtu,
            allmulti: self.allmulti,
            tx_queue: self.tx_queue,
            ..LinkChange::default()
        }
    }

    /// The same fields as the link has them now.
    fn as_found(self, link: &Link) -> Wanted {
        Wanted {
            mac: self.mac.and(link.mac),
            promisc: self.promisc.map(|_| link.flags & IFF_PROMISC != 0),
            mtu: self.mtu.map(|_| link.mtu),
            allmulti: self.allmulti.map(|_| link.flags & IFF_ALLMULTI != 0),
            tx_queue: self.tx_queue.map(|_| link.tx_queue),
        }
    }

    fn to_value(self) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        put("mac", self.mac.map(|mac| json!(mac.to_string())));
        put("promisc", self.promisc.map(|on| json!(on)));
        put("mtu", self.mtu.map(|mtu| json!(mtu)));
        put("allmulti", self.allmulti.map(|on| json!(on)));
        put("txQLen", self.tx_queue.map(|length| json!(length)));
        Value::Object(map)
    }
}

impl Conf {
    fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        let args = object.object("args")?.object("cni")?;
        let runtime = object.object("runtimeConfig")?;
        let mut own = Wanted::parse(&object)?;
        if own.promisc == Some(false) {
            // The reference plugin cannot tell "off" from "not said".
            own.promisc = None;
        }
        let from_env = request.arg("MAC", &["IP", "GATEWAY"])?.filter(|text| !text.is_empty());
        let from_env = from_env
            .map(|text| {
                text.parse().map_err(|_| CniError::config(format!("invalid args {text} for MAC addr")))
            })
            .transpose()?;
        own.mac = runtime.parsed("mac", "a hardware address")?.or(from_env).or(own.mac);
        let mut sysctls = BTreeMap::new();
        for source in [object.object("sysctl")?, args.object("sysctl")?] {
            for (key, value) in source.entries() {
                let Some(text) = value.as_str() else {
                    return Err(crate::spec::json::wrong(&source.at(key), "a string", value));
                };
                sysctls.insert(path_of(key, &request.ifname)?, text.to_owned());
            }
        }
        Ok(Conf {
            data_dir: PathBuf::from(object.text("dataDir")?.unwrap_or(DATA_DIR)),
            sysctls,
            wanted: Wanted::parse(&args)?.or(own),
        })
    }

    fn backup(&self, container: &str, ifname: &str) -> PathBuf {
        self.data_dir.join(format!("{container}_{ifname}.json"))
    }
}

/// The path of a setting: dots or slashes separate, `IFNAME` stands for the interface, only `net` may be touched.
fn path_of(key: &str, ifname: &str) -> Result<String, CniError> {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    let path = path.replacen("IFNAME", ifname, 1);
    let plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if plain && path.starts_with("net/") {
        return Ok(path);
    }
    Err(CniError::config(format!("invalid net sysctl key: {key:?}")))
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => {
            check_allowed(&conf, Path::new(ALLOWLIST), &request.ifname)?;
            let mut result = request.required_prev_result()?;
            let netns = Netns::open(Path::new(&request.netns))?;
            netns.run(|| apply(&conf, request))??;
            if let Some(mac) = conf.wanted.mac {
                for interface in
                    result.interfaces.iter_mut().filter(|interface| interface.name == request.ifname)
                {
                    interface.mac = mac.to_string();
                }
            }
            result.to_value(request.version()?).map(Some)
        }
        Command::Del => del(&conf, request).map(|()| None),
        Command::Check => {
            request.required_prev_result()?;
            let netns = Netns::open(Path::new(&request.netns))?;
            netns.run(|| check(&conf, &request.ifname))??;
            Ok(None)
        }
        Command::Gc => gc(&conf, &request.valid_attachments()?).map(|()| None),
        Command::Status | Command::Version => Ok(None),
    }
}

fn check_allowed(conf: &Conf, allowlist: &Path, ifname: &str) -> Result<(), CniError> {
    let Ok(text) = std::fs::read_to_string(allowlist) else { return Ok(()) };
    let patterns: Vec<regex_lite::Regex> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter_map(|line| regex_lite::Regex::new(line).ok())
        .collect();
    for path in conf.sysctls.keys() {
        let key = path.replace(&format!("/{ifname}/"), "/IFNAME/").replace('/', ".");
        if !patterns.iter().any(|pattern| pattern.is_match(&key)) {
            return Err(CniError::config(format!(
                "sysctl {key} is not allowed. The following are allowed: {text:?}"
            )));
        }
    }
    Ok(())
}

fn link_of(socket: &mut Socket, ifname: &str) -> Result<Link, CniError> {
    let found = socket.link(LinkRef::Name(ifname))?;
    found.ok_or_else(|| CniError::internal(format!("failed to get {ifname:?}: Link not found")))
}

fn apply(conf: &Conf, request: &Request) -> Result<(), CniError> {
    for (key, value) in &conf.sysctls {
        sysctl::write(key, value)?;
    }
    if conf.wanted.is_empty() {
        return Ok(());
    }
    let mut socket = Socket::route()?;
    let link = link_of(&mut socket, &request.ifname)?;
    let path = conf.backup(&request.container_id, &request.ifname);
    write_backup(&path, &conf.wanted.as_found(&link))?;
    let mut batch = Batch::new();
    batch.set_link(LinkRef::Index(link.index), &conf.wanted.change());
    socket.exchange(&mut batch)?;
    Ok(())
}

fn write_backup(path: &Path, before: &Wanted) -> Result<(), CniError> {
    use std::io::Write;
    let failed = |error: io::Error| {
        CniError::new(code::IO, format!("keep the interface's settings in {}: {error}", path.display()))
    };
    let dir = path.parent().expect("a file in a folder");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(before.to_value().to_string().as_bytes())).map_err(failed)
}

fn del(conf: &Conf, request: &Request) -> Result<(), CniError> {
    let path = conf.backup(&request.container_id, &request.ifname);
    let before = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let before = before.as_ref().and_then(|value| Wanted::parse(&Object::of(value, "backup").ok()?).ok());
    let netns = request.netns_path().and_then(|path| Netns::open(path).ok());
    if let (Some(before), Some(netns)) = (before, netns) {
        let restored = netns.run(|| {
            let mut batch = Batch::new();
            batch.set_link(LinkRef::Name(&request.ifname), &before.change());
            Socket::route()?.exchange(&mut batch)
        });
        match restored {
            Ok(Err(error)) if !error.is_absent() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    remove(&path)
}

fn remove(path: &Path) -> Result<(), CniError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CniError::new(code::IO, format!("remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

fn check(conf: &Conf, ifname: &str) -> Result<(), CniError> {
    for (key, value) in &conf.sysctls {
        let found = sysctl::read(key)?;
        let same = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if same(&found) != same(value) {
            return Err(CniError::internal(format!(
                "Error: Tuning configured sysctl value of {value} for {key} is {found}"
            )));
        }
    }
    let link = link_of(&mut Socket::route()?, ifname)?;
    let found = conf.wanted.as_found(&link);
    let (wanted, found) = (conf.wanted.to_value(), found.to_value());
    let off = wanted.as_object().into_iter().flatten().find(|(key, value)| found.get(*key) != Some(value));
    match off {
        None => Ok(()),
        Some((key, value)) => Err(CniError::internal(format!(
            "Error: Tuning configured {key} of {ifname} is {value}, current value is {}",
            found.get(key).unwrap_or(&Value::Null)
        ))),
    }
}

/// Backups do not tell their network: only those whose container is wanted nowhere and whose boot is over are stale, which
/// a file in a folder emptied at boot never is; so GC removes those of containers that are not kept and are ours to judge.
fn gc(conf: &Conf, keep: &[(String, String)]) -> Result<(), CniError> {
    if conf.data_dir == Path::new(DATA_DIR) {
        return Ok(());
    }
    let kept: Vec<String> = keep.iter().map(|(id, ifname)| format!("{id}_{ifname}.json")).collect();
    for entry in std::fs::read_dir(&conf.data_dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && !kept.contains(&name) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
