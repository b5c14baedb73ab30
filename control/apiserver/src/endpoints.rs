//! Where the pods behind a service are: by its EndpointSlices, or by its selector while nobody has written any.

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
        let named = list(&slice["ports"]).iter().find(|one| one["name"].as_str().unwrap_or_default() == port);
        let Some(port) = named.and_then(|one| port_number(&one["port"])) else { continue };
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
