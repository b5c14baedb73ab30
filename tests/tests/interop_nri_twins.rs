//! Real pods on our runtime and on containerd with the same NRI plugins: a Go one that hears every event and makes every
//! kind of adjustment, our Rust example, and DRANET; and the drill in which a required plugin is killed, hung and
//! restarted under a stream of pods.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "what a kind came to belongs into the log of the run")]
#![allow(unreachable_pub)] // A test has no public items; `pub` says what other files of it may use.

#[path = "nri_twins/bed.rs"]
mod bed;
#[path = "nri_twins/client.rs"]
mod client;
#[path = "nri_twins/drill.rs"]
mod drill;
#[path = "nri_twins/facts.rs"]
mod facts;
#[path = "nri_twins/plugin.rs"]
mod plugin;
#[path = "nri_twins/recordings.rs"]
mod recordings;
#[path = "nri_twins/registrar.rs"]
mod registrar;

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{
    eventually, isolate,
    node::{bin_dir, peer},
    runtimes::Running,
};

use self::{
    bed::{bed, block_on, ready},
    plugin::GoPlugin,
};

/// What differs between the two, and why that is right.
const EXPLAINED: &[(&str, &str)] = &[
    ("*/is/labels/io.cri-containerd.kind", "containerd marks what is its own with labels"),
    ("*/podIs/labels/io.cri-containerd.kind", "containerd marks what is its own with labels"),
    ("*/podIs/labels/oci_runtime_type", "containerd marks what is its own with labels"),
    ("*/cgroupsPath", "CRI names no parent here, and each has a place of its own for groups without one"),
    ("*/podIs/linux/cgroupParent", "CRI names no parent here, and ours tells which it took"),
    (
        "*/is/linux/namespaces/*/path",
        "ours keeps a pod's namespaces as files, containerd in its pause process",
    ),
    ("*/is/mounts/\\dev\\shm/source", "each keeps the files of a pod in a folder of its own"),
    ("*/is/mounts/\\etc\\*/source", "each keeps the files of a pod in a folder of its own"),
    (
        "*/podIs/linux/namespaces/*",
        "a pod of ours has no pause process: no mount and pid namespace, files for the others, and none once released",
    ),
    ("*/podIs/linux/resources/*", "a pod of ours has no pause process that would have limits of its own"),
    ("*/podIs/pid", "a pod of ours has no pause process"),
    (
        "*/podIs/annotations/io.kubernetes.cri.podsandbox.image-name",
        "a pod of ours has no pause process, hence no image",
    ),
    (
        "*/is/linux/resources/devices",
        "ours names in the spec the devices that every container may use, runc adds the same ones by itself",
    ),
    (
        "* hugepages/is/linux/resources/hugepageLimits/*",
        "containerd leaves the hugetlb controller alone unless told otherwise, and forgets limits of pages",
    ),
    (
        "ValidateContainerAdjustment env/asked/env/-*",
        "upstream forgets the removal of a variable when it merges what plugins want; ours removes it",
    ),
    ("* env/is/env/GONE", "upstream forgets the removal of a variable; ours removes it"),
    ("env/seen", "upstream forgets the removal of a variable; ours removes it"),
    (
        "StopContainer blockio/is/*",
        "of a container that was not made containerd knows the spec only, ours also what CRI asked for",
    ),
    (
        "RemoveContainer blockio/is/*",
        "of a container that was not made containerd knows the spec only, ours also what CRI asked for",
    ),
    ("RemoveContainer */is/state", "containerd has forgotten the container's state by then"),
    (
        "StopContainer unified/is/*",
        "ours tells why a container could not be started, containerd only that it ended",
    ),
    (
        "RemoveContainer unified/is/*",
        "ours tells why a container could not be started, containerd only that it ended",
    ),
    ("memory-policy/seen", "runc 1.3 does not know memory policies"),
    ("net-devices/seen", "runc 1.3 does not know network devices"),
];

#[test]
fn a_go_plugin_records_the_same_on_ours_and_on_containerd() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let look = |runtime: &Running| -> Result<facts::Report> {
        let log = bed.path().join(format!("{}.events", runtime.name));
        let socket = runtime.nri_socket.as_deref().context("no NRI")?;
        let plugin = GoPlugin::start(socket, &log).with_context(|| format!("on {}", runtime.name))?;
        let folder = bed.path().join(format!("{}-facts", runtime.name));
        std::fs::create_dir_all(&folder)?;
        block_on(async { facts::gather(&ready(runtime).await?, &plugin, &folder).await })
            .with_context(|| runtime.name)
    };
    let ours = look(&bed.ours(true)?)?;
    let theirs = look(&bed.containerd(true)?)?;
    let mut counts = [0_usize; 3];
    let mut used = BTreeSet::new();
    let mut unexplained = Vec::new();
    for what in ours.0.keys().chain(theirs.0.keys()).collect::<BTreeSet<_>>() {
        let (mine, yours) = (ours.0.get(what), theirs.0.get(what));
        if mine == yours {
            counts[0] += 1;
            continue;
        }
        let said = |one: Option<&String>| one.map_or("-", String::as_str).to_owned();
        let why = EXPLAINED.iter().find(|(known, _)| fits(known, what));
        println!("differs  {what}\n  ours:       {}\n  containerd: {}", said(mine), said(yours));
        match why {
            Some((known, why)) => {
                used.insert(*known);
                counts[1] += 1;
                println!("  because {why}");
            }
            None => {
                counts[2] += 1;
                unexplained.push(what.clone());
            }
        }
    }
    println!(
        "{} facts the same, {} different for one of {} reasons, {} different for none",
        counts[0],
        counts[1],
        used.len(),
        counts[2]
    );
    assert!(unexplained.is_empty(), "not explained: {unexplained:#?}");
    let idle: Vec<_> =
        EXPLAINED.iter().map(|(known, _)| *known).filter(|known| !used.contains(known)).collect();
    assert!(idle.is_empty(), "explained and never seen: {idle:#?}");
    Ok(())
}

/// Whether a text fits a pattern, in which `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn our_rust_plugin_runs_unchanged_on_both() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    for runtime in [bed.ours(true)?, bed.containerd(true)?] {
        let log = bed.path().join(format!("{}.rust", runtime.name));
        let mut plugin = Command::new(bin_dir().join("examples/logger"));
        plugin.arg("--socket").arg(runtime.nri_socket.as_deref().context("no NRI")?);
        plugin.args(["--env", "GREETING=hello"]).stdout(std::fs::File::create(&log)?);
        let _plugin = Ended(plugin.spawn().context("start examples/logger")?);
        let said = |words: &str| {
            eventually(
                &format!("{}: the plugin says {words:?}", runtime.name),
                Duration::from_secs(60),
                || {
                    let text = std::fs::read_to_string(&log).unwrap_or_default();
                    if text.contains(words) { Ok(()) } else { Err(text) }
                },
            )
        };
        said("synchronized")?;
        let environment = block_on(async {
            let client = ready(&runtime).await?;
            let sandbox = client.run("rust", &[]).await?;
            let container = client.create(&sandbox, "main").await?;
            client.start(&container).await?;
            let pid = client.pid(&container).await?;
            let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
            client.down(&sandbox.id).await?;
            Ok(environment)
        })?;
        assert!(
            environment.split('\0').any(|one| one == "GREETING=hello"),
            "{}: {environment}",
            runtime.name
        );
        for event in [
            "RUN_POD_SANDBOX",
            "CREATE_CONTAINER",
            "START_CONTAINER",
            "STOP_POD_SANDBOX",
            "REMOVE_POD_SANDBOX",
        ] {
            said(event)?;
        }
    }
    Ok(())
}

#[test]
fn dranet_registers_and_hears_of_pods() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let api = podwire_testkit::parts::Api::start(&bed.path().join("api"))?;
    let runtime = bed.ours(true)?;
    // DRANET connects where NRI usually is; a mount namespace of its own shows it our socket there.
    let nri = runtime.nri_socket.clone().context("no NRI")?;
    let roots = bed.path().join("kubelet");
    for folder in ["plugins", "plugins_registry"] {
        std::fs::create_dir_all(roots.join(folder))?;
    }
    let log = bed.path().join("dranet.log");
    let script = format!(
        "mount -t tmpfs tmpfs /var/run/nri 2>/dev/null || (mkdir -p /var/run/nri && mount -t tmpfs tmpfs /var/run/nri); \
         touch /var/run/nri/nri.sock && mount --bind {} /var/run/nri/nri.sock && \
         exec {} --kubeconfig {} --hostname-override node1 --db-path {} --kubelet-root-dir {} --bind-address 127.0.0.1:9177 -v 4",
        nri.display(),
        peer("dranet")?.display(),
        api.kubeconfig("admin").display(),
        bed.path().join("dranet.db").display(),
        roots.display(),
    );
    let out = std::fs::File::create(&log)?;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let _dranet = Ended(command.spawn()?);
    // It waits for a kubelet before it turns to NRI.
    let registration = roots.join("plugins_registry/dra.net-reg.sock");
    eventually("DRANET waits for a kubelet", Duration::from_secs(90), || {
        if registration.exists() { Ok(()) } else { Err(tail(&log)) }
    })?;
    block_on(registrar::register(&registration, "dra.net")).with_context(|| tail(&log))?;
    let listed = || -> Result<Vec<serde_json::Value>> {
        let mut verb = Command::new(bin_dir().join("podwire"));
        verb.args(["nri", "list", "-o", "json", "--data-dir"]).arg(bed.path().join("ours"));
        Ok(serde_json::from_slice(&verb.output()?.stdout)?)
    };
    eventually("DRANET is registered and synchronized", Duration::from_secs(90), || match listed() {
        Ok(all) if all.iter().any(|one| one["name"] == "dra.net" && one["ready"] == true) => Ok(()),
        other => Err(format!("{other:?}\n{}", tail(&log))),
    })?;
    let before = listed()?[0]["calls"].as_u64().unwrap_or(0);
    block_on(async {
        let client = ready(&runtime).await?;
        let sandbox = client.run("for-dranet", &[]).await?;
        let container = client.create(&sandbox, "main").await?;
        client.start(&container).await?;
        client.down(&sandbox.id).await
    })?;
    let after = &listed()?[0];
    println!("DRANET: {after}");
    assert!(after["calls"].as_u64() >= Some(before + 3), "it heard of the pod: {before} then {after}");
    assert_eq!(after["errors"], 0, "{after}");
    Ok(())
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A process that is ended with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn no_pod_starts_without_a_required_plugin_that_is_killed_hung_and_restarted() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let flags = [("--nri-required-plugins", Path::new("go")), ("--nri-required-wait", Path::new("3s"))];
    let ours = {
        let runtime = bed.ours_with(true, &flags)?;
        let log = bed.path().join("ours.drill");
        block_on(async { drill::run(ready(&runtime).await?, &runtime, &log).await })?
    };
    println!("ours:       {ours}");
    // containerd's own means: its default validator knows required plugins.
    let required = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\nrequired_plugins = [\"go\"]\n";
    let theirs = {
        let runtime = bed.containerd_with(true, required)?;
        let log = bed.path().join("containerd.drill");
        block_on(async { drill::run(ready(&runtime).await?, &runtime, &log).await })?
    };
    println!("containerd: {theirs}");
    assert_eq!((ours.sandboxes_without, ours.containers_without), (0, 0), "{ours}");
    assert_eq!((ours.pods, ours.unanswered), (drill::PODS, 0), "{ours}");
    assert!(ours.started > drill::PODS / 4, "the drill let too few through to mean anything: {ours}");
    Ok(())
}
