//! `podwire netdriver`: network devices of this node for claims of pods, alone beside any kubelet and runtime, or in `up`.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    rbac::v1::{ClusterRole, ClusterRoleBinding},
    resource::v1::DeviceClass,
};
use podwire_apiserver::Identity;
use podwire_client::{
    Api, Client,
    api::{Patch, PatchParams},
};
use podwire_netdriver::{Config, Driver, NAME, Offer};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{NetdriverArgs, OfferArgs, UpArgs},
    instance::Instance,
    netplugin::of_pod,
    node_parts, nri, say,
    solo::{client, traced, until_signal},
    trace::{self, Ring},
};

/// The manifest that says what the driver may do, wherever it runs.
const MANIFEST: &str = include_str!("../../dist/netdriver.yaml");

/// Where the driver of an instance keeps what is prepared.
pub fn state_dir(instance: &Instance) -> PathBuf {
    instance.run_dir().join("netdriver")
}

/// Whom the driver of a node is for the API server: a service account whose token says on which node.
pub fn identity(node: &str) -> Identity {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    let mut identity = Identity::new("system:serviceaccount:kube-system:podwire-netdriver", &groups);
    identity.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
    identity
}

/// Gives that account its rights, and no others, and devices of the driver their class.
async fn install(admin: Client) -> Result<()> {
    let params = PatchParams::apply("podwire").force();
    for document in serde_yaml_ng::Deserializer::from_str(MANIFEST) {
        let object = Value::deserialize(document).context("read dist/netdriver.yaml")?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let patch = Patch::Apply(object);
        let done = match kind.as_str() {
            "ClusterRole" => Api::<ClusterRole>::all(admin.clone()).patch(&name, &params, &patch).await,
            "ClusterRoleBinding" => {
                Api::<ClusterRoleBinding>::all(admin.clone()).patch(&name, &params, &patch).await
            }
            "DeviceClass" => Api::<DeviceClass>::all(admin.clone()).patch(&name, &params, &patch).await,
            // How it runs elsewhere.
            _ => continue,
        };
        done.with_context(|| format!("write {kind} {name}"))?;
    }
    Ok(())
}

fn offers(args: &OfferArgs) -> Result<Vec<Offer>> {
    let mut all = Vec::new();
    for text in &args.offer {
        all.extend(Offer::parse(text).map_err(|why| anyhow::anyhow!("--offer: {why}"))?);
    }
    Ok(all)
}

/// The driver of `up`; `None` when it is not wanted.
pub async fn in_process(
    instance: &Instance,
    args: &UpArgs,
    node_name: &str,
    (client, admin): (Client, Client),
) -> Result<Option<Driver>> {
    if !args.driver.network_driver {
        return Ok(None);
    }
    install(admin).await.context("give the network driver its rights")?;
    let config = Config {
        client,
        node_name: node_name.to_owned(),
        driver_name: NAME.to_owned(),
        kubelet_dir: instance.plugin_root(),
        nri_socket: args.node.nri.nri_socket.clone().unwrap_or_else(|| instance.nri_socket()),
        state_dir: state_dir(instance),
        cdi_dir: node_parts::CDI_DIR.into(),
        sysfs: "/sys".into(),
        filter: args.driver.offers.filter.clone(),
        offers: offers(&args.driver.offers)?,
        skip: vec![instance.bridge()],
    };
    config.build().context("start the network driver").map(Some)
}

/// Offers devices until SIGTERM or SIGINT; what is in a pod then stays there.
pub async fn run(args: NetdriverArgs, ring: Ring) -> Result<()> {
    let client = match &args.kubeconfig {
        Some(kubeconfig) => client(kubeconfig).await?,
        None => of_pod(args.service_host.as_deref(), args.service_port).await?,
    };
    let metrics = nri::Metrics::listen_beside(args.bind_address).await?;
    let config = Config {
        client,
        node_name: args.hostname_override.clone().unwrap_or_else(node_parts::host_name),
        driver_name: args.driver_name.clone(),
        kubelet_dir: args.kubelet_root_dir.clone(),
        nri_socket: args.nri_socket.clone(),
        state_dir: args.state_dir.clone(),
        cdi_dir: args.cdi_dir.clone(),
        sysfs: "/sys".into(),
        filter: args.offers.filter.clone(),
        offers: offers(&args.offers)?,
        skip: args.keep.clone(),
    };
    let shutdown = until_signal()?;
    // Whoever watches sees that this one is well before it is its turn: only then is the one before it ended.
    let own: Arc<OnceLock<Figures>> = Arc::default();
    let figures = {
        let own = own.clone();
        move || own.get().map_or_else(String::new, |figures| figures())
    };
    let driving = async {
        let Some(driver) = in_turn(config, &shutdown).await? else { return Ok(()) };
        // Ignored: it is set here alone.
        own.set(Box::new(driver.metrics())).ok();
        say(&format!("ready driver={} socket={}", args.driver_name, args.nri_socket.display()));
        driver.run(shutdown.clone()).await;
        Ok(())
    };
    let ending = async {
        let driven: Result<()> = driving.await;
        // What cannot drive has nothing to tell.
        shutdown.cancel();
        driven
    };
    let (driven, ..) = tokio::join!(
        ending,
        nri::Metrics::run(Some(metrics), figures, shutdown.clone()),
        traced(trace::folder(&args.at)?, ring, shutdown.clone()),
    );
    driven
}

/// What a driver tells of itself.
type Figures = Box<dyn Fn() -> String + Send + Sync>;

/// How often it is asked whether the driver before has ended.
const TURN: Duration = Duration::from_millis(50);

/// The driver, once no other one has its folder; `None` if it is to end before.
async fn in_turn(config: Config, shutdown: &CancellationToken) -> Result<Option<Driver>> {
    let mut waits = false;
    loop {
        match config.clone().build() {
            Err(error) if error.is_in_use() => {
                if !waits {
                    say(&format!("waiting for the driver that has {}", config.state_dir.display()));
                }
                waits = true;
            }
            built => return built.context("start the network driver").map(Some),
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            () = tokio::time::sleep(TURN) => {}
        }
    }
}

/// Gives every device back that a driver of this instance has in a pod; for when the node goes and nobody drives any more.
pub fn give_back(instance: &Instance) -> Result<()> {
    let folder = state_dir(instance);
    if !folder.exists() {
        return Ok(());
    }
    podwire_netdriver::give_all_back(&folder, Path::new(node_parts::CDI_DIR))
        .context("give network devices back")
}
