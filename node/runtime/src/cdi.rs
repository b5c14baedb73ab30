//! CDI devices: what a vendor's file in `/etc/cdi` or `/var/run/cdi` says a device needs, put into a spec.
//!
//! Files are read when a container asks for a device; later folders win. Hooks are left to the vendor's own runtime:
//! this one has none, and a device that needs a hook is refused.

use std::{collections::BTreeMap, path::Path};

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Mount, Spec};
use podwire_wire::cri;
use serde::Deserialize;

use crate::{host, spec::mounts::ResolvedDevice};

const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Why a device cannot be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("unresolvable CDI device {name}")]
    Unknown { name: String },
    #[error("CDI device {name} needs a hook, and this runtime runs none")]
    Hook { name: String },
    #[error("CDI device node {path}")]
    Node { path: String, source: std::io::Error },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    kind: String,
    container_edits: Edits,
    devices: Vec<Device>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    mounts: Vec<CdiMount>,
    hooks: Vec<serde_json::Value>,
    additional_gids: Vec<u32>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    path: String,
    host_path: String,
    permissions: String,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CdiMount {
    host_path: String,
    container_path: String,
    options: Vec<String>,
    r#type: String,
}

/// Puts the named devices (`vendor.com/class=name`) into the spec. Reads files.
pub(crate) fn inject(spec: &mut Spec, names: &[String]) -> Result<(), CdiError> {
    if names.is_empty() {
        return Ok(());
    }
    let known = load(&FOLDERS.map(Path::new));
    edit(spec, names, &known)
}

/// All edits by device name.
fn load(folders: &[&Path]) -> BTreeMap<String, Vec<Edits>> {
    let mut known = BTreeMap::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let file: File = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => match serde_json::from_str(&text) {
                    Ok(file) => file,
                    Err(error) => {
                        tracing::warn!(?path, %error, "CDI file not understood");
                        continue;
                    }
                },
                Some("yaml" | "yml") => match serde_yaml_ng::from_str(&text) {
                    Ok(file) => file,
                    Err(error) => {
                        tracing::warn!(?path, %error, "CDI file not understood");
                        continue;
                    }
                },
                _ => continue,
            };
            for device in file.devices {
                let edits = vec![file.container_edits.clone(), device.container_edits];
                known.insert(format!("{}={}", file.kind, device.name), edits);
            }
        }
    }
    known
}

fn edit(spec: &mut Spec, names: &[String], known: &BTreeMap<String, Vec<Edits>>) -> Result<(), CdiError> {
    for name in names {
        let edits = known.get(name).ok_or_else(|| CdiError::Unknown { name: name.clone() })?;
        for edits in edits {
            if !edits.hooks.is_empty() {
                return Err(CdiError::Hook { name: name.clone() });
            }
            apply(spec, edits)?;
        }
    }
    Ok(())
}

fn apply(spec: &mut Spec, edits: &Edits) -> Result<(), CdiError> {
    let mut nodes = Vec::new();
    for node in &edits.device_nodes {
        let host_path = if node.host_path.is_empty() { node.path.clone() } else { node.host_path.clone() };
        let wish = cri::Device {
            container_path: node.path.clone(),
            host_path,
            permissions: node.permissions.clone(),
        };
        nodes.extend(
            host::devices(&wish).map_err(|source| CdiError::Node { path: node.path.clone(), source })?,
        );
    }
    if let Some(process) = spec.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(edits.env.iter().cloned());
        process.set_env(Some(env));
        let mut user = process.user().clone();
        let mut groups = user.additional_gids().clone().unwrap_or_default();
        groups.extend(edits.additional_gids.iter().filter(|gid| **gid != 0));
        user.set_additional_gids(Some(groups));
        process.set_user(user);
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.extend(edits.mounts.iter().map(mount));
    spec.set_mounts(Some(mounts));
    if let Some(linux) = spec.linux_mut() {
        let mut devices = linux.devices().clone().unwrap_or_default();
        devices.extend(nodes.iter().filter_map(ResolvedDevice::node));
        linux.set_devices(Some(devices));
        let mut limits = linux.resources().clone().unwrap_or_default();
        let mut rules = limits.devices().clone().unwrap_or_default();
        rules.extend(nodes.iter().map(rule));
        limits.set_devices(Some(rules));
        linux.set_resources(Some(limits));
    }
    Ok(())
}

fn mount(wish: &CdiMount) -> Mount {
    let mut mount = Mount::default();
    mount.set_destination(wish.container_path.clone().into());
    mount.set_source(Some(wish.host_path.clone().into()));
    mount.set_typ(Some(if wish.r#type.is_empty() { "bind".to_owned() } else { wish.r#type.clone() }));
    let bare = wish.options.is_empty();
    mount.set_options(Some(if bare { vec!["rbind".to_owned()] } else { wish.options.clone() }));
    mount
}

fn rule(device: &ResolvedDevice) -> LinuxDeviceCgroup {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(true);
    rule.set_typ(Some(if device.block { LinuxDeviceType::B } else { LinuxDeviceType::C }));
    rule.set_major(Some(i64::from(device.major)));
    rule.set_minor(Some(i64::from(device.minor)));
    rule.set_access(Some(device.access.clone()));
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_brings_its_edits_and_those_of_its_class() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"cdiVersion":"0.6.0","kind":"vendor.com/net","containerEdits":{"env":["CLASS=1"]},
            "devices":[{"name":"zero","containerEdits":{"env":["DEV=zero"],"deviceNodes":[{"path":"/dev/zero0","hostPath":"/dev/zero"}],
            "mounts":[{"hostPath":"/etc","containerPath":"/vendor","options":["ro","rbind"]}]}}]}"#;
        std::fs::write(dir.path().join("vendor.json"), text).unwrap();
        let known = load(&[dir.path()]);
        let mut spec = Spec::default();
        edit(&mut spec, &["vendor.com/net=zero".to_owned()], &known).unwrap();
        let env = spec.process().as_ref().unwrap().env().clone().unwrap();
        assert!(env.contains(&"CLASS=1".to_owned()) && env.contains(&"DEV=zero".to_owned()));
        let linux = spec.linux().as_ref().unwrap();
        let device = linux.devices().as_ref().unwrap().last().unwrap().clone();
        assert_eq!((device.path().to_str(), device.major(), device.minor()), (Some("/dev/zero0"), 1, 5));
        assert_eq!(spec.mounts().as_ref().unwrap().last().unwrap().destination().to_str(), Some("/vendor"));
        let missing = edit(&mut spec, &["vendor.com/net=none".to_owned()], &known).unwrap_err();
        assert_eq!(missing.to_string(), "unresolvable CDI device vendor.com/net=none");
    }

    #[test]
    fn a_yaml_file_is_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let text = "kind: a.b/c\ndevices:\n- name: x\n  containerEdits:\n    env: [\"X=1\"]\n";
        std::fs::write(dir.path().join("x.yaml"), text).unwrap();
        assert!(load(&[dir.path()]).contains_key("a.b/c=x"));
    }
}
