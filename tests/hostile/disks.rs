//! Disks that are full, torn, open to everybody or full of links. Each row has a node of its own.

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use podwire_image::build::{ImageBuilder, LayerBuilder};
use podwire_testkit::{Node, eventually, images, isolate, node::bin_dir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    http::Api,
    on_node::{Fate, OnNode, PODS},
    processes,
    row::{Outcome, Row, World, row},
    small_disk::SmallDisk,
};

/// A script that stays until it is told to go.
const STAY: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// Nothing is shared by these rows.
pub struct Disks;

impl World for Disks {
    fn make() -> Result<Disks> {
        Ok(Disks)
    }

    fn well(&self) -> Result<()> {
        Ok(())
    }

    fn sound(&self) -> Result<()> {
        let node = OnNode::on("256m", &[])?;
        node.sound()?;
        node.end()
    }

    fn end(self) -> Result<()> {
        Ok(())
    }

    fn destroy(self) {}
}

/// The rows.
pub const ROWS: &[Row<Disks>] = &[
    row("umask 000: the data folder", "nothing in it can be read by others", |_| {
        let (_wrapper, node) = open_hearted()?;
        let open = open_to_others(&node.node.data_dir);
        finish(node)?;
        ensure!(open.is_empty(), "{} can be read, e.g. {:?}", open.len(), &open[..open.len().min(4)]);
        Ok("closed".to_owned())
    })
    .broken_before(),
    row(
        "umask 000: the run folder with secrets, journals and sockets",
        "nothing in it can be read or connected to by others",
        |_| {
            let (_wrapper, node) = open_hearted()?;
            let open = open_to_others(&node.names.run_dir);
            finish(node)?;
            ensure!(open.is_empty(), "{} are open, e.g. {:?}", open.len(), &open[..open.len().min(4)]);
            Ok("closed".to_owned())
        },
    )
    .broken_before(),
    row("a data folder that an earlier version left open to everybody", "closed at the next start", |_| {
        isolate()?;
        let mut node = OnNode::bare(SmallDisk::new("256m")?, &bin_dir(), &[])?;
        node.node.stop()?;
        ensure!(
            Command::new("chmod").args(["-R", "a+rwX"]).arg(&node.node.data_dir).status()?.success(),
            "chmod"
        );
        node.node.start()?;
        let open = open_to_others(&node.node.data_dir);
        finish(node)?;
        ensure!(open.is_empty(), "{} can be read, e.g. {:?}", open.len(), &open[..open.len().min(4)]);
        Ok("closed".to_owned())
    })
    .broken_before(),
    row("a run folder that somebody else made before", "refused, or taken from him", |_| {
        isolate()?;
        let disk = SmallDisk::new("256m")?;
        let run_dir = run_dir(&disk.path().join("data"))?;
        fs::create_dir_all(&run_dir)?;
        chown(&run_dir, Some(65534), Some(65534))?;
        fs::set_permissions(&run_dir, fs::Permissions::from_mode(0o777))?;
        match OnNode::bare(disk, &bin_dir(), &[]) {
            Ok(node) => {
                let now = fs::metadata(&run_dir)?;
                finish(node)?;
                ensure!(
                    now.uid() == 0 && now.mode() & 0o022 == 0,
                    "it is still uid {}'s, mode {:o}",
                    now.uid(),
                    now.mode() & 0o777
                );
                Ok("taken".to_owned())
            }
            Err(error) => {
                // Ignored: the node may have removed it.
                fs::remove_dir_all(&run_dir).ok();
                Ok(format!("refused: {error:#}"))
            }
        }
    })
    .broken_before(),
    row("state files that are links to a file of the host", "the file is not written", |_| {
        isolate()?;
        let host = tempfile::tempdir()?;
        let disk = SmallDisk::new("256m")?;
        let data = disk.path().join("data");
        fs::create_dir_all(&data)?;
        let mut victims = Vec::new();
        for name in ["podwire.pid", "admin.kubeconfig"] {
            let victim = host.path().join(name);
            fs::write(&victim, "precious")?;
            symlink(&victim, data.join(name))?;
            victims.push(victim);
        }
        // Whether it starts is another question.
        let started = OnNode::bare(disk, &bin_dir(), &[]);
        let harmed: Vec<&PathBuf> = victims
            .iter()
            .filter(|victim| fs::read_to_string(victim).is_ok_and(|text| text != "precious"))
            .collect();
        let told = match started {
            Ok(node) => {
                finish(node)?;
                "started beside them".to_owned()
            }
            Err(error) => format!("refused: {error:#}"),
        };
        ensure!(harmed.is_empty(), "{harmed:?} were written");
        Ok(told)
    })
    .broken_before(),
    row(
        "the data disk is full",
        "writes are refused with the reason, pods go on, room makes it well",
        |_| {
            isolate()?;
            let node = OnNode::over(SmallDisk::new("128m")?, &bin_dir(), &[])?;
            let before = container(&node, &node.running(node.script(STAY))?)?;
            let ballast = node.disk().fill()?;
            let mut refusal = None;
            for number in 0..2_000 {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}")}, "data": {"k": "x".repeat(500_000)}});
                let answer = node.api.admin("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
                if answer.status != 201 {
                    refusal = Some(answer.brief());
                    break;
                }
            }
            fs::remove_file(ballast)?;
            let refusal = refusal.context("a full disk refused nothing")?;
            ensure!(refusal.contains("space"), "the refusal does not say why: {refusal}");
            node.fate(node.script("echo PROBED"))?.harmless().context("after there is room again")?;
            ensure!(container(&node, &before.name)?.id == before.id, "the pod was disturbed");
            finish(node)?;
            Ok(refusal)
        },
    ),
    row(
        "the run folder is full for a while, then the daemon is killed",
        "every container that ran is still the same",
        full_run_folder,
    )
    .broken_before(),
    row("the journal's end is torn", "every container is still the same", |_| {
        let (mut node, before) = killed()?;
        let mut journal = fs::File::options().append(true).open(node.names.run_dir.join("journal"))?;
        journal.write_all(&[200, 0, 0, 0, 1, 2, 3])?;
        node.node.start()?;
        same(&node, &before)?;
        let after = container(&node, &node.running(node.script(STAY))?)?;
        node.node.kill9()?;
        node.node.start()?;
        same(&node, &before)?;
        same(&node, &after)?;
        finish(node)?;
        Ok("the same".to_owned())
    }),
    row("the journal is not a journal", "refused with the file's name; no container is killed", |_| {
        let (mut node, before) = killed()?;
        let path = node.names.run_dir.join("journal");
        let whole = fs::read(&path)?;
        fs::write(&path, b"something else entirely")?;
        let told = match node.node.start() {
            Ok(_) => {
                same(&node, &before)?;
                "started with the same containers".to_owned()
            }
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains("journal"), "it does not say why: {said}");
                ensure!(alive(before.pid), "the container was killed");
                fs::write(&path, whole)?;
                node.node.start()?;
                same(&node, &before)?;
                "refused to start".to_owned()
            }
        };
        finish(node)?;
        Ok(told)
    }),
    row("the disk of logs is full", "the node goes on; nothing is written elsewhere instead", |_| {
        isolate()?;
        let disk = SmallDisk::new("256m")?;
        let logs = SmallDisk::over(&disk.path().join("data/logs"), "1m")?;
        let node = OnNode::over(disk, &bin_dir(), &[])?;
        let before = size_of(&node.names.run_dir);
        // Small writes, each of which cannot be kept.
        let flood = "trap 'exit 0' TERM; timeout 3 sh -c 'while :; do echo x; done'; touch /over; while :; do sleep 0.1; done";
        let name = node.running(node.script(flood))?;
        let over = eventually("the flood is over", Duration::from_secs(15), || match node.exec(&name, "ls /over") {
            Ok(said) if said.trim() == "/over" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let elsewhere = size_of(&node.names.run_dir).saturating_sub(before);
        let other = node.running(node.script(STAY));
        node.remove(&name)?;
        node.remove(&other?)?;
        drop(logs);
        finish(node)?;
        over?;
        ensure!(elsewhere < 128 << 10, "the run folder grew by {} kB", elsewhere >> 10);
        Ok(format!("the run folder grew by {} kB", elsewhere >> 10))
    })
    .broken_before(),
    row(
        "a log cannot be opened when containers are taken over",
        "the container is the same, and no second one is started",
        |_| {
            let (mut node, before) = killed()?;
            processes::kill_supervisor(&node.names.run_dir);
            let log = log_file(&node, &before.name)?;
            fs::rename(&log, log.with_extension("aside"))?;
            fs::create_dir(&log)?;
            node.node.start()?;
            let told = same(&node, &before);
            let lives = alive(before.pid);
            let copies = count(&node, &before.name)?;
            fs::remove_dir(&log).ok();
            finish(node)?;
            told?;
            ensure!(lives, "the container was killed");
            ensure!(copies <= 1, "{copies} copies run");
            Ok("the same container".to_owned())
        },
    )
    .broken_before(),
    row("the store's log is torn in its last record", "everything acknowledged before it is there", |_| {
        let (mut node, _) = killed_with_objects(50)?;
        let log = store_file(&node, "log-")?;
        let length = fs::metadata(&log)?.len();
        fs::File::options().write(true).open(&log)?.set_len(length.saturating_sub(3))?;
        node.node.start()?;
        let there = objects(&node)?;
        finish(node)?;
        ensure!(there >= 49, "{there} of 50 objects are there");
        Ok(format!("{there} of 50"))
    }),
    row(
        "a bit of the store's log is flipped in the middle",
        "refused with the file's name, or everything is there",
        |_| {
            let (mut node, _) = killed_with_objects(50)?;
            let log = store_file(&node, "log-")?;
            let mut bytes = fs::read(&log)?;
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            bytes[used / 2] ^= 0x10;
            fs::write(&log, &bytes)?;
            let told = refused_or_whole(&mut node)?;
            bytes[used / 2] ^= 0x10;
            repair(&mut node, &log, &bytes)?;
            finish(node)?;
            Ok(told)
        },
    ),
    row("the store's snapshot is torn", "refused with the file's name; whole again, everything is there", |_| {
        let (mut node, _) = killed_with_objects(50)?;
        node.node.start()?;
        let snapshot = make_snapshot(&node)?;
        node.node.stop()?;
        let whole = fs::read(&snapshot)?;
        for length in [whole.len() / 2, whole.len() - 1, 0] {
            fs::write(&snapshot, &whole[..length])?;
            let told = refused_or_whole(&mut node)?;
            ensure!(told.contains("snapshot-"), "{length} of {} bytes were taken: {told}", whole.len());
        }
        fs::write(&snapshot, &whole[..whole.len() / 2])?;
        let told = refused_or_whole(&mut node)?;
        repair(&mut node, &snapshot, &whole)?;
        let there = objects(&node)?;
        finish(node)?;
        ensure!(there == 50, "{there} of 50 objects are there after the repair");
        Ok(told)
    }),
    row(
        "a layer of a million empty files, on a disk with room for fewer",
        "refused with the reason at once; nothing of it is kept, and pods go on",
        million_files,
    ),
    row("the data folder is on a read-only disk", "refused with the reason", |_| {
        isolate()?;
        let disk = SmallDisk::new("64m")?;
        disk.read_only(true)?;
        let said = refused_start(&disk.path().join("data"), &[])?;
        ensure!(said.to_lowercase().contains("read-only"), "it does not say why: {said}");
        Ok(said)
    }),
    row("fsync fails", "/readyz says so, and writes are refused", failing_sync).broken_before(),
    row("SIGTERM before the node is ready", "it ends", term_before_ready).broken_before(),
    row("the store's folder is a file, the socket's place a folder", "refused with the name", |_| {
        isolate()?;
        let disk = SmallDisk::new("64m")?;
        let data = disk.path().join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("store"), "a file")?;
        let said = refused_start(&data, &[])?;
        ensure!(said.contains("store"), "it does not say what: {said}");
        Ok(said)
    }),
];

/// Ends a node, whatever is left of it.
fn finish(node: OnNode) -> Result<()> {
    let names = node.names.clone();
    drop(node);
    let left = names.run_dir.exists() && fs::read_dir(&names.run_dir)?.next().is_some();
    processes::sweep(&names.run_dir, &names.cgroup_root);
    ensure!(!left, "{:?} is left", names.run_dir);
    Ok(())
}

/// A node that was started with umask 000 and has run a pod with a secret; the folder of its wrapper.
fn open_hearted() -> Result<(tempfile::TempDir, OnNode)> {
    isolate()?;
    let wrapper = tempfile::tempdir()?;
    let program = wrapper.path().join("podwire");
    fs::write(&program, format!("#!/bin/sh\numask 000\nexec {}/podwire \"$@\"\n", bin_dir().display()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let node = OnNode::over(SmallDisk::new("256m")?, wrapper.path(), &[])?;
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    node.api.must("POST", "/api/v1/namespaces/default/secrets", Some(&body))?;
    let spec = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    let container = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    node.running(node.script_with(STAY, spec, container))?;
    Ok((wrapper, node))
}

/// Everything below a folder that another user could read, or connect to.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut open = Vec::new();
    let Ok(top) = fs::symlink_metadata(folder) else { return open };
    let mut folders = if top.mode() & 0o001 == 0 { Vec::new() } else { vec![folder.to_owned()] };
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(data) = entry.metadata() else { continue };
            let kind = data.file_type();
            // The log is this test's own.
            if kind.is_dir() && data.mode() & 0o001 != 0 {
                folders.push(entry.path());
            } else if kind.is_file() && data.mode() & 0o004 != 0 && entry.file_name() != "podwire.log"
                || kind.is_socket() && data.mode() & 0o002 != 0
            {
                open.push(entry.path());
            }
        }
    }
    open
}

fn run_dir(data: &Path) -> Result<PathBuf> {
    let done = Command::new(bin_dir().join("podwire")).args(["instance", "--data-dir"]).arg(data).output()?;
    let names: Value = serde_json::from_slice(&done.stdout)?;
    Ok(names["runDir"].as_str().context("no runDir")?.into())
}

/// What a pod's container is.
#[derive(Debug, Clone)]
struct Ran {
    name: String,
    id: String,
    restarts: i64,
    pid: i32,
}

fn container(node: &OnNode, name: &str) -> Result<Ran> {
    let pod = node.get(name)?;
    let status = &pod["status"]["containerStatuses"][0];
    let id = status["containerID"].as_str().unwrap_or_default().to_owned();
    let pid = find(node, name)?.first().copied().unwrap_or(0);
    Ok(Ran { name: name.to_owned(), id, restarts: status["restartCount"].as_i64().unwrap_or(-1), pid })
}

/// The first processes of a pod's containers, by its name as their host name.
fn find(node: &OnNode, name: &str) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().display().to_string().parse::<i32>() else { continue };
        let text = |file: &str| {
            fs::read(entry.path().join(file))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default()
        };
        let ours = text("cgroup").contains(node.names.cgroup_root.trim_start_matches('/'));
        let first = text("status")
            .lines()
            .any(|line| line.starts_with("NSpid:") && line.split_whitespace().last() == Some("1"));
        if ours && first && text("environ").split('\0').any(|one| one == format!("HOSTNAME={name}")) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn count(node: &OnNode, name: &str) -> Result<usize> {
    Ok(find(node, name)?.len())
}

fn alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// The pod runs in the same container as before, and only in that one.
fn same(node: &OnNode, before: &Ran) -> Result<()> {
    eventually("the pod is looked at after the start", Duration::from_secs(8), || {
        let pod = node.get(&before.name).map_err(|error| error.to_string())?;
        if pod["status"]["phase"] == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
    })?;
    // Whoever kills what it does not know does so at once; exec goes through everybody that must know it.
    let said = eventually("exec", Duration::from_secs(8), || match node.exec(&before.name, "echo here") {
        Ok(said) if said.trim() == "here" => Ok(said),
        other => Err(format!("{other:?}")),
    });
    let now = container(node, &before.name)?;
    ensure!(now.pid == before.pid, "its process was {} and is {}", before.pid, now.pid);
    ensure!(now.id == before.id, "its container was {} and is {}", before.id, now.id);
    ensure!(now.restarts == before.restarts, "it was restarted {} times", now.restarts);
    said.map(drop)
}

/// A node with a running pod whose daemon was killed.
fn killed() -> Result<(OnNode, Ran)> {
    isolate()?;
    let mut node = OnNode::over(SmallDisk::new("256m")?, &bin_dir(), &[])?;
    let before = container(&node, &node.running(node.script(STAY))?)?;
    ensure!(before.pid != 0, "the container's process was not found");
    node.node.kill9()?;
    Ok((node, before))
}

fn full_run_folder(_: &Disks) -> Outcome {
    isolate()?;
    let disk = SmallDisk::new("256m")?;
    let folder = run_dir(&disk.path().join("data"))?;
    let run = SmallDisk::over(&folder, "3m")?;
    let mut node = OnNode::over(disk, &bin_dir(), &[])?;
    let before = container(&node, &node.running(node.script(STAY))?)?;
    let ballast = run.fill()?;
    let mut meanwhile = Vec::new();
    for _ in 0..3 {
        let pod = node.script("echo PROBED");
        meanwhile.push(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        node.api.must("POST", PODS, Some(&pod))?;
    }
    let told = eventually("somebody says so", Duration::from_secs(8), || {
        let said = node.events(&meanwhile[0]).map_err(|error| error.to_string())?;
        if said.contains("space") || said.contains("Failed") { Ok(said) } else { Err(said) }
    });
    fs::remove_file(ballast)?;
    let after = container(&node, &node.running(node.script(STAY))?)?;
    for name in &meanwhile {
        node.remove(name).context("a pod of the time without room")?;
    }
    node.node.kill9()?;
    node.node.start()?;
    let checked = same(&node, &before).and_then(|()| same(&node, &after));
    let ended = finish(node);
    drop(run);
    // Ignored: the node may have removed it.
    fs::remove_dir(&folder).ok();
    checked?;
    ended?;
    Ok(format!("the same; meanwhile: {}", told.unwrap_or_else(|error| error.to_string())))
}

fn log_file(node: &OnNode, pod: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(node.node.data_dir.join("logs"))?.flatten() {
        if entry.file_name().display().to_string().starts_with(&format!("default_{pod}_")) {
            return Ok(entry.path().join("main/0.log"));
        }
    }
    bail!("no log of {pod}")
}

fn size_of(folder: &Path) -> u64 {
    let mut size = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => size += size_of(&entry.path()),
            Ok(data) => size += data.blocks() * 512,
            Err(_) => {}
        }
    }
    size
}

fn killed_with_objects(count: usize) -> Result<(OnNode, ())> {
    isolate()?;
    let mut node = OnNode::bare(SmallDisk::new("256m")?, &bin_dir(), &[])?;
    for number in 0..count {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o{number}"), "labels": {"set": "o"}}});
        node.api.must("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
    }
    node.node.kill9()?;
    Ok((node, ()))
}

fn objects(node: &OnNode) -> Result<usize> {
    let list = node.api.must("GET", "/api/v1/namespaces/default/configmaps?labelSelector=set%3Do", None)?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

/// Ten megabytes that unpack to a million files: the bytes are few, their names are not.
fn million_files(_: &Disks) -> Outcome {
    isolate()?;
    let node = OnNode::over(SmallDisk::new("256m,nr_inodes=12k")?, &bin_dir(), &[])?;
    // What the configuration says of the layer must be unknown here, or nobody would unpack it.
    let mut built = ImageBuilder::new().layer(&LayerBuilder::new().file("unknown", "", 0o644)).build();
    let mut manifest: Value = serde_json::from_slice(&built.manifest)?;
    let layer = empty_files(1_000_000)?;
    manifest["layers"][0] = json!({
        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": images::digest(&layer), "size": layer.len(),
    });
    built.layers = vec![(layer, "application/vnd.oci.image.layer.v1.tar+gzip")];
    built.manifest = manifest.to_string().into_bytes();
    let archive = node.host.path().join("million.tar");
    built.write_oci_archive(&archive, "localhost/million:latest")?;
    let free = || rustix::fs::statvfs(node.disk().path()).map(|disk| disk.f_ffree);
    let before = free()?;
    let begun = Instant::now();
    let taken = node.import_archive(&archive);
    let took = begun.elapsed();
    let swept = eventually("what was unpacked is taken away", Duration::from_secs(15), || match free() {
        Ok(now) if now + 100 > before => Ok(()),
        other => Err(format!("{before} were free, now {other:?}")),
    });
    let goes_on = node.fate(node.script("echo PROBED")).and_then(Fate::harmless).and_then(|_| node.well());
    finish(node)?;
    let Err(refused) = taken else { bail!("it was taken") };
    let said = format!("{refused:#}");
    ensure!(said.to_lowercase().contains("no space left"), "it does not say why: {said}");
    swept?;
    goes_on.context("afterwards")?;
    ensure!(took < Duration::from_secs(20), "it took {took:?}");
    Ok(format!("refused after {:.1} s: {said}", took.as_secs_f64()))
}

/// A compressed layer of so many empty files; the headers differ in a few digits only and are made in place.
fn empty_files(count: usize) -> Result<Vec<u8>> {
    const DIGITS: std::ops::Range<usize> = 2..9;
    let mut header = [0; 512];
    for (at, text) in [(0, "f/0000000"), (100, "0000644"), (108, "0000000"), (116, "0000000")] {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    for (at, text) in
        [(124, "00000000000"), (136, "00000000000"), (148, "        "), (156, "0"), (257, "ustar")]
    {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    header[263..265].copy_from_slice(b"00");
    let base: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let mut packer =
        Command::new("gzip").args(["-1", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = packer.stdin.take().context("no input")?;
    let feeder = std::thread::Builder::new().name("files".into()).spawn(move || -> std::io::Result<()> {
        let mut block = Vec::with_capacity(256 * header.len());
        for _ in 0..count {
            let digits: u32 = header[DIGITS].iter().map(|digit| u32::from(*digit - b'0')).sum();
            header[148..154].copy_from_slice(format!("{:06o}", base + digits).as_bytes());
            header[154..156].copy_from_slice(b"\0 ");
            block.extend_from_slice(&header);
            for digit in header[DIGITS].iter_mut().rev() {
                *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
                if *digit != b'0' {
                    break;
                }
            }
            if block.len() == block.capacity() {
                input.write_all(&block)?;
                block.clear();
            }
        }
        block.extend_from_slice(&[0; 1024]);
        input.write_all(&block)
    })?;
    let packed = packer.wait_with_output()?;
    feeder.join().map_err(|_| anyhow::anyhow!("the thread of the files panicked"))??;
    ensure!(packed.status.success(), "gzip: {}", packed.status);
    Ok(packed.stdout)
}

/// The newest file of the store whose name begins so.
fn store_file(node: &OnNode, prefix: &str) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(node.node.data_dir.join("store"))?
        .flatten()
        .map(|entry| entry.path())
        // What is still being written is called `.tmp`.
        .filter(|path| path.extension().is_none())
        .filter(|path| path.file_name().is_some_and(|name| name.display().to_string().starts_with(prefix)))
        .collect();
    found.sort();
    found.pop().with_context(|| format!("no {prefix} in the store"))
}

/// Changes one object until the log is longer than the store lets it become; the snapshot that replaces it.
fn make_snapshot(node: &OnNode) -> Result<PathBuf> {
    let path = "/api/v1/namespaces/default/configmaps/large";
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}});
    node.api.must("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
    for turn in 0..64 {
        if let Ok(snapshot) = store_file(node, "snapshot-") {
            return Ok(snapshot);
        }
        body["data"] = json!({"k": format!("{turn}{}", "x".repeat(900_000))});
        node.api.must("PUT", path, Some(&body))?;
    }
    bail!("the store made no snapshot of 64 times 900 kB")
}

/// Starts a node on a damaged store: it says what is damaged, or lost nothing.
fn refused_or_whole(node: &mut OnNode) -> Outcome {
    match node.node.start() {
        Ok(_) => {
            let there = objects(node)?;
            node.node.stop()?;
            ensure!(there == 50, "it started with {there} of 50 objects and said nothing");
            Ok("everything is there".to_owned())
        }
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(said.contains("log-") || said.contains("snapshot-"), "it does not say what: {said}");
            Ok(format!("refused: {}", said.lines().last().unwrap_or_default()))
        }
    }
}

fn repair(node: &mut OnNode, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::File::options().write(true).create(true).truncate(true).open(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    node.node.start().map(drop)
}

/// Takes away what a node may have left: its supervisor, its groups (named like its run folder) and that folder.
fn leave_nothing(run_dir: &Path) {
    let name = run_dir.file_name().unwrap_or_default().to_string_lossy();
    processes::sweep(run_dir, &format!("/{name}"));
}

/// A start that must fail; what was said.
fn refused_start(data: &Path, flags: &[&str]) -> Result<String> {
    let done = Command::new("timeout")
        .arg("15")
        .arg(bin_dir().join("podwire"))
        .args(["up", "--node-name", "node1", "--eviction-hard=", "--data-dir"])
        .arg(data)
        .args(flags)
        .stdin(Stdio::null())
        .output()?;
    leave_nothing(&run_dir(data)?);
    ensure!(!done.status.success() && done.status.code() != Some(124), "it started, or never ended");
    Ok(String::from_utf8_lossy(&done.stderr).trim().to_owned())
}

/// A disk whose pages cannot be written back: a file system in a file on a disk that is full.
fn failing_sync(_: &Disks) -> Outcome {
    isolate()?;
    let below = SmallDisk::new("96m")?;
    let file = below.path().join("disk");
    fs::File::create(&file)?.set_len(512 << 20)?;
    let folder = tempfile::tempdir()?;
    let make = format!(
        "mkfs.ext4 -q -F -E lazy_itable_init=0 {0} && mount -o loop {0} {1}",
        file.display(),
        folder.path().display()
    );
    ensure!(Command::new("sh").args(["-c", &make]).status()?.success(), "no disk in a file: {make}");
    let told = with_failing_sync(&below, &folder.path().join("data"));
    Command::new("umount").arg("-l").arg(folder.path()).status()?;
    told
}

fn with_failing_sync(below: &SmallDisk, data: &Path) -> Outcome {
    let node = Node::at(data, &[])?;
    let api = Api::of(&node.kubeconfig())?;
    let ballast = below.fill()?;
    let mut refusal = None;
    for number in 0..200 {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}")}, "data": {"k": "x".repeat(200_000)}});
        let answer = api.admin("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
        if answer.status != 201 {
            refusal = Some(answer.brief());
            break;
        }
    }
    let ready = api.admin("GET", "/readyz", None)?;
    fs::remove_file(ballast)?;
    let names = node.names()?;
    // First the daemon, which would start another supervisor at once.
    drop(node);
    processes::sweep(&names.run_dir, &names.cgroup_root);
    let refusal = refusal.context("a disk that cannot sync refused nothing")?;
    ensure!(ready.status != 200, "/readyz says {} although {refusal}", ready.brief());
    Ok(format!("/readyz says {}; {refusal}", ready.status))
}

fn term_before_ready(_: &Disks) -> Outcome {
    isolate()?;
    let disk = SmallDisk::new("64m")?;
    let (data, conf) = (disk.path().join("data"), disk.path().join("net.d"));
    fs::create_dir_all(&conf)?;
    fs::write(conf.join("00-broken.conflist"), "{")?;
    let mut daemon = Command::new(bin_dir().join("podwire"))
        .args(["up", "--node-name", "node1", "--eviction-hard=", "--data-dir"])
        .arg(&data)
        .arg("--cni-conf-dir")
        .arg(&conf)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let run_dir = run_dir(&data)?;
    let up = eventually("its node is registered", Duration::from_secs(15), || {
        let api = Api::of(&data.join("admin.kubeconfig")).map_err(|error| error.to_string())?;
        let node = api.admin("GET", "/api/v1/nodes/node1", None).map_err(|error| error.to_string())?;
        if node.status == 200 { Ok(()) } else { Err(node.brief()) }
    });
    kill_process(Pid::from_child(&daemon), Signal::TERM)?;
    let ended = eventually("it ends", Duration::from_secs(8), || match daemon.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    daemon.kill().ok();
    daemon.wait()?;
    processes::kill_supervisor(&run_dir);
    Command::new("timeout")
        .arg("15")
        .arg(bin_dir().join("podwire"))
        .args(["down", "--data-dir"])
        .arg(&data)
        .output()?;
    leave_nothing(&run_dir);
    up?;
    Ok(format!("ended with {}", ended?))
}
