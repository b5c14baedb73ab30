//! Upstream's own participants, started as a test needs them: etcd, kube-apiserver, kube-scheduler, containerd, kubelet.
//!
//! Each is a real peer from the folder that `PODWIRE_PEERS` names, in a folder of its own, in the calling thread's
//! network namespace; each ends with its handle.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    eventually::eventually,
    node::{bin_dir, peer, pod_app},
};

/// How long a peer may take to come up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The address that a kubelet may publish; it refuses loopback.
pub const NODE_ADDRESS: &str = "10.76.0.1";

/// Where kube-apiserver listens.
pub const API_PORT: u16 = 7443;

/// Where the store of an API server listens, if it is a process of its own.
pub const ETCD: &str = "http://127.0.0.1:2379";

/// The bearer token of the administrator.
pub const TOKEN: &str = "podwire-test-admin";

/// A peer's process; killed when dropped.
pub struct Peer {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Peer {
    /// Starts a program with its output in `folder/name.log`.
    pub fn start(name: &'static str, folder: &Path, command: &mut Command) -> Result<Peer> {
        fs::create_dir_all(folder)?;
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Peer { name, child, log })
    }

    /// Waits until `probe` holds; fails when the process ends first.
    pub fn until(mut self, what: &str, mut probe: impl FnMut() -> Result<(), String>) -> Result<Peer> {
        let name = self.name;
        let ready = eventually(&format!("{name} {what}"), PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{name} ended with {status}"));
            }
            probe()
        });
        ready.with_context(|| self.log_tail())?;
        Ok(self)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without a word.
    pub fn kill9(mut self) {
        // Ignored: it may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.name, lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Ignored: it may have ended already.
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A portless bridge with the node's address: a kubelet needs one that is not loopback.
pub fn node_address() -> Result<()> {
    for words in [
        &["link", "add", "peersd0", "type", "bridge"][..],
        &["addr", "add", "10.76.0.1/32", "dev", "peersd0"],
        &["link", "set", "peersd0", "up"],
    ] {
        let status = Command::new("ip").args(words).stderr(Stdio::null()).status().context("run ip")?;
        if !status.success() && words[0] == "addr" {
            bail!("ip {} failed", words.join(" "));
        }
    }
    Ok(())
}

/// A folder for peers that mount things below their own: unmounted and removed when dropped.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes one.
    pub fn new() -> Result<Scratch> {
        Ok(Scratch(tempfile::Builder::new().prefix("podwire-peers-").tempdir()?))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let below = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        // Innermost first; ignored: what stays mounted shows in the next residue scan.
        let mut targets: Vec<&str> =
            below.filter(|target| Path::new(target).starts_with(self.path())).collect();
        targets.sort_by_key(|target| std::cmp::Reverse(target.len()));
        for target in targets {
            Command::new("umount").args(["-l", target]).status().ok();
        }
    }
}

/// kube-apiserver on etcd.
pub struct ControlPlane {
    /// Credentials of the administrator.
    pub kubeconfig: PathBuf,
    /// The daemons, API server first: they end in this order.
    pub peers: Vec<Peer>,
    /// Signs what kubelets and the API server show each other.
    pub authority: Authority,
    /// The certificate that the API server shows, which it signed itself.
    pub serving: PathBuf,
}

/// A certificate authority made with openssl, for peers that do not bring one.
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    fn make(folder: &Path) -> Result<Authority> {
        fs::create_dir_all(folder)?;
        run(Command::new("openssl").current_dir(folder).args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-days",
            "2",
            "-subj",
            "/CN=test-ca",
        ]))?;
        Ok(Authority { folder: folder.to_owned() })
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A certificate and its key; `names` in openssl's form (`IP:10.0.0.1,DNS:node1`).
    pub fn issue(&self, name: &str, subject: &str, names: &str) -> Result<(PathBuf, PathBuf)> {
        let (key, request, cert) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        run(Command::new("openssl").current_dir(&self.folder).args([
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj", subject,
        ]))?;
        let extensions = self.folder.join(format!("{name}.ext"));
        let alternative = if names.is_empty() { String::new() } else { format!("subjectAltName={names}\n") };
        fs::write(&extensions, format!("extendedKeyUsage=serverAuth,clientAuth\n{alternative}"))?;
        run(Command::new("openssl")
            .current_dir(&self.folder)
            .args([
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-out",
                &cert,
                "-days",
                "2",
                "-extfile",
            ])
            .arg(&extensions))?;
        Ok((self.folder.join(cert), self.folder.join(key)))
    }
}

/// Starts etcd at [`ETCD`] below `folder`.
pub fn etcd(folder: &Path) -> Result<Peer> {
    etcd_from("etcd", Command::new(peer("etcd")?), folder)
}

/// Starts a program that takes etcd's flags.
pub(crate) fn etcd_from(name: &'static str, mut program: Command, folder: &Path) -> Result<Peer> {
    program.arg("--data-dir").arg(folder.join("etcd")).args([
        &format!("--listen-client-urls={ETCD}"),
        &format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        "--log-level=warn",
    ]);
    Peer::start(name, folder, &mut program)?.until("answers", || connects(2379))
}

/// Starts etcd and kube-apiserver below `folder`.
pub fn control_plane(folder: &Path) -> Result<ControlPlane> {
    control_plane_on(folder, Some(etcd(folder)?))
}

/// Starts kube-apiserver below `folder` on what serves at [`ETCD`], which ends with it if it is handed over.
pub fn control_plane_on(folder: &Path, store: Option<Peer>) -> Result<ControlPlane> {
    fs::create_dir_all(folder)?;
    let key = folder.join("sa.key");
    run(Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048"))?;
    let tokens = folder.join("tokens.csv");
    fs::write(&tokens, format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let authority = Authority::make(&folder.join("kubelet-pki"))?;
    let (client_cert, client_key) =
        authority.issue("apiserver", "/O=system:masters/CN=kube-apiserver-kubelet-client", "")?;
    let api = Peer::start(
        "kube-apiserver",
        folder,
        Command::new(peer("kube-apiserver")?)
            .args([
                &format!("--etcd-servers={ETCD}"),
                "--bind-address=127.0.0.1",
                "--advertise-address=10.76.0.1",
                "--authorization-mode=AlwaysAllow",
                "--service-cluster-ip-range=10.97.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--endpoint-reconciler-type=none",
                // No proxy makes the addresses of services lead anywhere: webhooks are called where their endpoints are.
                "--enable-aggregator-routing=true",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",
            ])
            .arg(format!("--secure-port={API_PORT}"))
            .arg(flag("cert-dir", &folder.join("pki")))
            .arg(flag("token-auth-file", &tokens))
            .arg(flag("service-account-key-file", &key))
            .arg(flag("service-account-signing-key-file", &key))
            .arg(flag("kubelet-client-certificate", &client_cert))
            .arg(flag("kubelet-client-key", &client_key)),
    )?;
    let kubeconfig = folder.join("admin.kubeconfig");
    fs::write(&kubeconfig, kubeconfig_text())?;
    let kubectl = peer("kubectl")?;
    let ready = kubeconfig.clone();
    let api = api.until("is ready", move || {
        let done = Command::new(&kubectl)
            .args(["get", "--raw", "/readyz", "--kubeconfig"])
            .arg(&ready)
            .output()
            .map_err(|error| error.to_string())?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
    })?;
    let serving = folder.join("pki/apiserver.crt");
    Ok(ControlPlane { kubeconfig, peers: std::iter::once(api).chain(store).collect(), authority, serving })
}

/// Starts kube-controller-manager with all that it runs of itself, for the API server that `kubeconfig` names and that
/// `authority` vouches for.
pub fn controllers(folder: &Path, kubeconfig: &Path, authority: &Path) -> Result<Peer> {
    Peer::start(
        "kube-controller-manager",
        folder,
        Command::new(peer("kube-controller-manager")?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--root-ca-file={}", authority.display()))
            // It would make its usual one.
            .arg(format!("--flex-volume-plugin-dir={}", folder.join("flex-volume").display()))
            .args(["--leader-elect=false", "--secure-port=0"]),
    )
}

fn kubeconfig_text() -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters:\n- name: upstream\n  cluster: {{server: \"https://127.0.0.1:{API_PORT}\", insecure-skip-tls-verify: true}}\nusers:\n- name: admin\n  user: {{token: {TOKEN}}}\ncontexts:\n- name: admin\n  context: {{cluster: upstream, user: admin}}\n"
    )
}

/// Starts kube-scheduler for the API server that `kubeconfig` names.
pub fn scheduler(folder: &Path, kubeconfig: &Path) -> Result<Peer> {
    Peer::start(
        "kube-scheduler",
        folder,
        Command::new(peer("kube-scheduler")?).arg(format!("--kubeconfig={}", kubeconfig.display())).args([
            "--authentication-tolerate-lookup-failure=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ]),
    )?
    .until("answers", || connects(10259))
}

/// containerd with runc, and where it serves CRI.
pub struct Containerd {
    /// The CRI socket.
    pub socket: PathBuf,
    /// Its process.
    pub peer: Peer,
}

impl Drop for Containerd {
    /// Its shims outlive it by design; those of pods that a failed test left would stay.
    fn drop(&mut self) {
        let socket = self.socket.display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let shim = words.first().is_some_and(|word| word.ends_with(b"containerd-shim-runc-v2"));
            if !shim || !words.iter().any(|word| word.starts_with(socket.as_bytes())) {
                continue;
            }
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                // Ignored: it may have ended meanwhile.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
    }
}

/// What containerd may be told besides its folders.
#[derive(Default)]
pub struct ContainerdOptions<'a> {
    /// Where NRI plugins register; NRI is off without.
    pub nri_socket: Option<&'a Path>,
    /// Folder of registry settings.
    pub registry_config: Option<&'a Path>,
    /// The image of sandboxes; one that a test imports if not said.
    pub sandbox_image: Option<&'a str>,
    /// More configuration, as TOML.
    pub more: &'a str,
}

/// Starts containerd below `folder`, with CNI configuration and plugins from the given folders.
pub fn containerd(folder: &Path, conf_dir: &Path, bin_dir: &Path) -> Result<Containerd> {
    containerd_with(folder, conf_dir, bin_dir, &ContainerdOptions::default())
}

/// Starts containerd below `folder` with more said about it.
pub fn containerd_with(
    folder: &Path,
    conf_dir: &Path,
    bin_dir: &Path,
    options: &ContainerdOptions<'_>,
) -> Result<Containerd> {
    fs::create_dir_all(folder)?;
    let socket = folder.join("containerd.sock");
    let config = folder.join("config.toml");
    let peers = peer("containerd")?.parent().map(Path::to_owned).unwrap_or_default();
    let disabled = if options.nri_socket.is_some() { "" } else { "\"io.containerd.nri.v1.nri\"" };
    let mut text = CONTAINERD
        .replace("@DISABLED@", disabled)
        .replace("@ROOT@", &folder.join("root").display().to_string())
        .replace("@STATE@", &folder.join("state").display().to_string())
        .replace("@SOCKET@", &socket.display().to_string())
        .replace("@CONF@", &conf_dir.display().to_string())
        .replace("@BIN@", &bin_dir.display().to_string())
        .replace("@SANDBOX@", options.sandbox_image.unwrap_or("localhost/pause:latest"));
    if let Some(path) = options.registry_config {
        text.push_str(&format!(
            "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = \"{}\"\n",
            path.display()
        ));
    }
    if let Some(path) = options.nri_socket {
        text.push_str(&format!(
            "[plugins.'io.containerd.nri.v1.nri']\nsocket_path = \"{}\"\n",
            path.display()
        ));
    }
    text.push_str(options.more);
    fs::write(&config, text)?;
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", peers.display());
    let ready = socket.clone();
    let peer = Peer::start(
        "containerd",
        folder,
        Command::new(peers.join("containerd")).arg("--config").arg(&config).env("PATH", path),
    )?
    .until("answers", || UnixStream::connect(&ready).map(|_| ()).map_err(|error| error.to_string()))?;
    Ok(Containerd { socket, peer })
}

const CONTAINERD: &str = r#"version = 3
root = "@ROOT@"
state = "@STATE@"
disabled_plugins = [@DISABLED@]
[grpc]
address = "@SOCKET@"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["@BIN@"]
conf_dir = "@CONF@"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "@SANDBOX@"
"#;

/// Loads an image archive into containerd's CRI namespace.
pub fn containerd_import(containerd: &Containerd, archive: &Path) -> Result<()> {
    run(Command::new(peer("ctr")?)
        .arg("--address")
        .arg(&containerd.socket)
        .args(["-n", "k8s.io", "images", "import"])
        .arg(archive))
}

/// What a kubelet shows to those who call it, and whom it lets in.
pub struct Serving {
    /// Its certificate.
    pub cert: PathBuf,
    /// The key of it.
    pub key: PathBuf,
    /// The authority of its clients.
    pub client_ca: PathBuf,
}

/// Starts the kubelet for the API server that `kubeconfig` names, on the runtime at `socket`.
pub fn kubelet(
    folder: &Path,
    kubeconfig: &Path,
    socket: &Path,
    cgroup_root: &str,
    serving: Option<&Serving>,
) -> Result<Peer> {
    fs::create_dir_all(folder)?;
    let config = folder.join("kubelet.yaml");
    let tls = serving.map_or(String::new(), |serving| {
        format!("tlsCertFile: {:?}\ntlsPrivateKeyFile: {:?}\n", serving.cert, serving.key)
    });
    let clients =
        serving.map_or(String::new(), |serving| format!(", x509: {{clientCAFile: {:?}}}", serving.client_ca));
    fs::write(
        &config,
        KUBELET
            .replace("@ROOT@", &folder.display().to_string())
            .replace("@SOCKET@", &socket.display().to_string())
            .replace("@CGROUP@", cgroup_root)
            .replace("@CLIENTS@", &clients)
            + &tls,
    )?;
    Peer::start(
        "kubelet",
        folder,
        Command::new(peer("kubelet")?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--config={}", config.display()))
            .arg(format!("--root-dir={}", folder.join("root").display()))
            .arg(format!("--cert-dir={}", folder.join("pki").display()))
            .arg(format!("--node-ip={NODE_ADDRESS}"))
            .arg("--hostname-override=node1"),
    )
    .and_then(|peer| {
        let socket = socket.to_owned();
        peer.until("is healthy", move || {
            UnixStream::connect(&socket).map_err(|error| error.to_string())?;
            http_ok(10248, "/healthz")
        })
    })
}

const KUBELET: &str = r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: "@CGROUP@"
oomScoreAdj: 0
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: "unix://@SOCKET@"
podLogsDir: "@ROOT@/pod-logs"
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}@CLIENTS@}
authorization: {mode: AlwaysAllow}
registerNode: true
evictionHard: {}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
"#;

/// An archive of an image with one program: a copy of `pod-app` called `program`.
pub fn image_archive(folder: &Path, name: &str, program: &str) -> Result<PathBuf> {
    let own = folder.join(program);
    fs::copy(pod_app(&bin_dir())?, &own).context("copy pod-app")?;
    let output = folder.join(format!("{program}.tar"));
    let done = Command::new(bin_dir().join("podwire"))
        .args(["image", "build", "--name", name, "--output"])
        .arg(&output)
        .arg(&own)
        .output()?;
    if !done.status.success() {
        bail!("image build: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(output)
}

fn connects(port: u16) -> Result<(), String> {
    TcpStream::connect(("127.0.0.1", port)).map(|_| ()).map_err(|error| error.to_string())
}

fn http_ok(port: u16, path: &str) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.contains(" 200 ") => Ok(()),
        Ok(answer) => Err(answer),
        Err(error) => Err(error.to_string()),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("run {:?}", command.get_program()))?;
    if !done.status.success() {
        bail!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
