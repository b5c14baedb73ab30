//! A driver of dynamic resources that does as it is told and notes what it is asked, among the calls of the runtime.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures::{Stream, StreamExt};
use podwire_wire::{
    dra_health::{
        DeviceHealth, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer},
    },
    dra_v1::{
        Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
        NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
        dra_plugin_server::{DraPlugin, DraPluginServer},
    },
    dra_v1beta1 as beta,
    plugin_registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use tokio::{sync::watch, task::JoinSet};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{cluster::DEADLINE, runtime::Fake};

/// What the driver does.
#[derive(Default)]
pub(crate) struct Manners {
    /// Calls that it does not answer.
    pub(crate) hangs: BTreeSet<&'static str>,
    /// Calls that fail, with what.
    pub(crate) fails: BTreeMap<&'static str, String>,
    /// What it says of each claim instead of success.
    pub(crate) claim_error: Option<String>,
    /// Whether it leaves a claim out of its answer.
    pub(crate) skips: bool,
    /// Whether it answers for a claim that nobody asked for.
    pub(crate) babbles: bool,
    /// The devices of each claim, in its own words.
    pub(crate) devices: Vec<Device>,
}

#[derive(Clone)]
struct Served {
    name: String,
    versions: Vec<String>,
    endpoint: PathBuf,
    fake: Fake,
    manners: Arc<Mutex<Manners>>,
    stop: CancellationToken,
    released: Arc<tokio::sync::Notify>,
    health: watch::Sender<Vec<DeviceHealth>>,
    told: watch::Sender<Option<RegistrationStatus>>,
}

/// A running driver.
pub(crate) struct Driver {
    served: Served,
    registrar: PathBuf,
    tasks: JoinSet<()>,
}

pub(crate) fn device(name: &str, requests: &[&str]) -> Device {
    Device {
        request_names: requests.iter().map(|name| (*name).to_owned()).collect(),
        pool_name: "pool".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: vec![format!("example.com/dev={name}")],
        share_id: None,
    }
}

impl Driver {
    /// Serves and announces a driver below the kubelet's folder; several of a name differ by `instance`.
    pub(crate) fn serve(fake: &Fake, root: &Path, name: &str, instance: &str, versions: &[&str]) -> Driver {
        let endpoint = root.join("plugins").join(name).join(format!("dra{instance}.sock"));
        let registrar = root.join("plugins_registry").join(format!("{name}{instance}-reg.sock"));
        for path in [&endpoint, &registrar] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::remove_file(path).ok();
        }
        let served = Served {
            name: name.to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            endpoint: endpoint.clone(),
            fake: fake.clone(),
            manners: Arc::new(Mutex::new(Manners { devices: vec![device("d0", &[])], ..Manners::default() })),
            stop: CancellationToken::new(),
            released: Arc::default(),
            health: watch::channel(Vec::new()).0,
            told: watch::channel(None).0,
        };
        let mut tasks = JoinSet::new();
        let listener = podwire_wire::unix::listen(&endpoint).unwrap();
        let (v1, old, watched, stop) =
            (served.clone(), Old(served.clone()), served.clone(), served.stop.clone());
        tasks.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(DraPluginServer::new(v1))
                .add_service(beta::dra_plugin_server::DraPluginServer::new(old))
                .add_service(DraResourceHealthServer::new(watched))
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
                .await
                .ok();
        });
        let listener = podwire_wire::unix::listen(&registrar).unwrap();
        let (announcer, stop) = (served.clone(), served.stop.clone());
        tasks.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(RegistrationServer::new(announcer))
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
                .await
                .ok();
        });
        Driver { served, registrar, tasks }
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.served.manners.lock().unwrap());
        self.served.released.notify_waiters();
    }

    /// Does not answer this call until told otherwise.
    pub(crate) fn hang(&self, call: &'static str) {
        self.behave(|manners| {
            manners.hangs.insert(call);
        });
    }

    /// Tells the health of devices.
    pub(crate) fn health(&self, devices: Vec<DeviceHealth>) {
        self.served.health.send_replace(devices);
    }

    /// What the kubelet said came of its registration.
    pub(crate) async fn told(&self) -> RegistrationStatus {
        let mut told = self.served.told.subscribe();
        let told = tokio::time::timeout(DEADLINE, told.wait_for(Option::is_some)).await.expect("is told");
        told.unwrap().clone().unwrap()
    }

    /// Ends at once, as if killed: its sockets stay.
    pub(crate) async fn kill(mut self) {
        self.tasks.shutdown().await;
        self.served.stop.cancel();
    }

    /// Goes away, and its sockets with it.
    pub(crate) async fn stop(self) {
        let paths = [self.registrar.clone(), self.served.endpoint.clone()];
        self.kill().await;
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

impl Served {
    async fn met(&self, call: &'static str, claims: &[String]) -> Result<(), Status> {
        let text = format!("{call} {} {}", self.name, claims.join(","));
        self.fake.world.lock().unwrap().calls.push(text);
        loop {
            let released = self.released.notified();
            if !self.manners.lock().unwrap().hangs.contains(call) {
                break;
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(Status::unavailable("killed")),
                () = released => {}
            }
        }
        match self.manners.lock().unwrap().fails.get(call) {
            Some(why) => Err(Status::unknown(why.clone())),
            None => Ok(()),
        }
    }

    /// The uids it answers for.
    fn answered(&self, mut uids: Vec<String>) -> Vec<String> {
        let manners = self.manners.lock().unwrap();
        if manners.skips {
            uids.pop();
        }
        if manners.babbles {
            uids.push("unheard-of".to_owned());
        }
        uids
    }
}

#[tonic::async_trait]
impl DraPlugin for Served {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let asked = request.into_inner().claims;
        self.met("prepare", &asked.iter().map(|one| one.name.clone()).collect::<Vec<_>>()).await?;
        let uids = self.answered(asked.into_iter().map(|one| one.uid).collect());
        let manners = self.manners.lock().unwrap();
        let answer = NodePrepareResourceResponse {
            devices: manners.devices.clone(),
            error: manners.claim_error.clone().unwrap_or_default(),
        };
        let claims = uids.into_iter().map(|uid| (uid, answer.clone())).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let asked = request.into_inner().claims;
        self.met("unprepare", &asked.iter().map(|one| one.name.clone()).collect::<Vec<_>>()).await?;
        let uids = self.answered(asked.into_iter().map(|one| one.uid).collect());
        let error = self.manners.lock().unwrap().claim_error.clone().unwrap_or_default();
        let answer = NodeUnprepareResourceResponse { error };
        let claims = uids.into_iter().map(|uid| (uid, answer.clone())).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// The same driver in the older version.
struct Old(Served);

fn same<A: prost::Message, B: prost::Message + Default>(message: &A) -> B {
    B::decode(message.encode_to_vec().as_slice()).unwrap()
}

#[tonic::async_trait]
impl beta::dra_plugin_server::DraPlugin for Old {
    async fn node_prepare_resources(
        &self,
        request: Request<beta::NodePrepareResourcesRequest>,
    ) -> Result<Response<beta::NodePrepareResourcesResponse>, Status> {
        self.0.fake.world.lock().unwrap().calls.push(format!("v1beta1 {}", self.0.name));
        let answer = self.0.node_prepare_resources(Request::new(same(request.get_ref()))).await?;
        Ok(Response::new(same(answer.get_ref())))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<beta::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<beta::NodeUnprepareResourcesResponse>, Status> {
        let answer = self.0.node_unprepare_resources(Request::new(same(request.get_ref()))).await?;
        Ok(Response::new(same(answer.get_ref())))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Served {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut lists = self.health.subscribe();
        lists.mark_changed();
        let lists = futures::stream::unfold(lists, |mut lists| async move {
            lists.changed().await.ok()?;
            let devices = lists.borrow_and_update().clone();
            Some((Ok(NodeWatchResourcesResponse { devices }), lists))
        });
        Ok(Response::new(lists.take_until(self.stop.clone().cancelled_owned()).boxed()))
    }
}

#[tonic::async_trait]
impl Registration for Served {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: self.versions.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.told.send_replace(Some(status.into_inner()));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
