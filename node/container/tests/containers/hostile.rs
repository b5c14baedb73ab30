//! Images, volumes and specs that try to get out while their container is made or entered.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Capabilities, Capability, LinuxCapabilitiesBuilder, LinuxNamespaceType, Mount, UserBuilder,
};
use podwire_container::{CreateRequest, Rootfs, WindowSize};

use crate::userns::with_userns;
use crate::world::{World, bind, default_caps, eventually, exec, logged, mount};

/// Puts a layer made by `fill` on top of the image.
fn with_layer(world: &World, request: &mut CreateRequest, fill: impl FnOnce(&Path)) {
    let layer = world.dir.path().join(format!("{}.layer", request.id));
    std::fs::create_dir_all(&layer).unwrap();
    fill(&layer);
    let Rootfs::Overlay { lower, .. } = &mut request.rootfs else { unreachable!() };
    lower.insert(0, layer);
}

fn with_mounts(request: &mut CreateRequest, change: impl FnOnce(&mut Vec<Mount>)) {
    let mut mounts = request.spec.mounts().clone().unwrap();
    change(&mut mounts);
    request.spec.set_mounts(Some(mounts));
}

fn with_cwd(request: &mut CreateRequest, cwd: &str) {
    let mut process = request.spec.process().clone().unwrap();
    process.set_cwd(cwd.into());
    request.spec.set_process(Some(process));
}

/// Lets a container see and reach the processes of the host.
fn with_host_pids(request: &mut CreateRequest) {
    let mut linux = request.spec.linux().clone().unwrap();
    let mut namespaces = linux.namespaces().clone().unwrap();
    namespaces.retain(|namespace| namespace.typ() != LinuxNamespaceType::Pid);
    linux.set_namespaces(Some(namespaces));
    request.spec.set_linux(Some(linux));
}

/// A container that may mount.
fn with_mount_rights(request: &mut CreateRequest) {
    let mut process = request.spec.process().clone().unwrap();
    let mut caps = default_caps();
    caps.insert(Capability::SysAdmin);
    let caps = LinuxCapabilitiesBuilder::default()
        .bounding(caps.clone())
        .effective(caps.clone())
        .permitted(caps)
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new());
    process.set_capabilities(Some(caps.build().unwrap()));
    process.set_no_new_privileges(Some(false));
    request.spec.set_process(Some(process));
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_seccomp(None);
    linux.set_masked_paths(None);
    linux.set_readonly_paths(None);
    request.spec.set_linux(Some(linux));
}

/// Creation fails, for a reason that names all of `because`, and nothing stays.
fn refused(world: &World, what: &str, request: CreateRequest, because: &[&str]) {
    let error = match world.supervisor.create(request) {
        Ok(created) => panic!("{what}: created as process {}", created.pid),
        Err(error) => error.to_string(),
    };
    assert!(because.iter().all(|word| error.contains(word)), "{what}: {error}");
    assert_eq!(world.leftovers(), Vec::<String>::new(), "{what}");
}

fn folder(path: PathBuf) -> PathBuf {
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn no_link_of_an_image_moves_a_file_system_of_the_kernels_elsewhere() {
    let world = World::new();
    type Trap = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    // Name of the trap, links of the image, mount that must not happen. `/p` is a folder of the image.
    let traps: [Trap; 8] = [
        // procfs lands on /p, the tmpfs on /dev hides the link, and no masked path is found below /proc.
        ("behind-dev", &[("dev/x", "/p"), ("proc", "/dev/x")], "/proc"),
        ("proc-link", &[("proc", "p")], "/proc"),
        ("proc-chain", &[("a", "./b"), ("b", "c/../p/../c"), ("c", "p"), ("proc", "./a")], "/proc"),
        ("proc-volume", &[("proc", "/volume/p")], "/proc"),
        ("proc-dangling", &[("proc", "/not/yet")], "/proc"),
        ("sys-link", &[("sys", "p")], "/sys"),
        ("dev-link", &[("dev", "volume")], "/dev"),
        ("dev-up", &[("dev", "../../../../../../../../dev")], "/dev"),
    ];
    let volume = folder(world.dir.path().join("volume"));
    folder(volume.join("p"));
    for (name, links, target) in traps {
        let mut request = world.request(name, &["sh", "-c", "echo x > /p/sys/kernel/domainname"]);
        with_layer(&world, &mut request, |layer| {
            for folder in ["p", "dev"] {
                std::fs::create_dir_all(layer.join(folder)).unwrap();
            }
            for (link, to) in links {
                if *link == "dev" {
                    std::fs::remove_dir(layer.join("dev")).unwrap();
                }
                symlink(to, layer.join(link)).unwrap();
            }
        });
        with_mounts(&mut request, |mounts| mounts.insert(0, bind(&volume, "/volume", &["rbind"])));
        refused(&world, name, request, &[&format!("{target:?}"), "ordinary directory"]);
    }
    assert_eq!(std::fs::read_dir(&volume).unwrap().count(), 1);
}

#[test]
fn no_link_of_a_volume_moves_a_file_system_of_the_kernels_elsewhere() {
    let world = World::new();
    // Volume on this folder, a link in it, mount that must not happen.
    for (name, on, link, to, target) in [
        ("fs", "/sys", "fs", "/etc", "/sys/fs/cgroup"),
        ("mqueue", "/dev", "mqueue", "/etc", "/dev/mqueue"),
        ("pts", "/dev", "pts", "/tmp", "/dev/pts"),
        ("shm", "/dev", "shm", "/etc", "/dev/shm"),
    ] {
        let volume = folder(world.dir.path().join(format!("{name}.volume")));
        symlink(to, volume.join(link)).unwrap();
        let mut request = world.request(name, &["true"]);
        with_mounts(&mut request, |mounts| {
            for mount in mounts.iter_mut().filter(|mount| mount.destination() == Path::new(on)) {
                *mount = bind(&volume, on, &["rbind"]);
            }
        });
        refused(&world, name, request, &[&format!("{target:?}"), "ordinary directory"]);
    }
}

#[test]
fn no_volume_passes_for_a_part_of_procfs() {
    let world = World::new();
    let volume = folder(world.dir.path().join("volume"));
    std::fs::write(volume.join("file"), "x").unwrap();
    type Trap = (&'static str, &'static str, Option<(&'static str, &'static str)>, &'static str);
    let traps: [Trap; 6] = [
        ("on-proc", "/proc", None, "not of type proc"),
        ("in-proc", "/proc/sys", None, "inside /proc"),
        ("detour", "/tmp/../proc/./sys", None, "inside /proc"),
        ("link", "/x", Some(("x", "/proc/sys")), "inside /proc"),
        ("link-self", "/x/attr", Some(("x", "/proc/self")), "inside /proc"),
        ("magic", "/x/tmp/escaped", Some(("x", "/proc/self/root")), "/x/tmp/escaped"),
    ];
    for (name, target, link, because) in traps {
        let mut request = world.request(name, &["true"]);
        if let Some((link, to)) = link {
            with_layer(&world, &mut request, |layer| symlink(to, layer.join(link)).unwrap());
        }
        with_mounts(&mut request, |mounts| mounts.push(bind(&volume, target, &["rbind"])));
        refused(&world, name, request, &[because]);
    }
    // What lxcfs shows may be shown, and procfs itself.
    let mut request = world.request("lxcfs", &["sh", "-c", "cat /proc/uptime; test -d /proc/1"]);
    with_mounts(&mut request, |mounts| {
        mounts.push(bind(Path::new("/proc"), "/proc", &["rbind"]));
        mounts.push(bind(&volume.join("file"), "/proc/uptime", &["bind"]));
    });
    assert_eq!(world.output(request), (0, "x".to_owned()));
}

#[test]
fn ordinary_links_and_missing_folders_of_an_image_are_no_obstacle() {
    let world = World::new();
    for folder in ["proc", "sys", "dev"] {
        std::fs::remove_dir(world.rootfs().join(folder)).unwrap();
    }
    let volume = folder(world.dir.path().join("volume"));
    std::fs::write(volume.join("file"), "from the volume\n").unwrap();
    let script = "cat /run/secrets/file /run/resolv.conf /run/deep/file; wc -c < /proc/keys; \
                  touch /proc/sys/kernel/domainname || echo refused; ls -d /dev/shm /sys/kernel; grep -c . /etc/mtab > /dev/null";
    let mut request = world.request("ordinary", &["sh", "-c", script]);
    with_layer(&world, &mut request, |layer| {
        for folder in ["var", "run", "etc"] {
            std::fs::create_dir_all(layer.join(folder)).unwrap();
        }
        symlink("/run", layer.join("var/run")).unwrap();
        symlink("../proc/self/mounts", layer.join("etc/mtab")).unwrap();
        // Leads nowhere until the pod's file is there.
        symlink("../run/resolv.conf", layer.join("etc/resolv.conf")).unwrap();
        symlink("deep", layer.join("run/not-yet")).unwrap();
    });
    with_mounts(&mut request, |mounts| {
        mounts.push(bind(&volume, "/var/run/secrets", &["rbind", "ro"]));
        mounts.push(bind(&volume.join("file"), "/etc/resolv.conf", &["bind", "ro"]));
        mounts.push(bind(&volume, "/var/run/not-yet", &["rbind", "ro"]));
    });
    let (code, text) = world.output(request);
    let said = "from the volume\n";
    assert_eq!(text, format!("{said}{said}{said}0\nrefused\n/dev/shm\n/sys/kernel\n"));
    assert_eq!(code, 0);
}

#[test]
fn masks_that_cannot_be_laid_are_errors() {
    let world = World::new();
    for (name, path, because) in [
        ("link", "/etc/hidden/x", "mask \"/etc/hidden/x\""),
        ("last", "/etc/hidden", "mask \"/etc/hidden\""),
        ("kernel", "/proc/self/mem", "mask \"/proc/self/mem\""),
    ] {
        let mut request = world.request(name, &["true"]);
        with_layer(&world, &mut request, |layer| {
            std::fs::create_dir_all(layer.join("etc")).unwrap();
            std::fs::create_dir_all(layer.join("real")).unwrap();
            std::fs::write(layer.join("real/x"), "secret").unwrap();
            symlink("/real", layer.join("etc/hidden")).unwrap();
        });
        let mut linux = request.spec.linux().clone().unwrap();
        linux.set_masked_paths(Some(vec![path.to_owned()]));
        request.spec.set_linux(Some(linux));
        refused(&world, name, request, &[because]);
    }
}

#[test]
fn masks_hold_in_a_user_namespace_too() {
    let world = World::new();
    let script = "wc -c < /proc/keys; ls /proc/acpi | wc -l; grep -c '^proc /proc/sys proc ro' /proc/mounts";
    let mut request = world.request("mapped", &["sh", "-c", script]);
    with_userns(&mut request, None, Vec::new());
    assert_eq!(world.output(request), (0, "0\n0\n1\n".to_owned()));
}

#[test]
fn devices_are_made_only_in_the_containers_own_dev() {
    let world = World::new();
    let volume = folder(world.dir.path().join("volume"));
    std::fs::write(volume.join("file"), "").unwrap();
    // Something else where a device must be.
    let mut request = world.request("other", &["true"]);
    with_mounts(&mut request, |mounts| mounts.push(bind(&volume.join("file"), "/dev/null", &["bind"])));
    refused(&world, "a file for a device", request, &["/dev/null", "exists"]);
    // The device itself, by way of a mount.
    let mut request = world.request("same", &["sh", "-c", "echo x > /dev/null && stat -c %F /dev/null"]);
    with_mounts(&mut request, |mounts| mounts.push(bind(Path::new("/dev/null"), "/dev/null", &["bind"])));
    assert_eq!(world.output(request), (0, "character special file\n".to_owned()));
    // A volume that comes to lie on /dev by a link.
    let mut request = world.request("over", &["true"]);
    with_layer(&world, &mut request, |layer| symlink("/dev", layer.join("d")).unwrap());
    with_mounts(&mut request, |mounts| mounts.push(bind(&volume, "/d", &["rbind"])));
    refused(&world, "a volume over /dev", request, &["/dev"]);
    // A folder of the host's as /dev gets nothing made in it.
    let mut request = world.request("bound", &["true"]);
    with_mounts(&mut request, |mounts| {
        mounts.retain(|mount| !mount.destination().starts_with("/dev"));
        mounts.push(bind(&volume, "/dev", &["rbind"]));
    });
    assert_eq!(world.output(request).0, 0);
    assert_eq!(std::fs::read_dir(&volume).unwrap().count(), 1);
}

#[test]
fn a_terminal_comes_from_devpts_or_not_at_all() {
    let world = World::new();
    let volume = folder(world.dir.path().join("volume"));
    folder(volume.join("pts"));
    let ptmx = volume.join("pts/ptmx");
    rustix::fs::mknodat(rustix::fs::CWD, &ptmx, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink("/etc/passwd", volume.join("console")).unwrap();
    let mut request = world.request("fifo", &["true"]);
    request.tty = true;
    with_mounts(&mut request, |mounts| {
        mounts.retain(|mount| !mount.destination().starts_with("/dev"));
        mounts.push(bind(&volume, "/dev", &["rbind"]));
    });
    refused(&world, "a FIFO for a terminal", request, &["terminal"]);
    // A genuine devpts, but a console that leads elsewhere.
    let mut request = world.request("console", &["true"]);
    request.tty = true;
    with_mounts(&mut request, |mounts| {
        mounts.retain(|mount| !mount.destination().starts_with("/dev"));
        mounts.push(bind(&volume, "/dev", &["rbind"]));
        mounts.push(mount("/dev/pts", "devpts", &["newinstance", "ptmxmode=0666"]));
    });
    refused(&world, "a link for a console", request, &["terminal"]);
}

/// Ways out of the root, as working folders, given a process of the host.
fn ways_out(pid: u32) -> Vec<(&'static str, String)> {
    vec![
        ("root of a process", format!("/proc/{pid}/root")),
        ("below it", format!("/proc/{pid}/root/tmp")),
        ("folder of a process", format!("/proc/{pid}/cwd")),
        ("its own root", "/proc/self/root".to_owned()),
        ("its thread's root", "/proc/thread-self/root".to_owned()),
        ("its own folder", "/proc/self/cwd/..".to_owned()),
        ("link of the image", "/work".to_owned()),
        ("link of the image, deeper", "/work/tmp".to_owned()),
        ("link of a volume", "/volume/out".to_owned()),
    ]
}

/// A container in the host's pid namespace whose image and volume have links out.
fn exposed(world: &World, id: &str, args: &[&str], pid: u32) -> CreateRequest {
    let volume = folder(world.dir.path().join("volume"));
    // Ignored: made by the case before.
    symlink(format!("/proc/{pid}/root/etc"), volume.join("out")).ok();
    let mut request = world.request(id, args);
    with_layer(world, &mut request, |layer| symlink("/proc/1/root", layer.join("work")).unwrap());
    with_mounts(&mut request, |mounts| mounts.push(bind(&volume, "/volume", &["rbind"])));
    with_host_pids(&mut request);
    request
}

#[test]
fn no_working_folder_leads_out_of_the_root_at_creation() {
    let world = World::new();
    let mut ways = ways_out(std::process::id());
    ways.extend((0..32).map(|fd| ("a descriptor", format!("/proc/self/fd/{fd}"))));
    ways.extend((3..16).map(|fd| ("below a descriptor", format!("/proc/self/fd/{fd}/.."))));
    for (number, (what, cwd)) in ways.into_iter().enumerate() {
        let mut request = exposed(&world, &format!("out{number}"), &["pwd"], std::process::id());
        with_cwd(&mut request, &cwd);
        refused(&world, what, request, &["cwd"]);
    }
    // What only looks like it stays possible.
    let mut request = exposed(&world, "harmless", &["pwd"], std::process::id());
    with_cwd(&mut request, "/proc/../proc/sys");
    assert_eq!(world.output(request), (0, "/proc/sys\n".to_owned()));
}

#[test]
fn no_working_folder_leads_out_of_the_root_at_exec() {
    let world = World::new();
    let mut request = exposed(&world, "host", &["sleep", "1000"], std::process::id());
    let gone = folder(world.dir.path().join("gone"));
    with_mounts(&mut request, |mounts| mounts.push(bind(&gone, "/gone", &["rbind"])));
    world.run(request);
    std::fs::remove_dir(&gone).unwrap();
    let mut ways = ways_out(std::process::id());
    ways.extend((0..16).map(|fd| ("a descriptor", format!("/proc/self/fd/{fd}"))));
    ways.push(("a folder that is gone", "/gone".to_owned()));
    for (number, (what, cwd)) in ways.into_iter().enumerate() {
        let mut request = exec("host", &format!("out{number}"), &["pwd"]);
        request.cwd = Some(cwd.into());
        match world.supervisor.exec(request) {
            Ok(handle) => panic!("{what}: runs as {}", handle.pid),
            Err(error) => assert!(error.to_string().contains("cwd"), "{what}: {error}"),
        }
    }
    assert_eq!(world.exec_output("host", "fine", &["pwd"]), (0, "/\n".to_owned()));
}

#[test]
fn nothing_of_the_hosts_is_open_when_a_container_waits_for_its_start() {
    let world = World::new();
    let volume = folder(world.dir.path().join("volume"));
    let plain = world.request("plain", &["true"]);
    let mut mapped = world.request("mapped", &["true"]);
    with_userns(&mut mapped, None, vec![bind(&volume, "/v", &["rbind", "idmap"])]);
    let mut terminal = world.request("terminal", &["true"]);
    terminal.tty = true;
    for request in [plain, mapped, terminal] {
        let id = request.id.clone();
        let pid = world.supervisor.create(request).unwrap().pid;
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let entry = entry.unwrap();
            let to = std::fs::read_link(entry.path()).unwrap().display().to_string();
            let standard = matches!(entry.file_name().to_str(), Some("0" | "1" | "2"));
            let harmless = to.starts_with("pipe:") || (standard && to.starts_with("/dev/"));
            assert!(harmless, "{id}: {:?} is {to}", entry.file_name());
        }
        world.supervisor.delete(&id).unwrap();
    }
}

#[test]
fn an_exec_into_a_container_whose_proc_is_not_procfs_is_refused() {
    let world = World::new();
    let script = "mount -t tmpfs t /proc && touch /ready; sleep 1000";
    let mut request = world.request("fake", &["sh", "-c", script]);
    with_mount_rights(&mut request);
    let pid = world.run(request);
    let ready = PathBuf::from(format!("/proc/{pid}/root/ready"));
    let said = || logged(&world.dir.path().join("fake.log"), "stderr");
    eventually(std::time::Duration::from_secs(10), || ready.exists(), said);
    let error = world.supervisor.exec(exec("fake", "in", &["true"])).unwrap_err().to_string();
    assert!(error.contains("/proc in the rootfs is not a procfs"), "{error}");
    let mut request = exec("fake", "tty", &["true"]);
    request.tty = Some(WindowSize { width: 80, height: 20 });
    assert!(world.supervisor.exec(request).is_err());
}

#[test]
fn a_device_of_a_user_namespace_is_shown_only_if_the_host_has_it_there() {
    let world = World::new();
    let mut request = world.request("device", &["true"]);
    let mut linux = request.spec.linux().clone().unwrap();
    // The host has a file of this name, but no such device.
    let requested = serde_json::json!([{"path": "/etc/passwd", "type": "c", "major": 1, "minor": 3}]);
    linux.set_devices(Some(serde_json::from_value(requested).unwrap()));
    request.spec.set_linux(Some(linux));
    with_userns(&mut request, None, Vec::new());
    refused(&world, "a file of the host's as a device", request, &["/etc/passwd"]);
}

fn with_start_hook(request: &mut CreateRequest, path: &str, script: &str) {
    let hooks = serde_json::json!({"startContainer": [
        {"path": path, "args": ["sh", "-c", script], "env": ["PATH=/bin"], "timeout": 20},
    ]});
    request.spec.set_hooks(Some(serde_json::from_value(hooks).unwrap()));
}

#[test]
fn a_hook_in_the_container_has_no_more_rights_than_the_container() {
    let world = World::new();
    let look = "id -u; pwd; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp|Max open files):' /proc/self/status; \
                readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/net /proc/self/ns/ipc; \
                cat /proc/self/cgroup; unshare -m true || echo no-unshare; ls /proc/self/fd | wc -l";
    let mut request =
        world.request("hooked", &["sh", "-c", &format!("cat /tmp/hook; {look}; cat /tmp/state")]);
    let mut process = request.spec.process().clone().unwrap();
    process.set_user(UserBuilder::default().uid(1234_u32).gid(1234_u32).build().unwrap());
    request.spec.set_process(Some(process));
    with_cwd(&mut request, "/tmp/here");
    with_start_hook(&mut request, "/bin/sh", &format!("cat > /tmp/state; ({look}) > /tmp/hook 2> /dev/null"));
    let (code, text) = world.output(request);
    assert_eq!(code, 0, "{text}");
    let (both, state) = text.split_at(text.find('{').unwrap());
    let lines: Vec<_> = both.lines().collect();
    let (hook, program) = lines.split_at(lines.len() / 2);
    assert_eq!(hook, program);
    assert!(hook.contains(&"1234") && hook.contains(&"/tmp/here") && hook.contains(&"no-unshare"), "{text}");
    assert!(state.contains("\"pid\":1,") && state.contains("\"status\":\"created\""), "{state}");
}

#[test]
fn a_hook_that_fails_or_is_not_there_keeps_its_container_from_starting() {
    let world = World::new();
    for (id, path, because) in
        [("fails", "/bin/sh", "not today"), ("absent", "/no/such", "/no/such: no such file or directory")]
    {
        let mut request = world.request(id, &["true"]);
        with_start_hook(&mut request, path, "echo not today >&2; exit 3");
        world.supervisor.create(request).unwrap();
        let error = world.supervisor.start(id).unwrap_err().to_string();
        assert!(error.contains(because), "{id}: {error}");
        world.supervisor.delete(id).unwrap();
    }
}
