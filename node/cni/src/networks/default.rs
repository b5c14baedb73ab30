//! The network a node gets when nobody configured one: a bridge, addresses of its pod range, host ports.

use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use podwire_linux::nft::{self, Family, Table, Transaction};
use podwire_linux::rtnl::{Batch, LinkRef, Socket};
use serde_json::{Value, json};

use super::Error;
use super::conflist::is_empty;
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
    /// The largest packet of the pods' interfaces.
    pub mtu: Option<u32>,
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
        let portmap = json!({
            "type": "portmap",
            "backend": "nftables",
            "nftTable": self.ports_table(),
            "capabilities": { "portMappings": true },
        });
        json!({ "cniVersion": "1.1.0", "name": self.name, "plugins": [bridge, portmap] })
    }
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::State { attempt, path, source }
}

/// Writes the default network into a folder without any configuration; tells whether it did.
pub fn write_default_conflist(conf_dir: &Path, network: &DefaultNetwork) -> Result<bool, Error> {
    std::fs::create_dir_all(conf_dir).map_err(failed("create", conf_dir))?;
    if !is_empty(conf_dir) {
        return Ok(false);
    }
    let path = conf_dir.join("10-podwire.conflist");
    let aside = conf_dir.join(".10-podwire.new");
    std::fs::write(&aside, crate::plugins::main::pretty(&network.conflist()))
        .map_err(failed("write", &aside))?;
    std::fs::rename(&aside, &path).map_err(failed("write", &path))?;
    Ok(true)
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
