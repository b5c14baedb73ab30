//! A device plugin that does as it is told and notes what it is asked, among the calls of the runtime.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures::{Stream, StreamExt};
use podwire_wire::{
    device_plugin::{
        AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
        ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
        ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest, PreStartContainerResponse,
        PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, TopologyInfo,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
        registration_client::RegistrationClient,
    },
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

pub(crate) fn device(id: &str) -> Device {
    Device { id: id.to_owned(), health: "Healthy".to_owned(), topology: None }
}

pub(crate) fn on_node(id: &str, node: i64) -> Device {
    let topology = Some(TopologyInfo { nodes: vec![NumaNode { id: node }] });
    Device { topology, ..device(id) }
}

pub(crate) fn unhealthy(id: &str) -> Device {
    Device { health: "Unhealthy".to_owned(), ..device(id) }
}

/// What the plugin does.
pub(crate) struct Manners {
    pub(crate) options: DevicePluginOptions,
    /// Calls that it never answers.
    pub(crate) hangs: BTreeSet<&'static str>,
    /// What Allocate fails with.
    pub(crate) fails: Option<String>,
    /// Devices it prefers.
    pub(crate) prefers: Vec<String>,
}

#[derive(Clone)]
struct Served {
    resource: String,
    socket: PathBuf,
    fake: Fake,
    lists: watch::Sender<Vec<Device>>,
    manners: Arc<Mutex<Manners>>,
    stop: CancellationToken,
    released: Arc<tokio::sync::Notify>,
    told: watch::Sender<Option<RegistrationStatus>>,
}

/// A running plugin.
pub(crate) struct Plugin {
    served: Served,
    tasks: JoinSet<()>,
}

impl Plugin {
    /// Serves `resource` on `socket`.
    pub(crate) fn serve(fake: &Fake, socket: PathBuf, resource: &str, devices: Vec<Device>) -> Plugin {
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = podwire_wire::unix::listen(&socket).unwrap();
        let manners = Manners {
            options: DevicePluginOptions::default(),
            hangs: BTreeSet::new(),
            fails: None,
            prefers: Vec::new(),
        };
        let served = Served {
            resource: resource.to_owned(),
            socket,
            fake: fake.clone(),
            lists: watch::channel(devices).0,
            manners: Arc::new(Mutex::new(manners)),
            stop: CancellationToken::new(),
            released: Arc::default(),
            told: watch::channel(None).0,
        };
        let mut tasks = JoinSet::new();
        let (plugin, registrar, stop) = (served.clone(), served.clone(), served.stop.clone());
        tasks.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(DevicePluginServer::new(plugin))
                .add_service(RegistrationServer::new(registrar))
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
                .await
                .ok();
        });
        Plugin { served, tasks }
    }

    /// Registers as plugins of v1beta1 do; tries until the kubelet is there.
    pub(crate) async fn register(&self) {
        let folder = self.served.socket.parent().unwrap();
        let endpoint = self.served.socket.file_name().unwrap().to_str().unwrap();
        let until = tokio::time::Instant::now() + DEADLINE;
        loop {
            match register(folder, "v1beta1", endpoint, &self.served.resource).await {
                Ok(()) => return,
                Err(status) => assert!(tokio::time::Instant::now() < until, "never registered: {status}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.served.manners.lock().unwrap());
    }

    /// Answers a call that hangs, and those to come.
    pub(crate) fn let_go(&self, call: &'static str) {
        self.behave(|manners| manners.hangs.retain(|hang| *hang != call));
        self.served.released.notify_waiters();
    }

    /// Answers whatever hangs.
    pub(crate) fn let_all_go(&self) {
        self.behave(|manners| manners.hangs.clear());
        self.served.released.notify_waiters();
    }

    /// Tells other devices.
    pub(crate) fn list(&self, devices: Vec<Device>) {
        self.served.lists.send_replace(devices);
    }

    /// What the kubelet said came of it.
    pub(crate) async fn told(&self) -> RegistrationStatus {
        let mut told = self.served.told.subscribe();
        let told = tokio::time::timeout(DEADLINE, told.wait_for(Option::is_some)).await.expect("is told");
        told.unwrap().clone().unwrap()
    }

    /// Goes away, and its socket with it.
    pub(crate) async fn stop(mut self) {
        self.served.stop.cancel();
        let rest = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(DEADLINE, rest).await.expect("the plugin comes to rest");
        std::fs::remove_file(&self.served.socket).ok();
    }
}

/// One attempt to register.
pub(crate) async fn register(
    folder: &Path,
    version: &str,
    endpoint: &str,
    resource: &str,
) -> Result<(), Status> {
    let mut client = RegistrationClient::new(podwire_wire::unix::channel(folder.join("kubelet.sock")));
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    client.register(request).await.map(drop)
}

impl Served {
    async fn hang(&self, call: &'static str) {
        loop {
            let released = self.released.notified();
            if !self.manners.lock().unwrap().hangs.contains(call) {
                return;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = released => {}
            }
        }
    }

    fn note(&self, call: &str, what: &[String]) {
        let text = format!("{call} {} {}", self.resource, what.join(","));
        self.fake.world.lock().unwrap().calls.push(text.trim_end().to_owned());
    }
}

#[tonic::async_trait]
impl DevicePlugin for Served {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        self.hang("options").await;
        Ok(Response::new(self.manners.lock().unwrap().options))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        self.hang("list").await;
        let mut lists = self.lists.subscribe();
        lists.mark_changed();
        let lists = futures::stream::unfold(lists, |mut lists| async move {
            lists.changed().await.ok()?;
            let devices = lists.borrow_and_update().clone();
            Some((Ok(ListAndWatchResponse { devices }), lists))
        });
        Ok(Response::new(lists.take_until(self.stop.clone().cancelled_owned()).boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests.remove(0);
        self.note("prefer", &asked.available_device_ids);
        self.hang("prefer").await;
        let device_ids = self.manners.lock().unwrap().prefers.clone();
        let container_responses = vec![ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        self.note("allocate", &ids);
        self.hang("allocate").await;
        if let Some(why) = &self.manners.lock().unwrap().fails {
            return Err(Status::unknown(why.clone()));
        }
        let name = self.resource.rsplit('/').next().unwrap();
        let response = ContainerAllocateResponse {
            envs: [(name.to_uppercase(), ids.join(","))].into(),
            mounts: vec![Mount {
                container_path: format!("/opt/{name}"),
                host_path: "/opt".to_owned(),
                read_only: true,
            }],
            devices: ids
                .iter()
                .map(|id| DeviceSpec {
                    container_path: format!("/dev/{id}"),
                    host_path: "/dev/null".to_owned(),
                    permissions: "rw".to_owned(),
                })
                .collect(),
            annotations: [(format!("{name}.example.com"), ids.join("."))].into(),
            cdi_devices: ids
                .iter()
                .map(|id| CdiDevice { name: format!("example.com/{name}={id}") })
                .collect(),
        };
        Ok(Response::new(AllocateResponse { container_responses: vec![response] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.note("prestart", &request.into_inner().devices_ids);
        self.hang("prestart").await;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

#[tonic::async_trait]
impl Registration for Served {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DevicePlugin".to_owned(),
            name: self.resource.clone(),
            endpoint: String::new(),
            supported_versions: vec!["v1beta1".to_owned()],
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
