//! An NRI plugin that writes down what it hears, and can set a variable in every container.
//!
//! Works with any runtime that speaks NRI:
//!
//! ```text
//! cargo run -p podwire-nri --example logger -- --socket /var/run/nri/nri.sock --env GREETING=hello
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use podwire_nri::api::{
    ConfigureRequest, Container, ContainerAdjustment, ContainerUpdate, CreateContainerResponse, Event,
    KeyValue, LinuxResources, PodSandbox, UpdateContainerResponse,
};
use podwire_nri::stub::{Answer, DEFAULT_SOCKET, Happened, Plugin, Stub};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Parser)]
struct Args {
    /// Where the runtime listens.
    #[arg(long, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// The plugin's name.
    #[arg(long, default_value = "logger")]
    name: String,
    /// Its place in the order: two digits.
    #[arg(long, default_value = "50")]
    index: String,
    /// A variable to set in every container, as NAME=value.
    #[arg(long)]
    env: Option<String>,
}

struct Logger {
    env: Option<(String, String)>,
}

impl Plugin for Logger {
    fn events(&self) -> Vec<Event> {
        // None means all but validation, which this plugin has nothing to say about.
        (1..Event::ValidateContainerAdjustment as i32)
            .filter_map(|event| Event::try_from(event).ok())
            .collect()
    }

    fn configure(&self, request: ConfigureRequest) -> Answer<'_, ()> {
        tracing::info!(runtime = request.runtime_name, version = request.runtime_version, "connected");
        Box::pin(std::future::ready(Ok(())))
    }

    fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Answer<'_, Vec<ContainerUpdate>> {
        tracing::info!(pods = pods.len(), containers = containers.len(), "synchronized");
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        let netns =
            what.pod.linux.iter().flat_map(|linux| &linux.namespaces).find(|one| one.r#type == "network");
        tracing::info!(
            event = what.event.as_str_name(),
            pod = format_args!("{}/{}", what.pod.namespace, what.pod.name),
            container = what.container.as_ref().map(|container| container.name.as_str()),
            ips = ?what.pod.ips,
            netns = netns.map(|one| one.path.as_str()),
        );
        Box::pin(std::future::ready(Ok(())))
    }

    fn create_container(&self, pod: PodSandbox, container: Container) -> Answer<'_, CreateContainerResponse> {
        tracing::info!(
            event = "CREATE_CONTAINER",
            pod = format_args!("{}/{}", pod.namespace, pod.name),
            container = container.name,
            args = ?container.args,
        );
        let env = self.env.iter().map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() });
        let adjust = ContainerAdjustment { env: env.collect(), ..ContainerAdjustment::default() };
        let answer = CreateContainerResponse { adjust: Some(adjust), ..CreateContainerResponse::default() };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Answer<'_, UpdateContainerResponse> {
        tracing::info!(event = "UPDATE_CONTAINER", pod = pod.name, container = container.name, ?resources);
        Box::pin(std::future::ready(Ok(UpdateContainerResponse::default())))
    }

    fn stop_container(&self, pod: PodSandbox, container: Container) -> Answer<'_, Vec<ContainerUpdate>> {
        tracing::info!(event = "STOP_CONTAINER", pod = pod.name, container = container.name);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let args = Args::parse();
    let env = match &args.env {
        None => None,
        Some(text) => {
            let (key, value) =
                text.split_once('=').ok_or_else(|| anyhow::anyhow!("--env wants NAME=value"))?;
            Some((key.to_owned(), value.to_owned()))
        }
    };
    let stub = Stub { socket: args.socket, ..Stub::new(args.name, args.index) };
    let shutdown = CancellationToken::new();
    let ending = shutdown.clone();
    let running = stub.run(Arc::new(Logger { env }), shutdown);
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => {}
        _ = tokio::signal::ctrl_c() => {
            ending.cancel();
            running.await;
        }
    }
    Ok(())
}
