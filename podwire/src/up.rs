//! `podwire up`: the life of a node, read top to bottom.
//!
//! Order of start: lock, store, API server, runtime, kubelet, scheduler and controllers. Order of end: the reverse;
//! containers keep running, the next `up` adopts them, `down` ends them.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    net::{IpAddr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use podwire_apiserver::{Identity, pki::Pki};
use podwire_client::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    check,
    cli::UpArgs,
    device_plugin,
    instance::Instance,
    netdriver, netplugin,
    node_parts::{self, NetworkFolders},
    nri,
    objects::Objects,
    private, say,
    trace::Ring,
};

/// Runs the node until SIGTERM or SIGINT.
pub async fn up(args: UpArgs, ring: Ring) -> Result<()> {
    if let Some(misses) = check::blocking(&check::findings(&args.data.data_dir)) {
        bail!("this machine cannot run pods:\n{misses}");
    }
    let instance = Instance::at(&args.data.data_dir)?;
    let _lock = lock(&instance)?;
    let _run_dir = private::RunFolder::take(&instance.run_dir()).context("take the run folder")?;
    let mut asked_to_end = std::pin::pin!(asked_to_end()?);

    let node = NodeIdentity {
        name: args.node_name.clone().unwrap_or_else(node_parts::host_name),
        ip: args.node_ip.unwrap_or_else(node_parts::node_address),
    };
    let control = Control::start(&instance, &args, &node).await?;
    let policies = netplugin::in_process(&instance, &args, &node.name, control.netplugin_client.clone())?;
    let (runtime, plugins) = start_runtime(&instance, &args, policies.is_some()).await?;
    let clients = (control.netdriver_client.clone(), control.admin_client.clone());
    let driver = netdriver::in_process(&instance, &args, &node.name, clients).await?;
    let metrics = more_metrics(plugins, policies.as_ref(), driver.as_ref());
    let policies = start_policies(policies);
    let driver = start_driver(driver);
    let kubelet = start_kubelet(&instance, &args, &control, &node, metrics).await?;
    let (scheduler, controllers) = start_deciders(&control).await?;
    let devices = start_device_plugin(&instance, &args)?;
    let tracing_served = Running::new();
    tracing_served.tasks.spawn(crate::solo::traced(
        instance.run_dir(),
        ring,
        tracing_served.shutdown.clone(),
    ));

    let mut ready = false;
    let verdict = loop {
        tokio::select! {
            biased;
            () = &mut asked_to_end => break Ok(()),
            () = control.running.ended() => break Err("API server"),
            () = runtime.ended() => break Err("runtime"),
            () = kubelet.ended() => break Err("kubelet"),
            () = scheduler.ended() => break Err("scheduler"),
            () = controllers.ended() => break Err("controllers"),
            told = until_ready(&control.node_client, &node.name), if !ready => {
                told?;
                ready = true;
                notify_service_manager("READY=1");
                say(&format!("ready node={} server=https://{} kubeconfig={}", node.name, control.address, control.kubeconfig.display()));
            }
        }
    };
    notify_service_manager("STOPPING=1");
    for part in [devices, controllers, scheduler, kubelet, driver, policies, runtime, control.running] {
        part.stop().await;
    }
    tracing_served.stop().await;
    verdict.map_err(|part| anyhow::anyhow!("the {part} ended by itself"))
}

/// Returns at the first SIGTERM or SIGINT, also if that came before this was awaited.
pub fn asked_to_end() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Holds the data folder for this process; released by the kernel however the process ends.
pub struct Lock(#[allow(dead_code)] File);

/// Takes the data folder, or says who has it.
pub fn lock(instance: &Instance) -> Result<Lock> {
    private::folder(&instance.data_dir).context("take the data folder")?;
    let path = instance.pid_file();
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .with_context(|| format!("take {path:?}"))?;
    if file.try_lock().is_err() {
        let holder = fs::read_to_string(&path).unwrap_or_default();
        bail!(
            "data folder {:?} is used by process {}; stop it with `podwire down` or choose another --data-dir",
            instance.data_dir,
            holder.trim()
        );
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Lock(file))
}

/// Who this node is.
struct NodeIdentity {
    name: String,
    ip: IpAddr,
}

/// API server and store, and what the other participants of this process need of them.
struct Control {
    running: Running,
    address: SocketAddr,
    kubeconfig: PathBuf,
    pki: Arc<Pki>,
    node_client: podwire_client::Client,
    scheduler_client: podwire_client::Client,
    controllers_client: podwire_client::Client,
    netplugin_client: podwire_client::Client,
    netdriver_client: podwire_client::Client,
    admin_client: podwire_client::Client,
}

impl Control {
    async fn start(instance: &Instance, args: &UpArgs, node: &NodeIdentity) -> Result<Control> {
        let objects = Objects::open(&instance.data_dir.join("store"), &args.cluster).await?;
        let mut config =
            podwire_apiserver::Config::new(objects.store(), instance.data_dir.join("pki"), args.listen);
        config.extra_sans = vec![node.ip.to_string(), node_parts::host_name()];
        config.service_cidr = parse_cidr(&args.service_cidr).context("--service-cidr")?;
        config.encryption = objects.encryption.clone();
        let everywhere = args.listen.ip().is_unspecified();
        config.advertise = objects.advertise(args.listen.ip(), everywhere.then_some(node.ip));
        let api = config.build().await.context("start the API server")?;
        let client = |identity| podwire_client::Client::new(api.client(identity), "default");
        let node_client = client(Identity::node(&node.name));
        let scheduler_client = client(Identity::scheduler());
        let controllers_client = client(Identity::controller_manager());
        let netplugin_client = client(Identity::network_plugin());
        let netdriver_client = client(netdriver::identity(&node.name));
        let admin_client = client(Identity::admin());
        let (address, pki) = (api.local_addr(), api.pki());
        let kubeconfig = args.write_kubeconfig.clone().unwrap_or_else(|| instance.kubeconfig());
        write_admin(&pki, address, &kubeconfig)?;
        let running = Running::new();
        let shutdown = running.shutdown.clone();
        running.play(async move {
            tokio::join!(api.run(shutdown.clone()), objects.run(shutdown));
            objects.close().await;
        });
        Ok(Control {
            running,
            address,
            kubeconfig,
            pki,
            node_client,
            scheduler_client,
            controllers_client,
            netplugin_client,
            netdriver_client,
            admin_client,
        })
    }
}

/// Writes the administrator's credentials.
pub fn write_admin(pki: &Pki, address: SocketAddr, path: &Path) -> Result<()> {
    let admin = pki.issue_client("kubernetes-admin", &["system:masters"])?;
    let text = pki.kubeconfig(&format!("https://{}", reachable(address)), "kubernetes-admin", &admin);
    Pki::write_private(path, &text).with_context(|| format!("write kubeconfig {path:?}"))
}

/// An address that a client on this machine can use.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(IpAddr::from([127, 0, 0, 1]), address.port())
    } else {
        address
    }
}

/// `10.0.0.0/16` as an address and a prefix length.
pub fn parse_cidr(text: &str) -> Result<(IpAddr, u8)> {
    let (address, length) =
        text.split_once('/').with_context(|| format!("{text:?} is not ADDRESS/LENGTH"))?;
    Ok((address.parse()?, length.parse()?))
}

/// Our own runtime, unless the flags name another one; with `policies` no pod starts without the network plugin.
async fn start_runtime(
    instance: &Instance,
    args: &UpArgs,
    policies: bool,
) -> Result<(Running, Option<podwire_nri::Nri>)> {
    let running = Running::new();
    if args.node.container_runtime_endpoint.is_some() {
        let shutdown = running.shutdown.clone();
        running.tasks.spawn(async move { shutdown.cancelled().await });
        return Ok((running, None));
    }
    let folders = NetworkFolders::of(instance, &args.node);
    let network = node_parts::write_network(instance, &folders, &args.pod_cidr, &args.cluster_cidr)?;
    running.tasks.spawn(node_parts::keep_forwarding_open(network, running.shutdown.clone()));
    let registries = args.node.registry_config.as_deref();
    let mut nri = nri::config(instance, &args.node.nri);
    if policies {
        nri.required.push(podwire_netplugin::NAME.to_owned());
    }
    let mut config = node_parts::runtime(instance, instance.cri_socket(), &folders, nri, registries)?;
    config.handlers = args.node.handler.clone();
    let runtime = config.build().await.context("start the runtime")?;
    let plugins = runtime.nri();
    running.tasks.spawn(nri::serve(instance.nri_control_socket(), plugins.clone(), running.shutdown.clone()));
    running.play(runtime.run(running.shutdown.clone()));
    Ok((running, Some(plugins)))
}

async fn start_kubelet(
    instance: &Instance,
    args: &UpArgs,
    control: &Control,
    node: &NodeIdentity,
    more_metrics: Option<podwire_kubelet::MoreMetrics>,
) -> Result<Running> {
    let endpoint = args.node.container_runtime_endpoint.as_deref().map(node_parts::socket_path);
    let serving = control
        .pki
        .issue_node_server(&node.name, &[node.name.clone(), node.ip.to_string(), "127.0.0.1".to_owned()])?;
    let port = args.kubelet_port.unwrap_or(if instance.is_default() { 10250 } else { 0 });
    let tls = podwire_kubelet::ServerTls {
        cert: serving.cert_pem,
        key: serving.key_pem,
        client_ca: control.pki.ca_pem().to_owned(),
    };
    let config = podwire_kubelet::Config {
        memory_dir: Some(instance.run_dir().join("secrets")),
        log_dir: instance.data_dir.join("logs"),
        cgroup_root: instance.cgroup_root(),
        listen: SocketAddr::new(node.ip, port),
        tls: Some(tls),
        node_ips: vec![node.ip.to_string()],
        pod_cidr: args.pod_cidr.first().cloned(),
        eviction: node_parts::eviction(&args.eviction_hard)?,
        reserved: node_parts::reserved(&args.reserved)?,
        devices: node_parts::devices(instance.plugin_root(), &args.topology)?,
        claims: node_parts::claims(instance.plugin_root(), &args.claims),
        more_metrics,
        ..podwire_kubelet::Config::new(
            control.node_client.clone(),
            &node.name,
            endpoint.unwrap_or_else(|| instance.cri_socket()),
            instance.data_dir.join("kubelet"),
        )
    };
    let kubelet = config.build().await.context("start the kubelet")?;
    let running = Running::new();
    running.play(kubelet.run(running.shutdown.clone()));
    Ok(running)
}

/// What else the kubelet tells beside its own figures.
fn more_metrics(
    plugins: Option<podwire_nri::Nri>,
    policies: Option<&podwire_netplugin::NetPlugin>,
    driver: Option<&podwire_netdriver::Driver>,
) -> Option<podwire_kubelet::MoreMetrics> {
    let driver = driver.map(podwire_netdriver::Driver::metrics);
    let driver = move || driver.as_ref().map(|text| text()).unwrap_or_default();
    let policies = policies.map(podwire_netplugin::NetPlugin::metrics);
    let policies = move || policies.as_ref().map(|text| text()).unwrap_or_default();
    plugins
        .map(|plugins| podwire_kubelet::MoreMetrics::new(move || plugins.metrics() + &policies() + &driver()))
}

/// The network plugin, unless policies are off.
fn start_policies(plugin: Option<podwire_netplugin::NetPlugin>) -> Running {
    let running = Running::new();
    if let Some(plugin) = plugin {
        running.play(plugin.run(running.shutdown.clone()));
    }
    running
}

/// The network driver, if it is wanted.
fn start_driver(driver: Option<podwire_netdriver::Driver>) -> Running {
    let running = Running::new();
    if let Some(driver) = driver {
        running.play(driver.run(running.shutdown.clone()));
    }
    running
}

/// The node's own device plugin, if a file says what it offers.
fn start_device_plugin(instance: &Instance, args: &UpArgs) -> Result<Running> {
    let running = Running::new();
    if let Some(config) = &args.device_plugin_config {
        let plugin = device_plugin::plugin(config, instance.plugin_root().join("device-plugins"))?;
        running.play(plugin.run(running.shutdown.clone()));
    }
    Ok(running)
}

/// The scheduler and the controllers.
async fn start_deciders(control: &Control) -> Result<(Running, Running)> {
    let (deciding, keeping) = (Running::new(), Running::new());
    let scheduler =
        node_parts::scheduler(control.scheduler_client.clone(), podwire_scheduler::Configuration::default())
            .await?;
    deciding.play(scheduler.run(deciding.shutdown.clone()));
    let controllers =
        node_parts::controllers(control.controllers_client.clone(), control.pki.ca_pem()).await?;
    keeping.play(controllers.run(keeping.shutdown.clone()));
    Ok((deciding, keeping))
}

/// Returns when the node says that it is Ready.
async fn until_ready(client: &podwire_client::Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let only = format!("metadata.name={name}");
    loop {
        let list = nodes.list(&ListParams::default().fields(&only)).await.context("look for our node")?;
        if list.items.iter().any(is_ready) {
            return Ok(());
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let events =
            nodes.watch(&WatchParams::default().fields(&only), &version).await.context("watch our node")?;
        let mut events = std::pin::pin!(events);
        // The watch may end by itself; then it is looked up anew.
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event
                && is_ready(&node)
            {
                return Ok(());
            }
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    podwire_api::condition::is_true(conditions, "Ready")
}

/// Tells systemd how the node stands, when systemd started it.
#[allow(clippy::disallowed_methods)] // The composition root may read the environment.
fn notify_service_manager(state: &str) {
    let Ok(path) = std::env::var("NOTIFY_SOCKET") else { return };
    let sent =
        std::os::unix::net::UnixDatagram::unbound().and_then(|socket| socket.send_to(state.as_bytes(), path));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager was not told");
    }
}

/// A participant running in this process, with the switch that ends it.
struct Running {
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    fn new() -> Running {
        Running { shutdown: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Starts the participant itself; what runs beside it ends with it, however it ends.
    fn play(&self, participant: impl Future<Output = ()> + Send + 'static) {
        let ends_with_it = self.shutdown.clone().drop_guard();
        self.tasks.spawn(async move {
            participant.await;
            drop(ends_with_it);
        });
    }

    /// Asks the participant to end and waits until its work is at rest.
    async fn stop(self) {
        self.shutdown.cancel();
        self.ended().await;
    }

    /// Returns when every task ended, asked or not.
    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
