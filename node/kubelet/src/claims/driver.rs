//! Drivers as they are called: each instance is one connection that is watched and made again while it is registered.
//!
//! A driver may have several instances while one of them is replaced: the newest that is connected is asked. One that has
//! no instance connected for a while loses its resource slices, so that nobody is sent here for its devices.
//! Tasks: one per instance, which keeps its connection and listens to the health of its devices; one per driver that is
//! away, which deletes its slices unless it returns.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use podwire_wire::{
    dra_health::{NodeWatchResourcesRequest, dra_resource_health_client::DraResourceHealthClient},
    dra_v1::{self, dra_plugin_client::DraPluginClient},
    dra_v1beta1::{self as beta, dra_plugin_client::DraPluginClient as BetaClient},
    ids::PodUid,
};
use prost::Message;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status, transport::Channel};

use super::{
    Claims,
    health::{Condition, Health},
};
use crate::{
    inbox::Signal,
    plugins::{
        Announced, Handler, Registered,
        socket::{self, bounded},
    },
    runtime::CallError,
};

/// How long a driver may take to be dialled.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between attempts at a connection: at first, doubling up to the second.
const REDIAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Between attempts at the health of devices.
const RELISTEN: Duration = Duration::from_secs(5);
/// More instances of drivers than any node has.
const MOST: usize = 1024;
/// The longest name of a driver.
const LONGEST_NAME: usize = 63;

/// How a driver is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1beta1,
}

impl Version {
    /// The first of the driver's that we know; drivers list the one they prefer first.
    fn choose(told: &[String]) -> Result<Version, String> {
        if told.is_empty() {
            return Err("empty list of supported gRPC services (aka supported versions)".to_owned());
        }
        let known = |name: &String| match name.as_str() {
            "v1.DRAPlugin" => Some(Version::V1),
            "v1beta1.DRAPlugin" => Some(Version::V1beta1),
            _ => None,
        };
        told.iter().find_map(known).ok_or_else(|| {
            let told: Vec<String> = told.iter().map(|name| format!("{name:?}")).collect();
            let told = told.join(" ");
            format!(
                "none of services supported by the plugin ([{told}]) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
            )
        })
    }
}

/// One program that serves a driver.
struct Instance {
    id: u64,
    endpoint: PathBuf,
    version: Version,
    /// While it is connected.
    channel: Option<Channel>,
    health: Health,
    stop: CancellationToken,
}

/// The instances of every driver, the newest last.
#[derive(Default)]
pub(super) struct Drivers {
    all: BTreeMap<String, Vec<Instance>>,
    next: u64,
    /// Drivers that are away, and by what they are spared.
    away: BTreeMap<String, CancellationToken>,
}

impl Drivers {
    fn instance(&mut self, driver: &str, id: u64) -> Option<&mut Instance> {
        self.all.get_mut(driver)?.iter_mut().find(|instance| instance.id == id)
    }

    fn is_connected(&self, driver: &str) -> bool {
        self.all.get(driver).is_some_and(|all| all.iter().any(|instance| instance.channel.is_some()))
    }

    /// What is known of a device.
    pub(super) fn health(&self, driver: &str, pool: &str, device: &str, now: Instant) -> Condition {
        let all = self.all.get(driver).into_iter().flatten().rev();
        let said = all.filter_map(|instance| instance.health.of(pool, device, now)).next();
        said.cloned().unwrap_or_else(Condition::unknown)
    }
}

/// A driver that can be asked.
#[derive(Clone)]
pub(super) struct Driver {
    version: Version,
    channel: Channel,
    /// Cancelled when the instance is not registered any more.
    gone: CancellationToken,
}

impl Driver {
    /// Has claims prepared.
    pub(super) async fn prepare(
        &self,
        claims: Vec<dra_v1::Claim>,
        limit: Duration,
    ) -> Result<dra_v1::NodePrepareResourcesResponse, CallError> {
        let request = dra_v1::NodePrepareResourcesRequest { claims };
        let channel = self.channel.clone();
        let asked = async {
            match self.version {
                Version::V1 => DraPluginClient::new(channel).node_prepare_resources(request).await,
                Version::V1beta1 => {
                    let request: beta::NodePrepareResourcesRequest = same(&request)?;
                    let answer = BetaClient::new(channel).node_prepare_resources(request).await?;
                    same(answer.get_ref()).map(Response::new)
                }
            }
        };
        self.call("NodePrepareResources", limit, asked).await
    }

    /// Has what was prepared undone.
    pub(super) async fn unprepare(
        &self,
        claims: Vec<dra_v1::Claim>,
        limit: Duration,
    ) -> Result<dra_v1::NodeUnprepareResourcesResponse, CallError> {
        let request = dra_v1::NodeUnprepareResourcesRequest { claims };
        let channel = self.channel.clone();
        let asked = async {
            match self.version {
                Version::V1 => DraPluginClient::new(channel).node_unprepare_resources(request).await,
                Version::V1beta1 => {
                    let request: beta::NodeUnprepareResourcesRequest = same(&request)?;
                    let answer = BetaClient::new(channel).node_unprepare_resources(request).await?;
                    same(answer.get_ref()).map(Response::new)
                }
            }
        };
        self.call("NodeUnprepareResources", limit, asked).await
    }

    /// One call, which ends with its time or with the instance.
    async fn call<T>(
        &self,
        call: &'static str,
        limit: Duration,
        asked: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let asked = async {
            tokio::select! {
                answer = asked => answer,
                () = self.gone.cancelled() => Err(Status::unavailable("the driver has gone")),
            }
        };
        bounded(call, limit, asked).await
    }
}

/// The same message in the other version: v1beta1 is v1 without shares, with the same numbers.
fn same<A: Message, B: Message + Default>(message: &A) -> Result<B, Status> {
    B::decode(message.encode_to_vec().as_slice()).map_err(|error| Status::internal(error.to_string()))
}

impl Claims {
    /// The instance of a driver that is asked.
    pub(super) fn driver(&self, name: &str) -> Result<Driver, AwayError> {
        let state = self.state();
        let all = state.drivers.all.get(name).map(Vec::as_slice).unwrap_or_default();
        if all.is_empty() {
            return Err(AwayError::NotRegistered { driver: name.to_owned() });
        }
        let connected = all.iter().rev().find_map(|instance| {
            let channel = instance.channel.clone()?;
            Some(Driver { version: instance.version, channel, gone: instance.stop.clone() })
        });
        connected.ok_or_else(|| AwayError::NotConnected { driver: name.to_owned() })
    }

    async fn register(self: &Arc<Self>, driver: &str, plugin: &Announced) -> Result<Registered, String> {
        let endpoint = &plugin.endpoint;
        let version = Version::choose(&plugin.versions).map_err(|why| {
            format!(
                "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {}: {why}",
                endpoint.display()
            )
        })?;
        if !is_name(driver) {
            return Err(format!("{driver:?} is not the name of a DRA driver"));
        }
        let dialled = socket::dial_watched(endpoint, PATIENCE).await.map_err(|error| {
            format!(
                "create gRPC connection to DRA driver {driver} plugin at endpoint {}: {error}",
                endpoint.display()
            )
        })?;
        let stop = self.shutdown.child_token();
        let id = {
            let mut state = self.state();
            let drivers = &mut state.drivers;
            if drivers.all.values().map(Vec::len).sum::<usize>() >= MOST {
                return Err(format!("there are {MOST} DRA drivers already"));
            }
            drivers.next += 1;
            let id = drivers.next;
            let all = drivers.all.entry(driver.to_owned()).or_default();
            // Who registers again from the same place has been started again.
            all.iter().filter(|old| old.endpoint == *endpoint).for_each(|old| old.stop.cancel());
            all.retain(|old| old.endpoint != *endpoint);
            let (endpoint, stop) = (endpoint.clone(), stop.clone());
            all.push(Instance { id, endpoint, version, channel: None, health: Health::default(), stop });
            id
        };
        let (own, driver, endpoint) = (self.clone(), driver.to_owned(), endpoint.clone());
        self.connected(&driver, id, &dialled.0);
        let registered = stop.clone().drop_guard();
        self.tasks.spawn(async move { own.keep(driver, id, endpoint, dialled, stop).await });
        Ok(registered)
    }

    /// Keeps one instance connected until it is not wanted any more.
    async fn keep(
        self: Arc<Self>,
        driver: String,
        id: u64,
        endpoint: PathBuf,
        mut dialled: (Channel, CancellationToken),
        stop: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = dialled.1.cancelled() => {}
                () = self.listen(&driver, id, &dialled.0) => {}
            }
            self.disconnected(&driver, id);
            tracing::warn!(driver, ?endpoint, "the connection to the DRA driver has ended");
            dialled = tokio::select! {
                () = stop.cancelled() => break,
                again = redial(&endpoint) => again,
            };
            tracing::info!(driver, ?endpoint, "the DRA driver is connected again");
            self.connected(&driver, id, &dialled.0);
        }
        if !self.shutdown.is_cancelled() {
            self.removed(&driver, id);
        }
    }

    fn connected(self: &Arc<Self>, driver: &str, id: u64, channel: &Channel) {
        let stalled = {
            let mut state = self.state();
            if let Some(instance) = state.drivers.instance(driver, id) {
                instance.channel = Some(channel.clone());
            }
            if let Some(spared) = state.drivers.away.remove(driver) {
                spared.cancel();
            }
            let (now, later) = std::mem::take(&mut state.stalled).into_iter().partition::<BTreeMap<
                PodUid,
                BTreeSet<String>,
            >, _>(
                |(_, drivers)| drivers.contains(driver),
            );
            state.stalled = later;
            now
        };
        for pod in stalled.keys() {
            self.inboxes.signal(pod, Signal::DriverCame);
        }
        self.came.send_replace(());
    }

    fn disconnected(self: &Arc<Self>, driver: &str, id: u64) {
        let pods = {
            let mut state = self.state();
            let Some(instance) = state.drivers.instance(driver, id) else { return };
            instance.channel = None;
            let devices = instance.health.clear();
            state.users_of(driver, &devices)
        };
        self.tell(&pods);
        self.look_after(driver);
    }

    fn removed(self: &Arc<Self>, driver: &str, id: u64) {
        let pods = {
            let mut state = self.state();
            let Some(all) = state.drivers.all.get_mut(driver) else { return };
            let Some(at) = all.iter().position(|instance| instance.id == id) else { return };
            let devices = all.remove(at).health.clear();
            if all.is_empty() {
                state.drivers.all.remove(driver);
            }
            state.users_of(driver, &devices)
        };
        self.tell(&pods);
        self.look_after(driver);
    }

    /// A driver without any connected instance has a while to return before its slices are deleted.
    fn look_after(self: &Arc<Self>, driver: &str) {
        let spared = {
            let mut state = self.state();
            if state.drivers.is_connected(driver) || state.drivers.away.contains_key(driver) {
                return;
            }
            let spared = self.shutdown.child_token();
            state.drivers.away.insert(driver.to_owned(), spared.clone());
            spared
        };
        let (own, driver) = (self.clone(), driver.to_owned());
        self.tasks.spawn(async move {
            let wiped = async {
                tokio::time::sleep(own.settings.grace).await;
                tracing::info!(driver, "the DRA driver has stayed away; its resource slices are deleted");
                own.wipe(Some(&driver)).await;
            };
            tokio::select! {
                () = spared.cancelled() => return,
                () = wiped => {}
            }
            // Who returned meanwhile may be away again for another reason.
            let mut state = own.state();
            if !spared.is_cancelled() {
                state.drivers.away.remove(&driver);
            }
        });
    }

    /// Listens to what the driver says of its devices' health, as long as it says anything.
    async fn listen(self: &Arc<Self>, driver: &str, id: u64, channel: &Channel) {
        loop {
            match self.listen_once(driver, id, channel).await {
                Err(status) if status.code() == Code::Unimplemented => std::future::pending().await,
                Err(status) => {
                    tracing::debug!(driver, %status, "the health of the driver's devices is not told; will ask again");
                }
                Ok(()) => {}
            }
            let pods = {
                let mut state = self.state();
                let devices = state.drivers.instance(driver, id).map(|one| one.health.clear());
                state.users_of(driver, &devices.unwrap_or_default())
            };
            self.tell(&pods);
            tokio::time::sleep(RELISTEN).await;
        }
    }

    async fn listen_once(self: &Arc<Self>, driver: &str, id: u64, channel: &Channel) -> Result<(), Status> {
        let mut client = DraResourceHealthClient::new(channel.clone());
        let mut told = client.node_watch_resources(NodeWatchResourcesRequest {}).await?.into_inner();
        loop {
            let over = self.state().drivers.instance(driver, id).and_then(|one| one.health.next());
            let over = async {
                match over {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                message = told.message() => match message? {
                    Some(message) => message.devices,
                    None => return Ok(()),
                },
                () = over => Vec::new(),
            };
            let pods = {
                let mut state = self.state();
                let Some(instance) = state.drivers.instance(driver, id) else { return Ok(()) };
                let changed = instance.health.heard(news, Instant::now());
                state.users_of(driver, &changed)
            };
            self.tell(&pods);
        }
    }
}

/// Why a driver cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AwayError {
    /// Nobody has registered as this driver.
    #[error("DRA driver {driver} is not registered")]
    NotRegistered { driver: String },
    /// Somebody has, and does not listen any more.
    #[error("DRA driver {driver} is not connected")]
    NotConnected { driver: String },
}

async fn redial(endpoint: &Path) -> (Channel, CancellationToken) {
    let mut wait = REDIAL.0;
    loop {
        tokio::time::sleep(wait).await;
        match socket::dial_watched(endpoint, PATIENCE).await {
            Ok(dialled) => return dialled,
            Err(error) => tracing::debug!(?endpoint, %error, "DRA driver not connected; will try again"),
        }
        wait = (wait * 2).min(REDIAL.1);
    }
}

/// Drivers are named like domains.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(plain)
}

/// Drivers that announce themselves in `plugins_registry`.
pub(crate) struct Announcements(pub(crate) Arc<Claims>);

impl Handler for Announcements {
    fn kind(&self) -> &'static str {
        "DRAPlugin"
    }

    fn register(&self, plugin: Announced) -> BoxFuture<'_, Result<Registered, String>> {
        async move { self.0.register(&plugin.name, &plugin).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_that_is_known_is_spoken() {
        let choose =
            |told: &[&str]| Version::choose(&told.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(choose(&["v1.DRAPlugin", "v1beta1.DRAPlugin"]), Ok(Version::V1));
        assert_eq!(choose(&["v9.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok(Version::V1beta1));
        assert_eq!(
            choose(&["1.0.0"]).unwrap_err(),
            "none of services supported by the plugin ([\"1.0.0\"]) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
        );
        assert!(choose(&[]).is_err());
    }

    #[test]
    fn drivers_are_named_like_domains() {
        assert!(is_name("dra.net") && is_name("gpu.example.com"));
        for bad in ["", "A", "a/b", "a\0", &"x".repeat(64)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
