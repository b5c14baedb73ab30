//! The real kube-apiserver on its own etcd, on loopback, with certificates of the authority under test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use podwire_apiserver::pki::{KeyCert, Pki};
use tokio::process::{Child, Command};

/// A running upstream server.
pub(crate) struct Upstream {
    url: String,
    /// Its etcd.
    #[allow(dead_code, reason = "only one of the tests goes there")]
    pub(crate) etcd: String,
    processes: Vec<Child>,
    dir: tempfile::TempDir,
}

fn peer(name: &str) -> PathBuf {
    let folder = std::env::var_os("PODWIRE_PEERS").expect("PODWIRE_PEERS names the folder of the peers");
    let path = PathBuf::from(folder).join(name);
    assert!(path.exists(), "{path:?} is missing: run `make peers`");
    path
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(mut command: Command, log: &Path) -> Child {
    let log = std::fs::File::create(log).unwrap();
    command.stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn().unwrap()
}

/// Starts etcd and kube-apiserver, the latter with these flags too, and waits until they are ready.
pub(crate) async fn start(pki: &Pki, flags: &[&str]) -> Upstream {
    let dir = tempfile::tempdir().unwrap();
    let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
    let etcd_url = format!("http://127.0.0.1:{etcd_port}");
    let mut etcd = Command::new(peer("etcd"));
    etcd.arg("--data-dir").arg(dir.path().join("etcd"));
    etcd.args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
    etcd.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer_port}")]);
    let KeyCert { cert_pem, key_pem } = pki.issue_server(&["127.0.0.1".to_owned()]).unwrap();
    let (cert, key, ca) = (dir.path().join("tls.crt"), dir.path().join("tls.key"), dir.path().join("ca.crt"));
    for (path, text) in [(&cert, cert_pem.as_str()), (&key, key_pem.as_str()), (&ca, pki.ca_pem())] {
        std::fs::write(path, text).unwrap();
    }
    let mut api = Command::new(peer("kube-apiserver"));
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let (tokens, public) = (pki.dir().join("sa.key"), dir.path().join("sa.pub"));
    let pair = rcgen::KeyPair::from_pem(&std::fs::read_to_string(&tokens).unwrap()).unwrap();
    std::fs::write(&public, pair.public_key_pem()).unwrap();
    api.args([
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        flag("tls-cert-file", &cert),
        flag("tls-private-key-file", &key),
        flag("client-ca-file", &ca),
        flag("service-account-key-file", &public),
        flag("service-account-signing-key-file", &tokens),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--endpoint-reconciler-type=none".into(),
    ]);
    api.args(flags).current_dir(dir.path());
    let upstream = Upstream {
        url: format!("https://127.0.0.1:{port}"),
        etcd: etcd_url,
        processes: vec![spawn(etcd, &dir.path().join("etcd.log")), spawn(api, &dir.path().join("api.log"))],
        dir,
    };
    upstream.wait(pki).await;
    upstream
}

impl Upstream {
    /// A client with an administrator's certificate.
    pub(crate) async fn client(&self, pki: &Pki) -> kube::Client {
        let pair = pki.issue_client("kubernetes-admin", &["system:masters"]).unwrap();
        let text = pki.kubeconfig(&self.url, "kubernetes-admin", &pair);
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        // A refusal is an answer.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    async fn wait(&self, pki: &Pki) {
        let client = self.client(pki).await;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(180);
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok_and(|text| text == "ok") {
                return;
            }
            if tokio::time::Instant::now() > deadline {
                let log = std::fs::read_to_string(self.dir.path().join("api.log")).unwrap_or_default();
                panic!("kube-apiserver was not ready in time: {}", &log[log.len().saturating_sub(2000)..]);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends both processes.
    pub(crate) async fn stop(mut self) {
        for process in &mut self.processes {
            process.kill().await.unwrap();
        }
    }
}
