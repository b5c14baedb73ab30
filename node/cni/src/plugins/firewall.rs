//! firewall: lets a pod's traffic through the host's filter, and keeps networks apart when asked.
//!
//! With iptables, chains and rules are the reference plugin's. With nf_tables, which the reference lacks, a table of its
//! own: a rule there cannot overrule another table's drop, but isolation works the same. DEL knows the pod's addresses
//! from the result and, in nf_tables, from the comments.

pub mod iptables;
pub mod nft;

use ipnet::IpNet;
use serde_json::Value;

use super::iptables as tool;
use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request};
use crate::spec::result::CniResult;

/// Who may open connections to a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ingress {
    /// Everybody.
    Open,
    /// Only pods of its bridge, and the outside; not other bridges' pods.
    SameBridge,
    /// Not even pods of its bridge.
    Isolated,
}

/// The configuration, checked.
pub struct Conf {
    /// The network.
    pub network: String,
    /// The container.
    pub container: String,
    /// The interface.
    pub ifname: String,
    /// `iptables` or `nftables`; unnamed is iptables when it works.
    pub backend: Option<String>,
    /// The chain administrators may fill.
    pub admin_chain: String,
    /// Who may open connections.
    pub ingress: Ingress,
    /// The nf_tables table. Ours: lets several instances share a machine.
    pub table: String,
}

impl Conf {
    fn parse(request: &Request) -> Result<Conf, CniError> {
        let object = request.object()?;
        let backend = object.text("backend")?.map(str::to_owned);
        match backend.as_deref() {
            None | Some("iptables" | "nftables") => {}
            Some("firewalld") => {
                return Err(CniError::new(
                    code::UNSUPPORTED_FIELD,
                    "field \"backend\": \"firewalld\" is not supported; use \"iptables\" or \"nftables\"",
                ));
            }
            Some(other) => return Err(CniError::config(format!("unrecognized firewall backend {other:?}"))),
        }
        let ingress = match object.text("ingressPolicy")? {
            None | Some("open") => Ingress::Open,
            Some("same-bridge") => Ingress::SameBridge,
            Some("isolated") => Ingress::Isolated,
            Some(other) => return Err(CniError::config(format!("unknown ingress policy: {other:?}"))),
        };
        Ok(Conf {
            network: request.network()?,
            container: request.container_id.clone(),
            ifname: request.ifname.clone(),
            backend,
            admin_chain: object.text("iptablesAdminChainName")?.unwrap_or("CNI-ADMIN").to_owned(),
            ingress,
            table: object.text("nftTable")?.unwrap_or(nft::TABLE).to_owned(),
        })
    }

    fn by_iptables(&self) -> bool {
        match self.backend.as_deref() {
            Some(name) => name == "iptables",
            None => tool::works(),
        }
    }

    /// The bridge whose pods are kept apart: the first interface of the result.
    fn bridge(&self, result: &CniResult) -> Result<Option<String>, CniError> {
        if self.ingress == Ingress::Open {
            return Ok(None);
        }
        match result.interfaces.first().filter(|interface| !interface.name.is_empty()) {
            Some(interface) => Ok(Some(interface.name.clone())),
            None => Err(CniError::config(
                "interface needs to be set for ingress policy, make sure to chain \"firewall\" plugin with \"bridge\"",
            )),
        }
    }
}

fn addresses(result: &CniResult) -> Vec<IpNet> {
    result.ips.iter().map(|ip| IpNet::from(ip.address.addr())).collect()
}

/// Serves a request.
pub fn run(request: &Request) -> Result<Option<Value>, CniError> {
    let conf = Conf::parse(request)?;
    match request.command {
        Command::Add => {
            let result = request.required_prev_result()?;
            add(&conf, &result)?;
            result.to_value(request.version()?).map(Some)
        }
        Command::Del => {
            let result = request.prev_result()?.unwrap_or_default();
            let nft = nft::del(&conf);
            if conf.table == nft::TABLE {
                iptables::del(&addresses(&result))?;
            }
            nft.map(|()| None)
        }
        Command::Check => {
            let result = request.required_prev_result()?;
            let bridge = conf.bridge(&result)?;
            let ips = addresses(&result);
            if conf.by_iptables() {
                iptables::check(&conf, &ips, bridge.as_deref()).map(|()| None)
            } else {
                nft::check(&conf, &ips, bridge.as_deref()).map(|()| None)
            }
        }
        // Rules of iptables do not tell whose they are: nothing can be judged there.
        Command::Gc => nft::gc(&conf, &request.valid_attachments()?).map(|()| None),
        Command::Status | Command::Version => Ok(None),
    }
}

fn add(conf: &Conf, result: &CniResult) -> Result<(), CniError> {
    let bridge = conf.bridge(result)?;
    let ips = addresses(result);
    if !conf.by_iptables() {
        return nft::add(conf, &ips, bridge.as_deref());
    }
    iptables::add(conf, &ips, bridge.as_deref()).map_err(|error| match iptables::del(&ips) {
        Ok(()) => error,
        Err(undo) => error.details(format!("clean-up failed: {undo}")),
    })
}
