//! The plugin with a small kubelet of the test, over trees of devices that the test makes and over this node's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "device_plugin/small_kubelet.rs"]
mod small_kubelet;
#[path = "device_plugin/trees.rs"]
mod trees;

use std::{os::unix::fs::symlink, path::Path};

use podwire_devplugin::{Config, Settings, StartError, check};
use podwire_linux::{
    netns,
    rtnl::{Batch, Bridge, Socket},
};
use podwire_wire::device_plugin as v1beta1;
use tokio_util::sync::CancellationToken;

use small_kubelet::{Kubelet, Running, within};
use trees::Trees;

/// `id health numa` of each device, in order.
fn told(list: &v1beta1::ListAndWatchResponse) -> Vec<String> {
    let numa = |device: &v1beta1::Device| {
        device.topology.as_ref().map_or("-".to_owned(), |topology| topology.nodes[0].id.to_string())
    };
    list.devices.iter().map(|device| format!("{} {} {}", device.id, device.health, numa(device))).collect()
}

fn config(text: &str) -> Config {
    Config::parse(text).unwrap()
}

fn start(tree: &Path, kubelet: &Kubelet, text: &str) -> Running {
    let settings =
        Settings { config: config(text), root: tree.to_owned(), kubelet_dir: kubelet.folder().to_owned() };
    Running::new(settings.build().unwrap())
}

const PORTS: &str = r#"
pools:
- resource: podwire.dev/port
  share: 2
  permissions: rwm
  containerPath: "/dev/port{index}"
  select: [{kind: node, path: "/dev/port*"}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_registers_lists_prefers_and_allocates() {
    let trees = Trees::new();
    trees.character("port0", 1);
    let mut kubelet = Kubelet::start().await;
    let plugin = start(trees.root(), &kubelet, PORTS);
    let asked = kubelet.registered().await;
    assert_eq!((asked.version.as_str(), asked.resource_name.as_str()), ("v1beta1", "podwire.dev/port"));
    assert_eq!(asked.endpoint, "podwire-podwire.dev_port.sock");
    let mut client = kubelet.client(&asked.endpoint);
    let options = client.get_device_plugin_options(v1beta1::Empty {}).await.unwrap().into_inner();
    assert_eq!(Some(options), asked.options, "the same options are told twice");
    assert!(options.get_preferred_allocation_available && !options.pre_start_required);

    let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
    assert_eq!(
        told(&within(list.message()).await.unwrap().unwrap()),
        ["port0#0 Healthy -", "port0#1 Healthy -"]
    );

    let request = v1beta1::ContainerPreferredAllocationRequest {
        available_device_ids: vec!["port0#1".to_owned()],
        must_include_device_ids: vec![],
        allocation_size: 1,
    };
    let request = v1beta1::PreferredAllocationRequest { container_requests: vec![request] };
    let preferred = client.get_preferred_allocation(request).await.unwrap().into_inner();
    assert_eq!(preferred.container_responses[0].device_ids, ["port0#1"]);

    let given = small_kubelet::allocate(&mut client, &["port0#1"]).await.unwrap();
    let file = &given.devices[0];
    assert_eq!((file.host_path.as_str(), file.container_path.as_str()), ("/dev/port0", "/dev/port0"));
    assert_eq!(file.permissions, "rwm");
    assert_eq!(given.envs["PODWIRE_DEVICE_PODWIRE_DEV_PORT"], "/dev/port0");
    let refused = small_kubelet::allocate(&mut client, &["port9#0"]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    assert!(refused.message().contains("port9#0"), "{refused}");

    let socket = kubelet.folder().join(&asked.endpoint);
    assert!(socket.exists());
    plugin.stop().await;
    assert!(!socket.exists(), "the socket goes with the plugin");
    assert!(matches!(within(list.message()).await, Ok(None) | Err(_)), "the stream ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_vanishes_is_unhealthy_until_it_is_back_and_only_changes_are_told() {
    let trees = Trees::new();
    trees.character("port0", 1);
    let mut kubelet = Kubelet::start().await;
    let plugin = start(trees.root(), &kubelet, &PORTS.replace("share: 2", "share: 1"));
    let mut client = kubelet.next_client().await;
    let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
    let mut next = async || told(&within(list.message()).await.unwrap().unwrap());
    assert_eq!(next().await, ["port0 Healthy -"]);
    // A file that no pool means is not told; were it, the next list would be the same as the last.
    trees.character("other", 9);
    trees.file("port-of-paper");
    trees.character("port1", 2);
    assert_eq!(next().await, ["port0 Healthy -", "port1 Healthy -"]);
    trees.remove("port0");
    assert_eq!(next().await, ["port1 Healthy -", "port0 Unhealthy -"]);
    let refused = small_kubelet::allocate(&mut client, &["port0"]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().contains("\"port0\"") && refused.message().contains("gone"), "{refused}");
    trees.character("port0", 1);
    assert_eq!(next().await, ["port0 Healthy -", "port1 Healthy -"]);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_comes_later_is_seen() {
    let trees = Trees::new();
    let mut kubelet = Kubelet::start().await;
    let text = "pools: [{resource: podwire.dev/tun, select: [{kind: tun}]}]";
    let plugin = start(trees.root(), &kubelet, text);
    let mut client = kubelet.next_client().await;
    let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
    assert!(within(list.message()).await.unwrap().unwrap().devices.is_empty());
    trees.character("net/tun", 200);
    assert_eq!(told(&within(list.message()).await.unwrap().unwrap()), ["net/tun Healthy -"]);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_starts_anew_finds_the_plugin_again() {
    let trees = Trees::new();
    trees.character("port0", 1);
    let mut kubelet = Kubelet::start().await;
    let two = format!("{PORTS}- {{resource: podwire.dev/none, select: [{{kind: node, path: /dev/none}}]}}\n");
    let plugin = start(trees.root(), &kubelet, &two);
    for _ in 0..3 {
        // At least once each: a socket that is seen before its event is told of is registered with twice.
        let mut wanted = std::collections::BTreeSet::from(["podwire.dev/none", "podwire.dev/port"]);
        while !wanted.is_empty() {
            let name = kubelet.registered().await.resource_name;
            assert!(name == "podwire.dev/none" || name == "podwire.dev/port", "{name}");
            wanted.remove(name.as_str());
        }
        let mut client = kubelet.client("podwire-podwire.dev_port.sock");
        let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
        assert_eq!(within(list.message()).await.unwrap().unwrap().devices.len(), 2);
        kubelet = kubelet.restart().await;
    }
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_may_come_before_the_kubelet_and_replaces_a_leftover_socket() {
    let trees = Trees::new();
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("podwire-podwire.dev_port.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    assert!(left.exists());
    let settings = || Settings {
        config: config(PORTS),
        root: trees.root().to_owned(),
        kubelet_dir: folder.path().to_owned(),
    };
    let plugin = Running::new(settings().build().unwrap());
    assert!(matches!(settings().build(), Err(StartError::Listen(_))), "a living one is not replaced");
    let mut kubelet = Kubelet::start_in(folder).await;
    assert_eq!(kubelet.registered().await.resource_name, "podwire.dev/port");
    plugin.stop().await;
    assert!(!left.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_somebody_removed_is_made_anew() {
    let trees = Trees::new();
    let mut kubelet = Kubelet::start().await;
    let plugin = start(trees.root(), &kubelet, PORTS);
    let asked = kubelet.registered().await;
    std::fs::remove_file(kubelet.folder().join(&asked.endpoint)).unwrap();
    assert_eq!(kubelet.registered().await, asked);
    let mut client = kubelet.client(&asked.endpoint);
    assert!(client.list_and_watch(v1beta1::Empty {}).await.is_ok());
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_refuses_is_asked_again() {
    let trees = Trees::new();
    let mut kubelet = Kubelet::start().await;
    kubelet.refuse(2);
    let plugin = start(trees.root(), &kubelet, PORTS);
    for _ in 0..3 {
        kubelet.registered().await;
    }
    plugin.stop().await;
}

#[test]
fn a_change_of_links_brings_a_new_look_at_virtual_functions() {
    let trees = Trees::new();
    trees.pf("0000:3b:00.0", "eth0", 1);
    trees.vf("0000:3b:00.0", 0, "0000:3b:02.0", "mlx5_core");
    let text = "pools: [{resource: podwire.dev/vf, select: [{kind: vf, pf: [eth0], requireLink: true}]}]";
    let scene = async {
        let mut kubelet = Kubelet::start().await;
        let plugin = start(trees.root(), &kubelet, text);
        let mut client = kubelet.next_client().await;
        let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
        let mut next = async || told(&within(list.message()).await.unwrap().unwrap());
        assert_eq!(next().await, ["0000:3b:02.0 Healthy 1"]);
        trees.operstate("0000:3b:00.0", "eth0", "down");
        change_links("one");
        assert_eq!(next().await, ["0000:3b:02.0 Unhealthy 1"]);
        trees.operstate("0000:3b:00.0", "eth0", "up");
        change_links("two");
        assert_eq!(next().await, ["0000:3b:02.0 Healthy 1"]);
        plugin.stop().await;
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    netns::create().unwrap().run(|| runtime().block_on(scene)).unwrap();
}

/// Any change will do: the tree is the test's own, the event is the kernel's.
fn change_links(name: &str) {
    let mut batch = Batch::new();
    batch.add_bridge(&Bridge { name, ..Bridge::default() });
    Socket::route().unwrap().exchange(&mut batch).unwrap();
}

#[test]
fn virtual_functions_are_chosen_by_all_that_sysfs_says() {
    let trees = Trees::new();
    trees.pf("0000:3b:00.0", "eth0", 1);
    for number in 0..4 {
        trees.vf(
            "0000:3b:00.0",
            number,
            &format!("0000:3b:02.{number}"),
            if number == 3 { "vfio-pci" } else { "mlx5_core" },
        );
    }
    trees.character("vfio/vfio", 196);
    trees.character("vfio/73", 73);
    trees.iommu_group("0000:3b:02.3", 73);
    let offers = |selector: &str| {
        let text = format!("pools: [{{resource: podwire.dev/vf, select: [{{kind: vf, {selector}}}]}}]");
        let text = check(&config(&text), trees.root()).unwrap().text;
        text.lines().skip(1).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let line = |number: u32| format!("0000:3b:02.{number}: Healthy, NUMA node 1");
    assert_eq!(offers("pf: ['eth0#1-2']"), [line(1), line(2)]);
    assert_eq!(offers("pf: ['eth0#0,2']"), [line(0), line(2)]);
    assert_eq!(offers("pf: [eth1]"), [""; 0]);
    assert_eq!(offers("driver: [vfio-pci]"), [format!("{} /dev/vfio/vfio /dev/vfio/73 rw", line(3))]);
    assert_eq!(offers("address: ['*.1']"), [line(1)]);
    assert_eq!(offers("vendor: ['15B3'], device: ['1018'], driver: [mlx5_core]").len(), 3);
    assert_eq!(offers("vendor: ['8086']"), [""; 0]);
    assert_eq!(offers("vendor: ['15b3'], rdma: true"), [""; 0]);
    std::fs::remove_file(trees.root().join("dev/vfio/73")).unwrap();
    assert!(offers("driver: [vfio-pci]")[0].contains("Unhealthy (/dev/vfio/73: there is nothing)"));
}

#[test]
fn rdma_devices_are_offered_with_their_files() {
    let trees = Trees::new();
    trees.pf("0000:3b:00.0", "eth0", 0);
    trees.vf("0000:3b:00.0", 0, "0000:3b:02.0", "mlx5_core");
    trees.rdma("0000:3b:00.0", "mlx5_0", 0);
    trees.rdma("0000:3b:02.0", "mlx5_1", 1);
    trees.character("infiniband/rdma_cm", 99);
    let offers = |pools: &str| check(&config(&format!("pools: [{pools}]")), trees.root()).unwrap();
    let rdma =
        offers("{resource: podwire.dev/ib, select: [{kind: rdma, name: 'mlx5_*', driver: [mlx5_core]}]}");
    assert_eq!(
        rdma.text,
        "podwire.dev/ib: 2 devices\n  \
         mlx5_0: Healthy, NUMA node 0 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm rw\n  \
         mlx5_1: Healthy, NUMA node 0 /dev/infiniband/uverbs1 /dev/infiniband/rdma_cm rw\n"
    );
    let mad = offers("{resource: podwire.dev/ib, select: [{kind: rdma, name: mlx5_1, mad: true}]}");
    assert!(
        mad.text.contains("/dev/infiniband/uverbs1 /dev/infiniband/umad1 /dev/infiniband/rdma_cm"),
        "{}",
        mad.text
    );
    let vf = offers("{resource: podwire.dev/vf, select: [{kind: vf, pf: [eth0], rdma: true}]}");
    assert!(
        vf.text.contains(
            "0000:3b:02.0: Healthy, NUMA node 0 /dev/infiniband/uverbs1 /dev/infiniband/rdma_cm rw"
        ),
        "{}",
        vf.text
    );
    let both = offers(
        "{resource: podwire.dev/vf, select: [{kind: vf, pf: [eth0], rdma: true}]}, {resource: podwire.dev/ib, select: [{kind: rdma, name: '*'}]}",
    );
    assert!(!both.ok && both.text.contains("error: RDMA device mlx5_1"), "{}", both.text);
    assert!(both.text.contains("podwire.dev/vf and podwire.dev/ib"), "{}", both.text);
}

#[test]
fn interfaces_with_a_file_are_offered_by_name() {
    let trees = Trees::new();
    trees.pf("0000:3b:00.0", "eth0", 1);
    trees.macvtap("mv0", 7, "eth0", "0000:3b:00.0");
    trees.character("tap7", 7);
    trees.tap("tap-vm", "0x1002");
    trees.tap("tun-vpn", "0x1001");
    trees.character("net/tun", 200);
    let text = "pools: [{resource: podwire.dev/mv, select: [{kind: macvtap, name: 'mv*'}]}, {resource: podwire.dev/tap, select: [{kind: tap, name: '*'}]}]";
    assert_eq!(
        check(&config(text), trees.root()).unwrap().text,
        "podwire.dev/mv: 1 device\n  mv0: Healthy, NUMA node 1 /dev/tap7 rw\n\
         podwire.dev/tap: 1 device\n  tap-vm: Healthy /dev/net/tun rw\n"
    );
}

#[test]
fn devices_are_found_by_serial_number() {
    let trees = Trees::new();
    trees.character("ttyUSB0", 1);
    trees.character("ttyUSB1", 2);
    trees.sys_of_character(1, "usb1/1-1/1-1:1.0/ttyUSB0");
    trees.attribute("devices/usb1/serial", "0000:00:14.0");
    trees.attribute("devices/usb1/1-1/serial", "A10");
    trees.attribute("devices/usb1/1-1/idVendor", "0403");
    trees.sys_of_character(2, "usb1/1-2/1-2:1.0/ttyUSB1");
    trees.attribute("devices/usb1/1-2/idVendor", "0403");
    trees.link_in_dev("serial/by-id/usb-FTDI_B20-if00", "../../ttyUSB1");
    let offers = |serial: &str| {
        let text =
            format!("pools: [{{resource: podwire.dev/s, select: [{{kind: node, serial: '{serial}'}}]}}]");
        check(&config(&text), trees.root()).unwrap().text.lines().nth(1).unwrap_or_default().trim().to_owned()
    };
    assert_eq!(offers("A10"), "ttyUSB0: Healthy /dev/ttyUSB0 rw");
    assert_eq!(offers("B20"), "serial/by-id/usb-FTDI_B20-if00: Healthy /dev/ttyUSB1 rw");
    assert_eq!(offers("0000:00:14.0"), "", "the hub's number is not the device's");
}

#[test]
fn links_out_of_dev_and_files_that_are_no_devices_are_left_out_and_said() {
    let trees = Trees::new();
    trees.character("good", 1);
    trees.file("paper");
    std::fs::write(trees.root().join("passwd"), "root").unwrap();
    for (link, to) in
        [("out", "/passwd"), ("up", "../passwd"), ("kin", "good"), ("gone", "nowhere"), ("round", "round")]
    {
        trees.link_in_dev(link, to);
    }
    std::fs::create_dir_all(trees.root().join("elsewhere")).unwrap();
    trees.node_at("elsewhere/node", 5);
    symlink("../elsewhere/node", trees.root().join("dev/beyond")).unwrap();
    symlink("../elsewhere", trees.root().join("dev/folder")).unwrap();
    let text = "pools: [{resource: podwire.dev/a, select: [{kind: node, path: '/dev/*'}, {kind: node, path: '/dev/*/node'}]}]";
    let checked = check(&config(text), trees.root()).unwrap();
    assert!(checked.ok);
    assert!(
        checked.text.starts_with("podwire.dev/a: 1 device\n  good: Healthy /dev/good rw\n"),
        "{}",
        checked.text
    );
    for said in [
        "left out: /dev/paper: /dev/paper is neither a character nor a block device",
        "left out: /dev/out: it leads out of /dev, to /passwd",
        "left out: /dev/up: it leads out of /dev, to /passwd",
        "left out: /dev/beyond: it leads out of /dev, to /elsewhere/node",
        "left out: /dev/folder: it leads out of /dev",
        "left out: /dev/round: it cannot be looked at",
    ] {
        assert!(checked.text.contains(said), "{said}\n{}", checked.text);
    }
    assert!(!checked.text.contains("gone"), "a link to nothing waits for its device: {}", checked.text);
}

#[tokio::test]
async fn pools_that_share_a_device_do_not_start() {
    let trees = Trees::new();
    trees.character("port0", 1);
    trees.link_in_dev("alias", "port0");
    let folder = tempfile::tempdir().unwrap();
    let text =
        format!("{PORTS}- {{resource: podwire.dev/alias, select: [{{kind: node, path: /dev/alias}}]}}\n");
    let settings = Settings {
        config: config(&text),
        root: trees.root().to_owned(),
        kubelet_dir: folder.path().to_owned(),
    };
    let Err(error) = settings.build() else { panic!("it starts") };
    let said = error.to_string();
    assert!(said.contains("podwire.dev/port and podwire.dev/alias"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn this_nodes_own_tun_is_offered() {
    let mut kubelet = Kubelet::start().await;
    let text = "pools: [{resource: podwire.dev/tun, share: 100, select: [{kind: tun}]}]";
    let plugin = start(Path::new("/"), &kubelet, text);
    let mut client = kubelet.next_client().await;
    let mut list = client.list_and_watch(v1beta1::Empty {}).await.unwrap().into_inner();
    assert_eq!(within(list.message()).await.unwrap().unwrap().devices.len(), 100);
    let given = small_kubelet::allocate(&mut client, &["net/tun#42"]).await.unwrap();
    assert_eq!(given.devices[0].host_path, "/dev/net/tun");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_heard_at_once_also_without_a_kubelet() {
    let trees = Trees::new();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        config: config(PORTS),
        root: trees.root().to_owned(),
        kubelet_dir: folder.path().to_owned(),
    };
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    within(settings.build().unwrap().run(shutdown)).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
