//! What the API server tells: NetworkPolicies, namespaces and pods of the whole cluster, and ClusterNetworkPolicies and
//! PodNetworks while their definitions exist. Nodes are asked for beside ClusterNetworkPolicies, as nobody else speaks of them.
//!
//! Tasks, all ended by `shutdown`: one for each kind, which turns its watch into [`Word`]s. A watch that fails is told to
//! the keeper and goes on by itself.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use podwire_client::api::{Api, ApiResource, GroupVersionKind, ListParams};
use podwire_client::watcher::{self, Event};
use podwire_client::{Client, DynamicObject, Meta, Object, ResourceExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::cluster_policy::ClusterPolicy;
use crate::keeper::{Source, Word};
use crate::notices::Notices;
use crate::plan::{Node, Pod};
use crate::pod_network::{attach, spec};
use crate::policy::{ObjectKey, Policy, protocol_of};

/// The condition of a ClusterNetworkPolicy, whose definition is somebody else's.
const UNDERSTOOD: &str = "net.podwire.dev/Understood";
/// The condition of a PodNetwork.
const ACCEPTED: &str = "Accepted";

/// The API server, and who is told what it says.
#[derive(Clone)]
pub(crate) struct Sources {
    /// The way there.
    pub(crate) client: Client,
    /// Who is told.
    pub(crate) words: mpsc::Sender<Word>,
    /// Where it is said what is wrong with objects.
    pub(crate) notices: Notices,
}

/// How objects of a kind are told.
struct Tell<K, I> {
    source: Source,
    key: fn(&K) -> I,
    come: Box<dyn Fn(K) -> Word + Send + Sync>,
    gone: fn(I) -> Word,
    listed: Box<dyn Fn(HashSet<I>) -> Word + Send + Sync>,
}

/// What is watched while a definition exists.
struct Defined<'a> {
    resource: ApiResource,
    source: Source,
    watch: Box<dyn Fn() -> BoxFuture<'a, ()> + Send + Sync + 'a>,
    /// What is told where there is none.
    absent: fn() -> Vec<Word>,
}

impl Sources {
    /// Tells of everything until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let notices = self.notices.clone();
        let policies = Tell {
            source: Source::Policies,
            key: |one: &NetworkPolicy| key(one),
            come: Box::new(move |one| {
                let policy = Policy::read(&one);
                notices.policy(&one.metadata, &policy.mistakes);
                Word::Policy(policy)
            }),
            gone: Word::PolicyGone,
            listed: Box::new(Word::PoliciesListed),
        };
        let namespaces = Tell {
            source: Source::Namespaces,
            key: |one: &core::Namespace| one.name_any(),
            come: Box::new(|one| Word::Namespace(one.name_any(), one.metadata.labels.unwrap_or_default())),
            gone: Word::NamespaceGone,
            listed: Box::new(Word::NamespacesListed),
        };
        let pods = Tell {
            source: Source::Pods,
            key: |one: &core::Pod| key(one),
            come: Box::new(|one| Word::Pod(key(&one), pod(&one))),
            gone: Word::PodGone,
            listed: Box::new(Word::PodsListed),
        };
        let wide = Defined {
            resource: cluster_policies(),
            source: Source::ClusterPolicies,
            watch: Box::new(|| self.watch_cluster_policies(shutdown.clone()).boxed()),
            absent: || vec![Word::NodesListed(HashSet::new()), Word::ClusterPoliciesListed(HashSet::new())],
        };
        let networks = Defined {
            resource: attach::resource(),
            source: Source::PodNetworks,
            watch: Box::new(|| self.watch_networks(shutdown.clone()).boxed()),
            absent: || vec![Word::NetworksListed(HashSet::new())],
        };
        tokio::join!(
            self.watch(Api::all(self.client.clone()), &policies, shutdown.clone()),
            self.watch(Api::all(self.client.clone()), &namespaces, shutdown.clone()),
            self.watch(Api::all(self.client.clone()), &pods, shutdown.clone()),
            self.while_defined(&wide, shutdown.clone()),
            self.while_defined(&networks, shutdown.clone()),
        );
    }

    /// Tells; whether anybody is there to be told.
    async fn tell(&self, word: Word) -> bool {
        self.words.send(word).await.is_ok()
    }

    async fn watch<K: Object, I: Clone + Eq + Hash>(
        &self,
        api: Api<K>,
        tell: &Tell<K, I>,
        shutdown: CancellationToken,
    ) {
        let mut events = watcher::watcher(api, watcher::Config::default());
        let (mut listed, mut interrupted) = (HashSet::new(), false);
        loop {
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                event = events.next() => event,
            };
            let word = match event {
                Some(Ok(event)) => {
                    if std::mem::take(&mut interrupted) && !self.tell(Word::Heard(tell.source)).await {
                        return;
                    }
                    match event {
                        Event::Init => {
                            listed.clear();
                            continue;
                        }
                        Event::InitApply(one) => {
                            listed.insert((tell.key)(&one));
                            (tell.come)(one)
                        }
                        Event::InitDone => (tell.listed)(std::mem::take(&mut listed)),
                        Event::Apply(one) => (tell.come)(one),
                        Event::Delete(one) => (tell.gone)((tell.key)(&one)),
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(kind = ?tell.source, error = %error, "not heard; will retry");
                    interrupted = true;
                    Word::Interrupted(tell.source, error.to_string())
                }
                None => return,
            };
            if !self.tell(word).await {
                return;
            }
        }
    }

    /// ClusterNetworkPolicies, once the nodes are known that they may mean: a rule about nodes must not be heard before.
    async fn watch_cluster_policies(&self, shutdown: CancellationToken) {
        let known = Arc::new(Notify::new());
        let (nodes, policies) = (nodes(known.clone()), self.cluster_policies());
        let resource = cluster_policies();
        let then = async {
            known.notified().await;
            self.watch(Api::all_with(self.client.clone(), &resource), &policies, shutdown.clone()).await;
        };
        tokio::join!(self.watch(Api::all(self.client.clone()), &nodes, shutdown.clone()), then);
    }

    async fn watch_networks(&self, shutdown: CancellationToken) {
        let api = Api::all_with(self.client.clone(), &attach::resource());
        self.watch(api, &self.networks(), shutdown).await;
    }

    /// Watches a definition, and what belongs to it while there is one.
    async fn while_defined(&self, defined: &Defined<'_>, shutdown: CancellationToken) {
        let resource = &defined.resource;
        let definition = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            "customresourcedefinitions",
        );
        let name = format!("{}.{}", resource.plural, resource.group);
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher::watcher(Api::<Meta>::all_with(self.client.clone(), &definition), only);
        let mut objects: Option<BoxFuture<'_, ()>> = None;
        let mut there = false;
        loop {
            let watching = async {
                match &mut objects {
                    Some(watching) => watching.await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                event = events.next() => event,
                () = watching => {
                    objects = None;
                    continue;
                }
            };
            let exists = match event {
                Some(Ok(Event::Init)) => {
                    there = false;
                    continue;
                }
                Some(Ok(Event::InitApply(_))) => {
                    there = true;
                    continue;
                }
                Some(Ok(Event::InitDone)) => there,
                Some(Ok(Event::Apply(_))) => true,
                Some(Ok(Event::Delete(_))) => false,
                Some(Err(error)) => {
                    tracing::warn!(definition = name, error = %error, "a definition is not heard of; will retry");
                    self.tell(Word::Interrupted(defined.source, error.to_string())).await;
                    continue;
                }
                None => return,
            };
            match (exists, objects.is_some()) {
                (true, false) => objects = Some((defined.watch)()),
                (false, _) => {
                    objects = None;
                    for word in (defined.absent)() {
                        if !self.tell(word).await {
                            return;
                        }
                    }
                }
                (true, true) => {}
            }
        }
    }

    fn cluster_policies(&self) -> Tell<DynamicObject, String> {
        let notices = self.notices.clone();
        Tell {
            source: Source::ClusterPolicies,
            key: |one: &DynamicObject| one.name_any(),
            come: Box::new(move |one| {
                let read = ClusterPolicy::read(&one.data);
                let mistakes = match &read {
                    Ok(policy) => policy.mistakes.clone(),
                    Err(mistake) => vec![format!("{mistake}; it governs nobody")],
                };
                notices.condition(&cluster_policies(), &one, UNDERSTOOD, &mistakes);
                match read {
                    Ok(policy) => Word::ClusterPolicy(Box::new(policy)),
                    Err(mistake) => {
                        let policy = one.name_any();
                        tracing::warn!(
                            policy,
                            mistake,
                            "a cluster policy is not understood and governs nobody"
                        );
                        Word::ClusterPolicyGone(policy)
                    }
                }
            }),
            gone: Word::ClusterPolicyGone,
            listed: Box::new(Word::ClusterPoliciesListed),
        }
    }

    fn networks(&self) -> Tell<DynamicObject, ObjectKey> {
        let notices = self.notices.clone();
        Tell {
            source: Source::PodNetworks,
            key: |one: &DynamicObject| key(one),
            come: Box::new(move |one| {
                let mistake = spec::read(&one.data).err().map(|mistake| mistake.to_string());
                notices.condition(&attach::resource(), &one, ACCEPTED, mistake.as_slice());
                Word::Network(key(&one), one.data)
            }),
            gone: Word::NetworkGone,
            listed: Box::new(Word::NetworksListed),
        }
    }

    /// Reads what governs pods of a namespace anew, when it is not sure that all of it has been heard.
    pub(crate) async fn reread(&self, namespace: &str, within: Duration) -> Result<(), String> {
        tokio::time::timeout(within, self.read_again(namespace))
            .await
            .map_err(|_| format!("the API server did not answer within {within:?}"))?
            .map_err(|error| error.to_string())
    }

    async fn read_again(&self, namespace: &str) -> podwire_client::Result<()> {
        let found: Option<core::Namespace> = Api::all(self.client.clone()).get_opt(namespace).await?;
        let policies: Api<NetworkPolicy> = Api::namespaced(self.client.clone(), namespace);
        let policies = policies.list(&ListParams::default()).await?;
        let wide = all_defined(Api::all_with(self.client.clone(), &cluster_policies())).await?;
        let read: Vec<ClusterPolicy> =
            wide.iter().filter_map(|one| ClusterPolicy::read(&one.data).ok()).collect();
        let nodes: Option<Vec<core::Node>> = match read.iter().any(ClusterPolicy::means_nodes) {
            true => Some(Api::all(self.client.clone()).list(&ListParams::default()).await?.items),
            false => None,
        };
        let networks = Api::namespaced_with(self.client.clone(), namespace, &attach::resource());
        let networks = all_defined(networks).await?;
        let mut words: Vec<Word> = Vec::new();
        if let Some(one) = found {
            words.push(Word::Namespace(one.name_any(), one.metadata.labels.unwrap_or_default()));
        }
        let keys = policies.items.iter().map(key).collect();
        words.extend(policies.items.iter().map(|one| Word::Policy(Policy::read(one))));
        words.push(Word::PoliciesOfListed(namespace.to_owned(), keys));
        let known = nodes.iter().flatten().map(|one| Word::Node(one.name_any(), node(one)));
        words.extend(known);
        words.extend(read.into_iter().map(|policy| Word::ClusterPolicy(Box::new(policy))));
        let names = wide.iter().map(ResourceExt::name_any).collect();
        let of_nodes = nodes.map(|all| all.iter().map(ResourceExt::name_any).collect());
        words.push(Word::ClusterRead(names, of_nodes));
        let keys = networks.iter().map(key).collect();
        words.extend(networks.into_iter().map(|one| Word::Network(key(&one), one.data)));
        words.push(Word::NetworksOfListed(namespace.to_owned(), keys));
        for word in words {
            self.tell(word).await;
        }
        Ok(())
    }
}

/// All objects of a resource; none where there is no such resource.
async fn all_defined(api: Api<DynamicObject>) -> podwire_client::Result<Vec<DynamicObject>> {
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(podwire_client::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn cluster_policies() -> ApiResource {
    let kind = GroupVersionKind::gvk("policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy");
    ApiResource::from_gvk_with_plural(&kind, "clusternetworkpolicies")
}

fn key(object: &impl ResourceExt) -> ObjectKey {
    ObjectKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// How nodes are told; `known` is notified when all have been.
fn nodes(known: Arc<Notify>) -> Tell<core::Node, String> {
    Tell {
        source: Source::Nodes,
        key: |one: &core::Node| one.name_any(),
        come: Box::new(|one| Word::Node(one.name_any(), node(&one))),
        gone: Word::NodeGone,
        listed: Box::new(move |names| {
            known.notify_one();
            Word::NodesListed(names)
        }),
    }
}

/// What counts of a node: names that stand among its addresses are no addresses.
fn node(object: &core::Node) -> Node {
    let of_status = object.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses = of_status
        .filter(|one| matches!(one.type_.as_str(), "InternalIP" | "ExternalIP"))
        .filter_map(|one| one.address.parse().ok());
    Node { labels: object.labels().clone(), addresses: addresses.collect() }
}

/// What counts of a pod.
pub(crate) fn pod(object: &core::Pod) -> Pod {
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let mut addresses: Vec<IpAddr> =
        status.pod_ips.iter().flatten().filter_map(|one| one.ip.parse().ok()).collect();
    if let Some(only) = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok())
        && addresses.is_empty()
    {
        addresses.push(only);
    }
    // Those that run all the time: containers, and init containers that are never waited for.
    let beside =
        spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(beside).flat_map(|one| one.ports.iter().flatten());
    let named = ports.filter_map(|port| {
        let number = u16::try_from(port.container_port).ok()?;
        Some((port.name.clone()?, protocol_of(port.protocol.as_deref())?, number))
    });
    Pod {
        uid: object.uid().unwrap_or_default(),
        labels: object.labels().clone(),
        node: spec.node_name.clone().unwrap_or_default(),
        addresses,
        host_network: spec.host_network.unwrap_or(false),
        ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        mirror: object.annotations().contains_key("kubernetes.io/config.mirror"),
        ports: named.collect(),
    }
}
