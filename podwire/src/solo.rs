//! One participant alone, for a cluster whose other participants are elsewhere or upstream's.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_apiserver::pki::Pki;
use podwire_scheduler::{Election, Elector};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{ApiserverArgs, ControllersArgs, KubeApiserverArgs, KubeletArgs, RuntimeArgs, SchedulerArgs},
    instance::Instance,
    node_parts::{self, NetworkFolders},
    nri,
    objects::Objects,
    private, say,
    trace::{self, Ring},
    up::{asked_to_end, lock, parse_cidr, reachable, write_admin},
};

/// `podwire apiserver`: the API server, on the embedded store or on an etcd cluster.
pub async fn apiserver(args: ApiserverArgs, ring: Ring) -> Result<()> {
    let instance = Instance::at(&args.data.data_dir)?;
    let _lock = lock(&instance)?;
    let objects = Objects::open(&instance.data_dir.join("store"), &args.cluster).await?;
    let listen = SocketAddr::new(args.bind_address, args.secure_port);
    let mut config = podwire_apiserver::Config::new(objects.store(), instance.data_dir.join("pki"), listen);
    config.extra_sans = vec![node_parts::host_name()];
    config.advertise = objects.advertise(args.bind_address, args.advertise_address);
    config.extra_sans.extend(config.advertise.map(|own| own.address.to_string()));
    config.service_cidr = parse_cidr(&args.service_cluster_ip_range).context("--service-cluster-ip-range")?;
    config.encryption = objects.encryption.clone();
    let api = config.build().await.context("start the API server")?;
    let server = format!("https://{}", reachable(api.local_addr()));
    write_admin(&api.pki(), api.local_addr(), &instance.kubeconfig())?;
    write_participants(&api.pki(), &server, &instance.data_dir, &args.issue_node)?;
    say(&format!("ready server={server} kubeconfig={}", instance.kubeconfig().display()));
    let shutdown = until_signal()?;
    let folder = args.at.trace_dir.clone().unwrap_or_else(|| instance.run_dir());
    tokio::join!(api.run(shutdown.clone()), objects.run(shutdown.clone()), traced(folder, ring, shutdown));
    objects.close().await;
    Ok(())
}

/// A program called `kube-apiserver`: the API server alone, with what the flags name and nothing in the machine's folders.
pub async fn kube_apiserver(args: KubeApiserverArgs) -> Result<()> {
    if args.cluster.etcd_servers.is_empty() {
        bail!("--etcd-servers must be specified");
    }
    if args.service_account_signing_key_file.is_none() && !args.service_account_key_file.is_empty() {
        bail!(
            "--service-account-key-file needs --service-account-signing-key-file: tokens are checked with the key that signs them"
        );
    }
    let objects = Objects::open(&args.cert_dir, &args.cluster).await?;
    let listen = SocketAddr::new(args.bind_address, args.secure_port);
    let mut config = podwire_apiserver::Config::new(objects.store(), args.cert_dir.join("podwire"), listen);
    config.service_cidr = parse_cidr(&args.service_cluster_ip_range).context("--service-cluster-ip-range")?;
    config.encryption = objects.encryption.clone();
    config.token_issuer = args.service_account_issuer.clone();
    config.extra_sans.extend(args.advertise_address.map(|address| address.to_string()));
    config.advertise = objects.advertise(args.bind_address, args.advertise_address);
    config.service_accounts = args.disable_admission_plugins.is_empty();
    let kept = (args.cert_dir.join("apiserver.crt"), args.cert_dir.join("apiserver.key"));
    config.given = podwire_apiserver::Given {
        serving: match (&args.tls_cert_file, &args.tls_private_key_file) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            _ => (kept.0.exists() && kept.1.exists()).then_some(kept),
        },
        client_ca: args.client_ca_file.clone(),
        token_key: args.service_account_signing_key_file.clone(),
    };
    let api = config.build().await.context("start the API server")?;
    let shutdown = until_signal()?;
    tokio::join!(api.run(shutdown.clone()), objects.run(shutdown));
    Ok(())
}

/// Credentials for the participants that run elsewhere, beside the administrator's.
fn write_participants(pki: &Pki, server: &str, folder: &Path, nodes: &[String]) -> Result<()> {
    let write = |name: &str, user: &str, groups: &[&str]| -> Result<()> {
        let identity = pki.issue_client(user, groups)?;
        Pki::write_private(
            &folder.join(format!("{name}.kubeconfig")),
            &pki.kubeconfig(server, user, &identity),
        )?;
        Ok(())
    };
    write("scheduler", "system:kube-scheduler", &[])?;
    write("controllers", "system:kube-controller-manager", &[])?;
    Pki::write_private(&folder.join("ca.crt"), pki.ca_pem())?;
    for wanted in nodes {
        let (node, address) = match wanted.split_once('=') {
            Some((node, address)) => (node, address.to_owned()),
            None => (wanted.as_str(), node_parts::node_address().to_string()),
        };
        write(node, &format!("system:node:{node}"), &["system:nodes"])?;
        let serving = pki.issue_node_server(node, &[node.to_owned(), "127.0.0.1".to_owned(), address])?;
        Pki::write_private(&folder.join(format!("{node}.crt")), &serving.cert_pem)?;
        Pki::write_private(&folder.join(format!("{node}.key")), &serving.key_pem)?;
    }
    Ok(())
}

/// `podwire scheduler`.
pub async fn scheduler(args: SchedulerArgs, ring: Ring) -> Result<()> {
    let configuration = match &args.config {
        Some(path) => crate::client::read_configuration(path)?,
        None => podwire_scheduler::Configuration::default()
            .elected(args.leader_elect.then(podwire_scheduler::Election::default)),
    };
    let scheduler = node_parts::scheduler(client(&args.client.kubeconfig).await?, configuration).await?;
    let shutdown = until_signal()?;
    tokio::join!(scheduler.run(shutdown.clone()), traced(trace::folder(&args.client.at)?, ring, shutdown));
    Ok(())
}

/// How long after a start that failed the next one is tried.
const RETRY: Duration = Duration::from_secs(2);

/// `podwire controllers`.
pub async fn controllers(args: ControllersArgs) -> Result<()> {
    let authority = match &args.root_ca_file {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))?,
        None => authority_of(&args.client.kubeconfig)?,
    };
    let (client, shutdown) = (client(&args.client.kubeconfig).await?, until_signal()?);
    if !args.leader_elect {
        node_parts::controllers(client, &authority).await?.run(shutdown).await;
        return Ok(());
    }
    let election = Election { name: "kube-controller-manager".to_owned(), ..Election::default() };
    let mut elector = Elector::new(client.clone(), election, podwire_scheduler::identity());
    while elector.acquire(&shutdown).await {
        let lost = shutdown.child_token();
        let serving = async {
            match node_parts::controllers(client.clone(), &authority).await {
                Ok(controllers) => controllers.run(lost.clone()).await,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "the controllers did not start; will retry");
                    tokio::time::sleep(RETRY).await;
                }
            }
            lost.cancel();
        };
        let keeping = async {
            tokio::select! {
                () = elector.keep(&shutdown) => lost.cancel(),
                () = lost.cancelled() => {}
            }
        };
        tokio::join!(serving, keeping);
        if shutdown.is_cancelled() {
            elector.release().await;
            break;
        }
    }
    Ok(())
}

/// `podwire kubelet`.
pub async fn kubelet(args: KubeletArgs, ring: Ring) -> Result<()> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {path:?}"));
    let node_ip = args.node_ip.unwrap_or_else(node_parts::node_address);
    let tls = podwire_kubelet::ServerTls {
        cert: read(&args.tls_cert_file)?,
        key: read(&args.tls_private_key_file)?,
        client_ca: read(&args.client_ca_file)?,
    };
    let config = podwire_kubelet::Config {
        log_dir: args.pod_log_dir.clone(),
        cgroup_root: args.cgroup_root.clone(),
        listen: SocketAddr::new(node_ip, args.port),
        tls: Some(tls),
        node_ips: vec![node_ip.to_string()],
        eviction: node_parts::eviction(&args.eviction_hard)?,
        reserved: node_parts::reserved(&args.reserved)?,
        devices: node_parts::devices(args.root_dir.clone(), &args.topology)?,
        claims: node_parts::claims(args.root_dir.clone(), &args.claims),
        ..podwire_kubelet::Config::new(
            client(&args.client.kubeconfig).await?,
            &args.hostname_override.clone().unwrap_or_else(node_parts::host_name),
            node_parts::socket_path(&args.container_runtime_endpoint),
            args.root_dir.clone(),
        )
    };
    let kubelet = config.build().await.context("start the kubelet")?;
    let shutdown = until_signal()?;
    tokio::join!(kubelet.run(shutdown.clone()), traced(trace::folder(&args.client.at)?, ring, shutdown));
    Ok(())
}

/// `podwire runtime`.
pub async fn runtime(args: RuntimeArgs, ring: Ring) -> Result<()> {
    let instance = Instance::at(&args.data.data_dir)?;
    let _lock = lock(&instance)?;
    private::folder(&instance.run_dir()).context("take the run folder")?;
    let folders =
        NetworkFolders { conf_dir: args.cni_conf_dir.clone(), bin_dirs: vec![args.cni_bin_dir.clone()] };
    let listen = args.listen.clone().unwrap_or_else(|| instance.cri_socket());
    let mut config = node_parts::runtime(
        &instance,
        listen.clone(),
        &folders,
        nri::config(&instance, &args.nri),
        args.registry_config.as_deref(),
    )?;
    config.handlers = args.handler.clone();
    let runtime = config.build().await.context("start the runtime")?;
    let metrics = match args.metrics_address {
        Some(address) => Some(nri::Metrics::listen(address).await?),
        None => None,
    };
    say(&format!("ready socket={}", listen.display()));
    let (shutdown, plugins) = (until_signal()?, runtime.nri());
    let folder = args.at.trace_dir.clone().unwrap_or_else(|| instance.run_dir());
    tokio::join!(
        runtime.run(shutdown.clone()),
        nri::serve(instance.nri_control_socket(), plugins.clone(), shutdown.clone()),
        nri::Metrics::run(metrics, move || plugins.metrics(), shutdown.clone()),
        traced(folder, ring, shutdown),
    );
    Ok(())
}

/// Offers the arrows of this process; without them it runs on.
pub async fn traced(folder: PathBuf, ring: Ring, shutdown: CancellationToken) {
    if let Err(error) = trace::serve(folder, ring, shutdown).await {
        tracing::warn!(error = format!("{error:#}"), "traces cannot be read; all else goes on");
    }
}

/// The API server that a kubeconfig names.
pub async fn client(kubeconfig: &Path) -> Result<podwire_client::Client> {
    let config = podwire_client::Config::read(kubeconfig)
        .with_context(|| format!("read kubeconfig {kubeconfig:?}"))?;
    podwire_client::Client::connect(config).await.context("set up the connection")
}

fn authority_of(kubeconfig: &Path) -> Result<String> {
    let config = podwire_client::Config::read(kubeconfig)
        .with_context(|| format!("read kubeconfig {kubeconfig:?}"))?;
    let authority =
        config.authority.context("the kubeconfig holds no certificate authority; use --root-ca-file")?;
    String::from_utf8(authority).context("the certificate authority is not text")
}

/// Cancelled by SIGTERM or SIGINT.
pub fn until_signal() -> Result<CancellationToken> {
    let token = CancellationToken::new();
    let (cancel, asked) = (token.clone(), asked_to_end()?);
    tokio_util::task::TaskTracker::new().spawn(async move {
        asked.await;
        cancel.cancel();
    });
    Ok(token)
}
