//! A driver of network devices that is broken on purpose, for the drill to find: it has one device and keeps what it knows in
//! memory only.
//!
//! `broken-driver NAME KUBELET-FOLDER NRI-SOCKET LINK MODE PODWIRE`; in the mode `idle` it prepares and attaches nothing, in the mode
//! `forgetful` it attaches, and once killed it knows of no device that it would have to give back.
//! Its slice is written by the client PODWIRE, with $KUBECONFIG.
#![allow(clippy::print_stderr)]

use std::{
    io::Write,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail};
use podwire_linux::{
    netns::Netns,
    rtnl::{Batch, LinkChange, LinkRef, Socket},
};
use podwire_nri::{
    api::{Event, PodSandbox},
    stub::{Answer, Happened, Plugin, Stub},
};
use podwire_tests::dra::Sockets;
use podwire_wire::dra_v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
    dra_plugin_server::DraPlugin,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// What it knows.
#[derive(Default)]
struct Known {
    /// Claims that are prepared and have no device yet.
    prepared: Vec<String>,
    /// The sandbox with the device, and its namespace.
    holder: Option<(String, PathBuf)>,
}

#[derive(Clone)]
struct Driver {
    link: String,
    attaches: bool,
    home: Arc<Netns>,
    known: Arc<Mutex<Known>>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, root, socket, link, mode, podwire] = args.as_slice() else {
        bail!("broken-driver NAME KUBELET-FOLDER NRI-SOCKET LINK idle|forgetful PODWIRE")
    };
    let driver = Driver {
        link: link.clone(),
        attaches: mode == "forgetful",
        home: Arc::new(Netns::current()?),
        known: Arc::default(),
    };
    let sockets = Sockets::of(name, Path::new(root))?;
    let stub = Stub { socket: socket.into(), ..Stub::new(name.as_str(), "00") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // It ends when it is killed, or told to in the way that kills.
        let never = CancellationToken::new();
        let slice = slice(name, link);
        let podwire = podwire.clone();
        let registered =
            move |taken| eprintln!("registered: {taken}, slice: {:?}", publish(&podwire, &slice));
        let ((), served) = tokio::join!(
            stub.run(Arc::new(driver.clone()), never.clone()),
            sockets.serve(driver.clone(), registered, never.clone()),
        );
        served
    })
}

/// One slice with one device.
fn slice(driver: &str, link: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: node1-broken}}\nspec:\n  driver: {driver}\n  nodeName: node1\n  \
         pool: {{name: node1, generation: 1, resourceSliceCount: 1}}\n  devices: [{{name: {link}, attributes: {{dra.net/ifName: {{string: {link}}}}}}}]\n"
    )
}

fn publish(podwire: &str, slice: &str) -> Result<ExitStatus> {
    let mut command = Command::new(podwire);
    let mut child = command.args(["apply", "-f", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(slice.as_bytes())?;
    Ok(child.wait()?)
}

/// Takes a link from the namespace of this thread into another one.
fn take(link: &str, into: &Netns) -> Result<()> {
    let mut batch = Batch::new();
    let change = LinkChange { netns: Some(into.as_fd()), ..LinkChange::default() };
    batch.set_link(LinkRef::Name(link), &change);
    Socket::route()?.exchange(&mut batch)?;
    Ok(())
}

impl Driver {
    fn with<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn run_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        let wanted = self.with(|known| known.prepared.pop().is_some());
        if !wanted || !self.attaches {
            return Ok(());
        }
        let namespaces = pod.linux.iter().flat_map(|linux| &linux.namespaces);
        let network = namespaces.into_iter().find(|one| one.r#type == "network").context("no namespace")?;
        let path = PathBuf::from(&network.path);
        take(&self.link, &Netns::open(&path)?)?;
        self.with(|known| known.holder = Some((pod.id.clone(), path)));
        Ok(())
    }

    fn stop_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        let holder = self.with(|known| known.holder.take_if(|(id, _)| *id == pod.id));
        let Some((_, path)) = holder else { return Ok(()) };
        let home = &self.home;
        Netns::open(&path)?.run(|| take(&self.link, home))?
    }
}

impl Plugin for Driver {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::StopPodSandbox]
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        let done = match what.event {
            Event::RunPodSandbox => self.run_sandbox(&what.pod),
            _ => self.stop_sandbox(&what.pod),
        };
        Box::pin(std::future::ready(done.map_err(|error| format!("{error:#}").into())))
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| {
            self.with(|known| known.prepared.push(claim.uid.clone()));
            let device = Device {
                request_names: vec!["device".to_owned()],
                pool_name: "node1".to_owned(),
                device_name: self.link.clone(),
                ..Device::default()
            };
            (claim.uid, NodePrepareResourceResponse { devices: vec![device], error: String::new() })
        });
        Ok(Response::new(NodePrepareResourcesResponse { claims: claims.collect() }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.map(|claim| {
            self.with(|known| known.prepared.retain(|uid| *uid != claim.uid));
            (claim.uid, NodeUnprepareResourceResponse::default())
        });
        Ok(Response::new(NodeUnprepareResourcesResponse { claims: claims.collect() }))
    }
}
