//! Calls of CRI that mean harm. A kubelet is trusted with much, but what it passes on comes from pods.
//!
//! The same rows run against containerd in the interop lane; what differs is told there, not judged.

use std::{collections::HashMap, fs, process::Command, time::Duration};

use anyhow::{Result, anyhow, bail, ensure};
use podwire_wire::cri;
use tonic::{Code, Status};

use crate::{
    on_runtime::{Called, OnRuntime},
    row::{Outcome, Row, row},
};

fn linux(container: &mut cri::ContainerConfig) -> &mut cri::LinuxContainerConfig {
    container.linux.get_or_insert_default()
}

fn security(container: &mut cri::ContainerConfig) -> &mut cri::LinuxContainerSecurityContext {
    linux(container).security_context.get_or_insert_default()
}

fn on_host_pids(pod: &mut cri::PodSandboxConfig, container: &mut cri::ContainerConfig) {
    let options = cri::NamespaceOption { pid: cri::NamespaceMode::Node as i32, ..Default::default() };
    pod.linux.get_or_insert_default().security_context.get_or_insert_default().namespace_options =
        Some(options.clone());
    security(container).namespace_options = Some(options);
}

fn from_here(world: &OnRuntime) -> String {
    format!(
        "for up in . .. ../.. ../../..; do [ -e $up{} ] && echo ESCAPED: the host from $(readlink /proc/self/cwd); done; echo PROBED",
        world.marker()
    )
}

/// The rows.
pub const ROWS: &[Row<OnRuntime>] = &[
    row(
        "ids like ../../x in every call that takes one",
        "not found, or done with nothing",
        |world: &OnRuntime| {
            for id in ["../../x", "/etc", "", "a/../b", "\u{0}", &"x".repeat(4_000)] {
                let id = id.to_owned();
                let mut cri = world.cri.clone();
                let calls = [
                    world
                        .wait(cri.container_status(cri::ContainerStatusRequest {
                            container_id: id.clone(),
                            verbose: true,
                        }))
                        .err(),
                    world
                        .wait(cri.pod_sandbox_status(cri::PodSandboxStatusRequest {
                            pod_sandbox_id: id.clone(),
                            verbose: true,
                        }))
                        .err(),
                    world
                        .wait(cri.start_container(cri::StartContainerRequest { container_id: id.clone() }))
                        .err(),
                    world
                        .wait(cri.reopen_container_log(cri::ReopenContainerLogRequest {
                            container_id: id.clone(),
                        }))
                        .err(),
                    world
                        .wait(cri.exec_sync(cri::ExecSyncRequest {
                            container_id: id.clone(),
                            cmd: vec!["x".into()],
                            timeout: 1,
                        }))
                        .err(),
                    world
                        .wait(cri.container_stats(cri::ContainerStatsRequest { container_id: id.clone() }))
                        .err(),
                ];
                for status in calls {
                    let status = status.ok_or_else(|| {
                        anyhow!("a call took {:?}", id.chars().take(20).collect::<String>())
                    })?;
                    ensure!(
                        matches!(status.code(), Code::NotFound | Code::InvalidArgument | Code::Unknown),
                        "{status}"
                    );
                }
                // What is not there is gone already: these may succeed.
                for status in [
                    world
                        .wait(cri.remove_container(cri::RemoveContainerRequest { container_id: id.clone() }))
                        .err(),
                    world
                        .wait(
                            cri.remove_pod_sandbox(cri::RemovePodSandboxRequest {
                                pod_sandbox_id: id.clone(),
                            }),
                        )
                        .err(),
                    world
                        .wait(cri.stop_container(cri::StopContainerRequest {
                            container_id: id.clone(),
                            timeout: 0,
                        }))
                        .err(),
                ] {
                    ensure!(
                        status.as_ref().is_none_or(|status| status.code() != Code::DeadlineExceeded),
                        "{status:?}"
                    );
                }
            }
            ensure!(fs::metadata("/etc/passwd").is_ok(), "the host lost files");
            Ok("each is answered".to_owned())
        },
    ),
    row("a pod whose name, namespace and uid climb", "refused, or harmless", |world: &OnRuntime| {
        let up = format!("../../../../../../../..{}/evil", world.host.path().display());
        let told = world.tried("echo PROBED", |pod, _| {
            if let Some(metadata) = &mut pod.metadata {
                (metadata.name, metadata.uid, metadata.namespace) = (up.clone(), up.clone(), up.clone());
            }
        })?;
        no_evil(world)?;
        told.harmless()
    }),
    row("a container whose name climbs", "refused, or harmless", |world: &OnRuntime| {
        let up = format!("../../../../../../../..{}/evil", world.host.path().display());
        let told = world.tried("echo PROBED", |_, container| {
            container.metadata = Some(cri::ContainerMetadata { name: up.clone(), attempt: u32::MAX });
        })?;
        no_evil(world)?;
        told.harmless()
    }),
    row("log_path is a FIFO that nobody reads", "refused or run, within seconds", |world: &OnRuntime| {
        fs::create_dir_all(world.logs())?;
        let path = world.logs().join("pipe.log");
        ensure!(Command::new("mkfifo").arg(&path).status()?.success(), "mkfifo");
        let told = world.tried("echo PROBED", |_, container| container.log_path = "pipe.log".into());
        fs::remove_file(&path)?;
        match told? {
            Called::Ended { code, .. } => Ok(format!("ran and ended with {code}")),
            refused => refused.harmless(),
        }
    })
    .broken_before(),
    row("log_path is a link to a host's file", "the host's file is not written", |world: &OnRuntime| {
        fs::create_dir_all(world.logs())?;
        std::os::unix::fs::symlink(world.marker(), world.logs().join("link.log"))?;
        let told = world.tried("echo PROBED", |_, container| container.log_path = "link.log".into());
        fs::remove_file(world.logs().join("link.log"))?;
        let after = fs::read_to_string(world.marker())?;
        if after != "the host's\n" {
            fs::write(world.marker(), "the host's\n")?;
            bail!("the container's output went into the host's file");
        }
        match told? {
            Called::Ended { code, .. } => Ok(format!("ran and ended with {code}")),
            refused => refused.harmless(),
        }
    })
    .broken_before(),
    row(
        "negative and absurd limits",
        "refused or left out; never another container's",
        |world: &OnRuntime| {
            for resources in [
                cri::LinuxContainerResources { memory_limit_in_bytes: -5, ..Default::default() },
                cri::LinuxContainerResources {
                    memory_limit_in_bytes: i64::MAX,
                    cpu_shares: i64::MAX,
                    ..Default::default()
                },
                cri::LinuxContainerResources { cpu_quota: -7, cpu_period: -7, ..Default::default() },
                cri::LinuxContainerResources { cpu_quota: 1, cpu_period: i64::MAX, ..Default::default() },
                cri::LinuxContainerResources { oom_score_adj: 5000, ..Default::default() },
                cri::LinuxContainerResources { cpuset_cpus: "0-99999".into(), ..Default::default() },
                cri::LinuxContainerResources { cpuset_cpus: "../../x".into(), ..Default::default() },
                cri::LinuxContainerResources {
                    unified: HashMap::from([("../../memory.max".into(), "1".into())]),
                    ..Default::default()
                },
            ] {
                world
                    .tried("echo PROBED", |_, container| linux(container).resources = Some(resources))?
                    .harmless()?;
            }
            Ok("each is answered".to_owned())
        },
    ),
    row("two thousand mounts", "refused or run, within seconds", |world: &OnRuntime| {
        let host = world.host.path().display().to_string();
        world
            .tried("echo PROBED", |_, container| {
                container.mounts = (0..2_000)
                    .map(|n| cri::Mount {
                        container_path: format!("/tmp/m{n}"),
                        host_path: host.clone(),
                        readonly: true,
                        ..Default::default()
                    })
                    .collect();
            })?
            .harmless()
    }),
    row("annotations of 12 MB", "refused or taken; little memory", |world: &OnRuntime| {
        world
            .tried("echo PROBED", |pod, container| {
                pod.annotations = HashMap::from([("a".to_owned(), "x".repeat(6 << 20))]);
                container.annotations = HashMap::from([("a".to_owned(), "x".repeat(6 << 20))]);
            })?
            .harmless()
    }),
    row("a sysctl of the whole machine", "refused before anything is written", |world: &OnRuntime| {
        // The value is the one that is there: writing it changes nothing.
        let same = fs::read_to_string("/proc/sys/kernel/core_pattern")?.trim().to_owned();
        for name in ["kernel.core_pattern", "kernel/core_pattern"] {
            sysctl(world, name, &same, cri::NamespaceMode::Pod)?;
        }
        Ok("refused".to_owned())
    })
    .broken_before(),
    row(
        "a sysctl of the network in the host's network",
        "refused; the host's value stays",
        |world: &OnRuntime| {
            let file = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
            let before = fs::read_to_string(file)?;
            let told = ["net.ipv4.ip_unprivileged_port_start", "net/ipv4/ip_unprivileged_port_start"]
                .map(|name| sysctl(world, name, "777", cri::NamespaceMode::Node));
            let after = fs::read_to_string(file)?;
            fs::write(file, &before)?;
            ensure!(before == after, "the host's value became {after}");
            told.into_iter().next().unwrap_or_else(|| bail!("nothing was tried"))
        },
    )
    .broken_before(),
    row("a sysctl whose name climbs", "refused", |world: &OnRuntime| {
        let same = fs::read_to_string("/proc/sys/kernel/core_pattern")?.trim().to_owned();
        sysctl(world, "net/../kernel/core_pattern", &same, cri::NamespaceMode::Pod)
    }),
    row(
        "working directory is a descriptor of the runtime",
        "refused, or below the container's root",
        |world: &OnRuntime| {
            let mut last = String::new();
            for number in 3..12 {
                let script = from_here(world);
                last = world
                    .tried(&script, |_, container| container.working_dir = format!("/proc/self/fd/{number}"))?
                    .harmless()?;
            }
            Ok(last)
        },
    ),
    row(
        "working directory /proc/<host pid>/root",
        "refused: never in the host's root",
        |world: &OnRuntime| {
            let folder = format!("/proc/{}/root", world.pid());
            world
                .tried(&from_here(world), |pod, container| {
                    on_host_pids(pod, container);
                    container.working_dir = folder;
                })?
                .harmless()
        },
    )
    .broken_before(),
    row(
        "masked and read-only paths that are links or climb",
        "applied inside, or refused",
        |world: &OnRuntime| {
            let script = format!("[ -e {} ] && echo ESCAPED; echo PROBED", world.marker());
            world
                .tried(&script, |_, container| {
                    let more =
                        ["/proc/../etc/passwd", "../../../../etc", "/proc/self/root/etc/passwd", "relative"];
                    security(container).masked_paths.extend(more.map(str::to_owned));
                    security(container).readonly_paths.extend(more.map(str::to_owned));
                })?
                .harmless()
        },
    ),
    row("exec that prints without end", "cut, and ended at its timeout", |world: &OnRuntime| {
        let answer = with_running(world, |id| world.exec(id, "yes", 2))?;
        match answer {
            Ok(answer) => {
                ensure!(answer.stdout.len() <= 17 << 20, "{} bytes were kept", answer.stdout.len());
                Ok(format!("{} bytes, code {}", answer.stdout.len(), answer.exit_code))
            }
            Err(status) => {
                ensure!(
                    status.message().contains("time") || status.code() == Code::DeadlineExceeded,
                    "{status}"
                );
                ensure!(!status.message().contains("no answer within"), "{status}");
                Ok(format!("refused: {}", status.message()))
            }
        }
    }),
    row("exec whose child keeps its output open", "answered at its timeout", |world: &OnRuntime| {
        let answer = with_running(world, |id| world.exec(id, "sleep 60 & echo mine", 3))?;
        match answer {
            Ok(answer) => Ok(format!("answered with code {}", answer.exit_code)),
            Err(status) => {
                ensure!(!status.message().contains("no answer within"), "{status}");
                Ok(format!("refused: {}", status.message()))
            }
        }
    }),
    row(
        "commands, environment and users that are nonsense",
        "refused with the reason",
        |world: &OnRuntime| {
            let key =
                |key: &str, value: &[u8]| vec![cri::KeyValue { key: key.to_owned(), value: value.to_vec() }];
            let mut told = Vec::new();
            for change in [
                (|c: &mut cri::ContainerConfig, _: &dyn Fn(&str, &[u8]) -> Vec<cri::KeyValue>| {
                    c.command = vec![String::new()]
                })
                    as fn(&mut cri::ContainerConfig, &dyn Fn(&str, &[u8]) -> Vec<cri::KeyValue>),
                |c, key| c.envs = key("A\u{0}B", b"x"),
                |c, key| c.envs = key("", b"x"),
                |c, key| c.envs = key("A", &[0xff, 0xfe, 0]),
                |c, _| security(c).run_as_username = "no\nsuch:user".into(),
                |c, _| security(c).run_as_user = Some(cri::Int64Value { value: -1 }),
                |c, _| security(c).run_as_user = Some(cri::Int64Value { value: i64::MAX }),
                |c, _| security(c).supplemental_groups = vec![-5, i64::MAX],
            ] {
                told.push(world.tried("echo PROBED", |_, container| change(container, &key))?.harmless()?);
            }
            Ok(told.join("; "))
        },
    ),
    row(
        "mounts on .., on /proc, on /, and of what is not there",
        "refused, or harmless",
        |world: &OnRuntime| {
            let host = world.host.path().display().to_string();
            for (inside, outside) in [
                ("../../../../tmp/x", host.as_str()),
                ("/proc", &host),
                ("/proc/self/attr", &host),
                ("/", &host),
                ("", &host),
                ("/data", "/does/not/exist/../../.."),
                ("/data", "relative"),
            ] {
                let script = "[ -e /proc/self/stat ] || echo ESCAPED: this is no procfs; echo PROBED";
                let mount = cri::Mount {
                    container_path: inside.into(),
                    host_path: outside.into(),
                    readonly: true,
                    ..Default::default()
                };
                let told = world.tried(script, |_, container| container.mounts = vec![mount])?;
                if let Called::Ended { log, .. } = &told {
                    ensure!(!log.contains("ESCAPED"), "{inside}: {log}");
                }
            }
            ensure!(!fs::exists(format!("{host}/x"))?, "a mount point was made on the host");
            Ok("each is refused or harmless".to_owned())
        },
    )
    .broken_before(),
    row("cgroup_parent that climbs", "refused, or below the root of the hierarchy", |world: &OnRuntime| {
        for parent in ["/../../../../tmp/evil", "../../..", "/a/../../b", "\u{0}"] {
            let told = world.tried("echo PROBED", |pod, _| {
                pod.linux.get_or_insert_default().cgroup_parent = parent.into()
            })?;
            ensure!(!fs::exists("/tmp/evil")?, "{parent:?} made a folder on the host");
            told.harmless()?;
        }
        Ok("each is refused or harmless".to_owned())
    }),
    row("names of images that are paths, spaces and ten thousand letters", "refused", |world: &OnRuntime| {
        for name in [
            "../../etc/passwd",
            "a b",
            "",
            "file:///etc/passwd",
            "localhost/x@sha256:../../x",
            &"x".repeat(10_000),
            "UPPER/../x:1",
        ] {
            let image = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
            let request = cri::PullImageRequest { image: image.clone(), ..Default::default() };
            let answer = world.wait(world.images.clone().pull_image(request));
            ensure!(answer.is_err(), "{name:?} was pulled");
            let answer = world.wait(world.images.clone().remove_image(cri::RemoveImageRequest { image }));
            ensure!(answer.err().is_none_or(|status| status.code() != Code::DeadlineExceeded), "{name:?}");
        }
        Ok("each is refused".to_owned())
    }),
    row("stop with absurd timeouts", "the container ends", |world: &OnRuntime| {
        let pod = world.pod();
        let sandbox = world.run(&pod).map_err(failed)?;
        let mut told = Ok(());
        for timeout in [-5, 0, 1] {
            let container = world.container("trap 'exit 0' TERM; while :; do sleep 0.1; done");
            let container = cri::ContainerConfig {
                metadata: Some(cri::ContainerMetadata { name: world.fresh(), attempt: 0 }),
                ..container
            };
            told = world.create(&sandbox, &pod, &container).and_then(|id| {
                world.start(&id)?;
                world
                    .wait(
                        world
                            .cri
                            .clone()
                            .stop_container(cri::StopContainerRequest { container_id: id, timeout }),
                    )
                    .map(drop)
            });
            if told.is_err() {
                break;
            }
        }
        world.down(&sandbox)?;
        told.map_err(failed)?;
        Ok("each ended".to_owned())
    }),
    row("a container that joins another pod's processes", "refused", |world: &OnRuntime| {
        let victim = world.pod();
        let sandbox = world.run(&victim).map_err(failed)?;
        let told = world
            .create(&sandbox, &victim, &world.container("while :; do sleep 0.1; done"))
            .and_then(|id| world.start(&id).map(|()| id))
            .map_err(failed)
            .and_then(|id| {
                world.tried("ls /proc; echo PROBED", |_, container| {
                    let pid = cri::NamespaceMode::Target as i32;
                    let options = cri::NamespaceOption { pid, target_id: id, ..Default::default() };
                    security(container).namespace_options = Some(options);
                })
            });
        world.down(&sandbox)?;
        told?.refused()
    }),
    row(
        "the same pod twenty times at once",
        "one of them, and nothing left of the others",
        |world: &OnRuntime| {
            let config = world.pod();
            let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
            let calls =
                (0..20).map(|_| {
                    let (mut cri, request) = (world.cri.clone(), request.clone());
                    async move {
                        cri.run_pod_sandbox(request).await.map(|answer| answer.into_inner().pod_sandbox_id)
                    }
                });
            let all = world
                .wait(async { Ok(tonic::Response::new(futures::future::join_all(calls).await)) })
                .map_err(failed)?;
            let mut ids: Vec<&String> = all.iter().flatten().collect();
            ids.sort();
            ids.dedup();
            for id in &ids {
                world.down(id)?;
            }
            ensure!(ids.len() == 1, "{} pods were made", ids.len());
            Ok(format!("1 was made, {} calls were refused", all.iter().filter(|one| one.is_err()).count()))
        },
    ),
    row(
        "twelve containers of one image at once, each with variables of its own",
        "each has its own variables and the image's, and nobody else's",
        own_variables,
    ),
    row("the streaming server is asked with guessed tokens", "404", |world: &OnRuntime| {
        let answer = with_running(world, |id| {
            let request = cri::ExecRequest {
                container_id: id.to_owned(),
                cmd: vec!["id".into()],
                stdout: true,
                ..Default::default()
            };
            world.wait(world.cri.clone().exec(request))
        })?;
        let url = answer.map_err(failed)?.url;
        let (address, _) = url.trim_start_matches("http://").split_once('/').unwrap_or_default();
        for path in ["exec/AAAAAAAA", "exec/../../etc/passwd", "portforward/", "attach/%2e%2e"] {
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            std::io::Write::write_all(
                &mut stream,
                format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
            )?;
            let mut text = String::new();
            // Ignored: it may hang up.
            std::io::Read::read_to_string(&mut stream, &mut text).ok();
            ensure!(!text.starts_with("HTTP/1.1 2") && !text.starts_with("HTTP/1.1 1"), "{path}: {text}");
        }
        Ok("each is refused".to_owned())
    }),
];

/// The variables of containers that were made and started side by side.
fn own_variables(world: &OnRuntime) -> Outcome {
    let pod = world.pod();
    let sandbox = world.run(&pod).map_err(failed)?;
    let configs: Vec<cri::ContainerConfig> = (0..12)
        .map(|number| {
            let mut config = world.container("/bin/busybox env; echo PROBED");
            config.metadata = Some(cri::ContainerMetadata { name: format!("c{number}"), attempt: 0 });
            // Every third has none: what it shows then is somebody else's.
            if number % 3 != 0 {
                let value = format!("of-{number}").into_bytes();
                config.envs = vec![cri::KeyValue { key: format!("OWN_{number}"), value: value.clone() }];
                config.envs.push(cri::KeyValue { key: "SHARED".into(), value });
            }
            config
        })
        .collect();
    let calls = configs.iter().map(|config| {
        let mut cri = world.cri.clone();
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(config.clone()),
            sandbox_config: Some(pod.clone()),
        };
        async move {
            let container_id = cri.create_container(request).await?.into_inner().container_id;
            cri.start_container(cri::StartContainerRequest { container_id }).await
        }
    });
    let all = world.wait(async { Ok(tonic::Response::new(futures::future::join_all(calls).await)) });
    let logs: Vec<Result<String>> = configs
        .iter()
        .map(|config| {
            let path = world.logs().join(&config.log_path);
            podwire_testkit::eventually("the variables are told", Duration::from_secs(10), || {
                let text = fs::read_to_string(&path).unwrap_or_default();
                if text.contains("PROBED") { Ok(text) } else { Err(text) }
            })
        })
        .collect();
    world.down(&sandbox)?;
    for answer in all.map_err(failed)? {
        answer.map_err(failed)?;
    }
    for (number, log) in logs.into_iter().enumerate() {
        let log = log?;
        let mut seen: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
        seen.retain(|line| line.starts_with("OWN_") || line.starts_with("SHARED"));
        seen.sort_unstable();
        let own = [format!("OWN_{number}=of-{number}"), format!("SHARED=of-{number}")];
        let wanted: &[String] = if number % 3 == 0 { &[] } else { &own };
        ensure!(seen == wanted, "container {number} has {seen:?}");
    }
    Ok("each has its own".to_owned())
}

fn failed(status: Status) -> anyhow::Error {
    anyhow!("{status}")
}

fn no_evil(world: &OnRuntime) -> Result<()> {
    ensure!(!world.host.path().join("evil").exists(), "something was made on the host");
    Ok(())
}

/// A pod with this sysctl must be refused.
fn sysctl(world: &OnRuntime, name: &str, value: &str, network: cri::NamespaceMode) -> Outcome {
    world
        .tried("echo PROBED", |pod, container| {
            let options = cri::NamespaceOption {
                network: network as i32,
                pid: cri::NamespaceMode::Container as i32,
                ..Default::default()
            };
            let linux = pod.linux.get_or_insert_default();
            linux.sysctls = HashMap::from([(name.to_owned(), value.to_owned())]);
            linux.security_context.get_or_insert_default().namespace_options = Some(options.clone());
            security(container).namespace_options = Some(options);
        })?
        .refused()
}

/// Does something to a running container.
fn with_running<T>(
    world: &OnRuntime,
    act: impl FnOnce(&str) -> Result<T, Status>,
) -> Result<Result<T, Status>> {
    let pod = world.pod();
    let sandbox = world.run(&pod).map_err(failed)?;
    let container = world.container("trap 'exit 0' TERM; while :; do sleep 0.1; done");
    let id = world.create(&sandbox, &pod, &container).and_then(|id| world.start(&id).map(|()| id));
    let done = id.map(|id| act(&id));
    world.down(&sandbox)?;
    done.map_err(failed)
}
