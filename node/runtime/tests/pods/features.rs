//! What a container may have beside its image: image volumes, declared volumes, CDI devices with hooks, users and
//! processes shared; and which calls are left out.

use std::os::unix::fs::MetadataExt;

use podwire_wire::cri::{self, image_service_client::ImageServiceClient};
use tonic::Code;

use crate::world::{DATA, World, eventually};

fn image_mount(target: &str, sub_path: &str, readonly: bool) -> cri::Mount {
    cri::Mount {
        container_path: target.into(),
        readonly,
        image: Some(cri::ImageSpec { image: DATA.into(), ..Default::default() }),
        image_sub_path: sub_path.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_image_of_several_layers_is_shown_as_a_volume() {
    let mut world = World::new().await;
    let pod = world.pod("volumes");
    let sandbox = world.run(&pod).await.unwrap();
    let mut config = World::shell("main", "exec sleep 1000");
    config.mounts = vec![image_mount("/whole", "", true), image_mount("/part", "dir/deep", true)];
    let container = world.create(&sandbox, &pod, &config).await.unwrap();
    // The volume holds what it shows, though the image is gone from the list.
    let mut images = ImageServiceClient::new(podwire_wire::unix::channel(world.dir.join("cri.sock")));
    let image = Some(cri::ImageSpec { image: DATA.into(), ..Default::default() });
    images.remove_image(cri::RemoveImageRequest { image }).await.unwrap();
    world.begin(&container).await.unwrap();
    let run = async |script: &str| {
        let done = world.exec(&container, script, 10).await.unwrap();
        (String::from_utf8_lossy(&done.stdout).into_owned(), done.exit_code)
    };
    assert_eq!(run("cat /whole/dir/deep/one /whole/dir/deep/two").await.0, "first\nsecond\n");
    assert_eq!(run("ls /whole/dir").await.0, "deep\nout\n", "what a layer removed is not seen");
    assert_eq!(run("ls /part").await.0, "one\ntwo\n");
    assert_ne!(run("echo x > /whole/dir/new").await.1, 0, "it cannot be written");
    let mounts = run("cat /proc/self/mountinfo").await.0;
    for target in ["/whole", "/part"] {
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(target)).unwrap();
        let options: Vec<&str> = line.split(' ').nth(5).unwrap().split(',').collect();
        assert!(["ro", "nosuid", "nodev"].iter().all(|wanted| options.contains(wanted)), "{line}");
    }
    let status = world.status(&container).await;
    assert_eq!(status.mounts.len(), 2);
    assert!(status.mounts[0].image.as_ref().unwrap().image_ref.starts_with("sha256:"), "{status:?}");

    let refused = |sub_path: &str, readonly| {
        let mut config = World::shell("refused", "true");
        config.mounts = vec![image_mount("/x", sub_path, readonly)];
        config
    };
    for (sub_path, readonly) in
        [("", false), ("../etc", true), ("/etc", true), ("no/such", true), ("dir/out/passwd", true)]
    {
        let requested = refused(sub_path, readonly);
        let error = world.create(&sandbox, &pod, &requested).await.unwrap_err();
        assert!(
            matches!(error.code(), Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound),
            "{error}"
        );
    }
    world.kill();
    world.start(None).await;
    let again = world.exec(&container, "cat /part/one", 10).await.unwrap();
    assert_eq!(again.stdout, b"first\n", "a killed daemon takes no volume with it");
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn folders_an_image_declares_are_volumes_of_their_own() {
    let world = World::new().await;
    let pod = world.pod("declared");
    let sandbox = world.run(&pod).await.unwrap();
    let mut config = World::shell(
        "main",
        "cat /declared/kept; echo x > /declared/new && echo y > /fresh/new && echo written; echo z > /bin/new || echo refused; exec sleep 1000",
    );
    config.image = Some(cri::ImageSpec { image: DATA.into(), ..Default::default() });
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.readonly_rootfs = true;
    let container = world.create(&sandbox, &pod, &config).await.unwrap();
    world.begin(&container).await.unwrap();
    eventually("it got through", || world.log("main").contains("refused"));
    let log = world.log("main");
    assert!(log.contains("F copied\n") && log.contains("F written\n"), "{log}");
    assert!(world.status(&container).await.mounts.is_empty(), "nobody asked for them");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    let folder = world.container_dir(&container);
    assert_eq!(mode(&folder.join("volumes/declared-0")) & 0o755, 0o755, "as the image has it");
    for closed in [folder.as_path(), folder.parent().unwrap()] {
        assert_eq!(mode(closed), 0o700, "nobody but root gets to a volume's setuid files and devices");
    }
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

fn cdi_file(world: &World) {
    let out = world.dir.join("hooks");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::create_dir_all(world.dir.join("cdi")).unwrap();
    let hook = |name: &str, script: &str| serde_json::json!({"hookName": name, "path": "/bin/sh", "args": ["sh", "-c", script], "env": [format!("OUT={}", out.display())], "timeout": 30});
    let told = |name: &str| hook(name, &format!("/bin/cat > $OUT/{name}"));
    let inside = r#"state=$(/bin/cat); pid=${state##*'"pid":'}; pid=${pid%%[,\}]*}; bundle=${state##*'"bundle":"'}; bundle=${bundle%%'"'*}
        echo "$state" > $OUT/createContainer; echo hooked > $bundle/rootfs/data/hooked; /bin/readlink /proc/self/ns/net /proc/$pid/ns/net > $OUT/namespaces"#;
    let file = serde_json::json!({
        "cdiVersion": "0.6.0", "kind": "example.test/net",
        "devices": [
            {"name": "good", "containerEdits": {
                "env": ["GOT=it"],
                "deviceNodes": [{"path": "/dev/zero0", "hostPath": "/dev/zero"}],
                "mounts": [{"hostPath": out, "containerPath": "/vendor", "options": ["ro", "rbind"]}],
                "hooks": [told("createRuntime"), hook("createContainer", inside), told("poststart"), told("poststop")],
            }},
            {"name": "bad", "containerEdits": {"hooks": [hook("createRuntime", "echo not today >&2; exit 3")]}},
        ],
    });
    std::fs::write(world.dir.join("cdi/test.json"), file.to_string()).unwrap();
}

#[tokio::test]
async fn hooks_of_a_cdi_device_run_at_their_points() {
    let world = World::new().await;
    cdi_file(&world);
    let said = |name: &str| std::fs::read_to_string(world.dir.join("hooks").join(name)).unwrap_or_default();
    let pod = world.pod("device");
    let sandbox = world.run(&pod).await.unwrap();
    let device = |name: &str, container: &str| {
        let mut config = World::shell(
            container,
            "cat /data/hooked; echo $GOT; head -c 4 /dev/zero0 && echo read; exec sleep 1000",
        );
        config.cdi_devices = vec![cri::CdiDevice { name: format!("example.test/net={name}") }];
        config
    };
    let container = world.create(&sandbox, &pod, &device("good", "main")).await.unwrap();
    world.begin(&container).await.unwrap();
    eventually("it got through", || world.log("main").contains("read"));
    let log = world.log("main");
    assert!(log.contains("F hooked\n") && log.contains("F it\n"), "{log}");
    assert!(said("createRuntime").contains("\"status\":\"creating\""), "{}", said("createRuntime"));
    assert!(said("createContainer").contains(&container));
    let namespaces = said("namespaces");
    let mut lines = namespaces.lines();
    assert!(lines.next().is_some_and(|one| Some(one) == lines.next()), "in the container's: {namespaces}");
    eventually("the hook after the start", || said("poststart").contains("\"status\":\"running\""));
    assert_eq!(said("poststop"), "");

    let failing = world.create(&sandbox, &pod, &device("bad", "failing")).await.unwrap();
    let error = world.begin(&failing).await.unwrap_err();
    assert!(error.message().contains("not today"), "{error}");
    let unknown = world.create(&sandbox, &pod, &device("none", "unknown")).await.unwrap_err();
    assert!(unknown.message().contains("unresolvable CDI device example.test/net=none"), "{unknown}");
    world.stop_and_remove(&sandbox).await;
    assert!(said("poststop").contains("\"status\":\"stopped\""), "{}", said("poststop"));
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn a_pod_with_users_of_its_own_may_share_its_processes() {
    let world = World::new().await;
    let mut pod = world.pod("both");
    let map = vec![cri::IdMapping { host_id: 500_000, container_id: 0, length: 65_536 }];
    let users = cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: map.clone(), gids: map };
    let both = cri::NamespaceOption {
        pid: cri::NamespaceMode::Pod as i32,
        userns_options: Some(users),
        ..Default::default()
    };
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(both.clone());
    let shared = |name, script| {
        let mut config = World::shell(name, script);
        config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options =
            Some(both.clone());
        config
    };
    let sandbox = world.run(&pod).await.unwrap();
    let one = world.create(&sandbox, &pod, &shared("one", "exec sleep 4711")).await.unwrap();
    world.begin(&one).await.unwrap();
    let two = shared("two", "cat /proc/self/uid_map; cat /proc/*/cmdline; echo; sleep 1; exit 6");
    let two = world.create(&sandbox, &pod, &two).await.unwrap();
    world.begin(&two).await.unwrap();
    eventually("one sees the other", || world.log("two").contains("4711"));
    assert!(world.log("two").contains("500000"), "{}", world.log("two"));
    assert_eq!(world.exited(&two).await.exit_code, 6);
    assert_eq!(world.exec(&one, "id -u; kill -0 1 && echo there", 10).await.unwrap().stdout, b"0\nthere\n");
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn only_what_is_left_out_says_so() {
    let world = World::new().await;
    let mut runtime = world.cri.clone();
    let mut images = ImageServiceClient::new(podwire_wire::unix::channel(world.dir.join("cri.sock")));
    let mut left_out = Vec::new();
    macro_rules! ask {
        ($client:ident: $($call:ident),*) => {$(
            if let Err(status) = $client.$call(tonic::Request::new(Default::default())).await
                && status.code() == Code::Unimplemented
            {
                left_out.push(stringify!($call));
            }
        )*};
    }
    ask!(runtime: version, run_pod_sandbox, stop_pod_sandbox, remove_pod_sandbox, pod_sandbox_status, list_pod_sandbox,
        stream_pod_sandboxes, create_container, start_container, stop_container, remove_container, list_containers,
        stream_containers, container_status, update_container_resources, reopen_container_log, exec_sync, exec, attach,
        port_forward, container_stats, list_container_stats, stream_container_stats, pod_sandbox_stats,
        list_pod_sandbox_stats, stream_pod_sandbox_stats, update_runtime_config, status, checkpoint_container,
        get_container_events, list_metric_descriptors, list_pod_sandbox_metrics, stream_pod_sandbox_metrics,
        runtime_config, update_pod_sandbox_resources);
    ask!(images: list_images, stream_images, image_status, pull_image, remove_image, image_fs_info);
    let expected = [
        "stream_pod_sandboxes",
        "stream_containers",
        "stream_container_stats",
        "stream_pod_sandbox_stats",
        "checkpoint_container",
        "stream_pod_sandbox_metrics",
        "stream_images",
    ];
    assert_eq!(left_out, expected);

    let pod = world.pod("resized");
    let sandbox = world.run(&pod).await.unwrap();
    let resources = Some(cri::LinuxContainerResources { cpu_shares: 77, ..Default::default() });
    let request =
        cri::UpdatePodSandboxResourcesRequest { pod_sandbox_id: sandbox.clone(), overhead: None, resources };
    runtime.update_pod_sandbox_resources(request).await.unwrap();
    let driver = runtime.runtime_config(cri::RuntimeConfigRequest::default()).await.unwrap().into_inner();
    assert_eq!(driver.linux.unwrap().cgroup_driver, cri::CgroupDriver::Cgroupfs as i32);
    let metrics =
        runtime.list_pod_sandbox_metrics(cri::ListPodSandboxMetricsRequest::default()).await.unwrap();
    assert_eq!(metrics.into_inner().pod_metrics[0].pod_sandbox_id, sandbox);
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}
