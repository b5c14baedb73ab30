//! A driver of dynamic resources that does nothing: what it is asked for is prepared at once, and adds nothing to a container.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use podwire_wire::{
    authority::PathAuthority,
    dra_v1::{
        NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
        NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
        dra_plugin_server::{DraPlugin, DraPluginServer},
    },
    plugin_registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use tokio::{net::UnixListener, sync::watch, task::JoinSet};
use tonic::{Request, Response, Status, service::Routes};

/// Its name.
pub(super) const NAME: &str = "idle.example.com";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Served {
    endpoint: PathBuf,
    registered: watch::Sender<bool>,
}

/// One that serves until it is dropped.
pub(super) struct Idle {
    registered: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

impl Idle {
    /// Serves where the kubelet of this folder looks for drivers.
    pub(super) fn serve(kubelet: &Path) -> Result<Idle> {
        let endpoint = kubelet.join("plugins").join(NAME).join("dra.sock");
        let registrar = kubelet.join("plugins_registry").join(format!("{NAME}-reg.sock"));
        for path in [&endpoint, &registrar] {
            std::fs::create_dir_all(path.parent().context("no folder")?)?;
        }
        let (registered, heard) = watch::channel(false);
        let served = Served { endpoint: endpoint.clone(), registered };
        let mut tasks = JoinSet::new();
        for path in [&endpoint, &registrar] {
            let listener = podwire_wire::unix::listen(path)?;
            let routes = Routes::new(DraPluginServer::new(served.clone()))
                .add_service(RegistrationServer::new(served.clone()));
            tasks.spawn(serve(listener, routes));
        }
        Ok(Idle { registered: heard, _tasks: tasks })
    }

    /// Waits until the kubelet has taken it.
    pub(super) async fn registered(&self) -> Result<()> {
        let mut registered = self.registered.clone();
        tokio::time::timeout(PATIENCE, registered.wait_for(|done| *done))
            .await
            .context("the kubelet did not take the driver")??;
        Ok(())
    }
}

/// Answers the kubelet, which may call the path that it dials its host. What goes wrong is seen in what is waited for.
async fn serve(listener: UnixListener, routes: Routes) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let stream = TokioIo::new(PathAuthority::new(stream));
        let service = TowerToHyperService::new(routes.clone());
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        connections.spawn(server.serve_connection(stream, service));
    }
}

#[tonic::async_trait]
impl DraPlugin for Served {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let all = request.into_inner().claims.into_iter();
        let claims: HashMap<_, _> =
            all.map(|claim| (claim.uid, NodePrepareResourceResponse::default())).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let all = request.into_inner().claims.into_iter();
        let claims: HashMap<_, _> =
            all.map(|claim| (claim.uid, NodeUnprepareResourceResponse::default())).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl Registration for Served {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: NAME.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.registered.send_replace(status.into_inner().plugin_registered);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
