//! A client of CRI that makes the bench's pods.

use anyhow::{Context, Result, ensure};
use podwire_testkit::runtimes::Running;
use podwire_wire::cri::{
    self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};
use tonic::transport::Channel;

/// A connection to a runtime.
pub struct Client {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    cgroup_parent: String,
}

/// A sandbox and what it was made from.
pub struct Sandbox {
    id: String,
    config: cri::PodSandboxConfig,
}

/// A pod with one running container.
pub struct Pod {
    sandbox: String,
    container: String,
}

impl Client {
    /// Connects when first used.
    pub fn new(runtime: &Running) -> Client {
        let channel = podwire_wire::unix::channel(&runtime.socket);
        Client {
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            cgroup_parent: format!("/podwire-bench-{}", std::process::id()),
        }
    }

    /// RunPodSandbox.
    pub async fn run(&self, name: &str) -> Result<Sandbox> {
        let pid = cri::NamespaceMode::Container as i32;
        let security = cri::LinuxSandboxSecurityContext {
            namespace_options: Some(cri::NamespaceOption { pid, ..Default::default() }),
            ..Default::default()
        };
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "bench".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup_parent),
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request =
            cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let id = self.runtime.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        Ok(Sandbox { id, config })
    }

    /// CreateContainer and StartContainer.
    pub async fn start(&self, sandbox: Sandbox) -> Result<Pod> {
        let pod = self.create(sandbox).await?;
        let request = cri::StartContainerRequest { container_id: pod.container.clone() };
        self.runtime.clone().start_container(request).await?;
        Ok(pod)
    }

    /// CreateContainer.
    pub async fn create(&self, sandbox: Sandbox) -> Result<Pod> {
        let pid = cri::NamespaceMode::Container as i32;
        let security = cri::LinuxContainerSecurityContext {
            namespace_options: Some(cri::NamespaceOption { pid, ..Default::default() }),
            ..Default::default()
        };
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: "localhost/app:latest".to_owned(), ..Default::default() }),
            args: ["sleep", "3600"].map(str::to_owned).to_vec(),
            linux: Some(cri::LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config),
        };
        let mut runtime = self.runtime.clone();
        let container = runtime.create_container(request).await?.into_inner().container_id;
        Ok(Pod { sandbox: sandbox.id, container })
    }

    /// A whole pod.
    pub async fn up(&self, name: &str) -> Result<Pod> {
        let sandbox = self.run(name).await?;
        self.start(sandbox).await
    }

    /// A whole pod, by a name that is given away.
    pub async fn up_owned(&self, name: String) -> Result<Pod> {
        self.up(&name).await
    }

    /// ExecSync; fails unless the command succeeds.
    pub async fn exec(&self, pod: &Pod, words: &[&str]) -> Result<()> {
        let cmd = words.iter().map(|word| (*word).to_owned()).collect();
        let request = cri::ExecSyncRequest { container_id: pod.container.clone(), cmd, timeout: 10 };
        let code = self.runtime.clone().exec_sync(request).await?.into_inner().exit_code;
        ensure!(code == 0, "{words:?} ended with {code}");
        Ok(())
    }

    /// StopPodSandbox and RemovePodSandbox.
    pub async fn down(&self, pod: &Pod) -> Result<()> {
        let mut runtime = self.runtime.clone();
        let id = pod.sandbox.clone();
        runtime.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await?;
        runtime.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id }).await?;
        Ok(())
    }

    /// PullImage.
    pub async fn pull(&self, name: &str) -> Result<()> {
        let image = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
        let request = cri::PullImageRequest { image, ..Default::default() };
        self.images.clone().pull_image(request).await.with_context(|| format!("pull {name}"))?;
        Ok(())
    }

    /// RemoveImage.
    pub async fn forget(&self, name: &str) -> Result<()> {
        let image = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
        self.images.clone().remove_image(cri::RemoveImageRequest { image }).await?;
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for top in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let folder = top.path().join(self.cgroup_parent.trim_start_matches('/'));
            // Ignored: a group that is still in use is left for the kernel to show.
            for pod in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                std::fs::remove_dir(pod.path()).ok();
            }
            std::fs::remove_dir(folder).ok();
        }
    }
}
