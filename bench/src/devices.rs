//! Device plugins: from Register to what the node offers, what Allocate adds to a pod's start, ten thousand devices, and how
//! often the node's status is written. A plugin of the bench's own, at a node's socket.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{Api, WatchEvent, WatchParams};
use podwire_testkit::Node;
use podwire_wire::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
    device_plugin_server::{DevicePlugin, DevicePluginServer},
    registration_client::RegistrationClient,
};
use tokio::{sync::watch, task::JoinSet};
use tonic::{Request, Response, Status};

use crate::{
    measure::{Processes, percentile},
    pods::Cluster,
    report::{self, Row},
};

/// Registrations, and pods of each kind.
const REGISTRATIONS: usize = 20;
const PODS: usize = 40;
const MANY: usize = 10_000;
/// How often a list that says nothing new is told.
const REPEATS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Served(watch::Sender<Vec<Device>>);

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Served {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let mut lists = self.0.subscribe();
        lists.mark_changed();
        let lists = stream::unfold(lists, |mut lists| async move {
            lists.changed().await.ok()?;
            let devices = lists.borrow_and_update().clone();
            Some((Ok(ListAndWatchResponse { devices }), lists))
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("no preference"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let all = request.into_inner().container_requests;
        let container_responses = all.iter().map(|_| ContainerAllocateResponse::default()).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

/// A plugin that serves until it is dropped.
struct Plugin {
    resource: String,
    folder: PathBuf,
    lists: watch::Sender<Vec<Device>>,
    _tasks: JoinSet<()>,
}

fn devices(count: usize) -> Vec<Device> {
    let named = (0..count).map(|number| format!("device-{number:05}"));
    named.map(|id| Device { id, health: "Healthy".to_owned(), topology: None }).collect()
}

impl Plugin {
    fn serve(folder: &Path, resource: &str, count: usize) -> Result<Plugin> {
        let lists = watch::channel(devices(count)).0;
        let listener = podwire_wire::unix::listen(&folder.join(socket(resource)))?;
        let incoming = stream::unfold(listener, |listener| async move {
            let connection = listener.accept().await.map(|(connection, _)| connection);
            Some((connection, listener))
        });
        let service = DevicePluginServer::new(Served(lists.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Ignored: a plugin that could not serve is seen in what is waited for.
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await.ok();
        });
        Ok(Plugin { resource: resource.to_owned(), folder: folder.to_owned(), lists, _tasks: tasks })
    }

    async fn register(&self) -> Result<()> {
        let kubelet = podwire_wire::unix::channel(self.folder.join("kubelet.sock"));
        let request = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: socket(&self.resource),
            resource_name: self.resource.clone(),
            options: None,
        };
        RegistrationClient::new(kubelet).register(request).await?;
        Ok(())
    }
}

fn socket(resource: &str) -> String {
    format!("{}.sock", resource.replace('/', "-"))
}

/// Follows the node's object.
struct Watched(Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<NodeObject>>> + Send>>);

impl Watched {
    async fn begin(nodes: &Api<NodeObject>) -> Result<Watched> {
        let version = nodes.get("node1").await?.metadata.resource_version.context("no version")?;
        Ok(Watched(nodes.watch(&WatchParams::default(), &version).await?.boxed()))
    }

    /// Waits until so many of a resource can be used.
    async fn until(&mut self, resource: &str, count: usize) -> Result<()> {
        let seen = async {
            while let Some(event) = self.0.try_next().await? {
                if let WatchEvent::Modified(node) = event {
                    let listed = node.status.and_then(|status| status.allocatable).unwrap_or_default();
                    let told = listed.get(resource).map(|amount| amount.0.clone());
                    let same = [count.to_string(), format!("{}k", count / 1000)];
                    if told.is_some_and(|told| same.contains(&told)) {
                        return Ok(());
                    }
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(PATIENCE, seen).await.context("not seen in time")?
    }
}

/// Measures and prints.
pub async fn run() -> Result<()> {
    let node = Node::up(&[])?;
    let folder = node.data_dir.join("kubelet/device-plugins");
    let cluster = Cluster::connect(&node.kubeconfig()).await?;
    let nodes: Api<NodeObject> = cluster.nodes();
    let (registered, _plugins) = registrations(&nodes, &folder).await?;
    let (without, with) = pods(&cluster, &nodes, &folder).await?;
    let many = Plugin::serve(&folder, "example.com/many", 1)?;
    let mut watched = Watched::begin(&nodes).await?;
    many.register().await?;
    watched.until("example.com/many", 1).await?;
    let processes = Processes::of_node(&node)?;
    let before = processes.own_pss_bytes()?;
    let begun = Instant::now();
    many.lists.send_replace(devices(MANY));
    watched.until("example.com/many", MANY).await?;
    let listed = begun.elapsed();
    let after = processes.own_pss_bytes()?;
    let writes = repeats(&nodes, &many).await?;
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let mega = |bytes: u64| bytes as f64 / 1e6;
    let median = |times: &[Duration]| millis(percentile(times, 50));
    report::print(&[
        Row::new("Register to allocatable, p50", "ms", median(&registered), None, Some(50.0)),
        Row::new(
            "Register to allocatable, worst",
            "ms",
            millis(percentile(&registered, 100)),
            None,
            Some(50.0),
        ),
        Row::new("a pod's start without a device, p50", "ms", median(&without), None, None),
        Row::new("a device adds, p50", "ms", median(&with) - median(&without), None, Some(2.0)),
        Row::new("10,000 devices told to allocatable", "ms", millis(listed), None, Some(20.0)),
        Row::new("10,000 devices, memory", "MB", mega(after.saturating_sub(before)), None, Some(30.0)),
        Row::new("writes of an unchanged node status", "", writes as f64, None, Some(0.0)),
    ]);
    drop(many);
    node.down()
}

async fn registrations(nodes: &Api<NodeObject>, folder: &Path) -> Result<(Vec<Duration>, Vec<Plugin>)> {
    let (mut times, mut plugins) = (Vec::new(), Vec::new());
    for number in 0..REGISTRATIONS {
        let plugin = Plugin::serve(folder, &format!("example.com/r{number}"), 8)?;
        let mut watched = Watched::begin(nodes).await?;
        let begun = Instant::now();
        plugin.register().await?;
        watched.until(&plugin.resource, 8).await?;
        times.push(begun.elapsed());
        plugins.push(plugin);
    }
    Ok((times, plugins))
}

/// Starts without and with a device, in turns.
async fn pods(
    cluster: &Cluster,
    nodes: &Api<NodeObject>,
    folder: &Path,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let plugin = Plugin::serve(folder, "example.com/one", 8)?;
    let mut watched = Watched::begin(nodes).await?;
    plugin.register().await?;
    watched.until("example.com/one", 8).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..=PODS {
        let plain = cluster.start_and_stop(&format!("plain{number}")).await?.0;
        let device = cluster.start_and_stop_with(&format!("device{number}"), "example.com/one").await?.0;
        // The first of each pays for what is cold.
        if number > 0 {
            without.push(plain);
            with.push(device);
        }
    }
    Ok((without, with))
}

/// How often the node's status is written while a plugin repeats itself.
async fn repeats(nodes: &Api<NodeObject>, plugin: &Plugin) -> Result<usize> {
    let mut watched = Watched::begin(nodes).await?;
    for _ in 0..REPEATS {
        plugin.lists.send_replace(devices(MANY));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What comes after all of them is the end of what is counted.
    plugin.lists.send_replace(devices(MANY - 1));
    let mut writes = 0;
    loop {
        let event = tokio::time::timeout(PATIENCE, watched.0.try_next()).await.context("no event")??;
        let Some(WatchEvent::Modified(node)) = event else { continue };
        let listed = node.status.and_then(|status| status.allocatable).unwrap_or_default();
        if listed.get(&plugin.resource).is_some_and(|amount| amount.0 == (MANY - 1).to_string()) {
            return Ok(writes);
        }
        writes += 1;
    }
}
