//! Where a request is passed on to: the pod, the service's endpoint or the node that its name means.
//!
//! Names are `name`, `name:port` and `scheme:name:port`. Only addresses of the cluster are allowed: nobody gets from
//! here to the loopback interface of this machine, nor to what is on its own link (metadata services of clouds).

use std::net::{IpAddr, SocketAddr};

use http::StatusCode;
use serde_json::Value;

use crate::endpoints;
use crate::handler::create::random_number;
use crate::handler::{Call, proxy};
use crate::status::{ApiError, Result};

/// Where a request is passed on to.
#[derive(Debug, PartialEq)]
pub(super) struct Location {
    /// The backend as URLs name it.
    pub(super) host: String,
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
}

/// How a backend is spoken to.
#[derive(Debug, PartialEq)]
pub(super) enum Transport {
    /// Without TLS.
    Plain,
    /// With TLS; a pod's certificate has no name that could be checked.
    Unverified,
    /// As the kubelet of a node is, by its name and with our own certificate.
    Kubelet(String),
}

/// A name taken apart.
#[derive(Debug, PartialEq)]
struct Id<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Id<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let known = matches!(scheme, "" | "http" | "https");
        (known && !name.is_empty()).then_some(Self { https: scheme == "https", name, port })
    }

    fn transport(&self) -> Transport {
        if self.https { Transport::Unverified } else { Transport::Plain }
    }

    /// A place at an address, at the port that is asked for or else at `port`, or at the one of the scheme.
    fn at(&self, ip: IpAddr, port: Option<u16>) -> Result<Location> {
        let bare = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        let port = match self.port {
            "" => port,
            text => Some(number(text)?),
        };
        let host = port.map_or(bare.clone(), |port| format!("{bare}:{port}"));
        let port = port.unwrap_or(if self.https { 443 } else { 80 });
        Ok(Location { host, address: SocketAddr::new(ip, port), transport: self.transport() })
    }
}

fn number(text: &str) -> Result<u16> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::bad_request(format!("invalid port {text:?}: it must be a number")));
    }
    text.parse().map_err(|_| super::unreachable(&format!("dial tcp: address {text}: invalid port")))
}

/// Finds the place that a call means.
pub(super) async fn find(call: &Call) -> Result<Location> {
    let what: &str = &call.kind.singular;
    let id = Id::parse(call.name())
        .ok_or_else(|| ApiError::bad_request(format!("invalid {what} request {:?}", call.name())))?;
    match what {
        "pod" => pod(call, &id).await,
        "service" => service(call, &id).await,
        _ => node(call, &id).await,
    }
}

async fn pod(call: &Call, id: &Id<'_>) -> Result<Location> {
    let pod = call.context.object(&call.kind, call.namespace(), id.name).await?;
    let status = &pod["status"];
    let text = status["podIPs"][0]["ip"].as_str().or_else(|| status["podIP"].as_str()).unwrap_or_default();
    let ip = text.parse().ok().filter(is_allowed).ok_or_else(not_allowed)?;
    id.at(ip, first_port(&pod))
}

/// The first port that any container of a pod declares.
fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod["spec"]["containers"].as_array()?.iter();
    let port =
        containers.map(|container| &container["ports"][0]["containerPort"]).find(|port| !port.is_null());
    port?.as_u64()?.try_into().ok()
}

async fn service(call: &Call, id: &Id<'_>) -> Result<Location> {
    let (context, namespace) = (&call.context, call.namespace());
    let mut port = id.port.to_owned();
    if let Ok(wanted) = id.port.parse::<i64>() {
        let service = context.object(&call.kind, namespace, id.name).await?;
        let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(found) = ports.iter().find(|one| one["port"] == wanted) else {
            let words = format!("no service port {wanted} found for service {:?}", id.name);
            return Err(ApiError::unavailable(words));
        };
        port = found["name"].as_str().unwrap_or_default().to_owned();
    }
    let none = |name: &str| ApiError::unavailable(format!("no endpoints available for service {name:?}"));
    let mut behind = match endpoints::pods_behind(context, namespace, id.name, &port).await? {
        endpoints::Behind::Unknown => return Err(ApiError::not_found(&call.kind, id.name)),
        endpoints::Behind::Nobody => return Err(none(id.name)),
        endpoints::Behind::Pods(addresses) => addresses,
    };
    behind.retain(|address| is_allowed(&address.ip()));
    if behind.is_empty() {
        return Err(none(call.name()));
    }
    let address = behind[usize::from(random_number()) % behind.len()];
    Ok(Location { host: address.to_string(), address, transport: id.transport() })
}

async fn node(call: &Call, id: &Id<'_>) -> Result<Location> {
    let kubelet = proxy::find_endpoint(call, id.name).await?;
    let ip = resolve(&kubelet.host).await?;
    if id.port.is_empty() || id.port == kubelet.port.to_string() {
        let address = SocketAddr::new(ip, kubelet.port);
        let host = Id { https: true, name: id.name, port: "" }.at(ip, Some(kubelet.port))?.host;
        return Ok(Location { host, address, transport: Transport::Kubelet(kubelet.host) });
    }
    id.at(ip, None)
}

/// The address of a node; the one that is checked is the one that is spoken to.
async fn resolve(host: &str) -> Result<IpAddr> {
    let looked_up = tokio::time::timeout(super::CONNECT, tokio::net::lookup_host((host, 0))).await;
    let found: Vec<IpAddr> = match looked_up {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        _ => return Err(ApiError::bad_request(format!("lookup {host}: no such host"))),
    };
    let first = *found.first().ok_or_else(|| ApiError::bad_request("no addresses for hostname"))?;
    if found.iter().all(is_allowed) { Ok(first) } else { Err(not_allowed()) }
}

fn not_allowed() -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "BadRequest", "address not allowed")
}

/// Whether requests may be passed on to an address.
fn is_allowed(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_link_local())
        }
        IpAddr::V6(ip) => {
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_have_a_scheme_and_a_port_or_not() {
        let id = |https, name, port| Some(Id { https, name, port });
        assert_eq!(Id::parse("p"), id(false, "p", ""));
        assert_eq!(Id::parse("p:80"), id(false, "p", "80"));
        assert_eq!(Id::parse("p:"), id(false, "p", ""));
        assert_eq!(Id::parse("https:p:web"), id(true, "p", "web"));
        assert_eq!(Id::parse("http:p:"), id(false, "p", ""));
        for wrong in ["", ":80", "ftp:p:21", "a:b:c:d", "https::1"] {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_port_is_the_one_asked_for_or_the_pods_or_the_schemes() {
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let host = |text: &str, port| Id::parse(text).unwrap().at(ip, port).map(|location| location.host);
        assert_eq!(host("p", Some(8080)).unwrap(), "10.0.0.1:8080");
        assert_eq!(host("p:9", Some(8080)).unwrap(), "10.0.0.1:9");
        assert_eq!(host("p", None).unwrap(), "10.0.0.1");
        assert_eq!(Id::parse("https:p:").unwrap().at(ip, None).unwrap().address.port(), 443);
        assert!(
            host("p:99999", None).unwrap_err().message.ends_with("dial tcp: address 99999: invalid port")
        );
        assert_eq!(host("p:web", None).unwrap_err().code, 400);
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"ports": [{"containerPort": 7}, {"containerPort": 8}]}]}});
        assert_eq!(first_port(&pod), Some(7));
        let six: IpAddr = "fd00::1".parse().unwrap();
        assert_eq!(Id::parse("p").unwrap().at(six, Some(80)).unwrap().host, "[fd00::1]:80");
    }

    #[test]
    fn only_addresses_that_a_cluster_has_are_allowed() {
        let allowed = |text: &str| is_allowed(&text.parse().unwrap());
        for good in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }
}
