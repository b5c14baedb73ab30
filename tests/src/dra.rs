//! A driver of dynamic resources as the kubelet finds it: both sockets, for tests that play one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use podwire_wire::{
    dra_v1::dra_plugin_server::{DraPlugin, DraPluginServer},
    plugin_registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Where a driver serves, below the kubelet's folder.
pub struct Sockets {
    name: String,
    endpoint: PathBuf,
    registrar: PathBuf,
}

impl Sockets {
    /// The driver's sockets, with nothing left there of an earlier one.
    pub fn of(name: &str, root: &Path) -> Result<Sockets> {
        let endpoint = root.join("plugins").join(name).join("dra.sock");
        let registrar = root.join("plugins_registry").join(format!("{name}-reg.sock"));
        for path in [&endpoint, &registrar] {
            std::fs::create_dir_all(path.parent().context("no folder")?)?;
            // Ignored: what an earlier one left, if there was one.
            std::fs::remove_file(path).ok();
        }
        Ok(Sockets { name: name.to_owned(), endpoint, registrar })
    }

    /// Serves until `stop`; `registered` hears what the kubelet says.
    pub async fn serve(
        self,
        driver: impl DraPlugin,
        registered: impl Fn(bool) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<()> {
        let incoming = |path: &Path| -> Result<_> {
            let listener = podwire_wire::unix::listen(path)?;
            Ok(futures::stream::unfold(listener, |listener| async move {
                let next = listener.accept().await.map(|(stream, _)| stream);
                Some((next, listener))
            }))
        };
        let (calls, announcements) = (incoming(&self.endpoint)?, incoming(&self.registrar)?);
        let announcer = Announcer { name: self.name, endpoint: self.endpoint, registered };
        let driver = tonic::transport::Server::builder()
            .add_service(DraPluginServer::new(driver))
            .serve_with_incoming_shutdown(calls, stop.clone().cancelled_owned());
        let registration = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(announcer))
            .serve_with_incoming_shutdown(announcements, stop.cancelled_owned());
        let (driver, registration) = futures::join!(driver, registration);
        Ok(driver.and(registration)?)
    }
}

struct Announcer<F> {
    name: String,
    endpoint: PathBuf,
    registered: F,
}

#[tonic::async_trait]
impl<F: Fn(bool) + Send + Sync + 'static> Registration for Announcer<F> {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        (self.registered)(status.into_inner().plugin_registered);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
