//! The runtime's side on a socket of its own, and a node that writes down what plugins want of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use podwire_nri::api::{Container, ContainerEviction, ContainerUpdate, PodSandbox};
use podwire_nri::{Config, Host, Nri};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long anything may take, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The runtime as plugins see it.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) pods: Mutex<Vec<PodSandbox>>,
    pub(crate) updates: Mutex<Vec<ContainerUpdate>>,
    pub(crate) evicted: Mutex<Vec<String>>,
}

impl Host for Node {
    fn snapshot(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(async { (self.pods.lock().unwrap().clone(), Vec::new()) })
    }

    fn update_containers(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>> {
        self.updates.lock().unwrap().extend(updates);
        Box::pin(std::future::ready(Vec::new()))
    }

    fn evict(&self, eviction: ContainerEviction) -> BoxFuture<'_, ()> {
        self.evicted.lock().unwrap().push(eviction.container_id);
        Box::pin(std::future::ready(()))
    }
}

/// A running adaptation.
pub(crate) struct Runtime {
    pub(crate) nri: Nri,
    pub(crate) node: Arc<Node>,
    pub(crate) dir: tempfile::TempDir,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Runtime {
    /// Starts one with a socket in a folder of its own; `change` is shown both.
    pub(crate) async fn begin(change: impl FnOnce(&mut Config, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("podwire", "test");
        config.socket = Some(dir.path().join("nri.sock"));
        change(&mut config, dir.path());
        let node = Arc::new(Node::default());
        let adaptation = config.build(node.clone()).await.unwrap();
        let (nri, shutdown) = (adaptation.handle(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(adaptation.run(shutdown.clone()));
        Self { nri, node, dir, shutdown, tasks }
    }

    /// Where plugins connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("nri.sock")
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Nri) -> bool) {
        let begun = Instant::now();
        while !wanted(&self.nri) {
            assert!(begun.elapsed() < DEADLINE, "{what}: {:?}", self.nri.overview());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends it; it comes to rest and leaves no socket.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        let rest = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(DEADLINE, rest).await.expect("it comes to rest");
        assert!(!self.socket().exists());
    }
}
