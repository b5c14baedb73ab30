//! Where the pods behind a service are: by its EndpointSlices, or by its selector while nobody has written any.
//! Who passes requests of users on goes only to endpoints that are pods, and by Endpoints too, as upstream does.

use std::net::{IpAddr, SocketAddr};

use podwire_api::selector::LabelSelector;
use podwire_api::{builtin, condition};
use serde_json::Value;

use crate::context::Context;
use crate::status::ApiError;

/// Why there is nobody to talk to.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// There is no such service.
    NoService,
    /// The service has no such port.
    NoPort(u16),
    /// Nobody is ready behind it.
    NoEndpoints,
    /// It could not be looked up.
    Failed(ApiError),
}

impl Unreachable {
    /// As a webhook's caller is told.
    pub(crate) fn webhook_words(&self, service: &str) -> String {
        match self {
            Unreachable::NoService => format!("service \"{service}\" not found"),
            Unreachable::NoPort(port) => format!("no service port {port} found for service \"{service}\""),
            Unreachable::NoEndpoints => format!("no endpoints available for service \"{service}\""),
            Unreachable::Failed(error) => error.message.clone(),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn port_number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| port.try_into().ok()).filter(|port| *port != 0)
}

/// The addresses of a service's ready endpoints.
pub(crate) async fn of_service(
    context: &Context,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Unreachable> {
    let service =
        context.object(builtin::services(), namespace, name).await.map_err(|error| match error.code {
            http::StatusCode::NOT_FOUND => Unreachable::NoService,
            _ => Unreachable::Failed(error),
        })?;
    let ports = list(&service["spec"]["ports"]);
    let found = ports.iter().find(|one| one["port"] == port).ok_or(Unreachable::NoPort(port))?;
    let slices = context.cached(builtin::endpoint_slices(), namespace);
    let own = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name;
    let slices: Vec<&Value> = slices.iter().filter(own).collect();
    let addresses = if slices.is_empty() {
        by_selector(context, namespace, &service, found)
    } else {
        in_slices(&slices, found["name"].as_str().unwrap_or_default())
    };
    if addresses.is_empty() { Err(Unreachable::NoEndpoints) } else { Ok(addresses) }
}

fn in_slices(slices: &[&Value], port: &str) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for slice in slices {
        let Some(port) = named_port(slice, port) else { continue };
        for endpoint in list(&slice["endpoints"]).iter().filter(|one| one["conditions"]["ready"] != false) {
            let texts = list(&endpoint["addresses"]).iter().filter_map(Value::as_str);
            addresses.extend(texts.filter_map(|text| Some(SocketAddr::new(text.parse().ok()?, port))));
        }
    }
    addresses
}

fn by_selector(context: &Context, namespace: &str, service: &Value, port: &Value) -> Vec<SocketAddr> {
    let wanted = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
    let Some(wanted) = wanted else { return Vec::new() };
    let Ok(selector) = LabelSelector::from_object(&serde_json::json!({"matchLabels": wanted})) else {
        return Vec::new();
    };
    let none = serde_json::Map::new();
    let pods = context.cached(builtin::pods(), namespace);
    let ready = |pod: &&Value| {
        selector.matches(pod["metadata"]["labels"].as_object().unwrap_or(&none))
            && pod["metadata"]["deletionTimestamp"].is_null()
            && condition::find(condition::of(pod), "Ready").is_some_and(|one| one["status"] == "True")
    };
    let address = |pod: &Value| {
        let ip: IpAddr = pod["status"]["podIP"].as_str()?.parse().ok()?;
        Some(SocketAddr::new(ip, target_port(pod, port)?))
    };
    pods.iter().filter(ready).filter_map(address).collect()
}

/// The port of a pod that a service's port leads to.
fn target_port(pod: &Value, port: &Value) -> Option<u16> {
    match &port["targetPort"] {
        Value::String(name) => container_port(pod, name),
        Value::Null => port_number(&port["port"]),
        number => port_number(number),
    }
}

/// The port of a container by its name.
fn container_port(pod: &Value, name: &str) -> Option<u16> {
    let containers = list(&pod["spec"]["containers"]).iter();
    let ports = containers.flat_map(|container| list(&container["ports"]));
    port_number(&ports.into_iter().find(|port| port["name"] == name)?["containerPort"])
}

/// The pods behind a service, for requests that are passed on.
#[derive(Debug, PartialEq)]
pub(crate) enum Behind {
    /// Nothing is written about the service, and it selects nobody.
    Unknown,
    /// No pod is behind it at all.
    Nobody,
    /// The ready ones that have the port; there may be none.
    Pods(Vec<SocketAddr>),
}

/// An endpoint that has the port, as somebody wrote it down.
struct Claim<'a> {
    ip: &'a str,
    port: u16,
    target: &'a Value,
}

/// The pods behind the port of this name.
pub(crate) async fn pods_behind(
    context: &Context,
    namespace: &str,
    name: &str,
    port: &str,
) -> Result<Behind, ApiError> {
    let found = |object: Result<Value, ApiError>| match object {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    };
    let written = found(context.object(builtin::endpoints(), namespace, name).await)?;
    let slices = context.cached(builtin::endpoint_slices(), namespace);
    let own = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name;
    let slices: Vec<&Value> = slices.iter().filter(own).collect();
    let claims = match &written {
        Some(endpoints) if !list(&endpoints["subsets"]).is_empty() => in_subsets(endpoints, port),
        _ if !slices.is_empty() => claimed(&slices, port),
        Some(_) => return Ok(Behind::Nobody),
        None => {
            let Some(service) = found(context.object(builtin::services(), namespace, name).await)? else {
                return Ok(Behind::Unknown);
            };
            return Ok(selected(context, namespace, &service, port));
        }
    };
    let mut pods = Vec::new();
    for claim in claims {
        let named = claim.target["name"].as_str().unwrap_or_default();
        if claim.target["namespace"] != namespace || named.is_empty() {
            continue;
        }
        let Some(pod) = found(context.object(builtin::pods(), namespace, named).await)? else { continue };
        pods.extend(list(&pod["status"]["podIPs"]).iter().any(|one| one["ip"] == claim.ip).then_some(claim));
    }
    let addresses = pods.iter().filter_map(|claim| Some(SocketAddr::new(claim.ip.parse().ok()?, claim.port)));
    Ok(Behind::Pods(addresses.collect()))
}

fn selected(context: &Context, namespace: &str, service: &Value, port: &str) -> Behind {
    if service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
        return Behind::Unknown;
    }
    let ports = list(&service["spec"]["ports"]);
    let Some(found) = ports.iter().find(|one| one["name"].as_str().unwrap_or_default() == port) else {
        return Behind::Pods(Vec::new());
    };
    match by_selector(context, namespace, service, found) {
        addresses if addresses.is_empty() => Behind::Nobody,
        addresses => Behind::Pods(addresses),
    }
}

fn in_subsets<'a>(endpoints: &'a Value, port: &str) -> Vec<Claim<'a>> {
    let mut claims = Vec::new();
    for subset in list(&endpoints["subsets"]) {
        let Some(port) = named_port(subset, port) else { continue };
        for address in list(&subset["addresses"]) {
            let ip = address["ip"].as_str().unwrap_or_default();
            claims.push(Claim { ip, port, target: &address["targetRef"] });
        }
    }
    claims
}

fn claimed<'a>(slices: &[&'a Value], port: &str) -> Vec<Claim<'a>> {
    let mut claims = Vec::new();
    for slice in slices {
        let Some(port) = named_port(slice, port) else { continue };
        for endpoint in list(&slice["endpoints"]).iter().filter(|one| one["conditions"]["ready"] != false) {
            // There may be several addresses, and only the first one counts.
            let ip = endpoint["addresses"][0].as_str().unwrap_or_default();
            claims.push(Claim { ip, port, target: &endpoint["targetRef"] });
        }
    }
    claims
}

/// The number of a port by its name, in a subset or a slice.
fn named_port(of: &Value, name: &str) -> Option<u16> {
    let found = list(&of["ports"]).iter().find(|one| one["name"].as_str().unwrap_or_default() == name);
    port_number(&found?["port"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_are_those_that_are_ready_at_the_port_of_that_name() {
        let slice = json!({"ports": [{"name": "a", "port": 8443}, {"name": "b", "port": 1}], "endpoints": [
            {"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["fd00::1"], "conditions": {"ready": true}}]});
        let expected: Vec<SocketAddr> =
            vec!["10.0.0.1:8443".parse().unwrap(), "[fd00::1]:8443".parse().unwrap()];
        assert_eq!(in_slices(&[&slice], "a"), expected);
        assert!(in_slices(&[&slice], "c").is_empty());
        let pod = json!({"spec": {"containers": [{"ports": [{"name": "web", "containerPort": 80}]}]}});
        assert_eq!(target_port(&pod, &json!({"port": 1, "targetPort": "web"})), Some(80));
        assert_eq!(target_port(&pod, &json!({"port": 7})), Some(7));
        assert_eq!(target_port(&pod, &json!({"port": 1, "targetPort": "none"})), None);
    }
}
