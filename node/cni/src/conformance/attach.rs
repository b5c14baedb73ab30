//! Checks of ADD and CHECK.

use std::collections::HashSet;

use podwire_linux::rtnl::{Batch, LinkRef, Socket};
use serde_json::{Value, json};

use super::Check;
use super::world::{Pod, World, holds, with};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: 13,
        title: "ADD of an interface that exists is refused and leaks nothing",
        source: "SPEC ADD",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            world.add(&pod, &conf)?;
            let before = (world.links()?.len(), world.reserved().len(), world.masquerade_rules()?);
            world.call_in("ADD", "other", &pod.path(), &conf)?.failure("the second ADD")?;
            let after = (world.links()?.len(), world.reserved().len(), world.masquerade_rules()?);
            holds(before == after, || format!("links, addresses, rules: {before:?} before, {after:?} after"))
        },
    },
    Check {
        number: 14,
        title: "the result lists the interfaces, the pod's with CNI_NETNS, and addresses point to it",
        source: "SPEC Success Result types",
        needs: &["bridge", "host-local"],
        run: |world| {
            let pod = Pod::new("c")?;
            let result = world.add(&pod, &world.bridge())?;
            let interfaces = result["interfaces"].as_array().cloned().unwrap_or_default();
            let own = interfaces
                .iter()
                .position(|interface| interface["name"] == "eth0" && interface["sandbox"] == pod.path());
            let own = own.ok_or_else(|| format!("no eth0 with its namespace: {result}"))?;
            let ips = result["ips"].as_array().cloned().unwrap_or_default();
            holds(ips.len() == 2 && ips.iter().all(|ip| ip["interface"] == own), || format!("{result}"))
        },
    },
    Check {
        number: 15,
        title: "addresses, gateway and routes of the result are in the kernel, with their priority",
        source: "SPEC ADD; SPEC 1.1.0 route fields",
        needs: &["bridge", "host-local"],
        run: |world| {
            let pod = Pod::new("c")?;
            let mut conf = world.bridge();
            conf["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0", "priority": 77}]);
            world.add(&pod, &conf)?;
            let (addresses, routes) = kernel(&pod)?;
            holds(addresses.contains(&"10.99.0.2/24".to_owned()), || format!("addresses: {addresses:?}"))?;
            let default = routes.iter().find(|route| route.destination.prefix_len() == 0);
            let right = default.is_some_and(|route| {
                route.priority == Some(77) && route.gateway.is_some_and(|gw| gw.to_string() == "10.99.0.1")
            });
            holds(right, || format!("the default route is {default:?}"))
        },
    },
    Check {
        number: 16,
        title: "mtu and advmss of a route are applied",
        source: "SPEC 1.1.0 route fields",
        needs: &["bridge", "host-local"],
        run: |world| {
            let pod = Pod::new("c")?;
            let mut conf = world.bridge();
            conf["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0", "mtu": 1300, "advmss": 1200}]);
            world.add(&pod, &conf)?;
            let (_, routes) = kernel(&pod)?;
            let default = routes.iter().find(|route| route.destination.prefix_len() == 0);
            let right = default.is_some_and(|route| route.mtu == Some(1300) && route.advmss == Some(1200));
            holds(right, || format!("the default route is {default:?}"))
        },
    },
    Check {
        number: 17,
        title: "a chained plugin passes the result on",
        source: "SPEC 2 Execution: ADD, prevResult",
        needs: &["bridge", "host-local", "portmap", "tuning"],
        run: |world| {
            let pod = Pod::new("c")?;
            let first = world.add(&pod, &world.bridge())?;
            for kind in ["portmap", "tuning"] {
                let conf = json!({"cniVersion": "1.1.0", "name": "conf", "type": kind, "prevResult": first});
                let result = world.add(&pod, &conf)?;
                for part in ["interfaces", "ips", "routes"] {
                    holds(result[part] == first[part], || {
                        format!("{kind} changed {part}: {}", result[part])
                    })?;
                }
            }
            Ok(())
        },
    },
    Check {
        number: 18,
        title: "a chained plugin without result before it is refused",
        source: "SPEC 2 Execution: prevResult",
        needs: &["portmap", "tuning"],
        run: |world| {
            let pod = Pod::new("c")?;
            let portmap = json!({
                "cniVersion": "1.0.0", "name": "conf", "type": "portmap",
                "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]},
            });
            world.call("ADD", &pod, &portmap)?.failure("portmap")?;
            let tuning = json!({"cniVersion": "1.0.0", "name": "conf", "type": "tuning", "mtu": 1400});
            world.call("ADD", &pod, &tuning)?.failure("tuning").map(|_| ())
        },
    },
    Check {
        number: 19,
        title: "an ADD that fails after its addresses were given leaves neither address nor link",
        source: "SPEC ADD; SPEC 4 Delegation",
        needs: &["bridge", "host-local"],
        run: |world| {
            let first = Pod::new("first")?;
            world.add(&first, &world.bridge())?;
            let mut conf = world.bridge();
            // The bridge has an address of another network, which is seen late.
            conf["ipam"]["ranges"] = json!([[{"subnet": "10.98.0.0/24"}]]);
            let before = (world.links()?.len(), world.reserved().len());
            let pod = Pod::new("c")?;
            world.call("ADD", &pod, &conf)?.failure("ADD with another gateway")?;
            let after = (world.links()?.len(), world.reserved().len());
            holds(before == after && pod.link("eth0")?.is_none(), || {
                format!(
                    "links and addresses: {before:?} before, {after:?} after; eth0 in the pod: {}",
                    pod.link("eth0").is_ok_and(|l| l.is_some())
                )
            })
        },
    },
    Check {
        number: 20,
        title: "twenty ADDs at once get different addresses",
        source: "SPEC 3 Execution: Lifecycle and ordering",
        needs: &["bridge", "host-local"],
        run: twenty_at_once,
    },
    Check {
        number: 21,
        title: "CHECK holds right after ADD and changes nothing",
        source: "SPEC CHECK",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
            let before = (world.links()?, world.reserved().len(), world.masquerade_rules()?);
            world.call("CHECK", &pod, &full)?.success("CHECK")?;
            let after = (world.links()?, world.reserved().len(), world.masquerade_rules()?);
            holds(before == after, || format!("{before:?} before, {after:?} after"))?;
            world.call("CHECK", &pod, &conf)?.failure("CHECK without a result").map(|_| ())
        },
    },
    Check {
        number: 22,
        title: "CHECK fails when the interface, an address or the reservation is gone",
        source: "SPEC CHECK",
        needs: &["bridge", "host-local"],
        run: |world| {
            check_fails_after(world, "the interface", |_, pod| {
                pod.inside(|socket| remove_link(socket, "eth0"))?
            })?;
            check_fails_after(world, "an address", |_, pod| {
                pod.inside(|socket| {
                    let link = socket.link(LinkRef::Name("eth0")).ok().flatten().ok_or("no eth0")?.index;
                    let found = socket.addresses(link).map_err(|error| error.to_string())?;
                    let net =
                        found.iter().find(|address| address.net.addr().is_ipv4()).ok_or("no address")?.net;
                    let mut batch = Batch::new();
                    batch.del_address(link, net);
                    socket.exchange(&mut batch).map(|_| ()).map_err(|error| error.to_string())
                })?
            })?;
            check_fails_after(world, "the reservation", |world, _| world.lose_reservations())
        },
    },
    Check {
        number: 23,
        title: "CHECK fails when masquerading is gone",
        source: "SPEC CHECK: untracked resources",
        needs: &["bridge", "host-local"],
        run: |world| {
            check_fails_after(world, "masquerading", |_, _| {
                use podwire_linux::nft::{Family, Table, Transaction, netfilter};
                let mut tx = Transaction::new();
                tx.flush_chain(
                    Table { family: Family::Inet, name: crate::plugins::masquerade::TABLE },
                    "masq_checks",
                );
                netfilter().and_then(|mut socket| tx.commit(&mut socket)).map_err(|error| error.to_string())
            })
        },
    },
    Check {
        number: 24,
        title: "STATUS fails with code 50 when the bridge's name is another link's",
        source: "SPEC STATUS, code 50",
        needs: &["bridge", "host-local"],
        run: |world| {
            let pod = Pod::new("c")?;
            world.call("STATUS", &pod, &world.bridge())?.success("STATUS")?;
            let mut batch = Batch::new();
            batch.add_plain("ifb", "conf0", None, None);
            let made = Socket::route().and_then(|mut socket| socket.exchange(&mut batch));
            made.map_err(|error| format!("no link for the check: {error}"))?;
            world.call("STATUS", &pod, &world.bridge())?.fails_with("STATUS", 50).map(|_| ())
        },
    },
    Check {
        number: 25,
        title: "STATUS fails with code 50 when no address is left, and the interface plugin forwards it",
        source: "SPEC STATUS: MUST forward to delegates",
        needs: &["bridge", "host-local"],
        run: |world| {
            let mut conf = world.bridge();
            conf["ipam"]["ranges"] = json!([[{"subnet": "10.97.0.0/30"}]]);
            let (pod, next) = (Pod::new("c")?, Pod::new("d")?);
            world.add(&pod, &conf)?;
            world.call("ADD", &next, &conf)?.failure("ADD to a full network")?;
            world.call("STATUS", &next, &conf)?.fails_with("STATUS of a full network", 50).map(|_| ())
        },
    },
];

fn remove_link(socket: &mut Socket, name: &str) -> Result<(), String> {
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Name(name));
    socket.exchange(&mut batch).map(|_| ()).map_err(|error| error.to_string())
}

type Kernel = (Vec<String>, Vec<podwire_linux::rtnl::Route>);

fn kernel(pod: &Pod) -> Result<Kernel, String> {
    pod.inside(|socket| {
        let link = socket.link(LinkRef::Name("eth0"))?.map_or(0, |link| link.index);
        let addresses = socket.addresses(link)?.iter().map(|address| address.net.to_string()).collect();
        Ok((addresses, socket.routes(None, false)?))
    })?
    .map_err(|error: podwire_linux::rtnl::Error| error.to_string())
}

fn check_fails_after(
    world: &World,
    what: &str,
    damage: impl FnOnce(&World, &Pod) -> Result<(), String>,
) -> Result<(), String> {
    let pod = Pod::new(&what.replace(' ', "-"))?;
    let conf = world.bridge();
    let full = with(&conf, "prevResult", world.add(&pod, &conf)?);
    damage(world, &pod)?;
    world.call("CHECK", &pod, &full)?.failure(&format!("CHECK without {what}"))?;
    world.call("DEL", &pod, &full)?.success(&format!("DEL without {what}")).map(|_| ())
}

fn twenty_at_once(world: &World) -> Result<(), String> {
    let pods: Vec<Pod> = (0..20).map(|n| Pod::new(&format!("pod{n}"))).collect::<Result<_, _>>()?;
    let conf = world.bridge();
    let results: Vec<Result<Value, String>> = std::thread::scope(|scope| {
        let conf = &conf;
        let threads: Vec<_> = pods
            .iter()
            .map(|pod| {
                std::thread::Builder::new()
                    .name("add".into())
                    .spawn_scoped(scope, move || world.add(pod, conf))
            })
            .collect();
        let joined =
            threads.into_iter().map(|thread| match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                _ => Err("a thread of the check failed".into()),
            });
        joined.collect()
    });
    let results: Vec<Value> = results.into_iter().collect::<Result<_, _>>()?;
    let distinct: HashSet<String> =
        results.iter().map(|result| result["ips"][0]["address"].to_string()).collect();
    let bridges = {
        let found =
            podwire_linux::rtnl::Socket::route().and_then(|mut socket| socket.link(LinkRef::Name("conf0")));
        found.map_err(|error| error.to_string())?.is_some()
    };
    holds(distinct.len() == 20 && bridges, || format!("{} different addresses", distinct.len()))
}
