//! The network a node gets when nobody configured one: a bridge, addresses of its pod range, host ports.

use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use podwire_linux::nft::{self, Family, Table, Transaction};
use podwire_linux::rtnl::{Batch, LinkRef, Socket};
use serde_json::{Value, json};

use super::Error;
use super::conflist::is_empty;
use crate::plugins::iptables::{Iptables, Saved, Script};
use crate::spec::error::CniError;

/// What the network is called and where its things are. Every name that others could share comes from here.
#[derive(Debug, Clone)]
pub struct DefaultNetwork {
    /// The network's name.
    pub name: String,
    /// The bridge.
    pub bridge: String,
    /// The node's pod ranges, one address is taken from each.
    pub subnets: Vec<IpNet>,
    /// Where reservations are kept.
    pub data_dir: PathBuf,
    /// What the names of our nf_tables tables begin with.
    pub nft_prefix: String,
    /// The largest packet of the pods' interfaces; what the way out of the node takes, if nothing is said.
    pub mtu: Option<u32>,
    /// The pod ranges of the whole cluster: there a pod keeps its own address.
    pub cluster: Vec<IpNet>,
}

impl DefaultNetwork {
    fn masquerade_table(&self) -> String {
        format!("{}_masquerade", self.nft_prefix)
    }

    fn ports_table(&self) -> String {
        format!("{}_hostport", self.nft_prefix)
    }

    fn conflist(&self) -> Value {
        let ranges: Vec<Value> =
            self.subnets.iter().map(|net| json!([{ "subnet": net.trunc().to_string() }])).collect();
        let has = |v6: bool| self.subnets.iter().any(|net| net.addr().is_ipv6() == v6);
        let mut routes = Vec::new();
        if has(false) {
            routes.push(json!({ "dst": "0.0.0.0/0" }));
        }
        if has(true) {
            routes.push(json!({ "dst": "::/0" }));
        }
        let mut bridge = json!({
            "type": "bridge",
            "bridge": self.bridge,
            "isGateway": true,
            "ipMasq": true,
            "ipMasqBackend": "nftables",
            "ipMasqTable": self.masquerade_table(),
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": ranges,
                "routes": routes,
                "dataDir": self.data_dir.display().to_string(),
            },
        });
        if let Some(mtu) = self.mtu {
            bridge["mtu"] = json!(mtu);
        }
        if !self.cluster.is_empty() {
            bridge["ipMasqExcept"] = self.cluster.iter().map(|net| json!(net.trunc().to_string())).collect();
        }
        let portmap = json!({
            "type": "portmap",
            "backend": "nftables",
            "nftTable": self.ports_table(),
            "capabilities": { "portMappings": true },
        });
        let bandwidth = json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } });
        json!({ "cniVersion": "1.1.0", "name": self.name, "plugins": [bridge, portmap, bandwidth] })
    }
}

/// The largest packet that leaves the node unbroken: that of the link of the default route; `None` without one.
pub fn uplink_mtu() -> Option<u32> {
    // Ignored: without an answer the kernel's own default is used, as before.
    let mut socket = Socket::route().ok()?;
    let mut routes = socket.routes(None, false).unwrap_or_default();
    routes.extend(socket.routes(None, true).unwrap_or_default());
    let out = routes.iter().filter(|route| route.destination.prefix_len() == 0);
    let index = out.min_by_key(|route| route.priority.unwrap_or(0))?.link;
    socket.link(LinkRef::Index(index)).ok()?.map(|link| link.mtu)
}

/// Whether a configuration is one that an earlier start or version of ours wrote and nobody has changed since: it differs
/// from today's only in what depends on the node's links, and in plugins that came later.
fn is_ours(found: &Value, today: &Value) -> bool {
    let plain = |conflist: &Value| {
        let mut conflist = conflist.clone();
        if let Some(plugins) = conflist["plugins"].as_array_mut() {
            plugins.retain(|plugin| plugin["type"] != "bandwidth");
            for plugin in plugins.iter_mut().filter_map(Value::as_object_mut) {
                plugin.remove("mtu");
                plugin.remove("ipMasqExcept");
            }
        }
        conflist
    };
    plain(found) == plain(today)
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::State { attempt, path, source }
}

/// Writes the default network into a folder without any configuration, or in place of what an earlier start wrote there;
/// tells whether it did.
pub fn write_default_conflist(conf_dir: &Path, network: &DefaultNetwork) -> Result<bool, Error> {
    std::fs::create_dir_all(conf_dir).map_err(failed("create", conf_dir))?;
    let path = conf_dir.join("10-podwire.conflist");
    let today = network.conflist();
    let known = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let outdated = known.is_some_and(|found| found != today && is_ours(&found, &today));
    if !is_empty(conf_dir) && !outdated {
        return Ok(false);
    }
    let aside = conf_dir.join(".10-podwire.new");
    std::fs::write(&aside, crate::plugins::main::pretty(&today)).map_err(failed("write", &aside))?;
    std::fs::rename(&aside, &path).map_err(failed("write", &path))?;
    Ok(true)
}

/// What lets a bridge's traffic pass a chain that drops what it does not know, as Docker's and ufw's FORWARD do: all that
/// the pods send, and to them the answers and what a host port leads there.
fn forward_rules(bridge: &str) -> [String; 2] {
    [
        format!("-i {bridge} -j ACCEPT"),
        format!("-o {bridge} -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"),
    ]
}

/// Lets the network's traffic pass the host's iptables. A host without iptables, or with an empty one, has nobody who
/// drops it; Docker or ufw may come later, so this is called again now and then. Where there is a table it runs a program
/// or two per family: not on a pod's path.
pub fn open_forwarding(network: &DefaultNetwork) -> Result<(), Error> {
    change_forwarding(network, |saved, script| {
        for rule in forward_rules(&network.bridge).iter().rev() {
            if saved.deletions("FORWARD", |found| same_rule(found, rule)).is_empty() {
                script.line(&format!("-I FORWARD 1 {rule}"));
            }
        }
    })
}

/// Takes back what [`open_forwarding`] did.
fn close_forwarding(network: &DefaultNetwork) -> Result<(), Error> {
    change_forwarding(network, |saved, script| {
        for rule in forward_rules(&network.bridge) {
            for line in saved.deletions("FORWARD", |found| same_rule(found, &rule)) {
                script.line(&line);
            }
        }
    })
}

/// iptables prints the states of conntrack in an order of its own.
fn same_rule(found: &str, wanted: &str) -> bool {
    let words = |rule: &str| {
        let mut words: Vec<String> = rule.split([' ', ',']).map(str::to_owned).collect();
        words.sort();
        words
    };
    words(found) == words(wanted)
}

fn change_forwarding(network: &DefaultNetwork, plan: impl Fn(&Saved, &mut Script)) -> Result<(), Error> {
    let refused = |error: CniError| Error::Plugin { plugin: network.name.clone(), command: "forward", error };
    for tool in [false, true].into_iter().filter_map(Iptables::find) {
        // Who drops what it does not know has made the table; we leave none behind.
        if !tool.has_table("filter").map_err(refused)? {
            continue;
        }
        let saved = tool.save("filter").map_err(refused)?;
        let mut script = Script::new("filter");
        plan(&saved, &mut script);
        tool.restore(&script).map_err(refused)?;
    }
    Ok(())
}

/// Removes what the default network leaves on the node once all pods are gone: bridge, tables, reservations' folder.
pub fn remove_default_network(network: &DefaultNetwork) -> Result<(), Error> {
    let refused = |error: podwire_linux::rtnl::Error| Error::Plugin {
        plugin: network.name.clone(),
        command: "remove",
        error: CniError::from(error),
    };
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Name(&network.bridge));
    match Socket::route().and_then(|mut socket| socket.exchange(&mut batch)) {
        Err(error) if !error.is_absent() => return Err(refused(error)),
        _ => {}
    }
    close_forwarding(network)?;
    let (masquerade, ports) = (network.masquerade_table(), network.ports_table());
    let mut socket = nft::netfilter().map_err(refused)?;
    for (family, name) in [(Family::Inet, &masquerade), (Family::Ip, &ports), (Family::Ip6, &ports)] {
        let mut tx = Transaction::new();
        tx.delete_table(Table { family, name });
        match tx.commit(&mut socket) {
            Err(error) if !error.is_absent() => return Err(refused(error)),
            _ => {}
        }
    }
    for dir in
        [network.data_dir.join(&network.name), network.data_dir.join(".podwire-ipam").join(&network.name)]
    {
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &dir)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> DefaultNetwork {
        DefaultNetwork {
            name: "net".into(),
            bridge: "br0".into(),
            subnets: vec!["10.1.0.0/24".parse().unwrap()],
            data_dir: "/data".into(),
            nft_prefix: "net".into(),
            mtu: None,
            cluster: Vec::new(),
        }
    }

    #[test]
    fn what_an_earlier_version_wrote_is_renewed_and_what_a_person_changed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("10-podwire.conflist");
        let mut old = network().conflist();
        old["plugins"].as_array_mut().unwrap().pop();
        std::fs::write(&path, old.to_string()).unwrap();
        let today = DefaultNetwork { mtu: Some(1420), ..network() };
        assert!(write_default_conflist(dir.path(), &today).unwrap());
        let read = || serde_json::from_slice::<Value>(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read()["plugins"][0]["mtu"], 1420);
        assert_eq!(read()["plugins"][2]["capabilities"]["bandwidth"], true);
        assert!(!write_default_conflist(dir.path(), &today).unwrap(), "already as it should be");
        let mut changed = read();
        changed["plugins"][0]["hairpinMode"] = json!(false);
        std::fs::write(&path, changed.to_string()).unwrap();
        assert!(!write_default_conflist(dir.path(), &network()).unwrap());
        assert_eq!(read(), changed);
    }

    #[test]
    fn a_rule_is_known_again_as_iptables_prints_it() {
        let [from, to] = forward_rules("br0");
        assert!(same_rule("-i br0 -j ACCEPT", &from) && !same_rule("-i br01 -j ACCEPT", &from));
        assert!(same_rule("-o br0 -m conntrack --ctstate DNAT,RELATED,ESTABLISHED -j ACCEPT", &to));
        assert!(!same_rule("-o br0 -j ACCEPT", &to));
    }
}
