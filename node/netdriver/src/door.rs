//! The driver's door to the kubelet: two sockets, one that says who we are and one that prepares claims.
//!
//! Tasks: one for each socket, and one for each connection while it lasts. The call itself is short: the claim is read, planned,
//! and handed to the keeper, whose answer is the kubelet's.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use podwire_client::{Api, Client};
use podwire_trace::{Arrow, Outcome, Participant, Side, What, chain};
use podwire_wire::{
    authority::PathAuthority,
    dra_health::dra_resource_health_server::DraResourceHealthServer,
    dra_v1::{
        self, Claim as Named, NodePrepareResourceResponse, NodePrepareResourcesRequest,
        NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
        NodeUnprepareResourcesResponse,
        dra_plugin_server::{DraPlugin, DraPluginServer},
    },
    dra_v1beta1 as beta,
    plugin_registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
    unix::{self, ListenError},
};
use serde_json::Value;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, service::Routes};

use crate::{
    book::Claim,
    figures::{Came, Door as At, Figures},
    health,
    keeper::{self, Answer, Word},
    plan::{self, claim, status::unplanned},
    publications::Publications,
    publisher::Offered,
    teller::Teller,
};

/// How long the API server may take to tell a claim: a part of what the kubelet waits.
const READ: Duration = Duration::from_secs(10);
/// How long a device that is not there may take to come.
const COMING: Duration = Duration::from_secs(1);
/// How long a connection may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// Both sockets, bound.
pub(crate) struct Door {
    plugin: (UnixListener, PathBuf),
    registrar: (UnixListener, PathBuf),
    service: Service,
}

/// What the calls need.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) client: Client,
    pub(crate) words: mpsc::Sender<Word>,
    pub(crate) offered: watch::Receiver<Arc<Offered>>,
    pub(crate) teller: Teller,
    pub(crate) figures: Figures,
    pub(crate) publications: Publications,
    pub(crate) health: watch::Receiver<health::Seen>,
}

impl Door {
    /// Binds both in the kubelet's folder, where the kubelet does not look before the second one is there.
    pub(crate) fn bind(kubelet: &Path, service: Service) -> Result<Door, ListenError> {
        let plugin = kubelet.join("plugins").join(&service.driver).join("dra.sock");
        let registrar = kubelet.join("plugins_registry").join(format!("{}-reg.sock", service.driver));
        Ok(Door {
            plugin: (unix::listen(&plugin)?, plugin),
            registrar: (unix::listen(&registrar)?, registrar),
            service,
        })
    }

    /// Serves until `shutdown`, then removes the sockets.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Door { plugin: (plugin, endpoint), registrar: (registrar, path), service } = self;
        let announcer = Announcer { driver: service.driver.clone(), endpoint: endpoint.clone() };
        let health = health::Told { seen: service.health.clone(), shutdown: shutdown.clone() };
        let calls = Routes::new(DraPluginServer::new(service.clone()))
            .add_service(beta::dra_plugin_server::DraPluginServer::new(Older(service)))
            .add_service(DraResourceHealthServer::new(health));
        let announcing = Routes::new(RegistrationServer::new(announcer));
        // A driver that the kubelet can find is one that answers.
        tokio::join!(serve(plugin, calls, shutdown.clone()), serve(registrar, announcing, shutdown));
        for path in [path, endpoint] {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(?path, %error, "a socket is left behind; the next run replaces it");
            }
        }
    }
}

async fn serve(listener: UnixListener, routes: Routes, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            stream = podwire_wire::accept::next(&listener, "network driver's socket") => stream,
        };
        connections.spawn(converse(stream, routes.clone(), stop.clone()));
    }
    connections.close();
    connections.wait().await;
}

async fn converse(stream: UnixStream, routes: Routes, stop: CancellationToken) {
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // The kubelet dials a path, and calls it its host.
        .serve_connection(TokioIo::new(PathAuthority::new(stream)), TowerToHyperService::new(routes));
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // The kubelet goes away as it pleases.
        _ = served.as_mut() => return,
        () = stop.cancelled() => served.as_mut().graceful_shutdown(),
    }
    drop(tokio::time::timeout(GRACE, served).await);
}

struct Announcer {
    driver: String,
    endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for Announcer {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.driver.clone(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            // The kubelet takes the first that it knows.
            supported_versions: vec!["v1.DRAPlugin".to_owned(), "v1beta1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if status.plugin_registered {
            tracing::info!(driver = self.driver, "registered with the kubelet");
        } else {
            tracing::error!(
                driver = self.driver,
                error = status.error,
                "the kubelet does not take the driver"
            );
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl Service {
    /// The claim as the API server has it.
    async fn read(&self, named: &Named) -> Result<Value, String> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &named.namespace);
        let begun = Instant::now();
        match tokio::time::timeout(READ, api.get_value(&named.name)).await {
            Ok(Ok(Some(claim))) => {
                self.draw(&claim, named, begun.elapsed());
                Ok(claim)
            }
            Ok(Ok(None)) => Err("there is no such claim".to_owned()),
            Ok(Err(error)) => Err(format!("the claim cannot be read: {}", chain(&error))),
            Err(_) => Err("the claim cannot be read: the API server does not answer".to_owned()),
        }
    }

    /// Whose path it was on is known only from the answer.
    fn draw(&self, claim: &Value, named: &Named, took: Duration) {
        let text =
            |name: &str| claim.pointer(&format!("/status/reservedFor/0/{name}")).and_then(Value::as_str);
        if let (true, Some(uid), Some(name)) = (podwire_trace::is_heard(), text("uid"), text("name")) {
            let pod = podwire_trace::Pod { uid, namespace: &named.namespace, name };
            let path = format!(
                "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
                named.namespace, named.name
            );
            let what = What::Http { method: "GET", path: &path };
            let arrow = Arrow::new(pod, Participant::Driver(&self.driver), Participant::ApiServer, what);
            Arrow { side: Side::Client, ..arrow }.draw(took, &Outcome::reply("200"));
        }
    }

    async fn tell(&self, word: impl FnOnce(Answer) -> Word) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let ending = || "the driver is ending".to_owned();
        self.words.send(word(answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())?.map_err(|error: keeper::Error| chain(&error))
    }

    async fn prepare(&self, named: &Named) -> Result<Vec<dra_v1::Device>, String> {
        let found = self.read(named).await?;
        let prepared = self.planned(&found, named).await;
        if let Err(why) = &prepared {
            self.teller.claim_event((&named.namespace, &named.name, &named.uid), "ClaimPrepareFailed", why);
            if let Some(told) = unplanned(&self.driver, &found, why).filter(|told| told.uid == named.uid) {
                self.teller.tell(told);
            }
        }
        prepared
    }

    async fn planned(&self, found: &Value, named: &Named) -> Result<Vec<dra_v1::Device>, String> {
        let until = Instant::now() + COMING;
        let mut offered = self.offered.clone();
        let planned = loop {
            let now = offered.borrow_and_update().clone();
            let asked = claim::Asked { driver: &self.driver, pool: &self.pool, devices: &now.devices };
            match claim::prepare(found, &named.uid, asked) {
                Err(claim::Refusal::Unknown(device)) => {
                    // What is away is not offered; whoever has it may ask again.
                    if let Some(claim) = self.prepared(&named.uid).await? {
                        return Ok(told(&self.driver, &claim));
                    }
                    // It may have come home in this moment, and was not looked at yet.
                    let changed = tokio::time::timeout_at(until, offered.changed()).await;
                    if !matches!(changed, Ok(Ok(()))) {
                        return Err(claim::Refusal::Unknown(device).to_string());
                    }
                }
                planned => break planned.map_err(|refusal| refusal.to_string())?,
            }
        };
        let (devices, pod) = (told(&self.driver, &planned), planned.pod.clone());
        self.tell(|answer| Word::Prepare(Box::new(planned), answer)).await?;
        let names: Vec<&str> = devices.iter().map(|device| device.device_name.as_str()).collect();
        self.publications.draw(pod.traced(), &self.driver, &names);
        Ok(devices)
    }

    /// The claim as it is prepared already.
    async fn prepared(&self, uid: &str) -> Result<Option<Claim>, String> {
        let (answer, answered) = oneshot::channel();
        let ending = || "the driver is ending".to_owned();
        self.words.send(Word::Prepared(uid.to_owned(), answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())
    }

    async fn prepare_all(&self, claims: &[Named]) -> NodePrepareResourcesResponse {
        let begun = Instant::now();
        let all = claims.iter().map(|named| async move {
            let answer = match self.prepare(named).await {
                Ok(devices) => NodePrepareResourceResponse { devices, error: String::new() },
                Err(error) => {
                    tracing::warn!(claim = %format!("{}/{}", named.namespace, named.name), error, "a claim is not prepared");
                    NodePrepareResourceResponse { devices: Vec::new(), error }
                }
            };
            (named.uid.clone(), answer)
        });
        let claims: HashMap<_, _> = futures::future::join_all(all).await.into_iter().collect();
        let came = if claims.values().all(|one| one.error.is_empty()) { Came::Success } else { Came::Failed };
        self.figures.call(At::Dra, "PrepareResourceClaims", came, begun.elapsed());
        NodePrepareResourcesResponse { claims: claims.into_iter().collect() }
    }

    async fn unprepare_all(&self, claims: &[Named]) -> NodeUnprepareResourcesResponse {
        let begun = Instant::now();
        let mut all = HashMap::new();
        for named in claims {
            let done = self.tell(|answer| Word::Unprepare(named.uid.clone(), answer)).await;
            let error = done.err().unwrap_or_default();
            all.insert(named.uid.clone(), NodeUnprepareResourceResponse { error });
        }
        let came = if all.values().all(|one| one.error.is_empty()) { Came::Success } else { Came::Failed };
        self.figures.call(At::Dra, "UnprepareResourceClaims", came, begun.elapsed());
        NodeUnprepareResourcesResponse { claims: all.into_iter().collect() }
    }
}

fn told(driver: &str, claim: &Claim) -> Vec<dra_v1::Device> {
    let one = |(at, device): (usize, &crate::book::Given)| dra_v1::Device {
        // Alternatives of a request are not named to the kubelet.
        request_names: vec![device.request.split('/').next().unwrap_or_default().to_owned()],
        pool_name: device.pool.clone(),
        device_name: device.device.clone(),
        cdi_device_ids: plan::cdi::id(driver, claim, at).into_iter().collect(),
        share_id: device.share.clone(),
    };
    claim.devices.iter().enumerate().map(one).collect()
}

#[tonic::async_trait]
impl DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        Ok(Response::new(self.prepare_all(&request.into_inner().claims).await))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(self.unprepare_all(&request.into_inner().claims).await))
    }
}

/// The same in the older version, which is the newer one without shares, with the same numbers.
struct Older(Service);

fn same<A: prost::Message, B: prost::Message + Default>(message: &A) -> Result<B, Status> {
    B::decode(message.encode_to_vec().as_slice()).map_err(|error| Status::internal(error.to_string()))
}

#[tonic::async_trait]
impl beta::dra_plugin_server::DraPlugin for Older {
    async fn node_prepare_resources(
        &self,
        request: Request<beta::NodePrepareResourcesRequest>,
    ) -> Result<Response<beta::NodePrepareResourcesResponse>, Status> {
        let request: NodePrepareResourcesRequest = same(request.get_ref())?;
        Ok(Response::new(same(&self.0.prepare_all(&request.claims).await)?))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<beta::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<beta::NodeUnprepareResourcesResponse>, Status> {
        let request: NodeUnprepareResourcesRequest = same(request.get_ref())?;
        Ok(Response::new(same(&self.0.unprepare_all(&request.claims).await)?))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// GetInfo as the kubelet, which is of Go, calls it: the path that it dialed is the authority.
    fn get_info() -> Vec<u8> {
        let field = |head: &[u8], value: &str| {
            let length = u8::try_from(value.len()).unwrap();
            [head, &[length], value.as_bytes()].concat()
        };
        let fields = [
            vec![0x83, 0x86],
            field(&[0x04], "/pluginregistration.Registration/GetInfo"),
            field(&[0x01], "/var/lib/kubelet/plugins_registry/dra.net-reg.sock"),
            field(&[0x0f, 0x10], "application/grpc"),
            field(&[0x00, 0x02, b't', b'e'], "trailers"),
        ];
        let frames = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[]),
            frame(HEADERS, 4, 1, &fields.concat()),
            // An empty message, and the end of the call.
            frame(0, 1, 1, &[0; 5]),
        ];
        frames.concat()
    }

    #[tokio::test]
    async fn a_kubelet_that_calls_a_path_its_host_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reg.sock");
        let listener = unix::listen(&path).unwrap();
        let announcer = Announcer { driver: "dra.net".to_owned(), endpoint: folder.path().join("dra.sock") };
        let stop = CancellationToken::new();
        let serving = serve(listener, Routes::new(RegistrationServer::new(announcer)), stop.clone());
        let asking = async {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(&get_info()).await.unwrap();
            let answered = loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
                stream.read_exact(&mut payload).await.unwrap();
                if head[8] == 1 && [HEADERS, RST_STREAM].contains(&head[3]) {
                    break head[3];
                }
            };
            stop.cancel();
            answered
        };
        let ((), answered) = tokio::join!(serving, asking);
        assert_eq!(answered, HEADERS, "the stream was ended instead");
    }
}
