//! A client of CRI that makes the pods of these tests on either runtime.

use std::{collections::HashMap, path::Path};

use anyhow::{Context, Result};
use podwire_wire::cri::{
    self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};
use tonic::transport::Channel;

/// A connection to a runtime.
#[derive(Clone)]
pub struct Client {
    pub runtime: RuntimeServiceClient<Channel>,
    channel: Channel,
}

/// A sandbox and what it was made from.
#[derive(Clone)]
pub struct Sandbox {
    pub id: String,
    config: cri::PodSandboxConfig,
}

pub const IMAGE: &str = "localhost/app:latest";

impl Client {
    pub fn new(socket: &Path) -> Client {
        let channel = podwire_wire::unix::channel(socket);
        Client { runtime: RuntimeServiceClient::new(channel.clone()), channel }
    }

    pub async fn pull(&self, name: &str) -> Result<()> {
        let image = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
        let request = cri::PullImageRequest { image, ..Default::default() };
        ImageServiceClient::new(self.channel.clone()).pull_image(request).await?;
        Ok(())
    }

    pub async fn run(&self, name: &str, annotations: &[(&str, &str)]) -> Result<Sandbox> {
        let metadata = cri::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "twins".to_owned(),
            attempt: 0,
        };
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let config = cri::PodSandboxConfig {
            metadata: Some(metadata),
            hostname: name.to_owned(),
            labels: HashMap::from([("app".to_owned(), "twin".to_owned())]),
            annotations: annotations.iter().map(owned).collect(),
            linux: Some(cri::LinuxPodSandboxConfig {
                security_context: Some(Default::default()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request =
            cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let id = self.runtime.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        Ok(Sandbox { id, config })
    }

    pub async fn create(&self, sandbox: &Sandbox, name: &str) -> Result<String> {
        let pid = cri::NamespaceMode::Container as i32;
        let security = cri::LinuxContainerSecurityContext {
            namespace_options: Some(cri::NamespaceOption { pid, ..Default::default() }),
            ..Default::default()
        };
        let env =
            |key: &str, value: &str| cri::KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec() };
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            mounts: vec![cri::Mount {
                container_path: "/gone".to_owned(),
                host_path: "/usr/share".to_owned(),
                readonly: true,
                ..Default::default()
            }],
            args: ["sleep", "3600"].map(str::to_owned).to_vec(),
            envs: vec![env("GONE", "x"), env("CHANGED", "by-cri"), env("KEPT", "yes")],
            annotations: HashMap::from([
                ("gone".to_owned(), "x".to_owned()),
                ("kept".to_owned(), "yes".to_owned()),
            ]),
            labels: HashMap::from([("of".to_owned(), "container".to_owned())]),
            linux: Some(cri::LinuxContainerConfig {
                security_context: Some(security),
                resources: Some(cri::LinuxContainerResources { cpu_shares: 200, ..Default::default() }),
            }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        Ok(self.runtime.clone().create_container(request).await?.into_inner().container_id)
    }

    pub async fn start(&self, container: &str) -> Result<()> {
        let request = cri::StartContainerRequest { container_id: container.to_owned() };
        self.runtime.clone().start_container(request).await?;
        Ok(())
    }

    /// The process id of a running container.
    pub async fn pid(&self, container: &str) -> Result<u32> {
        let request = cri::ContainerStatusRequest { container_id: container.to_owned(), verbose: true };
        let answer = self.runtime.clone().container_status(request).await?.into_inner();
        let info: serde_json::Value = serde_json::from_str(answer.info.get("info").context("no info")?)?;
        info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("no pid")
    }

    pub async fn update(&self, container: &str, shares: i64) -> Result<()> {
        let linux = Some(cri::LinuxContainerResources { cpu_shares: shares, ..Default::default() });
        let request = cri::UpdateContainerResourcesRequest {
            container_id: container.to_owned(),
            linux,
            ..Default::default()
        };
        self.runtime.clone().update_container_resources(request).await?;
        Ok(())
    }

    pub async fn remove(&self, container: &str) -> Result<()> {
        let mut runtime = self.runtime.clone();
        let container_id = container.to_owned();
        runtime
            .stop_container(cri::StopContainerRequest { container_id: container_id.clone(), timeout: 0 })
            .await?;
        runtime.remove_container(cri::RemoveContainerRequest { container_id }).await?;
        Ok(())
    }

    pub async fn down(&self, sandbox: &str) -> Result<()> {
        let mut runtime = self.runtime.clone();
        let pod_sandbox_id = sandbox.to_owned();
        runtime
            .stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await?;
        runtime.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(())
    }
}
