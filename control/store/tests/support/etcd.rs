//! An etcd to ask through the wire: ours in this process or as a program, or the real one that `make peers` builds.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use podwire_store::{Door, EtcdConfig};
use podwire_wire::etcd::kv_client::KvClient;
use podwire_wire::etcd::lease_client::LeaseClient;
use podwire_wire::etcd::maintenance_client::MaintenanceClient;
use podwire_wire::etcd::watch_client::WatchClient;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Endpoint};

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd that ends with its handle.
pub(crate) struct Server {
    channel: Channel,
    address: SocketAddr,
    ends: Ends,
    /// Removed at the end.
    dir: Option<tempfile::TempDir>,
}

enum Ends {
    Ours(CancellationToken, Option<JoinHandle<()>>),
    Process(Child),
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.ends {
            Ends::Ours(shutdown, _) => shutdown.cancel(),
            Ends::Process(child) => {
                // Ignored: it may have ended already.
                child.kill().ok();
                child.wait().ok();
            }
        }
    }
}

impl Server {
    /// Ours, in a folder of its own.
    pub(crate) async fn ours() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = EtcdConfig::new(dir.path());
        let mut server = Self::ours_with(config).await;
        server.dir = Some(dir);
        server
    }

    /// Ours, as configured.
    pub(crate) async fn ours_with(config: EtcdConfig) -> Self {
        Self::ours_at(config, "127.0.0.1:0".parse().unwrap()).await
    }

    /// Ours, as configured, at this address.
    pub(crate) async fn ours_at(config: EtcdConfig, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let door = Door { listener, tls: None, metrics_only: false };
        let etcd = config.open().expect("the folder is ours and sound");
        let run = TaskTracker::new().spawn(etcd.run(vec![door], shutdown.clone()));
        let channel = connect(address).await;
        Self { channel, address, ends: Ends::Ours(shutdown, Some(run)), dir: None }
    }

    /// The real one.
    #[allow(dead_code, reason = "only some tests need a peer")]
    pub(crate) async fn theirs() -> Self {
        let folder = std::env::var_os("PODWIRE_PEERS").expect("PODWIRE_PEERS names the folder of the peers");
        let program = Path::new(&folder).join("etcd");
        assert!(program.exists(), "{program:?} is missing: run `make peers`");
        Self::process(Command::new(program)).await
    }

    /// Ours as the program that people start, with the command line of the real one.
    #[allow(dead_code, reason = "only some tests need the program")]
    pub(crate) async fn podwire() -> Self {
        let folder =
            std::env::var_os("PODWIRE_BIN_DIR").expect("PODWIRE_BIN_DIR names the folder of podwire");
        let program = Path::new(&folder).join("podwire");
        assert!(program.exists(), "{program:?} is missing: run `cargo build -p podwire`");
        let mut command = Command::new(program);
        command.arg("etcd");
        Self::process(command).await
    }

    async fn process(mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (client, peer) = (free(), free());
        let child = command
            .arg("--data-dir")
            .arg(dir.path())
            .args([
                &format!("--listen-client-urls=http://{client}"),
                &format!("--advertise-client-urls=http://{client}"),
                &format!("--listen-peer-urls=http://{peer}"),
                &format!("--initial-advertise-peer-urls=http://{peer}"),
                &format!("--initial-cluster=default=http://{peer}"),
                "--unsafe-no-fsync",
                "--log-level=error",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let ends = Ends::Process(child);
        let channel = connect(client).await;
        Self { channel, address: client, ends, dir: Some(dir) }
    }

    /// Ends it and waits until its folder is free.
    #[allow(dead_code, reason = "only some tests start one again")]
    pub(crate) async fn stop(mut self) {
        if let Ends::Ours(shutdown, run) = &mut self.ends {
            shutdown.cancel();
            let run = run.take().expect("it is stopped once");
            tokio::time::timeout(PATIENCE, run).await.expect("it ends in time").unwrap();
        }
    }

    /// Where it is asked.
    #[allow(dead_code, reason = "only some tests bring a client of their own")]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    #[allow(dead_code, reason = "some tests bring a client of their own")]
    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    #[allow(dead_code, reason = "some tests bring a client of their own")]
    pub(crate) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    #[allow(dead_code, reason = "some tests bring a client of their own")]
    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone())
    }

    #[allow(dead_code, reason = "some tests bring a client of their own")]
    pub(crate) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }
}

async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let begun = tokio::time::Instant::now();
    loop {
        if let Ok(channel) = endpoint.connect().await {
            let status =
                MaintenanceClient::new(channel.clone()).status(podwire_wire::etcd::StatusRequest {}).await;
            if status.is_ok_and(|status| status.get_ref().leader != 0) {
                return channel;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no etcd answers on {address}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
