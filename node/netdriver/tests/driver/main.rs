//! The driver between a real API server, the runtime's side of NRI and a kubelet that is the test, with real devices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use podwire_client::api::{Api, DeleteParams};
use podwire_linux::rtnl::{Batch, Bridge, LinkChange, LinkRef, Socket};
use podwire_nri::EventError;
use podwire_wire::dra_health::{DeviceHealth, HealthStatus, NodeWatchResourcesResponse};
use serde_json::{Value, json};
use tonic::Streaming;

use self::world::{Pod, World, in_node, make_device, remove_device, seen, until};

/// What most claims here ask for.
fn parameters() -> Value {
    json!({
        "interface": {"name": "net1", "addresses": ["10.1.0.7/24"], "mtu": 1300, "hardwareAddr": "02:00:00:00:00:42", "arpIgnore": 1},
        "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1", "table": 100}],
        "rules": [{"priority": 100, "source": "10.1.0.7/32", "table": 100}],
        "neighbors": [{"destination": "10.1.0.1", "hardwareAddr": "02:00:00:00:00:01"}],
    })
}

#[test]
fn what_the_node_has_is_published_and_follows_it() {
    in_node(async {
        make_device("eth1");
        let world = World::start(&["veth:br0:2"]).await;
        let device = world.published("eth1", true).await;
        let attributes = &device["attributes"];
        assert_eq!(attributes["dra.net/ifName"], json!({"string": "eth1"}));
        assert_eq!(attributes["dra.net/type"], json!({"string": "veth"}));
        assert_eq!(attributes["dra.net/ipv4"], json!({"string": "192.0.2.7/24"}));
        let slices = world.slices().await;
        assert_eq!((slices.len(), &slices[0]["spec"]["pool"]["name"]), (1, &json!("node1")));
        assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["kind"], "Node");
        make_device("eth2");
        world.published("eth2", true).await;
        remove_device("eth2");
        world.published("eth2", false).await;
        // Its parent comes, and is not offered itself.
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "br0", ..Bridge::default() });
        Socket::route().unwrap().exchange(&mut batch).unwrap();
        world.published("br0-veth-1", true).await;
        world.published("br0", false).await;
        // A kubelet that starts deletes all slices of its node.
        let name = world.slices().await[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let api: Api<k8s_openapi::api::resource::v1::ResourceSlice> = Api::all(world.admin.clone());
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        world.published("eth1", true).await;
        world.stop().await;
    });
}

#[test]
fn a_device_is_in_its_pod_before_the_answer_and_comes_home_as_it_was() {
    in_node(async {
        let before = make_device("eth1");
        let world = World::start(&[]).await;
        let published = world.published("eth1", true).await;
        let uid = world.claim("one", "eth1", parameters()).await;
        assert_eq!(world.prepare("one", &uid).await.unwrap(), ["eth1"]);
        assert_eq!(seen("eth1").as_ref(), Some(&before), "preparing touches nothing");
        let (pod, other) = (Pod::of("one"), Pod::of("other"));
        world.run(&other).await.unwrap();
        world.run(&pod).await.unwrap();
        assert_eq!(seen("eth1"), None);
        assert_eq!(other.seen("net1"), None, "others get nothing");
        let there = pod.seen("net1").unwrap();
        assert_eq!((there.mtu, there.up, there.mac.as_deref()), (1300, true, Some("02:00:00:00:00:42")));
        assert_eq!(there.addresses, ["10.1.0.7/24".parse().unwrap()]);
        assert_eq!((there.routes.len(), there.routes[0].table), (1, Some(100)));
        assert_eq!(there.neighbours[0].mac, "02:00:00:00:00:01");
        let rules = pod.netns.run(|| Socket::route().unwrap().rules(false).unwrap()).unwrap();
        assert!(rules.iter().any(|rule| (rule.priority, rule.table) == (100, 100)), "{rules:?}");
        let told = world.told("one", "NetworkDeviceReady").await;
        let data =
            json!({"interfaceName": "net1", "hardwareAddress": "02:00:00:00:00:42", "ips": ["10.1.0.7/24"]});
        assert_eq!(told["networkData"], data);
        assert!(told["conditions"].as_array().unwrap().iter().all(|one| one["status"] == "True"));
        let away = world.published("eth1", true).await;
        let mac = "dra.net/mac";
        assert_eq!(away["attributes"][mac], published["attributes"][mac], "it is published as it was");
        // Asked again, as a kubelet that was restarted does.
        assert_eq!(world.prepare("one", &uid).await.unwrap(), ["eth1"]);
        assert!(pod.seen("net1").is_some());
        world.end(&pod).await;
        assert_eq!(seen("eth1").as_ref(), Some(&before));
        world.told("one", "NetworkDeviceReleased").await;
        assert!(world.pins().is_empty(), "{:?}", world.pins());
        world.unprepare("one", &uid).await.unwrap();
        world.unprepare("one", &uid).await.unwrap();
        // What is not prepared any more is nobody's.
        let again = Pod::of("one");
        world.run(&again).await.unwrap();
        assert_eq!(seen("eth1").as_ref(), Some(&before));
        world.stop().await;
    });
}

#[test]
fn a_sandbox_that_cannot_have_its_device_is_refused_and_nothing_is_left() {
    in_node(async {
        let before = make_device("eth1");
        let world = World::start(&[]).await;
        world.published("eth1", true).await;
        let nowhere = json!({"routes": [{"destination": "10.2.0.0/16", "gateway": "203.0.113.1"}]});
        let uid = world.claim("one", "eth1", nowhere).await;
        world.prepare("one", &uid).await.unwrap();
        let pod = Pod::of("one");
        let refused = world.run(&pod).await.unwrap_err();
        assert!(
            matches!(&refused, EventError::Refused { message, .. } if message.contains("eth1")),
            "{refused}"
        );
        assert_eq!((seen("eth1").as_ref(), pod.seen("eth1")), (Some(&before), None));
        let told = world.told("one", "NetworkDeviceAttachFailed").await;
        assert_eq!(told["conditions"][0]["status"], "False");
        until("the pod's event", async || {
            let events = world.events().await;
            let found = events.iter().any(|one| {
                one["reason"] == "NetworkDeviceAttachFailed" && one["involvedObject"]["kind"] == "Pod"
            });
            if found { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
        // Nor on the node's own network.
        assert!(world.pins().is_empty());
        world.unprepare("one", &uid).await.unwrap();
        world.stop().await;
    });
}

#[test]
fn what_a_claim_says_wrongly_is_refused_when_it_is_prepared_with_the_path() {
    in_node(async {
        make_device("eth1");
        let world = World::start(&[]).await;
        world.published("eth1", true).await;
        let uid = world.claim("one", "eth1", json!({"interface": {"mtu": 12}})).await;
        let said = world.prepare("one", &uid).await.unwrap_err();
        assert_eq!(said, "request nic: interface.mtu: a number from 68 to 65535 is wanted");
        let told = world.told("one", "ClaimPrepareFailed").await;
        assert_eq!(told["conditions"][0]["message"], said.as_str());
        let unknown = world.claim("two", "eth9", json!({})).await;
        assert_eq!(
            world.prepare("two", &unknown).await.unwrap_err(),
            "device eth9 is not on this node any more"
        );
        assert_eq!(world.prepare("none", "u").await.unwrap_err(), "there is no such claim");
        let taken = world.claim("three", "eth1", parameters()).await;
        world.prepare("three", &taken).await.unwrap();
        let late = world.claim("four", "eth1", json!({})).await;
        let said = world.prepare("four", &late).await.unwrap_err();
        assert_eq!(said, "device eth1 is still prepared for claim default/three");
        world.stop().await;
    });
}

#[test]
fn a_device_that_its_pod_destroyed_is_told_as_lost() {
    in_node(async {
        make_device("eth1");
        let world = World::start(&[]).await;
        world.published("eth1", true).await;
        let uid = world.claim("one", "eth1", parameters()).await;
        world.prepare("one", &uid).await.unwrap();
        let pod = Pod::of("one");
        world.run(&pod).await.unwrap();
        world.told("one", "NetworkDeviceReady").await;
        pod.netns.run(|| remove_device("net1")).unwrap();
        world.end(&pod).await;
        let told = world.told("one", "NetworkDeviceLost").await;
        assert_eq!(told["conditions"][0]["status"], "False");
        world.published("eth1", false).await;
        assert!(world.pins().is_empty());
        world.unprepare("one", &uid).await.unwrap();
        world.stop().await;
    });
}

#[test]
fn character_devices_of_a_claim_are_named_for_containers_that_name_the_claim() {
    in_node(async {
        make_device("eth1");
        let mut world = World::start(&["macvlan:eth1:2"]).await;
        world.published("eth1-macvlan-0", true).await;
        let plain = world.claim("plain", "eth1-macvlan-1", json!({})).await;
        let found = world.prepared("plain", &plain).await.unwrap();
        assert!(found[0].cdi_device_ids.is_empty() && world.cdi().is_empty());
        let uid = world.claim("one", "eth1-macvlan-0", json!({"characterDevices": ["tun"]})).await;
        let id = format!("dra.net/claim={uid}-0");
        let found = world.prepared("one", &uid).await.unwrap();
        assert_eq!(found[0].cdi_device_ids, std::slice::from_ref(&id));
        let files = world.cdi();
        assert_eq!((files.len(), &files[0].0), (1, &format!("dra.net-claim-{uid}.json")));
        assert_eq!(files[0].1["devices"][0]["containerEdits"]["deviceNodes"][0]["path"], "/dev/net/tun");
        // A driver that comes after a boot finds the folder empty.
        world.kill_driver().await;
        std::fs::remove_dir_all(world.cdi_dir()).unwrap();
        world.start_driver().await;
        until("the file is there again", async || {
            if world.cdi() == files { Ok(()) } else { Err(format!("{:?}", world.cdi())) }
        })
        .await;
        assert_eq!(world.prepared("one", &uid).await.unwrap()[0].cdi_device_ids, [id]);
        world.unprepare("one", &uid).await.unwrap();
        assert!(world.cdi().is_empty());
        // What this node has not is refused before anything is given.
        let wants = json!({"characterDevices": ["vhost-net"]});
        let uid = world.claim("two", "eth1-macvlan-0", wants).await;
        match (std::fs::exists("/dev/vhost-net").unwrap(), world.prepared("two", &uid).await) {
            (true, done) => assert_eq!(done.unwrap().len(), 1),
            (false, done) => {
                let said = done.unwrap_err();
                assert!(said.contains("no character device \"/dev/vhost-net\""), "{said}");
            }
        }
        world.stop().await;
    });
}

#[test]
fn claims_share_a_wire_and_each_has_the_bandwidth_that_it_was_given() {
    in_node(async {
        make_device("eth1");
        let world = World::start(&["macvlan:eth1:4:1G"]).await;
        let device = world.published("eth1-macvlan", true).await;
        assert_eq!(device["capacity"]["dra.net/bandwidth"]["value"], "1G", "the API server takes it");
        let share = |number: u8, bandwidth: &str| {
            json!({
                "device": "eth1-macvlan", "shareID": format!("00000000-0000-4000-8000-00000000000{number}"),
                "consumedCapacity": {"dra.net/bandwidth": bandwidth, "dra.net/devices": "1"},
            })
        };
        let parameters = json!({"interface": {"name": "net1", "addresses": ["10.1.0.7/24"]}});
        let rates = |pod: &Pod| {
            pod.netns
                .run(|| {
                    let mut socket = Socket::route().unwrap();
                    let mut found = Vec::new();
                    for link in socket.links().unwrap() {
                        let buckets =
                            socket.qdiscs(link.index).unwrap().into_iter().filter_map(|one| one.tbf);
                        found.extend(buckets.map(|bucket| (link.kind.clone().unwrap(), bucket.rate)));
                    }
                    found.sort();
                    found
                })
                .unwrap()
        };
        let mut pods = Vec::new();
        for (number, name, bandwidth) in [(1, "one", "80M"), (2, "two", "160M")] {
            let uid = world.claim_of(name, share(number, bandwidth), parameters.clone()).await;
            assert_eq!(world.prepare(name, &uid).await.unwrap(), ["eth1-macvlan"]);
            let pod = Pod::of(name);
            world.run(&pod).await.unwrap();
            pods.push((name, uid, pod));
        }
        for ((.., pod), rate) in pods.iter().zip([10_000_000, 20_000_000]) {
            assert_eq!(rates(pod), [("ifb".to_owned(), rate), ("macvlan".to_owned(), rate)]);
        }
        for (name, uid, pod) in &pods {
            world.end(pod).await;
            assert_eq!(
                pod.netns.run(|| Socket::route().unwrap().links().unwrap().len()).unwrap(),
                1,
                "{name}"
            );
            world.unprepare(name, uid).await.unwrap();
        }
        // One whose allocation says nothing, as by an API server that knows no shares, has nothing.
        let uid = world.claim("three", "eth1-macvlan", parameters).await;
        let said = world.prepare("three", &uid).await.unwrap_err();
        assert!(said.contains("says nothing of its bandwidth"), "{said}");
        world.stop().await;
    });
}

/// Waits until the kubelet is told these devices and how they are, and nothing else.
async fn told_health(
    health: &mut Streaming<NodeWatchResourcesResponse>,
    wanted: &[(&str, HealthStatus, &str)],
) {
    let hear = async {
        loop {
            let told = health.message().await.unwrap().expect("the driver goes on telling");
            let name = |one: &DeviceHealth| one.device.clone().unwrap().device_name;
            let told: Vec<_> =
                told.devices.iter().map(|one| (name(one), one.health(), one.message.clone())).collect();
            let fits = |(told, wanted): (&(String, HealthStatus, String), &(&str, HealthStatus, &str))| {
                told.0 == wanted.0 && told.1 == wanted.1 && told.2.contains(wanted.2)
            };
            if told.len() == wanted.len() && told.iter().zip(wanted).all(fits) {
                return;
            }
        }
    };
    tokio::time::timeout(world::DEADLINE, hear).await.unwrap_or_else(|_| panic!("{wanted:?} is not told"));
}

#[test]
fn the_kubelet_hears_of_a_device_in_a_pod_that_loses_its_carrier_or_goes() {
    use HealthStatus::{Healthy, Unhealthy};
    in_node(async {
        make_device("eth1");
        let world = World::start(&[]).await;
        world.published("eth1", true).await;
        let mut health = world.health().await;
        told_health(&mut health, &[]).await;
        let uid = world.claim("one", "eth1", parameters()).await;
        world.prepare("one", &uid).await.unwrap();
        let pod = Pod::of("one");
        world.run(&pod).await.unwrap();
        told_health(&mut health, &[("eth1", Healthy, "")]).await;
        let other_end = |up: bool| {
            let mut batch = Batch::new();
            batch.set_link(LinkRef::Name("eth1x"), &LinkChange { up: Some(up), ..LinkChange::default() });
            Socket::route().unwrap().exchange(&mut batch).unwrap();
        };
        other_end(false);
        told_health(&mut health, &[("eth1", Unhealthy, "no carrier")]).await;
        other_end(true);
        told_health(&mut health, &[("eth1", Healthy, "")]).await;
        pod.netns.run(|| remove_device("net1")).unwrap();
        told_health(&mut health, &[("eth1", Unhealthy, "not in its pod")]).await;
        world.end(&pod).await;
        told_health(&mut health, &[]).await;
        world.unprepare("one", &uid).await.unwrap();
        world.stop().await;
    });
}

#[test]
fn the_policy_that_is_shipped_refuses_what_the_driver_would() {
    in_node(async {
        let world = World::start(&[]).await;
        world.policy().await;
        world.claim("good", "eth1", parameters()).await;
        world.claim("others", "eth1", json!({})).await;
        world.claim("files", "eth1", json!({"characterDevices": ["tun", "vhost-net"]})).await;
        world.claim("switched", "eth1", json!({"ethtool": {"features": {"tso": false}}})).await;
        world.claim("routed", "eth1", json!({"interface": {"vrf": {"name": "red", "table": 7}}})).await;
        for (parameters, said) in [
            (json!({"interfaces": {}}), "known fields are interface"),
            (json!({"interface": {"dhcp": true}}), "interface has a field"),
            (json!({"interface": {"name": "a name too long"}}), "interface.name"),
            (json!({"interface": {"addresses": ["10.0.0.1"]}}), "interface.addresses"),
            (json!({"interface": {"mtu": 12}}), "interface.mtu"),
            (json!({"interface": {"vrf": {"table": 7}}}), "interface.vrf: a name"),
            (json!({"interface": {"vrf": {"name": "red", "table": 254}}}), "interface.vrf: a name"),
            (
                json!({"interface": {"vrf": {"name": "red"}}, "rules": [{"table": 7}]}),
                "rules: there are none",
            ),
            (json!({"interface": {"hardwareAddr": "01:00:00:00:00:01"}}), "interface.hardwareAddr"),
            (json!({"routes": [{"destination": "10.0.0.0/8"}]}), "a gateway unless scope is 253"),
            (
                json!({"routes": [{"destination": "10.0.0.0/8", "gateway": "10.0.0.1", "metric": 1}]}),
                "routes: known",
            ),
            (json!({"rules": [{"priority": 1}]}), "rules: a table"),
            (json!({"neighbors": [{"destination": "10.0.0.1"}]}), "neighbors: destination"),
            (json!({"characterDevices": ["kvm"]}), "characterDevices: tun and vhost-net"),
            (json!({"ethtool": {"feature": {}}}), "ethtool: features"),
            (json!({"ethtool": {"features": {"tso": "off"}}}), "ethtool: features"),
        ] {
            for template in [false, true] {
                let refused = world.write("bad", template, &parameters).await.expect_err(said);
                assert!(refused.contains(said), "{parameters}: {refused}");
            }
        }
        world.write("template", true, &parameters()).await.unwrap();
        world.stop().await;
    });
}

#[test]
fn a_driver_that_is_killed_loses_no_device_and_no_pod_starts_without_it() {
    in_node(async {
        let before = make_device("eth1");
        let mut world = World::start(&[]).await;
        world.published("eth1", true).await;
        let uid = world.claim("one", "eth1", parameters()).await;
        world.prepare("one", &uid).await.unwrap();
        world.kill_driver().await;
        let pod = Pod::of("one");
        let absent = world.run(&pod).await.unwrap_err();
        assert!(matches!(absent, EventError::Absent { .. }), "{absent}");
        // A runtime that does not know required plugins runs it all the same: it has its device as soon as there is a driver.
        world.ran(&pod);
        world.start_driver().await;
        until("the device is in the pod", async || pod.seen("net1").ok_or_else(|| "it is not".to_owned()))
            .await;
        // The pod, and whoever held its namespace, go while the driver is away.
        world.kill_driver().await;
        world.forget(&pod);
        drop(pod);
        assert_eq!((seen("eth1"), world.pins().len()), (None, 1));
        // As if it had been killed between a pin and the record of what is there.
        std::fs::write(world.pins()[0].with_file_name("of-nobody"), "").unwrap();
        world.start_driver().await;
        until("the device is home", async || {
            seen("eth1").filter(|now| *now == before).ok_or_else(|| "it is not".to_owned())
        })
        .await;
        until(
            "nothing is pinned",
            async || if world.pins().is_empty() { Ok(()) } else { Err("it is".to_owned()) },
        )
        .await;
        // It is still prepared: the next sandbox of the pod has it.
        let next = Pod::of("one");
        world.run(&next).await.unwrap();
        assert!(next.seen("net1").is_some());
        // A sandbox that is tried again takes it over.
        let tried = Pod { id: "sandbox-two".to_owned(), ..Pod::of("one") };
        world.run(&tried).await.unwrap();
        assert_eq!((tried.seen("net1").is_some(), next.seen("net1")), (true, None));
        world.unprepare("one", &uid).await.unwrap();
        assert_eq!(
            seen("eth1").as_ref(),
            Some(&before),
            "what is unprepared is home, whatever the runtime says"
        );
        world.stop().await;
    });
}

#[test]
fn devices_are_made_on_demand_and_what_the_kernel_cannot_make_is_said() {
    in_node(async {
        make_device("eth1");
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "br0", ..Bridge::default() });
        Socket::route().unwrap().exchange(&mut batch).unwrap();
        let world =
            World::start(&["macvlan:eth1:2", "veth:br0:1", "ipvlan:eth1:1", "vlan:eth1:7", "dummy::1"]).await;
        world.published("eth1-macvlan-0", true).await;
        world.published("eth1", false).await;
        let there = |name: &str| {
            Socket::route().unwrap().links().unwrap().into_iter().any(|link| link.name.starts_with(name))
        };
        for device in ["eth1-macvlan-0", "br0-veth-0"] {
            let uid = world.claim(device, device, parameters()).await;
            world.prepare(device, &uid).await.unwrap();
            let pod = Pod::of(device);
            world.run(&pod).await.unwrap();
            let made = pod.seen("net1").unwrap();
            assert_eq!((made.mtu, made.mac.as_deref()), (1300, Some("02:00:00:00:00:42")));
            assert_eq!(there("knd"), device == "br0-veth-0", "only a wire has an end on the node");
            world.end(&pod).await;
            assert_eq!((pod.seen("net1"), there("knd")), (None, false));
            world.unprepare(device, &uid).await.unwrap();
        }
        for device in ["eth1-ipvlan-0", "eth1-vlan-7", "dummy-0"] {
            let uid = world.claim(device, device, json!({"interface": {"name": "net1"}})).await;
            world.prepare(device, &uid).await.unwrap();
            let pod = Pod::of(device);
            match world.run(&pod).await {
                Ok(()) => assert!(pod.seen("net1").is_some()),
                Err(refused) => assert!(refused.to_string().contains("this kernel cannot make"), "{refused}"),
            }
            world.end(&pod).await;
            assert_eq!(pod.seen("net1"), None);
            world.unprepare(device, &uid).await.unwrap();
        }
        world.stop().await;
    });
}
