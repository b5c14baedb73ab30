//! Pods that mean harm: specifications that reach for the host, and programs that reach for the node from inside.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use podwire_testkit::node::bin_dir;
use serde_json::{Value, json};

use crate::{
    on_node::{BOX, Fate, OnNode, PODS},
    processes,
    row::{Outcome, Row, World, row},
    small_disk::SmallDisk,
};

/// Says whether the working directory, or what is above it, is the host's.
fn from_here(node: &OnNode) -> String {
    format!(
        "for up in . .. ../.. ../../..; do [ -e $up{0} ] && echo ESCAPED: the host from $(readlink /proc/self/cwd); done; echo PROBED",
        node.marker()
    )
}

/// The rows.
pub const ROWS: &[Row<OnNode>] = &[
    row("working directory /proc/<host pid>/root", "refused: the container never stands in the host's root", |node: &OnNode| {
        in_folder(node, &format!("/proc/{}/root", node.pid()))
    })
    .broken_before(),
    row("working directory /proc/<host pid>/task/<tid>/root/tmp", "the same", |node: &OnNode| {
        in_folder(node, &format!("/proc/{0}/task/{0}/root/tmp", node.pid()))
    })
    .broken_before(),
    row("working directory /proc/<host pid>/cwd", "the same", |node: &OnNode| {
        let fate = in_folder(node, &format!("/proc/{}/cwd", node.pid()))?;
        ensure!(!fate.contains("ran and saw"), "the container stands in the daemon's folder: {fate}");
        Ok(fate)
    })
    .broken_before(),
    row("working directory is a link in a volume that leads there", "the same", |node: &OnNode| {
        let link = format!("ln -s /proc/{}/root /v/way", node.pid());
        let mount = json!([{"name": "v", "mountPath": "/v"}]);
        let first = json!([{"name": "first", "image": BOX, "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", link], "volumeMounts": mount}]);
        let spec = json!({"hostPID": true, "initContainers": first, "volumes": [{"name": "v", "emptyDir": {}}]});
        let container = json!({"workingDir": "/v/way", "volumeMounts": mount});
        node.fate(node.script_with(&from_here(node), spec, container))?.harmless()
    })
    .broken_before(),
    row("exec after the working directory became a link to the host's root", "the same for exec", |node: &OnNode| {
        let script = format!(
            "mv /data /was; ln -s /proc/{}/root /data; echo READY; trap 'exit 0' TERM; while :; do sleep 0.1; done",
            node.pid()
        );
        let pod = node.script_with(&script, json!({"hostPID": true}), json!({"workingDir": "/data"}));
        let name = node.running(pod)?;
        let said = podwire_testkit::eventually("the link is there", Duration::from_secs(5), || {
            match node.log(&name) {
                Ok(log) if log.contains("READY") => node.exec(&name, &from_here(node)).map_err(|e| e.to_string()),
                other => Err(format!("{other:?}")),
            }
        });
        node.remove(&name)?;
        let said = said?;
        ensure!(!said.contains("ESCAPED"), "exec got out: {said}");
        Ok(format!("exec said: {said}"))
    })
    .broken_before(),
    row("working directory is a descriptor of the runtime", "refused, or below the container's root", |node: &OnNode| {
        let mut last = String::new();
        for number in 3..12 {
            let container = json!({"workingDir": format!("/proc/self/fd/{number}")});
            last = node.fate(node.script_with(&from_here(node), json!({}), container))?.harmless()?;
        }
        Ok(last)
    }),
    row("hostUsers: false", "root inside is not root outside, or the pod is refused with the reason", |node: &OnNode| {
        let script = "read inside outside count < /proc/self/uid_map; [ $outside = 0 ] && echo ESCAPED: root is the host\\'s root; echo PROBED";
        node.fate(node.script_with(script, json!({"hostUsers": false}), json!({})))?.harmless()
    })
    .broken_before(),
    row("hostUsers: false with procMount: Unmasked", "core_pattern cannot be written", |node: &OnNode| {
        let script = "(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo ESCAPED: core_pattern can be written; echo PROBED";
        let container = json!({"securityContext": {"procMount": "Unmasked"}});
        node.fate(node.script_with(script, json!({"hostUsers": false}), container))?.harmless()
    })
    .broken_before(),
    row("procMount: Unmasked without a user namespace", "refused by the API server", |node: &OnNode| {
        let container = json!({"securityContext": {"procMount": "Unmasked"}});
        node.fate(node.script_with("echo PROBED", json!({}), container))?.refused("hostUsers")
    }),
    row("hostUsers: false with hostPID", "refused by the API server", |node: &OnNode| {
        node.fate(node.script_with("echo PROBED", json!({"hostUsers": false, "hostPID": true}), json!({})))?
            .refused("hostUsers")
    }),
    row("a termination message of 1 GB", "cut to 4 kB; the daemon lives and takes no more memory", |node: &OnNode| {
        node.fate(node.script("echo short > /dev/termination-log; truncate -s 1G /dev/termination-log; echo PROBED"))?
            .harmless()
    })
    .broken_before(),
    row("a termination message in a folder that climbs", "kept below the container's root", |node: &OnNode| {
        let container = json!({"terminationMessagePath": format!("/../../..{}", node.marker())});
        node.fate(node.script_with("echo PROBED", json!({}), container))?.harmless()
    }),
    row("a container floods the node through what was the output of others", "other pods start meanwhile", flood).broken_before(),
    row("a sysctl with slashes in the host's network", "refused; the host's value stays", |node: &OnNode| {
        let port = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let before = port()?;
        let sysctls = json!({"hostNetwork": true, "securityContext": {"sysctls":
            [{"name": "net/ipv4/ip_unprivileged_port_start", "value": "777"}]}});
        let fate = node.fate(node.script_with("echo PROBED", sysctls, json!({})))?;
        let after = port()?;
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", &before)?;
        ensure!(before == after, "the host's value became {after}");
        fate.refused("sysctl")
    })
    .broken_before(),
    row("sysctls of the whole machine", "refused before anything is written", |node: &OnNode| {
        let same = std::fs::read_to_string("/proc/sys/kernel/core_pattern")?;
        for name in ["kernel.core_pattern", "kernel/core_pattern", "vm.overcommit_memory", "fs/../kernel/core_pattern"] {
            let spec = json!({"securityContext": {"sysctls": [{"name": name, "value": same.trim()}]}});
            node.fate(node.script_with("echo PROBED", spec, json!({})))?.refused("sysctl")?;
        }
        Ok("each is refused".to_owned())
    }),
    row("capabilities that stay inheritable", "none is inheritable or ambient", |node: &OnNode| {
        let script = "grep -E 'Cap(Inh|Amb)' /proc/self/status | grep -v 0000000000000000 && echo ESCAPED; echo PROBED";
        node.fate(node.script_with(script, json!({}), json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})))?
            .harmless()
    }),
    row("a user of the pod keeps groups of root", "only the groups asked for", |node: &OnNode| {
        let context = json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": [2000]}});
        node.fate(node.script_with("echo groups: $(id -G); echo PROBED", context, json!({})))?.prints("groups: 1000 2000")
    }),
    row("the cgroup2 hierarchy of the host in a hybrid container", "/sys/fs/cgroup/unified is not there", |node: &OnNode| {
        node.fate(node.script("[ -e /sys/fs/cgroup/unified ] && echo ESCAPED: unified is mounted; echo PROBED"))?.harmless()
    })
    .broken_before(),
    row("control groups as a way out", "no release_agent and no group can be written", |node: &OnNode| {
        let script = "for at in /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/notify_on_release; do\n\
            [ -e $at ] && (: >> $at) 2>/dev/null && echo ESCAPED $at; done\n\
            unshare -U true 2>/dev/null; mkdir /sys/fs/cgroup/memory/mine 2>/dev/null && echo ESCAPED; echo PROBED";
        node.fate(node.script(script))?.harmless()
    }),
    row("the runtime's own program, run and opened for writing from inside", "cannot be opened for writing", |node: &OnNode| {
        let program = bin_dir().join("podwire");
        let before = std::fs::metadata(&program)?.modified()?;
        let pod = node.script("trap 'exit 0' TERM; while :; do sleep 0.1; done");
        let mut run = pod.clone();
        run["metadata"]["name"] = json!(node.fresh());
        run["spec"]["containers"][0]["command"] = json!(["/proc/self/exe", "--version"]);
        let first = match node.fate(run)? {
            Fate::Ended { log, .. } => log,
            Fate::Refused(why) | Fate::Stuck(why) => why,
        };
        let name = node.running(pod)?;
        let script = "for p in /proc/[0-9]*; do (: >> $p/exe) 2>/dev/null && echo ESCAPED $p $(readlink $p/exe); done; (: >> /proc/self/exe) 2>/dev/null && echo own; echo PROBED";
        let said = node.exec(&name, script);
        node.remove(&name)?;
        let said = said?;
        ensure!(std::fs::metadata(&program)?.modified()? == before, "the program was changed");
        ensure!(!said.contains("podwire") && !said.contains("memfd"), "{said}");
        Ok(format!("running it: {first}; opening: {said}"))
    }),
    row("a container that takes all its memory", "it is killed for it and not the supervisor, which counts for no pod", eater),
    row("keys that another container and the host hold in the kernel", "not found: the session is the container's own", keys)
        .broken_before(),
    row("ten pods want the last CPU at once", "one is admitted, the others fail with OutOfcpu", |node: &OnNode| {
        let described = node.api.must("GET", "/api/v1/nodes/node1", None)?;
        let all = described["status"]["allocatable"]["cpu"].clone();
        one_of(node, json!({"resources": {"requests": {"cpu": all}}}), "OutOfcpu")
    }),
    row("ten pods want one port of the host at once", "one is admitted, the others fail with NodePorts", |node: &OnNode| {
        one_of(node, json!({"ports": [{"containerPort": 80, "hostPort": 8123}]}), "NodePorts")
    }),
    row("a RuntimeClass that is gone", "the pod waits and says so; its name is no handler", |node: &OnNode| {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vanishing"}, "handler": "vanishing"});
        node.api.must("POST", "/apis/node.k8s.io/v1/runtimeclasses", Some(&class))?;
        let spec = json!({"runtimeClassName": "vanishing", "schedulingGates": [{"name": "test/wait"}]});
        let mut pod = node.script_with("echo PROBED", spec, json!({}));
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        node.api.must("POST", PODS, Some(&pod))?;
        node.api.must("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/vanishing", None)?;
        pod = node.get(&name)?;
        pod["spec"]["schedulingGates"] = json!([]);
        node.api.must("PUT", &format!("{PODS}/{name}"), Some(&pod))?;
        let said = podwire_testkit::eventually("an event", Duration::from_secs(10), || {
            let said = node.events(&name).map_err(|error| error.to_string())?;
            let status = node.get(&name).map_err(|error| error.to_string())?["status"].to_string();
            if said.to_lowercase().contains("runtimeclass") { Ok(said) } else { Err(format!("{said} {status}")) }
        });
        node.remove(&name)?;
        Ok(format!("says: {}", said?))
    })
    .broken_before(),
    row("a node that is called otherwise than its host", "its label kubernetes.io/hostname is the node's name", |node: &OnNode| {
        let described = node.api.must("GET", "/api/v1/nodes/node1", None)?;
        let label = &described["metadata"]["labels"]["kubernetes.io/hostname"];
        ensure!(label == "node1", "the label is {label}");
        Ok("node1".to_owned())
    })
    .broken_before(),
    row("a resource claim that does not exist", "the pod stays Pending with the reason", |node: &OnNode| {
        let spec = json!({"resourceClaims": [{"name": "c", "resourceClaimName": "absent"}]});
        pending(node, node.script_with("echo PROBED", spec, json!({})))
    })
    .broken_before(),
    row("a persistent volume claim that does not exist", "the pod stays Pending with the reason", |node: &OnNode| {
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}]});
        pending(node, node.script_with("echo PROBED", spec, json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})))
    })
    .broken_before(),
    row("a gRPC probe that is answered without end", "the probe fails; the daemon takes no more memory", grpc).broken_before(),
    row("an HTTP probe that is answered without end", "the probe is answered or fails; the daemon takes no more memory",
        http,
    ),
    row("an exec probe that prints without end", "the same", |node: &OnNode| {
        let probe = json!({"exec": {"command": ["/bin/yes"]}, "periodSeconds": 1, "timeoutSeconds": 1});
        probed(node, json!({"readinessProbe": probe}))
    }),
    row("a seccomp profile outside of its folder", "refused", |node: &OnNode| {
        let context = json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../../../etc/passwd"}}});
        node.fate(node.script_with("echo PROBED", context, json!({})))?.refused("localhostProfile")
    }),
    row("line breaks in search domains, host aliases and environment names", "refused", |node: &OnNode| {
        for spec in [
            json!({"dnsConfig": {"searches": ["x\nnameserver 192.0.2.1"]}}),
            json!({"dnsConfig": {"nameservers": ["192.0.2.1\n192.0.2.2"]}}),
            json!({"hostAliases": [{"ip": "127.0.0.1\n1.2.3.4 evil", "hostnames": ["a"]}]}),
            json!({"hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a\n1.2.3.4 evil"]}]}),
            json!({"hostname": "a\nb"}),
        ] {
            node.fate(node.script_with("echo PROBED", spec, json!({})))?.refused("Invalid")?;
        }
        Ok("each is refused".to_owned())
    }),
    row("an unknown capability", "refused, or the container does not run with more than it asked for", |node: &OnNode| {
        let script = "grep CapEff /proc/self/status; echo PROBED";
        let caps = json!({"securityContext": {"capabilities": {"add": ["NOT_A_CAPABILITY"], "drop": ["ALL"]}}});
        match node.fate(node.script_with(script, json!({}), caps))? {
            Fate::Ended { log, .. } => {
                ensure!(log.contains("CapEff:\t0000000000000000"), "{log}");
                Ok(log)
            }
            other => other.harmless(),
        }
    }),
    row("twenty thousand environment variables", "refused: etcd would not take it", |node: &OnNode| {
        node.fate(variables(node, 20_000))?.refused("request is too large")
    }),
    row("as many environment variables as can be stored", "run within seconds", |node: &OnNode| {
        node.fate(variables(node, 8_000))?.harmless()
    }),
];

fn variables(node: &OnNode, number: usize) -> Value {
    let all: Vec<Value> =
        (0..number).map(|n| json!({"name": format!("N{n}"), "value": "x".repeat(80)})).collect();
    node.script_with("echo PROBED", json!({}), json!({"env": all}))
}

/// A pod of two, of which one is killed for its memory.
fn eater(node: &OnNode) -> Outcome {
    let supervisor = processes::supervisor(&node.names.run_dir).context("no supervisor")?;
    let groups = || std::fs::read_to_string(format!("/proc/{}/cgroup", supervisor.as_raw_nonzero()));
    let eat = "exec dd if=/dev/zero of=/dev/null bs=200M count=1";
    let limit = json!({"resources": {"limits": {"memory": "24Mi"}}});
    let mut pod = node.script_with(eat, json!({}), limit);
    let stay = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let other = json!({"name": "other", "image": BOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", stay]});
    pod["spec"]["containers"].as_array_mut().context("containers")?.push(other);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    node.api.must("POST", PODS, Some(&pod))?;
    let state = |pod: &Value, name: &str| {
        let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["name"] == name).unwrap_or_default()["state"].clone()
    };
    // The other one may begin later than the first one ends.
    let killed = node.until(&name, "has lost a container and begun the other", |pod| {
        let (main, other) = (state(pod, "main"), state(pod, "other"));
        main["terminated"].is_object() && (other["running"].is_object() || other["terminated"].is_object())
    });
    let said = node.exec(&name, "echo").and(node.api.must("GET", &format!("{PODS}/{name}"), None));
    let own = groups();
    node.remove(&name)?;
    let (killed, said, own) = (killed?, said?, own.context("the supervisor was killed")?);
    let how = state(&killed, "main");
    ensure!(how["terminated"]["reason"] == "OOMKilled", "it ended otherwise: {how}");
    ensure!(state(&said, "other")["running"].is_object(), "the other one ended too: {}", said["status"]);
    ensure!(processes::supervisor(&node.names.run_dir) == Some(supervisor), "it is another supervisor now");
    let uid = said["metadata"]["uid"].as_str().unwrap_or("no uid");
    for group in own.lines() {
        let of_a_pod =
            group.contains(uid) || group.contains(&uid.replace('-', "_")) || group.contains("kubepods");
        ensure!(!of_a_pod, "the supervisor is in a pod's group: {group}");
    }
    Ok(format!("killed with {}; the supervisor is the same", how["terminated"]["exitCode"]))
}

/// On a node whose daemon was started in a session with keys, as by a login or by systemd.
fn keys(_: &OnNode) -> Outcome {
    // The other node's network is a matter of its thread.
    thread::scope(|scope| {
        scope.spawn(keys_of_others).join().unwrap_or_else(|_| bail!("the row itself panicked"))
    })
}

/// A key of the daemon's session and one of a container, looked for by another container.
fn keys_of_others() -> Outcome {
    const APP: &str = "localhost/pod-app:latest";
    podwire_testkit::isolate()?;
    let programs = tempfile::tempdir()?;
    let (app, wrapper) = (bin_dir().join("pod-app"), programs.path().join("podwire"));
    let script = format!(
        "#!/bin/sh\nexec {0} key-session hosts {1}/podwire \"$@\"\n",
        app.display(),
        bin_dir().display()
    );
    std::fs::write(&wrapper, script)?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
    std::fs::copy(&app, programs.path().join("pod-app"))?;
    let node = OnNode::bare(SmallDisk::new("256m")?, programs.path(), &[])?;
    node.node.import_app()?;
    let app = |command: &[&str]| {
        let mut pod = node.pod(APP, "");
        pod["spec"]["containers"][0]["command"] = json!([&["/pod-app"], command].concat());
        pod
    };
    let holder = node.running(app(&["key-hold", "containers"]))?;
    podwire_testkit::eventually("the key is there", Duration::from_secs(8), || match node.log(&holder) {
        Ok(log) if log.contains("holds the key") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let told = node.fate(app(&["key-find", "hosts", "containers"]))?.harmless();
    node.remove(&holder)?;
    node.end()?;
    told
}

fn in_folder(node: &OnNode, folder: &str) -> Outcome {
    let pod = node.script_with(&from_here(node), json!({"hostPID": true}), json!({"workingDir": folder}));
    node.fate(pod)?.harmless()
}

fn pending(node: &OnNode, pod: Value) -> Outcome {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let answer = node.api.admin("POST", PODS, Some(&pod))?;
    if answer.status != 201 {
        return Ok(format!("the API server refused: {}", answer.brief()));
    }
    let seen = node.until(&name, "is looked at", |pod| {
        pod["status"]["phase"] != "Pending"
            || pod["spec"]["nodeName"].is_string()
            || pod["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "PodScheduled" && one["status"] == "False")
            })
    });
    node.remove(&name)?;
    let seen = seen?;
    ensure!(seen["spec"]["nodeName"].is_null(), "it was bound: {}", seen["status"]);
    Ok(format!("stays Pending: {}", seen["status"]["conditions"][0]["message"]))
}

/// Ten pods bound to the node at once, of which one may run.
fn one_of(node: &OnNode, container: Value, reason: &str) -> Outcome {
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let pods: Vec<Value> =
        (0..10).map(|_| node.script_with(script, json!({"nodeName": "node1"}), container.clone())).collect();
    let api = &node.api;
    thread::scope(|scope| {
        for chunk in pods.chunks(5) {
            scope.spawn(move || chunk.iter().try_for_each(|pod| api.must("POST", PODS, Some(pod)).map(drop)));
        }
    });
    let names: Vec<&str> = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let settled = podwire_testkit::eventually("each is admitted or not", Duration::from_secs(20), || {
        let mut admitted = 0;
        let mut rejected = 0;
        for name in &names {
            let status = node.get(name).map_err(|error| error.to_string())?["status"].clone();
            match status["phase"].as_str() {
                Some("Running") => admitted += 1,
                Some("Failed") if status["reason"] == reason => rejected += 1,
                _ => return Err(format!("{name}: {status}")),
            }
        }
        Ok((admitted, rejected))
    });
    for name in &names {
        node.api.admin("DELETE", &format!("{PODS}/{name}?gracePeriodSeconds=1"), None)?;
    }
    for name in &names {
        node.remove(name)?;
    }
    let (admitted, rejected) = settled?;
    ensure!(admitted == 1, "{admitted} were admitted, {rejected} rejected");
    Ok(format!("1 runs, {rejected} failed with {reason}"))
}

/// Five containers end while another keeps writing into what was their standard output.
fn flood(node: &OnNode) -> Outcome {
    let writer = "v=vic; for p in /proc/[0-9]*; do grep -q ${v}tim $p/cmdline 2>/dev/null || continue\n\
        for n in 1 2; do timeout 20 yes '' > $p/fd/1 & done; done; trap 'exit 0' TERM; wait";
    let mut pod = node.script_with("sleep 2.5; : victim", json!({"shareProcessNamespace": true}), json!({}));
    let all = pod["spec"]["containers"].as_array_mut().context("containers")?;
    let more = |name: &str, script: &str| {
        let command = ["/bin/sh", "-c", script];
        json!({"name": name, "image": BOX, "imagePullPolicy": "Never", "command": command})
    };
    all.extend(["second", "third", "fourth", "fifth"].map(|name| more(name, "sleep 2.5; : victim")));
    all.push(more("writer", writer));
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    node.api.must("POST", PODS, Some(&pod))?;
    let ended = |pod: &Value| {
        let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|one| !one["state"]["terminated"].is_null()).count() >= 5
    };
    let first = node.until(&name, "has lost its containers", ended);
    let begun = Instant::now();
    let other = node.fate(node.script("echo PROBED")).and_then(Fate::harmless);
    let took = begun.elapsed();
    node.remove(&name)?;
    first?;
    other?;
    ensure!(took < Duration::from_secs(8), "another pod took {took:?}");
    Ok("another pod came and went meanwhile".to_owned())
}

/// A pod in the host's network whose readiness is asked of a port where this test answers.
fn probed(node: &OnNode, container: Value) -> Outcome {
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let name = node.running(node.script_with(script, json!({"hostNetwork": true}), container))?;
    let said = podwire_testkit::eventually("the probe was tried", Duration::from_secs(8), || {
        let said = node.events(&name).map_err(|error| error.to_string())?;
        if said.contains("probe") { Ok(said) } else { Err(said) }
    });
    node.remove(&name)?;
    Ok(said.map_or_else(|_| "no failure of the probe was told".to_owned(), |said| format!("told: {said}")))
}

/// A probe that has had enough hangs up.
const ENOUGH: u64 = 32 << 20;

/// Asks a port of this test with a probe; fails when the kubelet took more than enough of what it was answered.
fn answered(
    node: &OnNode,
    answer: fn(&TcpStream, &AtomicU64) -> Result<()>,
    probe: impl FnOnce(u16) -> Value,
) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let taken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&taken);
    thread::Builder::new().name("probed".into()).spawn(move || {
        for stream in listener.incoming().flatten().take(3) {
            // Ignored: the probe hangs up when it has had enough.
            answer(&stream, &count).ok();
        }
    })?;
    let told = probed(node, json!({"readinessProbe": probe(port)}))?;
    let taken = taken.load(Ordering::Relaxed);
    ensure!(taken < ENOUGH, "the probe took {} MB", taken >> 20);
    Ok(format!("{} kB were taken; {told}", taken >> 10))
}

fn grpc(node: &OnNode) -> Outcome {
    answered(
        node,
        endless_h2,
        |port| json!({"grpc": {"port": port}, "periodSeconds": 30, "timeoutSeconds": 6, "failureThreshold": 1}),
    )
}

/// An HTTP/2 server that answers its first request with zeros for as long as the client makes room for them.
fn endless_h2(stream: &TcpStream, taken: &AtomicU64) -> Result<()> {
    let frame = |kind: u8, flags: u8, on: u32, payload: &[u8]| -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        [&length[1..], &[kind, flags], &on.to_be_bytes(), payload].concat()
    };
    let mut out = stream;
    out.write_all(&frame(4, 0, 0, &[]))?;
    let (whole, own) = (AtomicI64::new(65_535), AtomicI64::new(65_535));
    let begun = Instant::now();
    thread::scope(|scope| {
        let (whole, own) = (&whole, &own);
        scope.spawn(move || -> Result<()> {
            let mut input = stream;
            input.read_exact(&mut [0; 24])?;
            loop {
                let mut head = [0; 9];
                input.read_exact(&mut head)?;
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                input.read_exact(&mut payload)?;
                let number = |at: usize| {
                    payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
                };
                match (head[3], head[8]) {
                    (8, 0) => drop(whole.fetch_add(number(0).into(), Ordering::Relaxed)),
                    (8, _) => drop(own.fetch_add(number(0).into(), Ordering::Relaxed)),
                    (4, _) => {
                        for at in (0..payload.len()).step_by(6) {
                            if payload[at..at + 2] == [0, 4] {
                                own.fetch_add(i64::from(number(at + 2)) - 65_535, Ordering::Relaxed);
                            }
                        }
                    }
                    _ => {}
                }
            }
        });
        let zeros = frame(0, 0, 1, &vec![0; 16_384]);
        thread::sleep(Duration::from_millis(200));
        let mut sent =
            out.write_all(&frame(4, 1, 0, &[])).and_then(|()| out.write_all(&frame(1, 4, 1, &[0x88])));
        while sent.is_ok() && begun.elapsed() < Duration::from_secs(8) {
            if whole.load(Ordering::Relaxed) >= 16_384 && own.load(Ordering::Relaxed) >= 16_384 {
                whole.fetch_sub(16_384, Ordering::Relaxed);
                own.fetch_sub(16_384, Ordering::Relaxed);
                sent = out.write_all(&zeros);
                taken.fetch_add(16_384, Ordering::Relaxed);
            } else {
                thread::yield_now();
            }
        }
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
    Ok(())
}

fn http(node: &OnNode) -> Outcome {
    answered(
        node,
        endless_http,
        |port| json!({"httpGet": {"port": port, "path": "/"}, "periodSeconds": 30, "timeoutSeconds": 2, "failureThreshold": 1}),
    )
}

/// An HTTP server that answers without end.
fn endless_http(stream: &TcpStream, taken: &AtomicU64) -> Result<()> {
    let mut out = stream;
    let begun = Instant::now();
    let bytes = vec![b'x'; 1 << 16];
    out.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    while begun.elapsed() < Duration::from_secs(6) {
        out.write_all(&bytes)?;
        taken.fetch_add(1 << 16, Ordering::Relaxed);
    }
    Ok(())
}
