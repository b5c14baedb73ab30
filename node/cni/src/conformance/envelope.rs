//! Checks of what comes before any work: environment, names, versions, output.

use serde_json::{Value, json};

use super::Check;
use super::world::{Pod, holds, with};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: 1,
        title: "every missing variable is named, with code 4",
        source: "SPEC 2 Parameters; SPEC Error",
        needs: &["bridge"],
        run: |world| {
            let answer = world.raw("bridge", &[("CNI_COMMAND", "ADD")], "{}")?;
            let msg = answer.fails_with("ADD without variables", 4)?;
            let missing =
                ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"].iter().find(|name| !msg.contains(*name));
            missing.map_or(Ok(()), |name| Err(format!("{name} is not named in {msg:?}")))
        },
    },
    Check {
        number: 2,
        title: "an illegal container ID or interface name is refused with code 4",
        source: "SPEC 2 Parameters",
        needs: &["bridge"],
        run: |world| {
            let conf = world.bridge().to_string();
            for (id, name) in [
                ("../x", "eth0"),
                ("a/b", "eth0"),
                ("ok", ".."),
                ("ok", "a/b"),
                ("ok", "a:b"),
                ("ok", "a b"),
                ("ok", "sixteen-chars-xx"),
            ] {
                let env = [
                    ("CNI_COMMAND", "ADD"),
                    ("CNI_CONTAINERID", id),
                    ("CNI_NETNS", "/none"),
                    ("CNI_IFNAME", name),
                    ("CNI_PATH", "/none"),
                ];
                world.raw("bridge", &env, &conf)?.fails_with(&format!("ADD of {id:?} {name:?}"), 4)?;
            }
            Ok(())
        },
    },
    Check {
        number: 3,
        title: "a configuration without name is refused with code 7, one that is no JSON with code 6",
        source: "SPEC Error, codes 6 and 7",
        needs: &["bridge"],
        run: |world| {
            let nameless = json!({"cniVersion": "1.0.0", "type": "bridge"});
            world.call_in("ADD", "c", "/none", &nameless)?.fails_with("ADD without a name", 7)?;
            let path = [
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", "c"),
                ("CNI_NETNS", "/none"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_PATH", "/none"),
            ];
            world.raw("bridge", &path, "{")?.fails_with("ADD of half a document", 6).map(|_| ())
        },
    },
    Check {
        number: 4,
        title: "an unknown command is refused with code 4",
        source: "SPEC 2 Parameters",
        needs: &["bridge"],
        run: |world| {
            world.call_in("PAINT", "c", "/none", &world.bridge())?.fails_with("PAINT", 4).map(|_| ())
        },
    },
    Check {
        number: 5,
        title: "VERSION needs nothing else and lists what is spoken",
        source: "SPEC VERSION",
        needs: &["bridge"],
        run: |world| {
            let value =
                world.raw("bridge", &[("CNI_COMMAND", "VERSION")], "")?.success("VERSION")?.value()?;
            let known =
                value["supportedVersions"].as_array().is_some_and(|list| list.contains(&json!("1.0.0")));
            holds(known && value["cniVersion"].is_string(), || format!("the answer is {value}"))
        },
    },
    Check {
        number: 6,
        title: "an unsupported version is refused with code 1",
        source: "SPEC Error, code 1",
        needs: &["host-local"],
        run: |world| {
            let conf = world.host_local("9.9.9");
            world.call_in("ADD", "c", "/none", &conf)?.fails_with("ADD of 9.9.9", 1).map(|_| ())
        },
    },
    Check {
        number: 7,
        title: "every version listed is answered in its own shape",
        source: "SPEC Result types of each version",
        needs: &["host-local"],
        run: |world| {
            let value = world.raw("host-local", &[("CNI_COMMAND", "VERSION")], "")?.value()?;
            for version in
                value["supportedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str)
            {
                let conf = world.host_local(version);
                let id = format!("v{}", version.replace('.', ""));
                let result = world.call_in("ADD", &id, "/none", &conf)?.success(version)?.value()?;
                let right = match version {
                    "0.1.0" | "0.2.0" => result["ip4"]["ip"].is_string(),
                    "0.3.0" | "0.3.1" | "0.4.0" => result["ips"][0]["version"] == "4",
                    _ => result["ips"][0]["address"].is_string() && result["ips"][0].get("version").is_none(),
                };
                holds(right && result["cniVersion"] == version, || format!("{version}: {result}"))?;
            }
            Ok(())
        },
    },
    Check {
        number: 8,
        title: "CHECK below 0.4.0, GC and STATUS below 1.1.0 are refused with code 1",
        source: "SPEC CHECK, GC, STATUS",
        needs: &["host-local"],
        run: |world| {
            let old = world.host_local("0.3.1");
            world.call_in("CHECK", "c", "/none", &old)?.fails_with("CHECK of 0.3.1", 1)?;
            for verb in ["GC", "STATUS"] {
                let conf = world.host_local("1.0.0");
                world.call_in(verb, "c", "", &conf)?.fails_with(&format!("{verb} of 1.0.0"), 1)?;
            }
            Ok(())
        },
    },
    Check {
        number: 9,
        title: "ADD prints one JSON object, other verbs print nothing",
        source: "SPEC 2 Execution: Output",
        needs: &["bridge", "host-local"],
        run: |world| {
            let (pod, conf) = (Pod::new("c")?, world.bridge());
            let result = world.add(&pod, &conf)?;
            holds(result.is_object(), || format!("ADD printed {result}"))?;
            let full = with(&conf, "prevResult", result);
            for verb in ["CHECK", "STATUS", "DEL"] {
                let answer = world.call(verb, &pod, &full)?.success(verb)?;
                holds(answer.stdout.trim().is_empty(), || format!("{verb} printed {:?}", answer.stdout))?;
            }
            Ok(())
        },
    },
    Check {
        number: 10,
        title: "unknown keys are ignored and keys match in any case",
        source: "reference library: Go's encoding/json; go-cni sends HostPort",
        needs: &["host-local"],
        run: |world| {
            let mut conf = world.host_local("1.0.0");
            let subnet =
                conf["ipam"].as_object_mut().and_then(|ipam| ipam.remove("subnet")).unwrap_or_default();
            conf["ipam"]["SubNet"] = subnet;
            conf["paint"] = json!({"colour": ["blue"]});
            world.call_in("ADD", "c", "/none", &conf)?.success("ADD").map(|_| ())
        },
    },
    Check {
        number: 11,
        title: "an unknown key of CNI_ARGS is refused unless IgnoreUnknown says otherwise",
        source: "CONVENTIONS CNI_ARGS",
        needs: &["host-local"],
        run: |world| {
            let conf = world.host_local("1.0.0").to_string();
            let call = |id: &str, args: &str| {
                let env = [
                    ("CNI_COMMAND", "ADD"),
                    ("CNI_CONTAINERID", id),
                    ("CNI_NETNS", "/none"),
                    ("CNI_IFNAME", "eth0"),
                    ("CNI_PATH", "/none"),
                    ("CNI_ARGS", args),
                ];
                world.raw("host-local", &env, &conf)
            };
            call("a", "PAINT=blue")?.failure("ADD with PAINT=blue")?;
            call("b", "IgnoreUnknown=1;PAINT=blue")?.success("ADD with IgnoreUnknown").map(|_| ())
        },
    },
    Check {
        number: 12,
        title: "the plugin's own namespace is refused before anything is changed",
        source: "reference library: CNI_NETNS_OVERRIDE, code 8",
        needs: &["bridge", "host-local"],
        run: |world| {
            let own = format!("/proc/{}/task/{}/ns/net", std::process::id(), own_thread());
            let answer = world.call_in("ADD", "c", &own, &world.bridge())?;
            answer.failure("ADD into the own namespace")?;
            let links = world.links()?;
            holds(links == ["lo"] && world.reserved().is_empty(), || {
                format!("left behind: {links:?} {:?}", world.reserved())
            })
        },
    },
];

fn own_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
