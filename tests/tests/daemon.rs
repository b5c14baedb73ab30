//! The daemon as a guest of its machine: what others may read of it, how it ends, what it leaves.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, eventually, isolate, node::bin_dir};
use rustix::{fs::Mode, process::Signal};

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 4711, runAsGroup: 4711}
  volumes:
  - {name: config, configMap: {name: settings}}
  - {name: scratch, emptyDir: {}}
  containers:
  - {name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [sleep, \"600\"], volumeMounts: [{name: config, mountPath: /config}, {name: scratch, mountPath: /scratch}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
";

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path).with_context(|| format!("{path:?}"))?.mode() & 0o7777)
}

/// Everything below a folder that others than its owner could open if they got to it.
fn open_to_others(folder: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, state) =
            entry.and_then(|entry| Ok((entry.path(), fs::symlink_metadata(entry.path())?)))?;
        let secret = state.file_type().is_socket() || state.is_file();
        if secret && state.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", state.mode() & 0o7777, path.display()));
        }
    }
    Ok(())
}

/// Umask and folders of the version before: everybody may do everything. A shell that is too strict must not matter either.
#[test]
fn nobody_else_reads_secrets_whatever_the_umask_and_the_pods_read_what_is_theirs() -> Result<()> {
    isolate()?;
    for umask in [0, 0o077] {
        rustix::process::umask(Mode::from_raw_mode(umask));
        let node = Node::up(&[])?;
        let names = node.names()?;
        node.apply(POD)?;
        node.pod_in_phase("reader", "Running")?;
        let cat = |path: &str| node.podwire(["exec", "reader", "--", "/pod-app", "cat", path]);
        ensure!(cat("/config/key")?.trim() == "value", "a volume's file has the mode it asks for");
        node.podwire(["exec", "reader", "--", "/pod-app", "write", "/scratch/file", "x"])?;
        ensure!(cat("/etc/hosts")?.contains("reader"), "the pod's own files can be read by its user");
        for folder in
            [&node.data_dir, &names.run_dir, &node.data_dir.join("store"), &node.data_dir.join("pki")]
        {
            ensure!(mode(folder)? == 0o700, "{folder:?} is {:o}", mode(folder)?);
        }
        let mut found = Vec::new();
        for folder in [&names.run_dir, &node.data_dir.join("store"), &names.run_dir.join("runtime")] {
            if folder.is_dir() {
                open_to_others(folder, &mut found)?;
            }
        }
        ensure!(found.is_empty(), "open to others with umask {umask:o}:\n{}", found.join("\n"));
        node.podwire(["delete", "pods", "--all"])?;
        node.down()?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

#[test]
fn files_of_the_version_before_are_closed_at_the_next_start() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    node.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n")?;
    node.stop()?;
    let store = node.data_dir.join("store");
    let mut opened = 0;
    for entry in fs::read_dir(&store)? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
        opened += 1;
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&node.data_dir, fs::Permissions::from_mode(0o755))?;
    ensure!(opened > 0, "the store has files");
    node.start()?;
    let mut found = Vec::new();
    open_to_others(&store, &mut found)?;
    ensure!(found.is_empty() && mode(&store)? == 0o700 && mode(&node.data_dir)? == 0o700, "{found:?}");
    ensure!(node.get("secret", "s")?["data"]["a"] == "Yg==", "and nothing is lost");
    node.down()
}

#[test]
fn a_node_that_is_told_to_end_before_it_is_ready_ends() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let conf = data.join("cni/net.d");
    fs::create_dir_all(&conf)?;
    // No network, never Ready.
    fs::write(conf.join("00-broken.conflist"), "{")?;
    let log = fs::File::create(folder.path().join("log"))?;
    let mut daemon = Command::new(bin_dir().join("podwire"))
        .args(["up", "--node-name", "node1", "--eviction-hard=", "--data-dir"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let ended = (|| {
        let podwire = |words: &[&str]| {
            Command::new(bin_dir().join("podwire")).args(words).env("PODWIRE_DATA_DIR", &data).output()
        };
        eventually("the node, not Ready", Duration::from_secs(30), || {
            let said = podwire(&["get", "node", "node1"]).map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            if text.contains("NotReady") { Ok(()) } else { Err(text) }
        })?;
        rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), Signal::TERM)?;
        let status = eventually("the end of the node", Duration::from_secs(20), || {
            daemon.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "still running".to_owned())
        })?;
        ensure!(status.success(), "{status}");
        ensure!(podwire(&["down"])?.status.success(), "down");
        Ok(())
    })();
    // Ignored: it has ended when all is well.
    daemon.kill().ok();
    daemon.wait()?;
    ended
}

#[test]
fn an_api_server_alone_leaves_no_run_folder() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let podwire = || {
        let mut command = Command::new(bin_dir().join("podwire"));
        command.env("PODWIRE_DATA_DIR", &data).env_remove("PODWIRE_TRACE_DIR").stdin(Stdio::null());
        command
    };
    let described = podwire().arg("instance").output()?.stdout;
    let described: serde_json::Value = serde_json::from_slice(&described)?;
    let run = Path::new(described["runDir"].as_str().context("no run folder")?).to_owned();
    let mut server = podwire()
        .args(["apiserver", "--secure-port", "0", "--bind-address", "127.0.0.1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ended = (|| {
        eventually("the socket of its traces", Duration::from_secs(20), || {
            let sockets = fs::read_dir(&run).map_err(|error| error.to_string())?.count();
            if sockets > 0 { Ok(()) } else { Err("none yet".to_owned()) }
        })?;
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), Signal::TERM)?;
        eventually("its end", Duration::from_secs(20), || {
            server.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "still running".to_owned())
        })?;
        ensure!(!run.exists(), "{run:?} is left");
        Ok(())
    })();
    // Ignored: it has ended when all is well.
    server.kill().ok();
    server.wait()?;
    ended
}
