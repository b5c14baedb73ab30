//! Containers whose root is nobody outside.

use oci_spec::runtime::{LinuxIdMappingBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, Mount};
use podwire_container::CreateRequest;
use std::os::unix::fs::MetadataExt;

use crate::world::{World, bind};

pub(crate) const HOST: u32 = 400_000;

fn maps() -> Vec<oci_spec::runtime::LinuxIdMapping> {
    let map = LinuxIdMappingBuilder::default().container_id(0_u32).host_id(HOST).size(65_536_u32);
    vec![map.build().unwrap()]
}

pub(crate) fn with_userns(request: &mut CreateRequest, path: Option<&std::path::Path>, mounts: Vec<Mount>) {
    let mut linux = request.spec.linux().clone().unwrap();
    let mut namespaces = linux.namespaces().clone().unwrap();
    let user = LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::User);
    let user = match path {
        Some(path) => user.path(path),
        None => user,
    };
    namespaces.push(user.build().unwrap());
    linux.set_namespaces(Some(namespaces));
    if path.is_none() {
        linux.set_uid_mappings(Some(maps()));
        linux.set_gid_mappings(Some(maps()));
    }
    request.spec.set_linux(Some(linux));
    let mut all = request.spec.mounts().clone().unwrap();
    all.extend(mounts);
    request.spec.set_mounts(Some(all));
}

#[test]
fn root_inside_is_nobody_outside_and_files_keep_their_owners() {
    let world = World::new();
    let volume = world.dir.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("given"), "x").unwrap();
    let script = "id -u; cat /proc/self/uid_map; stat -c %u /bin/busybox /v/given; touch /made /v/made && echo wrote; \
                  echo 1 > /dev/null && echo null; mount -t tmpfs t /tmp || echo no-mount";
    let mut request = world.request("mapped", &["sh", "-c", script]);
    let mount = bind(&volume, "/v", &["rbind", "rprivate", "idmap"]);
    with_userns(&mut request, None, vec![mount]);
    let (_, text) = world.output(request);
    let lines: Vec<_> = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["0", "0 400000 65536", "0", "0", "wrote", "null", "no-mount"]);
    // In the mapped volume it is the host's root who wrote, in the container's own files it is not.
    assert_eq!(std::fs::metadata(volume.join("made")).unwrap().uid(), 0);
    assert_eq!(std::fs::metadata(world.dir.path().join("mapped.upper/made")).unwrap().uid(), HOST);
}

#[test]
fn a_pinned_user_namespace_is_joined_and_execs_follow() {
    let world = World::new();
    let pins = world.dir.path().join("pins");
    let map = vec![podwire_linux::namespaces::IdMap { container: 0, host: HOST, length: 65_536 }];
    let userns = Some(podwire_linux::namespaces::UserMaps { uids: map.clone(), gids: map });
    let requested = podwire_linux::namespaces::PinRequest {
        net: true,
        ipc: true,
        uts: true,
        userns,
        ..Default::default()
    };
    let made = podwire_linux::namespaces::pin(&pins, &requested).unwrap();
    let join = [
        (LinuxNamespaceType::Network, made.net.unwrap()),
        (LinuxNamespaceType::Ipc, made.ipc.unwrap()),
        (LinuxNamespaceType::Uts, made.uts.unwrap()),
    ]
    .into();
    let mut request = world.request("joined", &["sleep", "1000"]);
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_namespaces(Some(crate::world::namespaces(&join)));
    request.spec.set_linux(Some(linux));
    with_userns(&mut request, made.user.as_deref(), Vec::new());
    let pid = world.run(request);
    assert_eq!(std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(), HOST);
    let (code, text) =
        world.exec_output("joined", "who", &["sh", "-c", "id -u; cat /proc/self/uid_map; echo $$"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("0\n") && text.contains("400000"), "{text}");
    let mut request = crate::world::exec("joined", "user", &["id", "-u"]);
    request.user = Some((1000, 1000, vec![]));
    assert_eq!(world.exec_request(request), (0, "1000\n".to_owned()));
    world.supervisor.delete("joined").unwrap();
    podwire_linux::namespaces::unpin(&pins).unwrap();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
