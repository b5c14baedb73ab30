//! How plugins come: they call `Register` on the kubelet's socket, or announce themselves in `plugins_registry`.

use std::{fs, io, os::unix::fs::FileTypeExt, path::Path, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use podwire_wire::device_plugin::{
    Empty, RegisterRequest,
    registration_server::{Registration, RegistrationServer},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::Routes};

use super::{
    Devices,
    plugin::{self, RegisterError, VERSION},
};
use crate::plugins::{Announced, Handler, Registered, serve};

/// The socket's name in the folder of device plugins.
const SOCKET: &str = "kubelet.sock";

/// Serves registration until `shutdown`.
pub(crate) async fn run(devices: Arc<Devices>, shutdown: CancellationToken) {
    let folder = devices.settings.plugins();
    let ready = || serve::folder(&folder).and_then(|()| remove_sockets(&folder));
    let Some(listener) = serve::listen(&folder.join(SOCKET), ready, &shutdown).await else { return };
    let routes = Routes::new(RegistrationServer::new(Server(devices)));
    serve::serve(listener, "device plugin registration", routes, shutdown).await;
}

/// Sockets of plugins are removed when the kubelet starts: that is how plugins know that they have to register again.
fn remove_sockets(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

struct Server(Arc<Devices>);

impl Server {
    async fn take(&self, request: RegisterRequest) -> Result<(), RegisterError> {
        let RegisterRequest { version, endpoint, resource_name, options: _ } = request;
        if version != VERSION {
            return Err(RegisterError::Version(version));
        }
        let path = self.0.settings.plugins().join(plugin::file_name(&endpoint)?);
        // Who came this way stays until its connection ends.
        self.0.connect(&resource_name, &path).await.map(drop)
    }
}

#[tonic::async_trait]
impl Registration for Server {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let (resource, endpoint) = (request.resource_name.clone(), request.endpoint.clone());
        match self.take(request).await {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(error) => {
                tracing::warn!(resource, endpoint, %error, "device plugin not registered");
                Err(Status::unknown(error.to_string()))
            }
        }
    }
}

/// Device plugins that announce themselves in `plugins_registry`.
pub(crate) struct Announcements(pub(crate) Arc<Devices>);

impl Handler for Announcements {
    fn kind(&self) -> &'static str {
        "DevicePlugin"
    }

    fn register(&self, plugin: Announced) -> BoxFuture<'_, Result<Registered, String>> {
        async move {
            if !plugin.versions.iter().any(|version| version == VERSION) {
                return Err(format!(
                    "manager version, {VERSION}, is not among plugin supported versions {:?}",
                    plugin.versions
                ));
            }
            let connected = self.0.connect(&plugin.name, &plugin.endpoint).await;
            connected.map(CancellationToken::drop_guard).map_err(|error| error.to_string())
        }
        .boxed()
    }
}
