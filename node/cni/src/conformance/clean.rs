//! Checks of DEL and GC.

use serde_json::{Value, json};

use super::Check;
use super::world::{Pod, World, holds, with};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: 26,
        title: "DEL succeeds before any ADD, again, without result, without interface",
        source: "SPEC DEL",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            world.call("DEL", &pod, &conf)?.success("DEL before ADD")?;
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            world.call("DEL", &pod, &full)?.success("DEL")?;
            world.call("DEL", &pod, &full)?.success("DEL again")?;
            world.call("DEL", &pod, &conf)?.success("DEL without a result")?;
            gone(world, &pod)
        },
    },
    Check {
        number: 27,
        title: "DEL succeeds without namespace: unset, missing, or no namespace",
        source: "SPEC DEL",
        needs: &["bridge", "host-local"],
        run: |world| {
            for (n, netns) in ["", "/nonexistent/netns", "/etc/hostname"].iter().enumerate() {
                let pod = Pod::new(&format!("c{n}"))?;
                let conf = world.bridge();
                let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
                world
                    .call_in("DEL", &pod.id, netns, &full)?
                    .success(&format!("DEL with CNI_NETNS={netns:?}"))?;
                holds(world.reserved().is_empty(), || format!("CNI_NETNS={netns:?}: addresses are left"))?;
            }
            Ok(())
        },
    },
    Check {
        number: 28,
        title: "DEL without namespace removes masquerading too",
        source: "SPEC DEL: release all resources",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            world.call_in("DEL", &pod.id, "", &full)?.success("DEL")?;
            let rules = world.masquerade_rules()?;
            holds(rules == 0, || format!("{rules} rules are left"))
        },
    },
    Check {
        number: 29,
        title: "DEL goes on when the reservation is gone",
        source: "SPEC DEL",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            world.lose_reservations()?;
            world.call("DEL", &pod, &full)?.success("DEL")?;
            gone(world, &pod)
        },
    },
    Check {
        number: 30,
        title: "DEL of one container leaves another's state alone",
        source: "SPEC DEL",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (a, b, conf) = (Pod::new("a")?, Pod::new("b")?, world.bridge());
            let first = with(&conf, "prevResult", world.add(&a, &conf)?);
            let second = with(&conf, "prevResult", world.add(&b, &conf)?);
            world.call("DEL", &a, &first)?.success("DEL of a")?;
            world.call("DEL", &a, &first)?.success("DEL of a again")?;
            world.call("CHECK", &b, &second)?.success("CHECK of b").map(|_| ())
        },
    },
    Check {
        number: 31,
        title: "GC removes what is not valid and keeps what is, forwarded to IPAM",
        source: "SPEC GC",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (keep, lose, conf) = (Pod::new("keep")?, Pod::new("lose")?, world.bridge());
            let full = with(&conf, "prevResult", world.add(&keep, &conf)?);
            world.add(&lose, &conf)?;
            gc(world, &conf, json!([{"containerID": "keep", "ifname": "eth0"}]))?;
            world.call("CHECK", &keep, &full)?.success("CHECK of what is kept")?;
            let (addresses, rules) = (world.reserved().len(), world.masquerade_rules()?);
            holds(addresses == 2 && rules == 2, || {
                format!("{addresses} addresses and {rules} rules are left of 2 and 2")
            })
        },
    },
    Check {
        number: 32,
        title: "GC without valid attachments removes all, and may be repeated",
        source: "SPEC GC",
        needs: &["bridge", "host-local"],
        run: |world| {
            let conf = world.bridge();
            let pods: Vec<Pod> = (0..3).map(|n| Pod::new(&format!("c{n}"))).collect::<Result<_, _>>()?;
            for pod in &pods {
                world.add(pod, &conf)?;
            }
            gc(world, &conf, json!([]))?;
            gc(world, &conf, json!([]))?;
            let (addresses, rules) = (world.reserved().len(), world.masquerade_rules()?);
            holds(addresses == 0 && rules == 0, || {
                format!("{addresses} addresses and {rules} rules are left")
            })
        },
    },
    Check {
        number: 33,
        title: "GC of one network leaves another's attachments alone",
        source: "SPEC GC",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            gc(world, &with(&conf, "name", json!("another")), json!([]))?;
            world.call("CHECK", &pod, &full)?.success("CHECK").map(|_| ())
        },
    },
    Check {
        number: 34,
        title: "loopback is brought up, checked and taken down",
        source: "plugin loopback; SPEC ADD, CHECK, DEL",
        needs: &["loopback"],
        run: |world| {
            let pod = Pod::new("c")?;
            let conf = json!({"cniVersion": "1.1.0", "name": "lo", "type": "loopback"});
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            holds(pod.link("lo")?.is_some_and(|link| link.is_up()), || "lo is down after ADD".into())?;
            world.call("CHECK", &pod, &full)?.success("CHECK")?;
            world.call("DEL", &pod, &full)?.success("DEL")?;
            world.call("CHECK", &pod, &full)?.failure("CHECK after DEL").map(|_| ())
        },
    },
];

fn gc(world: &World, conf: &Value, valid: Value) -> Result<(), String> {
    let mut conf = with(conf, "cni.dev/valid-attachments", valid.clone());
    conf["cni.dev/attachments"] = valid;
    world.call_in("GC", "", "", &conf)?.success("GC").map(|_| ())
}

fn gone(world: &World, pod: &Pod) -> Result<(), String> {
    let veths = world.links()?.iter().filter(|name| name.starts_with("veth")).count();
    let (addresses, rules) = (world.reserved().len(), world.masquerade_rules()?);
    holds(veths == 0 && addresses == 0 && rules == 0 && pod.link("eth0")?.is_none(), || {
        format!("{veths} links, {addresses} addresses and {rules} rules are left")
    })
}
