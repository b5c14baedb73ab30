//! What differs from kernel to kernel: overlays of several layers, user namespaces, ends that only a parent sees.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use podwire_image::build::{ImageBuilder, LayerBuilder};
use podwire_linux::kernel;
use podwire_testkit::{Node, eventually, isolate};
use podwire_wire::cri::{self, runtime_service_client::RuntimeServiceClient};
use serde_json::Value;
use tonic::transport::Channel;

use super::PATIENCE;

/// Three layers with busybox, and two folders that the image declares as volumes.
pub(crate) const DATA: &str = "localhost/data:latest";

/// Puts [`DATA`] into a node's store.
pub(crate) fn import_data(node: &Node) -> Result<()> {
    let mut first =
        LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", fs::read("/bin/busybox")?, 0o755);
    for applet in ["sh", "sleep", "cat", "echo", "ls", "mount", "touch", "id", "tail"] {
        first = first.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    let first = first.dir("tmp", 0o1777).dir("declared", 0o755).file("declared/kept", "kept\n", 0o644);
    let second =
        LayerBuilder::new().dir("dir", 0o755).file("dir/gone", "", 0o644).file("dir/two", "2\n", 0o644);
    let third = LayerBuilder::new().dir("dir", 0o755).file("dir/.wh.gone", "", 0o644);
    let third = third.file("dir/three", "3\n", 0o644);
    let built =
        ImageBuilder::new().layer(&first).layer(&second).layer(&third).volumes(&["/declared", "/fresh"]);
    let archive = node.data_dir.join("data.tar");
    built.cmd(&["sh", "-c", "sleep 600"]).build().write_oci_archive(&archive, DATA)?;
    let words = ["image", "import", "--data-dir"].map(AsRef::as_ref);
    node.podwire(words.into_iter().chain([node.data_dir.as_os_str(), archive.as_os_str()]))?;
    Ok(fs::remove_file(archive)?)
}

/// A pod of [`DATA`] that runs `script`; `more` and `container` are further lines of its spec and of its container.
pub(crate) fn shell(name: &str, script: &str, more: &str, container: &str) -> String {
    let script = serde_json::to_string(script).unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  {more}\n  containers:\n  - name: main\n    image: {DATA}\n    imagePullPolicy: Never\n    command: [sh, -c, {script}]\n    {container}\n"
    )
}

fn logs(node: &Node, pod: &str, last: &str) -> Result<String> {
    eventually("the container got through", PATIENCE, || {
        let text = node.podwire(["logs", pod]).map_err(|error| error.to_string())?;
        if text.contains(last) { Ok(text) } else { Err(text) }
    })
}

#[test]
fn volumes_of_images_and_image_volumes_work() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    import_data(&node)?;
    let script = "cat /declared/kept; echo x > /declared/new && echo y > /fresh/new && echo written; ls /whole/dir; \
                  echo z > /whole/new || echo refused; echo end; sleep 600";
    let volume = format!("volumes: [{{name: data, image: {{reference: \"{DATA}\", pullPolicy: Never}}}}]");
    node.apply(&shell("volumes", script, &volume, "volumeMounts: [{name: data, mountPath: /whole}]"))?;
    node.pod_in_phase("volumes", "Running")?;
    let said = logs(&node, "volumes", "end\n")?;
    assert_eq!(
        said.lines().filter(|l| !l.contains("/whole/new")).collect::<Vec<_>>(),
        ["kept", "written", "three", "two", "refused", "end"]
    );
    node.podwire(["delete", "pod", "volumes"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn a_runtime_class_names_runc() -> Result<()> {
    isolate()?;
    let node = Node::up(&["--handler", "runc=/sbin/runc"])?;
    import_data(&node)?;
    let class =
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: other}\nhandler: runc\n---\n";
    let pod = shell("foreign", "cat /dir/two /dir/three; echo end; sleep 600", "runtimeClassName: other", "");
    node.apply(&format!("{class}{pod}"))?;
    node.pod_in_phase("foreign", "Running")?;
    assert_eq!(logs(&node, "foreign", "end\n")?, "2\n3\nend\n");
    ensure!(node.names()?.run_dir.join("oci/runc").read_dir()?.next().is_some(), "runc knows nothing of it");
    let label = node.podwire(["exec", "foreign", "--", "cat", "/proc/self/attr/current"])?;
    assert_eq!(label.trim(), "podwire-default (enforce)", "runc was told the profile");
    node.podwire(["delete", "pod", "foreign"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

fn supervisor(node: &Node) -> Result<Option<i32>> {
    let run_dir = node.names()?.run_dir;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        if words.contains("supervisor\0--socket") && words.contains(&*run_dir.to_string_lossy()) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

#[test]
fn an_end_is_noticed_after_the_supervisor_died() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    import_data(&node)?;
    node.apply(&shell("orphan", "while [ ! -e /go ]; do sleep 0.2; done; exit 3", "", ""))?;
    node.pod_in_phase("orphan", "Running")?;
    let pid = supervisor(&node)?.and_then(rustix::process::Pid::from_raw).context("no supervisor")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    eventually("a new supervisor lets it go", PATIENCE, || {
        node.podwire(["exec", "orphan", "--", "touch", "/go"]).map_err(|error| error.to_string())
    })?;
    let pod = node.pod_in_phase("orphan", "Failed")?;
    let code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64();
    println!("orphan: exit code {code:?} on {}", kernel::release());
    assert_eq!(code, Some(if kernel::version() >= (6, 15) { 3 } else { 255 }));
    node.podwire(["delete", "pod", "orphan"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn check_tells_what_this_kernel_lacks() -> Result<()> {
    let said = Command::new("/podwire/podwire").args(["check", "--data-dir", "/disk"]).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    println!("{said}");
    assert!(said.contains(&kernel::release()), "{said}");
    assert_eq!(said.contains("before 6.15"), kernel::version() < (6, 15), "{said}");
    assert!(said.contains("containers run under the default profile"), "{said}");
    Ok(())
}

fn mapped(name: &str) -> cri::PodSandboxConfig {
    let maps = vec![cri::IdMapping { host_id: 400_000, container_id: 0, length: 65_536 }];
    let users = cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: maps.clone(), gids: maps };
    let options = cri::NamespaceOption {
        pid: cri::NamespaceMode::Container as i32,
        userns_options: Some(users),
        ..Default::default()
    };
    let security =
        cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            attempt: 0,
        }),
        log_directory: "/tmp/mapped-logs".into(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: "/podwire-mapped".into(),
            security_context: Some(security),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Creates and starts a container of [`DATA`] in a pod; its id, or why not.
async fn begin(
    client: &mut RuntimeServiceClient<Channel>,
    sandbox: &str,
    pod: &cri::PodSandboxConfig,
    name: &str,
    mounts: Vec<cri::Mount>,
) -> Result<String, tonic::Status> {
    let linux = pod.linux.clone().unwrap_or_default().security_context.unwrap_or_default();
    let security = cri::LinuxContainerSecurityContext {
        namespace_options: linux.namespace_options,
        ..Default::default()
    };
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: DATA.into(), ..Default::default() }),
        command: ["sleep", "600"].map(str::to_owned).to_vec(),
        log_path: format!("{name}.log"),
        mounts,
        linux: Some(cri::LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
        ..Default::default()
    };
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: Some(pod.clone()),
    };
    let id = client.create_container(request).await?.into_inner().container_id;
    client.start_container(cri::StartContainerRequest { container_id: id.clone() }).await?;
    Ok(id)
}

/// Through CRI, on a disk: before 6.3 tmpfs cannot be mapped, neither below a root nor as a volume.
#[test]
fn a_pod_has_users_of_its_own() -> Result<()> {
    isolate()?;
    let node = Node::at(Path::new("/disk/users"), &[])?;
    import_data(&node)?;
    let socket = node.names()?.run_dir.join("cri.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    fs::create_dir_all("/run/volume")?;
    runtime.block_on(async {
        let mut client = RuntimeServiceClient::new(podwire_wire::unix::channel(socket));
        let pod = mapped("mapped");
        let request = cri::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
        let sandbox = client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        let id = begin(&mut client, &sandbox, &pod, "main", Vec::new()).await?;
        let script =
            "id -u; cat /proc/self/uid_map; cat /dir/three; echo x > /made && echo wrote; cat /declared/kept";
        let request = cri::ExecSyncRequest {
            container_id: id,
            cmd: ["sh", "-c", script].map(str::to_owned).to_vec(),
            timeout: 60,
        };
        let done = client.exec_sync(request).await?.into_inner();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let lines: Vec<_> =
            said.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            ["0", "0 400000 65536", "3", "wrote", "kept"],
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );

        let maps = vec![cri::IdMapping { host_id: 400_000, container_id: 0, length: 65_536 }];
        let volume = cri::Mount {
            host_path: "/run/volume".into(),
            container_path: "/volume".into(),
            uid_mappings: maps.clone(),
            gid_mappings: maps,
            ..Default::default()
        };
        let tried = begin(&mut client, &sandbox, &pod, "second", vec![volume]).await;
        println!("a volume on tmpfs on {}: {tried:?}", kernel::release());
        match tried {
            Ok(_) => assert!(kernel::version() >= (6, 3), "tmpfs was mapped"),
            Err(refused) => {
                assert!(kernel::version() < (6, 3), "{refused}");
                assert!(refused.message().contains("map the ids of the mount on \"/volume\""), "{refused}");
            }
        }
        let id = sandbox.clone();
        client.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await?;
        client.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id }).await?;
        anyhow::Ok(())
    })?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// What keeps a pod's container from being made.
pub(crate) fn waiting(pod: &Value) -> (&str, &str) {
    let state = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    (state["reason"].as_str().unwrap_or_default(), state["message"].as_str().unwrap_or_default())
}
