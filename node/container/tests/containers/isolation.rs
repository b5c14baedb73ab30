//! What a container sees and what it may do.

use oci_spec::runtime::{LinuxNamespaceType, UserBuilder};
use podwire_container::{CreateRequest, Rootfs};

use crate::world::{World, bind};

fn change_process(request: &mut CreateRequest, change: impl FnOnce(&mut oci_spec::runtime::Process)) {
    let mut process = request.spec.process().clone().unwrap();
    change(&mut process);
    request.spec.set_process(Some(process));
}

#[test]
fn environment_folder_user_and_host_name_are_as_asked() {
    let world = World::new();
    let script = "echo $GREETING; pwd; id; hostname; cat /proc/self/oom_score_adj; umask";
    let mut request = world.request("who", &["sh", "-c", script]);
    change_process(&mut request, |process| {
        let user =
            UserBuilder::default().uid(1234_u32).gid(5678_u32).additional_gids(vec![5678_u32, 99]).build();
        process.set_user(user.unwrap());
        process.set_cwd("/work/here".into());
    });
    let (code, text) = world.output(request);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(code, 0, "{text}");
    assert_eq!(lines[..4], ["hi", "/work/here", "uid=1234 gid=5678 groups=99,5678", "tested"]);
    assert_eq!(lines[4..], ["500", "0022"]);
}

#[test]
fn scheduler_and_memory_policy_are_as_asked() {
    let world = World::new();
    let mut request = world.request("numa", &["sleep", "1000"]);
    change_process(&mut request, |process| {
        process.set_scheduler(Some(serde_json::from_str(r#"{"policy":"SCHED_BATCH","nice":5}"#).unwrap()));
    });
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_memory_policy(Some(serde_json::from_str(r#"{"mode":"MPOL_BIND","nodes":"0"}"#).unwrap()));
    request.spec.set_linux(Some(linux));
    let pid = world.run(request);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap();
    assert!(maps.lines().all(|line| line.split(' ').nth(1) == Some("bind:0")), "{maps}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!((fields[16], fields[38]), ("5", "3"), "niceness and policy: {stat}");
    // What runs beside it is bound the same way.
    let (_, text) = world.exec_output("numa", "look", &["cat", "/proc/self/numa_maps"]);
    assert!(text.contains(" bind:0 "), "{text}");
}

#[test]
fn namespaces_are_its_own() {
    let world = World::new();
    let script = "for n in mnt pid net ipc uts; do readlink /proc/self/ns/$n; done; echo $$; ls /proc | grep -c '^[0-9]'";
    let (code, text) = world.output(world.request("alone", &["sh", "-c", script]));
    assert_eq!(code, 0, "{text}");
    let lines: Vec<_> = text.lines().collect();
    for (line, name) in lines.iter().zip(["mnt", "pid", "net", "ipc", "uts"]) {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert!(line.starts_with(name), "{text}");
        assert_ne!(*line, ours.to_str().unwrap());
    }
    assert_eq!(lines[5], "1");
}

#[test]
fn pinned_namespaces_are_joined() {
    let world = World::new();
    let pins = world.dir.path().join("pins");
    let request = podwire_linux::namespaces::PinRequest {
        net: true,
        uts: true,
        hostname: Some("pinned-pod".to_owned()),
        ..Default::default()
    };
    let made = podwire_linux::namespaces::pin(&pins, &request).unwrap();
    let join =
        [(LinuxNamespaceType::Network, made.net.unwrap()), (LinuxNamespaceType::Uts, made.uts.unwrap())]
            .into();
    let mut request = world.request("joined", &["sh", "-c", "hostname; readlink /proc/self/ns/net"]);
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_namespaces(Some(crate::world::namespaces(&join)));
    request.spec.set_linux(Some(linux));
    request.spec.set_hostname(None);
    let (code, text) = world.output(request);
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(pins.join("net")).unwrap().ino();
    podwire_linux::namespaces::unpin(&pins).unwrap();
    assert_eq!((code, text), (0, format!("pinned-pod\nnet:[{inode}]\n")));
}

#[test]
fn capabilities_are_cut_and_the_filter_forbids_what_is_left() {
    let world = World::new();
    let script = "grep -E 'Cap(Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status; unshare -m true; mount -t tmpfs x /tmp";
    let (code, text) = world.output(world.request("caps", &["sh", "-c", script]));
    assert_ne!(code, 0);
    let expected = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nCapAmb:\t0000000000000000\n\
                    NoNewPrivs:\t1\nSeccomp:\t2\n";
    assert_eq!(text, expected);
    let errors = crate::world::logged(&world.dir.path().join("caps.log"), "stderr");
    assert!(errors.contains("unshare: unshare(0x20000): Operation not permitted"), "{errors}");
}

#[test]
fn ambient_capabilities_reach_a_user_that_is_not_root() {
    use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilitiesBuilder};
    let world = World::new();
    let mut request = world.request("ambient", &["grep", "CapEff", "/proc/self/status"]);
    let set: Capabilities = [Capability::NetBindService].into_iter().collect();
    change_process(&mut request, |process| {
        process.set_user(UserBuilder::default().uid(1000_u32).gid(1000_u32).build().unwrap());
        let caps = LinuxCapabilitiesBuilder::default()
            .bounding(set.clone())
            .effective(set.clone())
            .permitted(set.clone())
            .inheritable(set.clone())
            .ambient(set.clone())
            .build()
            .unwrap();
        process.set_capabilities(Some(caps));
    });
    assert_eq!(world.output(request).1, "CapEff:\t0000000000000400\n");
}

#[test]
fn masked_paths_read_as_empty_and_read_only_ones_refuse() {
    let world = World::new();
    std::fs::write(world.rootfs().join("etc/secret"), "secret").unwrap();
    std::fs::create_dir_all(world.rootfs().join("hidden/in")).unwrap();
    let script = "wc -c < /proc/meminfo; wc -c < /etc/secret; ls /hidden | wc -l; touch /hidden/x || echo refused; \
                  echo 1 > /proc/sys/kernel/domainname || echo refused; touch /sys/x || echo refused; \
                  ls /dev/null /dev/zero /dev/full /dev/tty /dev/random /dev/urandom /dev/fd /dev/ptmx /dev/shm -d | wc -l";
    let mut request = world.request("masked", &["sh", "-c", script]);
    let mut linux = request.spec.linux().clone().unwrap();
    let masked = ["/proc/meminfo", "/etc/secret", "/hidden", "/no/such"].map(str::to_owned).to_vec();
    linux.set_masked_paths(Some(masked));
    request.spec.set_linux(Some(linux));
    let (_, text) = world.output(request);
    assert_eq!(text.lines().collect::<Vec<_>>(), ["0", "0", "0", "refused", "refused", "refused", "9"]);
}

#[test]
fn a_read_only_root_takes_no_writes_and_mounts_keep_their_options() {
    let world = World::new();
    let data = world.dir.path().join("data");
    std::fs::create_dir_all(data.join("sub")).unwrap();
    podwire_linux::mount::tmpfs(&data.join("sub"), 1 << 20, 0o755).unwrap();
    std::fs::write(data.join("file"), "from the host").unwrap();
    let script = "touch /x || echo root-ro; cat /data/file; touch /data/y || echo data-ro; touch /data/sub/y && echo sub-rw; \
                  touch /all/sub/y || echo all-ro; touch /rw/z && echo rw; cat /etc/conf";
    let mut request = world.request("ro", &["sh", "-c", script]);
    let mut mounts = request.spec.mounts().clone().unwrap();
    mounts.push(bind(&data, "/data", &["rbind", "ro", "rprivate"]));
    mounts.push(bind(&data, "/all", &["rbind", "rro", "rprivate"]));
    mounts.push(bind(&data, "/rw", &["rbind", "rw", "rslave"]));
    mounts.push(bind(&data.join("file"), "/etc/conf", &["bind", "ro"]));
    request.spec.set_mounts(Some(mounts));
    let Rootfs::Overlay { readonly, .. } = &mut request.rootfs else { unreachable!() };
    *readonly = true;
    let (_, text) = world.output(request);
    podwire_linux::mount::detach(&data.join("sub")).unwrap();
    let expected = "root-ro\nfrom the hostdata-ro\nsub-rw\nall-ro\nrw\nfrom the host";
    assert_eq!(text.trim_end(), expected);
}

#[test]
fn mounts_travel_only_as_far_as_told() {
    let world = World::new();
    // A shared mount of the host's, into which the container mounts when it may.
    let shared = world.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    podwire_linux::mount::tmpfs(&shared, 1 << 20, 0o755).unwrap();
    rustix::mount::mount_change(&shared, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    std::fs::create_dir(shared.join("later")).unwrap();
    let mut request =
        world.request("slave", &["sh", "-c", "until test -e /v/later/mark; do sleep 0.02; done"]);
    let mut mounts = request.spec.mounts().clone().unwrap();
    mounts.push(bind(&shared, "/v", &["rbind", "rslave"]));
    request.spec.set_mounts(Some(mounts));
    world.run(request);
    // Mounted on the host after the container has started.
    podwire_linux::mount::tmpfs(&shared.join("later"), 1 << 20, 0o755).unwrap();
    std::fs::write(shared.join("later/mark"), "").unwrap();
    world.exit_of("slave");
    podwire_linux::mount::detach_all_under(&shared).unwrap();
}

#[test]
fn a_hostile_link_in_the_image_leads_back_into_the_container() {
    let world = World::new();
    let outside = world.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, world.rootfs().join("trap")).unwrap();
    std::os::unix::fs::symlink("../../../../../../../..", world.rootfs().join("up")).unwrap();
    let volume = world.dir.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("inside"), "x").unwrap();
    let mut request = world.request("hostile", &["sh", "-c", "ls /up/mnt/deep /trap/deep"]);
    let mut mounts = request.spec.mounts().clone().unwrap();
    mounts.push(bind(&volume, "/up/mnt/deep", &["rbind"]));
    mounts.push(bind(&volume, "/trap/deep", &["rbind"]));
    request.spec.set_mounts(Some(mounts));
    // The link names a path that the container lacks, so making it fails or it is made inside.
    match world.supervisor.create(request) {
        Ok(_) => {
            world.supervisor.start("hostile").unwrap();
            world.exit_of("hostile");
        }
        Err(error) => assert!(error.to_string().contains("/trap/deep"), "{error}"),
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!std::path::Path::new("/mnt/deep").exists());
}

#[test]
fn a_plain_folder_can_be_the_root_and_the_cgroup_view_is_read_only() {
    let world = World::new();
    let script = "ls /sys/fs/cgroup; touch /sys/fs/cgroup/memory/x || echo refused; cat /sys/fs/cgroup/pids/pids.current";
    let mut request = world.request("bound", &["sh", "-c", script]);
    request.rootfs = Rootfs::Bind { path: world.rootfs(), readonly: true };
    let (_, text) = world.output(request);
    assert!(text.contains("memory") && text.contains("refused"), "{text}");
}

#[test]
fn beside_v1_hierarchies_no_cgroup2_is_seen() {
    let world = World::new();
    let request =
        world.request("hybrid", &["sh", "-c", "ls /sys/fs/cgroup; grep -c ' cgroup2 ' /proc/mounts"]);
    let (_, text) = world.output(request);
    if podwire_linux::cgroup::host().unwrap().is_v2() {
        assert!(text.contains("cgroup.procs"), "{text}");
    } else {
        assert!(!text.contains("unified") && text.contains("memory") && text.ends_with("\n0\n"), "{text}");
    }
}

#[test]
fn the_supervisors_executable_cannot_be_reached_for_writing() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new();
    let exe = std::fs::metadata(&world.cfg.exe).unwrap();
    // The program is our own executable, by way of the kernel's link to it.
    std::os::unix::fs::symlink("/proc/self/exe", world.rootfs().join("bin/self")).unwrap();
    let request = world.request("self", &["/bin/self", "--socket", "/tmp/s"]);
    world.supervisor.create(request).unwrap();
    let inside = format!("/proc/{}/exe", world.supervisor.list().unwrap()[0].pid);
    assert_eq!(std::fs::metadata(&inside).unwrap().ino(), exe.ino());
    let refused = std::fs::OpenOptions::new().append(true).open(&inside).unwrap_err();
    // Busy while it runs, and for ever after on a read-only mount.
    assert!(matches!(refused.raw_os_error(), Some(libc::EROFS | libc::ETXTBSY)), "{refused}");
    let held = std::fs::File::open(&inside).unwrap();
    let flags = rustix::fs::fstatvfs(&held).unwrap().f_flag;
    assert!(flags.contains(rustix::fs::StatVfsMountFlags::RDONLY), "{flags:?}");
}
