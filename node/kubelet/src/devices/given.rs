//! What plugins give a container, as the runtime is told. Pure.

use std::collections::{BTreeMap, BTreeSet};

use podwire_wire::{cri, device_plugin::ContainerAllocateResponse};

/// More of anything is no container's.
const MOST: usize = 4096;

/// What a container gets from all plugins together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Given {
    pub(crate) envs: BTreeMap<String, String>,
    pub(crate) mounts: Vec<cri::Mount>,
    pub(crate) devices: Vec<cri::Device>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) cdi_devices: Vec<cri::CdiDevice>,
}

impl Given {
    /// The responses together; where two speak of the same thing the first is right.
    pub(super) fn of<'a>(responses: impl Iterator<Item = &'a ContainerAllocateResponse>) -> Given {
        let mut given = Given::default();
        let (mut mounted, mut placed, mut named) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for response in responses {
            add(&mut given.envs, &response.envs, "environment variable");
            add(&mut given.annotations, &response.annotations, "annotation");
            let mounts = response.mounts.iter().filter(|mount| mounted.insert(&mount.container_path));
            given.mounts.extend(mounts.map(|mount| cri::Mount {
                container_path: mount.container_path.clone(),
                host_path: mount.host_path.clone(),
                readonly: mount.read_only,
                ..cri::Mount::default()
            }));
            let devices = response.devices.iter().filter(|device| placed.insert(&device.container_path));
            given.devices.extend(devices.map(|device| cri::Device {
                container_path: device.container_path.clone(),
                host_path: device.host_path.clone(),
                permissions: device.permissions.clone(),
            }));
            let cdi = response.cdi_devices.iter().filter(|device| named.insert(&device.name));
            given.cdi_devices.extend(cdi.map(|device| cri::CdiDevice { name: device.name.clone() }));
        }
        given
    }
}

fn add(
    all: &mut BTreeMap<String, String>,
    more: &std::collections::HashMap<String, String>,
    what: &'static str,
) {
    for (name, value) in more {
        let first = all.entry(name.clone()).or_insert_with(|| value.clone());
        if first != value {
            tracing::warn!(what, name, "two device plugins give different values; the first is used");
        }
    }
}

/// Whether a response can be told to a runtime; if not, why.
pub(super) fn check(response: &ContainerAllocateResponse) -> Result<(), String> {
    let counts = [
        response.envs.len(),
        response.mounts.len(),
        response.devices.len(),
        response.annotations.len(),
        response.cdi_devices.len(),
    ];
    if counts.into_iter().any(|count| count > MOST) {
        return Err(format!("it gives a container more than {MOST} of one thing"));
    }
    let bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
    if let Some(name) = response.envs.keys().find(bad) {
        return Err(format!("{name:?} is not the name of an environment variable"));
    }
    let mounts = response.mounts.iter().flat_map(|mount| [&mount.container_path, &mount.host_path]);
    let devices = response.devices.iter().flat_map(|device| [&device.container_path, &device.host_path]);
    let relative = |path: &&String| !path.starts_with('/') || path.contains('\0');
    if let Some(path) = mounts.chain(devices).find(relative) {
        return Err(format!("{path:?} is not an absolute path"));
    }
    let odd = |text: &&String| text.is_empty() || text.len() > 3 || text.contains(|c| !"rwm".contains(c));
    if let Some(text) = response.devices.iter().map(|device| &device.permissions).find(odd) {
        return Err(format!("{text:?} are not permissions of a device, which are of r, w and m"));
    }
    match response.cdi_devices.iter().find(|device| device.name.is_empty()) {
        Some(_) => Err("a CDI device has no name".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use podwire_wire::device_plugin::{CdiDevice, DeviceSpec, Mount};

    use super::*;

    fn device(inside: &str, permissions: &str) -> DeviceSpec {
        DeviceSpec {
            container_path: inside.to_owned(),
            host_path: "/dev/null".to_owned(),
            permissions: permissions.to_owned(),
        }
    }

    #[test]
    fn the_first_plugin_is_right_where_two_speak_of_the_same() {
        let mount = |host: &str| Mount {
            container_path: "/lib".to_owned(),
            host_path: host.to_owned(),
            read_only: true,
        };
        let one = ContainerAllocateResponse {
            envs: [("A".to_owned(), "1".to_owned())].into(),
            mounts: vec![mount("/a")],
            devices: vec![device("/dev/a", "rw"), device("/dev/a", "r")],
            cdi_devices: vec![CdiDevice { name: "v/c=a".to_owned() }],
            ..Default::default()
        };
        let two = ContainerAllocateResponse {
            envs: [("A".to_owned(), "2".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
            mounts: vec![mount("/b")],
            devices: vec![device("/dev/b", "m")],
            cdi_devices: vec![CdiDevice { name: "v/c=a".to_owned() }, CdiDevice { name: "v/c=b".to_owned() }],
            ..Default::default()
        };
        let given = Given::of([&one, &two].into_iter());
        assert_eq!(given.envs.into_iter().map(|(k, v)| k + &v).collect::<Vec<_>>(), ["A1", "B2"]);
        assert_eq!(given.mounts.len(), 1);
        assert!(given.mounts[0].readonly && given.mounts[0].host_path == "/a");
        assert_eq!(
            given.devices.iter().map(|d| d.container_path.as_str()).collect::<Vec<_>>(),
            ["/dev/a", "/dev/b"]
        );
        assert_eq!(given.cdi_devices.len(), 2);
    }

    #[test]
    fn what_no_runtime_could_do_is_said_of_the_plugin() {
        let with = |change: fn(&mut ContainerAllocateResponse)| {
            let mut response = ContainerAllocateResponse::default();
            change(&mut response);
            check(&response)
        };
        assert!(with(|r| r.devices.push(device("/dev/a", "rwm"))).is_ok());
        assert!(with(|r| r.devices.push(device("/dev/a", "x"))).is_err());
        assert!(with(|r| r.devices.push(device("dev/a", "r"))).is_err());
        assert!(with(|r| r.mounts.push(Mount::default())).is_err());
        assert!(with(|r| drop(r.envs.insert("A=B".to_owned(), String::new()))).is_err());
        assert!(with(|r| r.cdi_devices.push(CdiDevice::default())).is_err());
        assert!(with(|r| r.cdi_devices = vec![CdiDevice { name: "v/c=d".to_owned() }; MOST + 1]).is_err());
    }
}
