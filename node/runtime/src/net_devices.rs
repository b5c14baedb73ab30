//! Network devices of the node that a container asks for: moved into its pod, and brought home when the pod ends.
//!
//! The OCI specification (config-linux, "Network Devices") leaves a moved device to whoever owns the network namespace,
//! and that is the pod here. So a device stays when its container ends, and the next attempt finds it there; before
//! the namespace goes, the device goes home under its own name. The kernel alone would give hardware back under the
//! pod's name, and destroy every other kind.

use oci_spec::runtime::Spec;
use podwire_netdev::{arrive, look, move_in, move_out};

use crate::{
    context::Context,
    error::{OpError, chain},
    model::{Container, Sandbox},
    recovery::records::MovedDevice,
};

/// The devices a spec asks for: name on the node, name inside; in an order that does not change.
fn wanted(spec: &Spec) -> Vec<(String, String)> {
    let devices = spec.linux().as_ref().and_then(|linux| linux.net_devices().as_ref());
    let mut list: Vec<_> = devices
        .into_iter()
        .flatten()
        .map(|(host, device)| {
            let inside = device.name().clone().filter(|name| !name.is_empty());
            (host.clone(), inside.unwrap_or_else(|| host.clone()))
        })
        .collect();
    list.sort();
    list
}

/// Moves what the container asks for into its pod. Blocks.
///
/// What was moved is journalled before; a device that an earlier container of the pod asked for is there already.
pub(crate) fn take(ctx: &Context, container: &Container) -> Result<(), OpError> {
    let list = wanted(&container.spec());
    if list.is_empty() {
        return Ok(());
    }
    let id = container.row.sandbox_id.clone();
    let sandbox = ctx.registry.sandbox(&id).ok_or(OpError::NotFound { what: "sandbox", id })?;
    let path = sandbox.netns().ok_or_else(|| {
        OpError::invalid("a pod on the node's network cannot be given network devices of its own")
    })?;
    for (host, inside) in list {
        let attempt = format!("move network device {host:?} into the pod");
        if let Some(known) = sandbox.state().net_devices.iter().find(|known| known.host == host) {
            if arrive(&path, &known.into()).map_err(OpError::failed(attempt.clone()))? {
                continue;
            }
            // It never arrived, or somebody took it away.
            sandbox.change(&ctx.journal, |state| state.net_devices.retain(|one| one.host != host))?;
        }
        let device = look(&path, &host, &inside).map_err(OpError::failed(attempt.clone()))?;
        let row = MovedDevice::from(&device);
        sandbox.change(&ctx.journal, |state| state.net_devices.push(row.clone()))?;
        if let Err(error) = move_in(&path, &device) {
            sandbox.settle(&ctx.journal, |state| state.net_devices.retain(|known| *known != row));
            return Err(OpError::failed(attempt)(error));
        }
    }
    Ok(())
}

/// Brings home what the pod was given; what cannot be brought home is left to the kernel. Blocks.
pub(crate) fn give_back(sandbox: &Sandbox) {
    let Some(path) = sandbox.netns() else { return };
    for device in sandbox.state().net_devices {
        if let Err(error) = move_out(&path, &(&device).into()) {
            let error = chain(&error);
            tracing::warn!(sandbox = %sandbox.id, device = device.host, error, "network device not brought home");
        }
    }
}

impl From<&podwire_netdev::MovedDevice> for MovedDevice {
    fn from(device: &podwire_netdev::MovedDevice) -> Self {
        let addresses = device.addresses.iter().map(ToString::to_string).collect();
        Self { host: device.host.clone(), inside: device.inside.clone(), up: device.up, addresses }
    }
}

impl From<&MovedDevice> for podwire_netdev::MovedDevice {
    /// An address that cannot be read, which no row of ours has, is left out.
    fn from(row: &MovedDevice) -> Self {
        let addresses = row.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        Self { host: row.host.clone(), inside: row.inside.clone(), up: row.up, addresses }
    }
}
