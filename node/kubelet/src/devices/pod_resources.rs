//! PodResources: tells agents on the node which devices its pods hold, and which there are.
//!
//! CPUs and memory are given to nobody alone here, so none are told; upstream without static policies tells none either.
//! <https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources>

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use podwire_wire::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
    NumaNode, PodResources, TopologyInfo,
    pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::Routes};

use crate::{
    node::Node,
    plugins::serve,
    spec::{self, Kind},
};

/// Serves until `shutdown`.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    let folder = node.devices.settings.pod_resources();
    let ready = || serve::folder(&folder);
    let Some(listener) = serve::listen(&folder.join("kubelet.sock"), ready, &shutdown).await else { return };
    let lister = Lister { node, rate: Mutex::new(Rate::new(Instant::now())) };
    let routes = Routes::new(PodResourcesListerServer::new(lister));
    serve::serve(listener, "pod resources", routes, shutdown).await;
}

/// How often may be asked: upstream's numbers.
struct Rate {
    left: f64,
    at: Instant,
}

impl Rate {
    const PER_SECOND: f64 = 100.0;
    const AT_ONCE: f64 = 10.0;

    fn new(now: Instant) -> Rate {
        Rate { left: Rate::AT_ONCE, at: now }
    }

    fn may(&mut self, now: Instant) -> bool {
        let passed: Duration = now.saturating_duration_since(self.at);
        self.at = now;
        self.left = (self.left + passed.as_secs_f64() * Rate::PER_SECOND).min(Rate::AT_ONCE);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

struct Lister {
    node: Arc<Node>,
    rate: Mutex<Rate>,
}

impl Lister {
    fn limited(&self) -> Result<(), Status> {
        let may = self.rate.lock().is_ok_and(|mut rate| rate.may(Instant::now()));
        if may { Ok(()) } else { Err(Status::resource_exhausted("rejected by rate limit")) }
    }

    /// Pods that hold resources of the node.
    fn active(&self) -> Vec<Arc<Pod>> {
        let known = self.node.pods.lock().expect("no holder panics");
        known.values().filter(|known| known.admitted).map(|known| known.pod.clone()).collect()
    }

    fn told(&self, pod: &Pod) -> PodResources {
        let lasting = spec::containers(pod).into_iter();
        let lasting = lasting.filter(|(kind, _)| matches!(kind, Kind::Sidecar | Kind::App));
        let state = self.node.devices.state();
        let containers = lasting.map(|(_, container)| {
            let held = state.ledger.held_by(spec::uid(pod), &container.name);
            let devices = held.flat_map(|(resource, holding)| {
                let all = holding.devices.iter();
                all.flat_map(move |(id, nodes)| entries(resource, id, nodes.as_deref()))
            });
            ContainerResources {
                devices: devices.collect(),
                dynamic_resources: self.node.claims.told(pod, &container),
                name: container.name.clone(),
                ..Default::default()
            }
        });
        PodResources {
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            containers: containers.collect(),
        }
    }
}

/// A device as upstream tells it: an entry for each of its NUMA nodes, one without topology if nothing is known of them.
fn entries(resource: &str, id: &str, nodes: Option<&[i64]>) -> Vec<ContainerDevices> {
    let entry = |topology| ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    match nodes {
        None => vec![entry(None)],
        Some(nodes) => {
            nodes.iter().map(|id| entry(Some(TopologyInfo { nodes: vec![NumaNode { id: *id }] }))).collect()
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.limited()?;
        let pod_resources = self.active().iter().map(|pod| self.told(pod)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.limited()?;
        let state = self.node.devices.state();
        let devices = state.ledger.healthy().flat_map(|(resource, id, nodes)| entries(resource, id, nodes));
        Ok(Response::new(AllocatableResourcesResponse { devices: devices.collect(), ..Default::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.limited()?;
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let named = |pod: &&Arc<Pod>| {
            pod.metadata.name.as_deref() == Some(&pod_name)
                && pod.metadata.namespace.as_deref() == Some(&pod_namespace)
        };
        match self.active().iter().find(named) {
            Some(pod) => Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(self.told(pod)) })),
            None => Err(Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_questions_at_once_and_a_hundred_a_second_are_answered() {
        let mut rate = Rate::new(Instant::now());
        let at_once = (0..50).filter(|_| rate.may(Instant::now())).count();
        assert_eq!(at_once, 10);
        tokio::time::advance(Duration::from_millis(51)).await;
        assert_eq!((0..50).filter(|_| rate.may(Instant::now())).count(), 5);
    }

    #[test]
    fn a_device_is_told_once_for_each_of_its_numa_nodes() {
        assert_eq!(entries("a/b", "x", None).len(), 1);
        assert!(entries("a/b", "x", None)[0].topology.is_none());
        assert_eq!(entries("a/b", "x", Some(&[0, 1])).len(), 2);
    }
}
