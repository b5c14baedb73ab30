//! Plugins as they are called: one connection each, which ends with the plugin, and every call bounded.
//!
//! Several plugins may serve one resource while one of them is replaced: the newest that has told its devices is asked, and
//! when it goes the one before it is again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use podwire_api::validate::limits::is_extended;
use podwire_wire::{
    device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, Device as Told, DevicePluginOptions, Empty,
        PreStartContainerRequest, PreferredAllocationRequest, device_plugin_client::DevicePluginClient,
    },
    ids::ContainerName,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{
    Devices, PrepareError, State, given,
    ledger::{Device, Question},
    traced::{FirstList, drawn},
};
use crate::{
    plugins::socket::{self, bounded},
    spec::PodRef,
};

/// How long a plugin may take to be dialled, to tell its options, and what it prefers.
const PATIENCE: Duration = Duration::from_secs(10);
const PREFERENCE: Duration = Duration::from_secs(5);
/// More plugins and more devices than any node has.
const MOST_PLUGINS: usize = 1024;
const MOST_DEVICES: usize = 65_536;
/// The longest name of a device.
const LONGEST_NAME: usize = 1024;

/// The version of the protocol.
pub(super) const VERSION: &str = "v1beta1";

/// Why a plugin is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("requested API version {0:?} is not supported by kubelet. Supported version is {VERSION:?}")]
    Version(String),
    #[error("the ResourceName {0:?} is invalid")]
    Name(String),
    #[error("the endpoint {0:?} is not the name of a file in the folder of device plugins")]
    Endpoint(String),
    #[error("there are {MOST_PLUGINS} device plugins already")]
    TooMany,
    #[error(transparent)]
    Dial(#[from] socket::DialError),
    #[error("{0}")]
    Call(#[from] crate::runtime::CallError),
    #[error("the kubelet is stopping")]
    Stopping,
}

/// One plugin of a resource.
struct Endpoint {
    id: u64,
    path: PathBuf,
    client: DevicePluginClient<Channel>,
    options: DevicePluginOptions,
    list: Option<Vec<Device>>,
    /// When it was asked for its list.
    asked: Instant,
    /// Its first answer.
    first: Option<FirstList>,
    stop: CancellationToken,
}

/// The plugins of every resource, the newest last.
#[derive(Default)]
pub(super) struct Endpoints {
    all: BTreeMap<String, Vec<Endpoint>>,
    next: u64,
    /// How often each resource was left by its last plugin.
    departures: BTreeMap<String, u64>,
}

impl Endpoints {
    /// What the plugin that is asked said when it was first asked for its list.
    pub(super) fn first_list(&self, resource: &str) -> Option<FirstList> {
        self.serving(resource)?.first
    }

    /// The plugin that is asked.
    fn serving(&self, resource: &str) -> Option<&Endpoint> {
        let all = self.all.get(resource)?;
        all.iter().rev().find(|endpoint| endpoint.list.is_some()).or_else(|| all.last())
    }

    fn count(&self) -> usize {
        self.all.values().map(Vec::len).sum()
    }
}

/// The name a plugin may have its socket under: a file of the folder itself.
pub(super) fn file_name(endpoint: &str) -> Result<&str, RegisterError> {
    let plain =
        !matches!(endpoint, "" | "." | "..") && !endpoint.contains(['/', '\0']) && endpoint.len() < 256;
    if plain { Ok(endpoint) } else { Err(RegisterError::Endpoint(endpoint.to_owned())) }
}

impl Devices {
    /// Dials a plugin and follows its list from then on, until the token is cancelled.
    pub(super) async fn connect(
        self: &Arc<Self>,
        resource: &str,
        path: &Path,
    ) -> Result<CancellationToken, RegisterError> {
        if !is_extended(resource) {
            return Err(RegisterError::Name(resource.to_owned()));
        }
        let mut client = DevicePluginClient::new(socket::dial(path, PATIENCE).await?);
        let asked = client.get_device_plugin_options(Empty {});
        let options = bounded("GetDevicePluginOptions", PATIENCE, asked).await?;
        if self.shutdown.is_cancelled() {
            return Err(RegisterError::Stopping);
        }
        let stop = self.shutdown.child_token();
        let id = {
            let mut state = self.state();
            let State { ledger, endpoints, .. } = &mut *state;
            if endpoints.count() >= MOST_PLUGINS {
                return Err(RegisterError::TooMany);
            }
            endpoints.next += 1;
            let id = endpoints.next;
            let all = endpoints.all.entry(resource.to_owned()).or_default();
            // Who registers again from the same place has been started again.
            all.iter().filter(|old| old.path == path).for_each(|old| old.stop.cancel());
            all.retain(|old| old.path != path);
            let prefers = options.get_preferred_allocation_available;
            let (path, client, stop) = (path.to_owned(), client.clone(), stop.clone());
            let asked = Instant::now();
            all.push(Endpoint { id, path, client, options, list: None, asked, first: None, stop });
            ledger.registered(resource, prefers);
            id
        };
        tracing::info!(resource, ?path, "device plugin registered");
        let (own, resource, ends) = (self.clone(), resource.to_owned(), stop.clone());
        self.tasks.spawn(async move { own.follow(resource, id, client, ends).await });
        Ok(stop)
    }

    /// Listens to one plugin's list until it ends.
    async fn follow(
        self: Arc<Self>,
        resource: String,
        id: u64,
        mut client: DevicePluginClient<Channel>,
        stop: CancellationToken,
    ) {
        let told = async {
            let mut lists = client.list_and_watch(Empty {}).await?.into_inner();
            while let Some(list) = lists.message().await? {
                if list.devices.len() > MOST_DEVICES {
                    return Err(tonic::Status::out_of_range(format!("more than {MOST_DEVICES} devices")));
                }
                if self.heard(&resource, id, devices(list.devices)) {
                    self.saved().await;
                }
            }
            Ok::<(), tonic::Status>(())
        };
        tokio::select! {
            () = stop.cancelled() => {}
            ended = told => match ended {
                Ok(()) => tracing::info!(resource, "the device plugin's list has ended"),
                Err(error) => tracing::warn!(resource, %error, "the device plugin's list was ended"),
            },
        }
        if !self.shutdown.is_cancelled() {
            self.left(&resource, id);
        }
    }

    /// A plugin told its devices; says whether it is the one that counts.
    fn heard(&self, resource: &str, id: u64, list: Vec<Device>) -> bool {
        let (amounts, pods) = {
            let mut state = self.state();
            let State { ledger, endpoints, .. } = &mut *state;
            let Some(own) =
                endpoints.all.get_mut(resource).and_then(|all| all.iter_mut().find(|e| e.id == id))
            else {
                return false;
            };
            own.first.get_or_insert_with(|| FirstList::new(own.asked, Instant::now(), &list));
            own.list = Some(list);
            let Some(serving) = endpoints.serving(resource).filter(|serving| serving.id == id) else {
                return false;
            };
            ledger.registered(resource, serving.options.get_preferred_allocation_available);
            let pods = ledger.listed(resource, serving.list.clone().unwrap_or_default());
            (ledger.amounts(), pods)
        };
        self.tell(amounts, &pods);
        true
    }

    /// A plugin has gone: the one before it serves again, or nobody does.
    fn left(self: &Arc<Self>, resource: &str, id: u64) {
        let (amounts, pods, departure) = {
            let mut state = self.state();
            let State { ledger, endpoints, .. } = &mut *state;
            let Some(all) = endpoints.all.get_mut(resource) else { return };
            let before = all.len();
            all.retain(|endpoint| endpoint.id != id);
            if all.len() == before {
                return;
            }
            let alone = all.is_empty();
            let pods = match endpoints.serving(resource) {
                None => ledger.gone(resource),
                Some(serving) => {
                    ledger.registered(resource, serving.options.get_preferred_allocation_available);
                    match &serving.list {
                        Some(list) => ledger.listed(resource, list.clone()),
                        None => BTreeSet::new(),
                    }
                }
            };
            let departure = alone.then(|| {
                let count = endpoints.departures.entry(resource.to_owned()).or_default();
                *count += 1;
                *count
            });
            (ledger.amounts(), pods, departure)
        };
        self.tell(amounts, &pods);
        if let Some(departure) = departure {
            tracing::warn!(resource, "the last device plugin of the resource has gone");
            let (own, resource) = (self.clone(), resource.to_owned());
            self.tasks.spawn(async move { own.expire(resource, departure).await });
        }
    }

    /// Devices are not counted any more when their plugin has stayed away.
    async fn expire(self: Arc<Self>, resource: String, departure: u64) {
        tokio::select! {
            () = self.shutdown.cancelled() => return,
            () = tokio::time::sleep(self.settings.grace) => {}
        }
        let (amounts, pods) = {
            let mut state = self.state();
            // One that came and went meanwhile has its own time.
            let came = state.endpoints.all.get(&resource).is_some_and(|all| !all.is_empty());
            if came || state.endpoints.departures.get(&resource) != Some(&departure) {
                return;
            }
            let pods = state.ledger.expired(&resource);
            (state.ledger.amounts(), pods)
        };
        self.tell(amounts, &pods);
    }

    fn plugin(&self, resource: &str) -> Option<(DevicePluginClient<Channel>, DevicePluginOptions)> {
        let state = self.state();
        state.endpoints.serving(resource).map(|endpoint| (endpoint.client.clone(), endpoint.options))
    }

    /// What the plugin prefers; nothing when it does not say so in time.
    pub(super) async fn preferred(&self, pod: &PodRef, question: &Question) -> Vec<String> {
        let Some((mut client, _)) = self.plugin(&question.resource) else { return Vec::new() };
        let request = PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_ids: question.available.clone(),
                must_include_device_ids: question.must_include.clone(),
                allocation_size: i32::try_from(question.size).unwrap_or(i32::MAX),
            }],
        };
        const CALL: &str = "GetPreferredAllocation";
        let asked = bounded(CALL, PREFERENCE, client.get_preferred_allocation(request));
        match drawn(pod, "", &question.resource, CALL, asked, |_| String::new()).await {
            Ok(answer) => {
                answer.container_responses.into_iter().next().map(|one| one.device_ids).unwrap_or_default()
            }
            Err(error) => {
                tracing::warn!(resource = question.resource, %error, "the device plugin does not say what it prefers");
                Vec::new()
            }
        }
    }

    /// Has devices allocated for a container.
    pub(super) async fn allocate(
        &self,
        pod: &PodRef,
        container: &ContainerName,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<ContainerAllocateResponse, PrepareError> {
        let own = || resource.to_owned();
        let (mut client, _) = self.plugin(resource).ok_or_else(|| PrepareError::Away { resource: own() })?;
        let given = ids.join(",");
        let request =
            AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: ids }] };
        let asked = bounded("Allocate", self.settings.deadline, client.allocate(request));
        let answer = drawn(pod, container, resource, "Allocate", asked, |_| given).await;
        let answer =
            answer.map_err(|error| PrepareError::Call { resource: own(), call: "Allocate", error })?;
        let first = answer.container_responses.into_iter().next();
        let response = first.ok_or_else(|| "no containers return in allocation response".to_owned());
        response
            .and_then(|response| given::check(&response).map(|()| response))
            .map_err(|why| PrepareError::Answer { resource: own(), why })
    }

    /// Has a container's devices readied, if the plugin wants that.
    pub(super) async fn pre_start(
        &self,
        pod: &PodRef,
        container: &ContainerName,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<(), PrepareError> {
        const CALL: &str = "PreStartContainer";
        let Some((mut client, _)) = self.plugin(resource).filter(|(_, options)| options.pre_start_required)
        else {
            return Ok(());
        };
        let request = PreStartContainerRequest { devices_ids: ids };
        let asked = bounded(CALL, self.settings.deadline, client.pre_start_container(request));
        let answer = drawn(pod, container, resource, CALL, asked, |_| String::new()).await;
        answer.map(drop).map_err(|error| PrepareError::Call {
            resource: resource.to_owned(),
            call: CALL,
            error,
        })
    }
}

/// What a plugin tells of its devices, without those that have no usable name.
fn devices(told: Vec<Told>) -> Vec<Device> {
    let named = told.into_iter().filter(|device| !device.id.is_empty() && device.id.len() <= LONGEST_NAME);
    named
        .map(|device| Device {
            healthy: device.health == "Healthy",
            nodes: device.topology.map(|topology| topology.nodes.into_iter().map(|node| node.id).collect()),
            id: device.id,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_in_the_folder_itself() {
        assert_eq!(file_name("gpu.sock").unwrap(), "gpu.sock");
        for bad in ["", ".", "..", "../kubelet.sock", "/run/x.sock", "a/b", "a\0b"] {
            assert!(file_name(bad).is_err(), "{bad:?}");
        }
    }
}
