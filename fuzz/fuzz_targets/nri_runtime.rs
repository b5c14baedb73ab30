//! Any bytes from a plugin to the runtime's side over its real socket: it stays up and serves the next plugin.

#![no_main]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use podwire_nri::api::{Container, ContainerEviction, ContainerUpdate, PodSandbox};
use podwire_nri::{Config, Host, Nri};
use tokio_util::sync::CancellationToken;

struct Node;

impl Host for Node {
    fn snapshot(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(async { (vec![PodSandbox::default()], vec![Container::default()]) })
    }

    fn update_containers(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>> {
        Box::pin(std::future::ready(updates))
    }

    fn evict(&self, _: ContainerEviction) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

struct Runtime {
    socket: PathBuf,
    nri: Nri,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let socket = folder.path().join("nri.sock");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut config = Config::new("fuzz", "1");
    config.socket = Some(socket.clone());
    config.registration_timeout = Duration::from_millis(200);
    config.request_timeout = Duration::from_millis(20);
    let adaptation = runtime.block_on(config.build(Arc::new(Node))).expect("the runtime's side");
    let nri = adaptation.handle();
    runtime.spawn(adaptation.run(CancellationToken::new()));
    Runtime { socket, nri, runtime, _folder: folder }
});

fuzz_target!(|data: &[u8]| {
    let mut stream = UnixStream::connect(&RUNTIME.socket).expect("it still accepts plugins");
    stream.set_read_timeout(Some(Duration::from_millis(2))).expect("a timeout can be set");
    // Ignored: it may hang up at any point; that is its right.
    drop(stream.write_all(data));
    let mut answer = [0; 512];
    drop(stream.read(&mut answer));
    drop(stream.shutdown(std::net::Shutdown::Write));
    // Events go on whatever the plugin was.
    drop(RUNTIME.runtime.block_on(RUNTIME.nri.run_pod_sandbox(PodSandbox::default())));
});
