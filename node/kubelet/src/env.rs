//! A container's environment: services, envFrom, env with `$(VAR)` expansion and references. Pure.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, Pod, Service};
use podwire_api::pod_resources::Requirements;
use podwire_api::quantity::Quantity;

use crate::spec;

/// Config maps and secrets by (is secret, name), as text and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Config maps that exist.
    pub(crate) config_maps: HashMap<String, BTreeMap<String, String>>,
    /// Secrets that exist.
    pub(crate) secrets: HashMap<String, BTreeMap<String, Vec<u8>>>,
}

/// What a reference to a field may answer with.
pub(crate) struct NodeFacts<'a> {
    /// Node's name.
    pub(crate) node_name: &'a str,
    /// Node's addresses.
    pub(crate) host_ips: &'a [String],
    /// Pod's addresses.
    pub(crate) pod_ips: &'a [String],
    /// Node's allocatable cpu in thousandths and memory in bytes.
    pub(crate) allocatable: (i64, i64),
    /// Services of the pod's namespace and the API server's own.
    pub(crate) services: &'a [Service],
}

/// Why an environment cannot be built; the text is what the pod's status shows.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EnvError {
    /// A config map or secret does not exist.
    #[error("{kind} \"{name}\" not found")]
    NotFound {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A config map or secret lacks the key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// The key.
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Pod's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A reference to a field that nobody knows.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// A reference to a resource that nobody knows.
    #[error("unsupported container resource: {0}")]
    Resource(String),
}

/// The environment of `container`, in order, without duplicates.
pub(crate) fn build(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    node: &NodeFacts<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut env = Env::default();
    let services = service_variables(pod, node.services);
    for from in container.env_from.as_deref().unwrap_or_default() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(data) => data.iter().for_each(|(k, v)| env.set(format!("{prefix}{k}"), v.clone())),
                None if reference.optional == Some(true) => {}
                None => return Err(EnvError::NotFound { kind: "configmap", name: reference.name.clone() }),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(data) => data.iter().for_each(|(k, v)| {
                    env.set(format!("{prefix}{k}"), String::from_utf8_lossy(v).into_owned())
                }),
                None if reference.optional == Some(true) => {}
                None => return Err(EnvError::NotFound { kind: "secret", name: reference.name.clone() }),
            }
        }
    }
    for variable in container.env.as_deref().unwrap_or_default() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => {
                Some(expand(value, |name| env.get(name).or_else(|| services.get(name).cloned())))
            }
            (_, Some(from)) => reference(pod, container, from, sources, node)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            env.set(variable.name.clone(), value);
        }
    }
    for (name, value) in services {
        if env.get(&name).is_none() {
            env.set(name, value);
        }
    }
    Ok(env.list)
}

#[derive(Default)]
struct Env {
    list: Vec<(String, String)>,
}

impl Env {
    fn get(&self, name: &str) -> Option<String> {
        self.list.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    fn set(&mut self, name: String, value: String) {
        match self.list.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = value,
            None => self.list.push((name, value)),
        }
    }
}

fn reference(
    pod: &Pod,
    container: &Container,
    from: &k8s_openapi::api::core::v1::EnvVarSource,
    sources: &Sources,
    node: &NodeFacts<'_>,
) -> Result<Option<String>, EnvError> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(field) = &from.field_ref {
        return field_value(pod, &field.field_path, node).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        let named = resource.container_name.as_deref().filter(|n| !n.is_empty());
        let other = named.and_then(|name| spec::find_container(pod, name)).map(|(_, c)| c);
        let divisor = resource.divisor.as_ref().map(|q| q.0.as_str());
        return resource_value(other.as_ref().unwrap_or(container), &resource.resource, divisor, node)
            .map(Some);
    }
    if let Some(key) = &from.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(data) = sources.config_maps.get(&key.name) else {
            return missing(optional, EnvError::NotFound { kind: "configmap", name: key.name.clone() });
        };
        let no_key =
            EnvError::NoKey { key: key.key.clone(), kind: "ConfigMap", namespace, name: key.name.clone() };
        return data.get(&key.key).map_or_else(|| missing(optional, no_key), |v| Ok(Some(v.clone())));
    }
    if let Some(key) = &from.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(data) = sources.secrets.get(&key.name) else {
            return missing(optional, EnvError::NotFound { kind: "secret", name: key.name.clone() });
        };
        let no_key =
            EnvError::NoKey { key: key.key.clone(), kind: "Secret", namespace, name: key.name.clone() };
        let text = |v: &Vec<u8>| Ok(Some(String::from_utf8_lossy(v).into_owned()));
        return data.get(&key.key).map_or_else(|| missing(optional, no_key), text);
    }
    Ok(None)
}

fn missing(optional: bool, error: EnvError) -> Result<Option<String>, EnvError> {
    if optional { Ok(None) } else { Err(error) }
}

/// The value of a downward API field.
pub(crate) fn field_value(pod: &Pod, path: &str, node: &NodeFacts<'_>) -> Result<String, EnvError> {
    let meta = &pod.metadata;
    let text = |value: &Option<String>| Ok(value.clone().unwrap_or_default());
    match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => Ok(listing(meta.labels.as_ref())),
        "metadata.annotations" => Ok(listing(meta.annotations.as_ref())),
        "spec.nodeName" => Ok(node.node_name.to_owned()),
        "spec.serviceAccountName" => text(&spec::spec(pod).service_account_name),
        "status.hostIP" => Ok(node.host_ips.first().cloned().unwrap_or_default()),
        "status.hostIPs" => Ok(node.host_ips.join(",")),
        "status.podIP" => Ok(node.pod_ips.first().cloned().unwrap_or_default()),
        "status.podIPs" => Ok(node.pod_ips.join(",")),
        other => keyed(pod, other).ok_or_else(|| EnvError::Field(other.to_owned())),
    }
}

fn keyed(pod: &Pod, path: &str) -> Option<String> {
    let (map, rest) = if let Some(rest) = path.strip_prefix("metadata.labels['") {
        (pod.metadata.labels.as_ref(), rest)
    } else {
        (pod.metadata.annotations.as_ref(), path.strip_prefix("metadata.annotations['")?)
    };
    let key = rest.strip_suffix("']")?;
    Some(map.and_then(|m| m.get(key)).cloned().unwrap_or_default())
}

fn listing(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", serde_json::Value::String(v.clone())))
        .collect();
    lines.join("\n")
}

/// The value of a downward API resource, rounded up to the divisor.
pub(crate) fn resource_value(
    container: &Container,
    resource: &str,
    divisor: Option<&str>,
    node: &NodeFacts<'_>,
) -> Result<String, EnvError> {
    let unknown = || EnvError::Resource(resource.to_owned());
    let (side, name) = resource.split_once('.').ok_or_else(unknown)?;
    let Requirements { requests, limits } = container.into();
    let own = match side {
        "limits" => limits.get(name),
        "requests" => requests.get(name),
        _ => return Err(unknown()),
    };
    let fallback = match (side, name) {
        ("limits", "cpu") => node.allocatable.0,
        ("limits", "memory") => node.allocatable.1.saturating_mul(1000),
        (_, "cpu" | "memory" | "ephemeral-storage") => 0,
        (_, huge) if huge.starts_with("hugepages-") => 0,
        _ => return Err(unknown()),
    };
    let amount = own.map_or(fallback, Quantity::milli_value);
    let divisor = divisor.and_then(|text| Quantity::parse(text).ok()).filter(|own| !own.is_zero());
    let divisor = divisor.map_or(1000, |own| own.milli_value().max(1));
    Ok((amount.saturating_add(divisor - 1) / divisor).to_string())
}

/// Replaces `$(NAME)` where `lookup` knows the name; `$$` stands for one `$`.
pub(crate) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|inner| inner.find(')').map(|end| &inner[..end]));
        match name {
            Some(name) => {
                match lookup(name) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = &after[name.len() + 2..];
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The variables that name services, as Docker links did.
fn service_variables(pod: &Pod, services: &[Service]) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let links = spec::spec(pod).enable_service_links.unwrap_or(true);
    let mut all = BTreeMap::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let of = service.metadata.namespace.as_deref().unwrap_or_default();
        let master = of == "default" && name == "kubernetes";
        let Some(spec) = &service.spec else { continue };
        let ip = spec.cluster_ip.as_deref().unwrap_or_default();
        if ip.is_empty() || ip == "None" || !(master || (links && of == namespace)) {
            continue;
        }
        one_service(name, ip, spec.ports.as_deref().unwrap_or_default(), &mut all);
    }
    all
}

fn one_service(
    name: &str,
    ip: &str,
    ports: &[k8s_openapi::api::core::v1::ServicePort],
    all: &mut BTreeMap<String, String>,
) {
    let upper = |text: &str| text.to_uppercase().replace('-', "_");
    let prefix = upper(name);
    let Some(first) = ports.first() else { return };
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    all.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    all.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in ports {
        if let Some(label) = port.name.as_deref().filter(|n| !n.is_empty()) {
            all.insert(format!("{prefix}_SERVICE_PORT_{}", upper(label)), port.port.to_string());
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if port == first {
            all.insert(format!("{prefix}_PORT"), url.clone());
        }
        let base = format!("{prefix}_PORT_{}_{protocol}", port.port);
        all.insert(base.clone(), url);
        all.insert(format!("{base}_PROTO"), protocol.to_lowercase());
        all.insert(format!("{base}_PORT"), port.port.to_string());
        all.insert(format!("{base}_ADDR"), ip.to_owned());
    }
}

#[cfg(test)]
mod tests;
