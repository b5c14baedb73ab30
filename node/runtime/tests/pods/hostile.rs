//! Images and CRI calls that try to reach the node: refused for the right reason, and everything else goes on.

use podwire_image::build::{ImageBuilder, LayerBuilder, header};
use podwire_image::tar::Kind;
use podwire_wire::cri;
use tonic::Code;

use crate::world::{World, eventually};

/// An image with busybox and whatever `change` puts beside it.
fn image(
    world: &World,
    name: &str,
    change: impl FnOnce(LayerBuilder) -> LayerBuilder,
) -> (String, std::path::PathBuf) {
    let busybox = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let layer = LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", busybox, 0o755);
    let layer = layer.hard_link("bin/sh", "bin/busybox").hard_link("bin/sleep", "bin/busybox");
    let reference = format!("example.test/{name}:1");
    let archive = world.dir.join(format!("{name}.tar"));
    let built = ImageBuilder::new().layer(&change(layer)).cmd(&["sh", "-c", "sleep 1000"]).build();
    built.write_oci_archive(&archive, &reference).unwrap();
    (reference, archive)
}

#[tokio::test]
async fn hostile_images_are_refused_and_the_node_goes_on() {
    let mut world = World::new().await;
    let special = |layer: LayerBuilder, path: &str, kind, device| {
        let mut entry = header(path, kind);
        entry.device = device;
        layer.entry(entry, Vec::new())
    };
    let images = [
        // procfs would land on /p, hidden from every mask.
        (
            image(&world, "proc", |layer| {
                let layer = layer.dir("p", 0o755).dir("dev", 0o755);
                layer.symlink("dev/x", "/p").symlink("proc", "/dev/x")
            }),
            "\"/proc\"",
        ),
        (image(&world, "sys", |layer| layer.dir("p", 0o755).symlink("sys", "p")), "\"/sys\""),
        (image(&world, "dev", |layer| layer.dir("p", 0o755).symlink("dev", "/p")), "\"/dev\""),
        // Files that we read ourselves, and that would be read for ever.
        (
            image(&world, "fifo", |layer| special(layer.dir("etc", 0o755), "etc/passwd", Kind::Fifo, (0, 0))),
            "/etc/passwd",
        ),
        (
            image(&world, "zero", |layer| {
                special(layer.dir("etc", 0o755), "etc/group", Kind::CharDevice, (1, 5))
            }),
            "/etc/group",
        ),
    ];
    world.kill();
    let archives: Vec<_> = images.iter().map(|((_, archive), _)| archive.as_path()).collect();
    world.start_with(&archives).await;
    let pod = world.pod("hostile");
    let sandbox = world.run(&pod).await.unwrap();
    for (number, ((reference, _), because)) in images.iter().enumerate() {
        let mut config = World::shell(&format!("hostile{number}"), "true");
        config.image = Some(cri::ImageSpec { image: reference.clone(), ..Default::default() });
        let made = async {
            let container = world.create(&sandbox, &pod, &config).await?;
            world.begin(&container).await
        };
        let error = made.await.expect_err(reference);
        assert!(error.message().contains(because), "{reference}: {error}");
    }
    let container = world.create(&sandbox, &pod, &World::shell("other", "echo fine")).await.unwrap();
    world.begin(&container).await.unwrap();
    assert_eq!(world.exited(&container).await.exit_code, 0);
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn a_working_folder_cannot_be_the_nodes_root() {
    let world = World::new().await;
    let node = cri::NamespaceMode::Node as i32;
    let mut pod = world.pod("folder");
    let linux = pod.linux.as_mut().unwrap();
    linux.security_context.as_mut().unwrap().namespace_options.as_mut().unwrap().pid = node;
    let sandbox = world.run(&pod).await.unwrap();
    let pid = std::process::id();
    let folders = [format!("/proc/{pid}/root"), format!("/proc/{pid}/cwd"), "/proc/self/fd/3".to_owned()];
    for (number, folder) in folders.into_iter().enumerate() {
        let mut config = World::shell(&format!("hostile{number}"), "ls");
        config.working_dir = folder.clone();
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options.as_mut().unwrap().pid = node;
        let made = async {
            let container = world.create(&sandbox, &pod, &config).await?;
            world.begin(&container).await
        };
        let error = made.await.expect_err(&folder);
        assert!(error.message().contains("cwd"), "{folder}: {error}");
    }
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn sysctls_of_the_node_are_refused_by_name() {
    let world = World::new().await;
    let read = || std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let before = read();
    let node = cri::NamespaceMode::Node as i32;
    for (name, host_network) in [
        ("kernel.core_pattern", false),
        ("kernel/core_pattern", false),
        ("net/../kernel/core_pattern", false),
        ("net.ipv4.ip_forward", true),
        ("net/ipv4/ip_forward", true),
    ] {
        let mut pod = world.pod("sysctl");
        let linux = pod.linux.as_mut().unwrap();
        linux.sysctls.insert(name.to_owned(), "1".to_owned());
        if host_network {
            linux.security_context.as_mut().unwrap().namespace_options.as_mut().unwrap().network = node;
        }
        let error = world.run(&pod).await.expect_err(name);
        assert_eq!(error.code(), Code::InvalidArgument, "{name}: {error}");
        assert!(error.message().contains(name), "{name}: {error}");
    }
    assert_eq!(read(), before);
    // The pod's own are set, in either spelling.
    let mut pod = world.pod("own");
    let sysctls = &mut pod.linux.as_mut().unwrap().sysctls;
    sysctls.insert("kernel/shm_rmid_forced".to_owned(), "1".to_owned());
    sysctls.insert("net/ipv4/ip_unprivileged_port_start".to_owned(), "1024".to_owned());
    let sandbox = world.run(&pod).await.unwrap();
    let script = "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start";
    let container = world.create(&sandbox, &pod, &World::shell("main", script)).await.unwrap();
    world.begin(&container).await.unwrap();
    world.exited(&container).await;
    let log = world.log("main");
    assert!(log.contains("F 1\n") && log.contains("F 1024\n"), "{log}");
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn a_privileged_container_still_gets_the_nodes_devices_and_procfs() {
    let world = World::new().await;
    let pod = world.pod("privileged");
    let sandbox = world.run(&pod).await.unwrap();
    let bind =
        |path: &str| cri::Mount { host_path: path.into(), container_path: path.into(), ..Default::default() };
    let script =
        "echo x > /dev/null && ls /dev/fd/0 /proc/self/mountinfo && ls -d /sys/kernel && echo through";
    for (name, paths) in
        [("plain", &[][..]), ("dev", &["/dev"]), ("proc", &["/proc"]), ("all", &["/dev", "/proc", "/sys"])]
    {
        let mut config = World::shell(name, script);
        config.tty = true;
        config.mounts = paths.iter().map(|path| bind(path)).collect();
        let linux = config.linux.as_mut().unwrap();
        linux.security_context.as_mut().unwrap().privileged = true;
        let container = world.create(&sandbox, &pod, &config).await.unwrap();
        world.begin(&container).await.unwrap();
        assert_eq!(world.exited(&container).await.exit_code, 0, "{name}: {}", world.log(name));
    }
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}
