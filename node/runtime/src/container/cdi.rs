//! CDI devices: what a vendor's file in `/etc/cdi` or `/var/run/cdi` says a device needs, put into a spec.
//!
//! Files are read when a container asks for a device. A device in the later folder replaces one of the same name in the
//! earlier; the same name twice in one folder cannot be resolved. A file's own edits come once, before its devices'.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use oci_spec::runtime::{Hook, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, Mount, Spec};
use podwire_wire::cri;
use serde::Deserialize;

use crate::{container::spec::mounts::ResolvedDevice, host};

/// Why a device cannot be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("unresolvable CDI device {name}")]
    Unknown { name: String },
    #[error("unresolvable CDI device {name}: both {one:?} and {other:?} define it")]
    Conflict { name: String, one: PathBuf, other: PathBuf },
    #[error("CDI hook of {name} is for the unknown point {point:?}")]
    Hook { name: String, point: String },
    #[error("CDI device node {path} has the numbers {major}:{minor}, which no device has")]
    Numbers { path: String, major: i64, minor: i64 },
    #[error("CDI device node {path}")]
    Node { path: String, source: std::io::Error },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    cdi_version: String,
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
    hooks: Vec<CdiHook>,
    #[serde(rename = "additionalGIDs", alias = "additionalGids")]
    additional_gids: Vec<u32>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    path: String,
    host_path: String,
    r#type: String,
    major: i64,
    minor: i64,
    file_mode: Option<u32>,
    permissions: String,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CdiMount {
    host_path: String,
    container_path: String,
    options: Vec<String>,
    r#type: String,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CdiHook {
    hook_name: String,
    path: String,
    args: Vec<String>,
    env: Vec<String>,
    timeout: Option<i64>,
}

impl File {
    fn edits(&self) -> impl Iterator<Item = &Edits> {
        self.devices.iter().map(|device| &device.container_edits).chain([&self.container_edits])
    }
}

impl Edits {
    /// What makes them no edits at all; the reference library skips a file for the same.
    fn fault(&self) -> Option<String> {
        let env = self.env.iter().find(|pair| pair.find('=').is_none_or(|at| at == 0));
        let node = self.device_nodes.iter().find(|node| node.path.is_empty());
        let mount =
            self.mounts.iter().find(|mount| mount.host_path.is_empty() || mount.container_path.is_empty());
        let hook = self.hooks.iter().find(|hook| hook.path.is_empty());
        let faults = [
            env.map(|pair| format!("{pair:?} is no environment variable")),
            node.map(|_| "a device node without a path".to_owned()),
            mount.map(|mount| format!("a mount from {:?} to {:?}", mount.host_path, mount.container_path)),
            hook.map(|hook| format!("a {} hook without a path", hook.hook_name)),
        ];
        faults.into_iter().flatten().next()
    }
}

/// One device, where it was found.
#[derive(Debug)]
struct Known {
    file: PathBuf,
    /// The folder it was found in: a later one wins.
    rank: usize,
    shared: Edits,
    own: Edits,
    conflict: Option<PathBuf>,
}

/// Puts the named devices (`vendor.com/class=name`) into the spec. Reads files.
pub(crate) fn inject(spec: &mut Spec, folders: &[PathBuf], names: &[String]) -> Result<(), CdiError> {
    if names.is_empty() {
        return Ok(());
    }
    let known = load(folders);
    edit(spec, names, &known)
}

fn parse(path: &Path) -> Option<File> {
    let yaml = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => false,
        Some("yaml" | "yml") => true,
        _ => return None,
    };
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let file: Result<File, String> = text.and_then(|text| {
        if yaml {
            serde_yaml_ng::from_str(&text).map_err(|error| error.to_string())
        } else {
            serde_json::from_str(&text).map_err(|error| error.to_string())
        }
    });
    let file = file.and_then(|file| {
        let fault = file.edits().find_map(Edits::fault);
        fault.map_or(Ok(file), Err)
    });
    match file {
        Ok(file) if file.kind.contains('/') && !file.devices.is_empty() => Some(file),
        Ok(file) => {
            tracing::warn!(?path, version = file.cdi_version, "CDI file without a kind or devices skipped");
            None
        }
        Err(error) => {
            tracing::warn!(?path, error, "CDI file not understood");
            None
        }
    }
}

/// All devices by full name.
fn load<P: AsRef<Path>>(folders: &[P]) -> BTreeMap<String, Known> {
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    for (rank, folder) in folders.iter().enumerate() {
        let mut paths: Vec<_> = std::fs::read_dir(folder.as_ref())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            let Some(file) = parse(&path) else { continue };
            for device in file.devices {
                let name = format!("{}={}", file.kind, device.name);
                match known.get_mut(&name) {
                    Some(other) if other.rank == rank => other.conflict = Some(path.clone()),
                    _ => {
                        let (shared, own) = (file.container_edits.clone(), device.container_edits);
                        let found = Known { file: path.clone(), rank, shared, own, conflict: None };
                        known.insert(name, found);
                    }
                }
            }
        }
    }
    known
}

/// The names of the devices in `folder` whose nodes say all of themselves, for `hostile`.
pub(crate) fn self_contained(folder: &Path) -> Vec<String> {
    let whole = |edits: &Edits| edits.device_nodes.iter().all(is_whole);
    let known = load(&[folder]);
    let wanted = known.into_iter().filter(|(_, device)| whole(&device.shared) && whole(&device.own));
    wanted.map(|(name, _)| name).collect()
}

fn edit(spec: &mut Spec, names: &[String], known: &BTreeMap<String, Known>) -> Result<(), CdiError> {
    let mut seen = BTreeSet::new();
    for name in names {
        let device = known.get(name).ok_or_else(|| CdiError::Unknown { name: name.clone() })?;
        if let Some(other) = &device.conflict {
            let (one, other) = (device.file.clone(), other.clone());
            return Err(CdiError::Conflict { name: name.clone(), one, other });
        }
        if seen.insert(device.file.clone()) {
            apply(spec, name, &device.shared)?;
        }
        apply(spec, name, &device.own)?;
    }
    Ok(())
}

fn apply(spec: &mut Spec, name: &str, edits: &Edits) -> Result<(), CdiError> {
    let user = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid()));
    let mut nodes = Vec::new();
    for requested in &edits.device_nodes {
        nodes.extend(node(requested, user.unwrap_or_default())?);
    }
    if let Some(process) = spec.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        for pair in &edits.env {
            let name = pair.split('=').next().unwrap_or_default().to_owned() + "=";
            env.retain(|known| !known.starts_with(&name));
            env.push(pair.clone());
        }
        process.set_env(Some(env));
        let mut user = process.user().clone();
        let mut groups = user.additional_gids().clone().unwrap_or_default();
        groups.extend(edits.additional_gids.iter().filter(|gid| **gid != 0));
        user.set_additional_gids(Some(groups));
        process.set_user(user);
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for requested in &edits.mounts {
        mounts.retain(|known| known.destination() != Path::new(&requested.container_path));
        mounts.push(mount(requested));
    }
    // Stable: what is above comes first, as what is mounted later hides what is below.
    let shown = if edits.mounts.is_empty() { 0 } else { mounts.len() };
    mounts[..shown].sort_by_key(|mount| mount.destination().components().count());
    spec.set_mounts(Some(mounts));
    if let Some(linux) = spec.linux_mut() {
        let mut devices = linux.devices().clone().unwrap_or_default();
        let mut limits = linux.resources().clone().unwrap_or_default();
        let mut rules = limits.devices().clone().unwrap_or_default();
        for (device, rule) in nodes {
            devices.retain(|known| known.path() != device.path());
            devices.push(device);
            rules.push(rule);
        }
        linux.set_devices(Some(devices));
        limits.set_devices(Some(rules));
        linux.set_resources(Some(limits));
    }
    add_hooks(spec, name, &edits.hooks)
}

fn add_hooks(spec: &mut Spec, name: &str, hooks_of_file: &[CdiHook]) -> Result<(), CdiError> {
    if hooks_of_file.is_empty() {
        return Ok(());
    }
    let mut hooks = spec.hooks().clone().unwrap_or_default();
    for requested in hooks_of_file {
        let mut hook = Hook::default();
        hook.set_path(PathBuf::from(&requested.path));
        hook.set_args((!requested.args.is_empty()).then(|| requested.args.clone()));
        hook.set_env((!requested.env.is_empty()).then(|| requested.env.clone()));
        hook.set_timeout(requested.timeout);
        let and = |list: &Option<Vec<Hook>>| {
            let mut list = list.clone().unwrap_or_default();
            list.push(hook.clone());
            Some(list)
        };
        match requested.hook_name.as_str() {
            // The older word for the same point.
            "prestart" | "createRuntime" => hooks.set_create_runtime(and(hooks.create_runtime())),
            "createContainer" => hooks.set_create_container(and(hooks.create_container())),
            "startContainer" => hooks.set_start_container(and(hooks.start_container())),
            "poststart" => hooks.set_poststart(and(hooks.poststart())),
            "poststop" => hooks.set_poststop(and(hooks.poststop())),
            other => return Err(CdiError::Hook { name: name.to_owned(), point: other.to_owned() }),
        };
    }
    spec.set_hooks(Some(hooks));
    Ok(())
}

/// Whether the node's own device need not be looked at.
fn is_whole(requested: &Node) -> bool {
    matches!(requested.r#type.as_str(), "b" | "c" | "u") && requested.major > 0
}

/// The nodes of one entry with their rules. What the file does not say is taken from the node's own device.
fn node(requested: &Node, user: (u32, u32)) -> Result<Vec<(LinuxDevice, LinuxDeviceCgroup)>, CdiError> {
    let host_path = if requested.host_path.is_empty() { &requested.path } else { &requested.host_path };
    let found = if is_whole(requested) {
        let (major, minor) = (requested.major, requested.minor);
        let (Ok(major), Ok(minor)) = (u32::try_from(major), u32::try_from(minor)) else {
            return Err(CdiError::Numbers { path: requested.path.clone(), major, minor });
        };
        vec![ResolvedDevice {
            path: PathBuf::from(&requested.path),
            block: requested.r#type == "b",
            major,
            minor,
            mode: 0o666,
            uid: 0,
            gid: 0,
            access: if requested.permissions.is_empty() {
                "rwm".to_owned()
            } else {
                requested.permissions.clone()
            },
        }]
    } else {
        let device = cri::Device {
            container_path: requested.path.clone(),
            host_path: host_path.clone(),
            permissions: requested.permissions.clone(),
        };
        host::devices(&device).map_err(|source| CdiError::Node { path: requested.path.clone(), source })?
    };
    let mut list = Vec::new();
    for mut device in found {
        device.mode = requested.file_mode.map_or(device.mode, |mode| mode & 0o7777);
        // As the reference library does it: a device is its user's unless the file says whose.
        let or_user =
            |said: Option<u32>, user: u32, own: u32| said.unwrap_or(if user > 0 { user } else { own });
        device.uid = or_user(requested.uid, user.0, device.uid);
        device.gid = or_user(requested.gid, user.1, device.gid);
        let rule = rule(&device);
        list.extend(device.node().map(|node| (node, rule)));
    }
    Ok(list)
}

fn mount(requested: &CdiMount) -> Mount {
    let mut mount = Mount::default();
    mount.set_destination(requested.container_path.clone().into());
    mount.set_source(Some(requested.host_path.clone().into()));
    mount.set_typ(Some(if requested.r#type.is_empty() {
        "bind".to_owned()
    } else {
        requested.r#type.clone()
    }));
    let bare = requested.options.is_empty();
    mount.set_options(Some(if bare { vec!["rbind".to_owned()] } else { requested.options.clone() }));
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
    fn a_device_with_impossible_numbers_is_refused_and_not_given_as_another() {
        for (major, minor) in [(8, -1), (1 << 32, 0), (8, 1 << 32)] {
            let requested = Node {
                path: "/dev/x".to_owned(),
                r#type: "b".to_owned(),
                major,
                minor,
                ..Default::default()
            };
            assert!(matches!(node(&requested, (0, 0)), Err(CdiError::Numbers { .. })), "{major}:{minor}");
        }
    }

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
        let mounted =
            |path| spec.mounts().as_ref().unwrap().iter().any(|mount| mount.destination() == Path::new(path));
        assert!(mounted("/vendor") && mounted("/proc"));
        let missing = edit(&mut spec, &["vendor.com/net=none".to_owned()], &known).unwrap_err();
        assert_eq!(missing.to_string(), "unresolvable CDI device vendor.com/net=none");
    }

    #[test]
    fn a_files_own_edits_come_once_and_the_later_folder_wins() {
        let (etc, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = |text: &str| {
            format!(
                r#"{{"cdiVersion":"0.6.0","kind":"a.b/c","containerEdits":{{"mounts":[{{"hostPath":"/etc","containerPath":"/v/deep"}}],"additionalGIDs":[7],
                "hooks":[{{"hookName":"createContainer","path":"/bin/true","args":["true","x"],"timeout":3}}]}},"devices":[{text}]}}"#
            )
        };
        let one = |name: &str, env: &str| {
            format!(
                r#"{{"name":"{name}","containerEdits":{{"env":["{env}"],"mounts":[{{"hostPath":"/tmp","containerPath":"/v"}}]}}}}"#
            )
        };
        let devices = [one("x", "WHICH=etc"), one("y", "Y=1")].join(",");
        std::fs::write(etc.path().join("1.json"), file(&devices)).unwrap();
        let known = load(&[etc.path(), run.path()]);
        let mut spec = Spec::default();
        edit(&mut spec, &["a.b/c=x".to_owned(), "a.b/c=y".to_owned()], &known).unwrap();
        let hooks = spec.hooks().clone().unwrap().create_container().clone().unwrap();
        assert_eq!(hooks.len(), 1, "the file's edits come once for two of its devices");
        assert_eq!((hooks[0].args().clone().unwrap().len(), hooks[0].timeout()), (2, Some(3)));
        let targets: Vec<_> =
            spec.mounts().clone().unwrap().iter().map(|mount| mount.destination().clone()).collect();
        let at = |path: &str| targets.iter().rposition(|target| target == Path::new(path)).unwrap();
        assert!(at("/v") < at("/v/deep"), "a mount comes before the one inside it: {targets:?}");
        let groups = spec.process().clone().unwrap().user().additional_gids().clone().unwrap();
        assert_eq!(groups, [7]);

        std::fs::write(run.path().join("2.json"), file(&one("x", "WHICH=run"))).unwrap();
        let mut spec = Spec::default();
        edit(&mut spec, &["a.b/c=x".to_owned()], &load(&[etc.path(), run.path()])).unwrap();
        let env = spec.process().clone().unwrap().env().clone().unwrap();
        assert!(env.contains(&"WHICH=run".to_owned()), "{env:?}");

        std::fs::write(run.path().join("3.json"), file(&one("x", "WHICH=other"))).unwrap();
        let twice = edit(&mut spec, &["a.b/c=x".to_owned()], &load(&[etc.path(), run.path()]));
        assert!(matches!(twice, Err(CdiError::Conflict { .. })), "{twice:?}");
    }

    #[test]
    fn a_file_with_an_edit_that_is_none_is_skipped_like_the_reference_library_does() {
        let edits = [
            (r#"{"deviceNodes":[{"path":"/dev/a","type":"c","major":1,"minor":5}]}"#, true),
            (r#"{"deviceNodes":[{"type":"c","major":1,"minor":5}]}"#, false),
            (r#"{"env":["A=1","B="]}"#, true),
            (r#"{"env":["A=1","B"]}"#, false),
            (r#"{"env":["=1"]}"#, false),
            (r#"{"mounts":[{"hostPath":"/a","containerPath":"/b"}]}"#, true),
            (r#"{"mounts":[{"hostPath":"/a"}]}"#, false),
            (r#"{"mounts":[{"containerPath":"/b"}]}"#, false),
            (r#"{"hooks":[{"hookName":"poststop","path":"/h"}]}"#, true),
            (r#"{"hooks":[{"hookName":"poststop"}]}"#, false),
        ];
        for (text, sound) in edits {
            let dir = tempfile::tempdir().unwrap();
            let device = format!(r#"{{"kind":"a.b/c","devices":[{{"name":"x","containerEdits":{text}}}]}}"#);
            let shared = format!(r#"{{"kind":"a.b/c","containerEdits":{text},"devices":[{{"name":"x"}}]}}"#);
            for file in [device, shared] {
                std::fs::write(dir.path().join("x.json"), &file).unwrap();
                let mut spec = Spec::default();
                let given = inject(&mut spec, &[dir.path().to_owned()], &["a.b/c=x".to_owned()]);
                assert_eq!(given.is_ok(), sound, "{file}: {given:?}");
            }
        }
    }

    #[test]
    fn a_yaml_file_is_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let text = "kind: a.b/c\ndevices:\n- name: x\n  containerEdits:\n    env: [\"X=1\"]\n";
        std::fs::write(dir.path().join("x.yaml"), text).unwrap();
        assert!(load(&[dir.path()]).contains_key("a.b/c=x"));
    }
}
