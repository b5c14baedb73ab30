//! Other runtimes on our plugins and nothing else changed: a pod of containerd and a container of podman, each with a
//! port of the host and limits to its bandwidth.
#![cfg(feature = "interop")]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    cgroup_root::CgroupRoot,
    eventually, isolate,
    node::peer,
    parts::plugins,
    upstream::{self, NODE_ADDRESS, Scratch},
};
use serde_json::{Value, json};

fn said(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("run {command:?}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("{command:?}: {text}{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(text)
}

/// Asks an HTTP server for `/`.
fn get(address: &str, port: u16) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((address, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    match ask() {
        Ok(text) if text.contains(" 200 ") => Ok(text),
        Ok(text) => Err(format!("{address}:{port} answered {text:?}")),
        Err(error) => Err(format!("{address}:{port}: {error}")),
    }
}

/// The host's links whose names begin so.
fn links(prefix: &str) -> Result<Vec<String>> {
    let listed: Value = serde_json::from_str(&said(Command::new("ip").args(["-j", "link"]))?)?;
    let names = listed.as_array().into_iter().flatten().filter_map(|link| link["ifname"].as_str());
    Ok(names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

/// The rate of the token bucket at a link, in bytes per second.
fn bucket_rate(link: &str) -> Result<u64> {
    let text = said(Command::new("tc").args(["-j", "qdisc", "show", "dev", link]))?;
    let listed: Value = serde_json::from_str(&text)?;
    let bucket = listed.as_array().into_iter().flatten().find(|qdisc| qdisc["kind"] == "tbf");
    bucket.and_then(|bucket| bucket["options"]["rate"].as_u64()).with_context(|| format!("no bucket: {text}"))
}

/// What packet filters know of a container or an address.
fn rules_about(words: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for program in [&["nft", "list", "ruleset"][..], &["iptables-save"], &["ip6tables-save"]] {
        let text = said(Command::new(program[0]).args(&program[1..]))?;
        let about = |line: &&str| words.iter().any(|word| !word.is_empty() && line.contains(word));
        found.extend(text.lines().filter(about).map(str::to_owned));
    }
    Ok(found)
}

/// What of an attachment is still there.
fn residue(data_dir: &Path, network: &str, container: &str, ip: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for prefix in ["veth", "bwp"] {
        found.extend(links(prefix)?);
    }
    found.extend(rules_about(&[container, &format!("{ip}/32"), &format!("{ip}:"), &format!("{ip} ")])?);
    for entry in fs::read_dir(data_dir.join(network))? {
        let name = entry?.file_name().display().to_string();
        if name.parse::<std::net::IpAddr>().is_ok() {
            found.push(format!("reservation {name}"));
        }
    }
    for entry in fs::read_dir("/var/lib/cni/results").into_iter().flatten().flatten() {
        let name = entry.file_name().display().to_string();
        if name.contains(container) {
            found.push(format!("cached result {name}"));
        }
    }
    Ok(found)
}

struct Crictl {
    program: PathBuf,
    socket: PathBuf,
}

impl Crictl {
    fn run<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Result<String> {
        let endpoint = format!("unix://{}", self.socket.display());
        let mut command = Command::new(&self.program);
        command.args(["--timeout", "60s", "--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint]);
        Ok(said(command.args(words))?.trim().to_owned())
    }
}

#[test]
fn containerd_runs_a_pod_with_ports_and_limits_on_our_plugins() -> Result<()> {
    isolate()?;
    upstream::node_address()?;
    let folder = Scratch::new()?;
    let at = |name: &str| folder.path().join(name);
    let (conf_dir, data_dir) = (at("net.d"), at("ipam"));
    fs::create_dir_all(&conf_dir)?;
    // The list that containerd's documentation gives, with bandwidth at its end.
    let list = json!({
        "cniVersion": "1.0.0", "name": "containerd-net", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "promiscMode": true,
             "ipam": {"type": "host-local", "dataDir": data_dir,
                      "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "2001:db8:4860::/64"}]],
                      "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "firewall"},
            {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        ],
    });
    fs::write(conf_dir.join("10-containerd-net.conflist"), list.to_string())?;
    let containerd =
        upstream::containerd(&at("containerd"), &conf_dir, &plugins(&folder.path().join("bin"))?)?;
    for (name, program) in [("localhost/pod-app:latest", "pod-app"), ("localhost/pause:latest", "pause")] {
        upstream::containerd_import(&containerd, &upstream::image_archive(folder.path(), name, program)?)?;
    }
    let cgroup = CgroupRoot::create()?;
    let crictl = Crictl { program: peer("crictl")?, socket: containerd.socket.clone() };
    for round in 0..2 {
        let done = pod_of_containerd(&crictl, folder.path(), cgroup.path(), &data_dir);
        done.with_context(|| format!("round {round}: {}", containerd.peer.log_tail()))?;
    }
    Ok(())
}

fn pod_of_containerd(crictl: &Crictl, folder: &Path, cgroup: &str, data_dir: &Path) -> Result<()> {
    let write = |name: &str, value: &Value| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, value.to_string())?;
        Ok(path)
    };
    let pod_conf = write(
        "pod.json",
        &json!({
            "metadata": {"name": "ported", "namespace": "default", "uid": "u1", "attempt": 0},
            "hostname": "ported", "log_directory": folder.join("logs"),
            "port_mappings": [{"protocol": 0, "container_port": 80, "host_port": 8080}],
            "annotations": {"kubernetes.io/ingress-bandwidth": "8M", "kubernetes.io/egress-bandwidth": "6M"},
            "linux": {"cgroup_parent": cgroup},
        }),
    )?;
    let container_conf = write(
        "container.json",
        &json!({
            "metadata": {"name": "main"}, "image": {"image": "localhost/pod-app:latest"},
            "command": ["/pod-app"], "args": ["serve", "80"], "log_path": "main.log", "linux": {},
        }),
    )?;
    let (pod_conf, container_conf) = (pod_conf.display().to_string(), container_conf.display().to_string());
    let pod = crictl.run(&["runp", &pod_conf])?;
    let container = crictl.run(&["create", &pod, &container_conf, &pod_conf])?;
    crictl.run(&["start", &container])?;
    let status: Value = serde_json::from_str(&crictl.run(&["inspectp", "-o", "json", &pod])?)?;
    let ip = status["status"]["network"]["ip"].as_str().context("the pod has no address")?.to_owned();
    for (address, port) in [(ip.as_str(), 80), (NODE_ADDRESS, 8080), ("127.0.0.1", 8080)] {
        let text = eventually("the pod answers", Duration::from_secs(20), || get(address, port))?;
        assert!(text.contains("ported"), "{address}:{port} is somebody else: {text}");
    }
    let veths = links("veth")?;
    assert_eq!(veths.len(), 1, "{veths:?}");
    assert_eq!(bucket_rate(&veths[0])?, 1_000_000, "8 Mbit/s towards the pod");
    let ifbs = links("bwp")?;
    assert_eq!(ifbs.len(), 1, "{ifbs:?}");
    assert_eq!(bucket_rate(&ifbs[0])?, 750_000, "6 Mbit/s from the pod");
    assert!(!rules_about(&[pod.as_str()])?.is_empty(), "the mapping names its pod");
    crictl.run(&["stopp", &pod])?;
    crictl.run(&["rmp", "-f", &pod])?;
    get(NODE_ADDRESS, 8080).expect_err("the port leads nowhere");
    let left = residue(data_dir, "containerd-net", &pod, &ip)?;
    assert!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

struct Podman {
    folder: PathBuf,
}

impl Podman {
    /// Settings under which Debian's podman runs on a machine like this: no limits raised, cgroupfs, runc, CNI.
    fn new(folder: &Path, plugins: &Path, conf_dir: &Path) -> Result<Podman> {
        let text = format!(
            "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n\
             [engine.runtimes]\nrunc = [{runc:?}]\n\
             [network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [{plugins:?}]\nnetwork_config_dir = {conf_dir:?}\n",
            runc = peer("runc")?,
        );
        fs::write(folder.join("containers.conf"), text)?;
        Ok(Podman { folder: folder.to_owned() })
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.folder.join("root")).arg("--runroot").arg(self.folder.join("run"));
        command.arg("--tmpdir").arg(self.folder.join("tmp"));
        command.args(["--storage-driver", "vfs"]).args(words);
        command.env("CONTAINERS_CONF", self.folder.join("containers.conf"));
        Ok(said(&mut command)?.trim().to_owned())
    }
}

#[test]
fn podman_runs_a_container_with_ports_and_limits_on_our_plugins() -> Result<()> {
    isolate()?;
    upstream::node_address()?;
    let folder = Scratch::new()?;
    let (conf_dir, data_dir) = (folder.path().join("net.d"), folder.path().join("ipam"));
    fs::create_dir_all(&conf_dir)?;
    // What `podman network create` writes, with a data folder of our own and bandwidth at its end.
    let list = json!({
        "cniVersion": "0.4.0", "name": "web", "plugins": [
            {"type": "bridge", "bridge": "cni-podman1", "isGateway": true, "ipMasq": true, "hairpinMode": true,
             "ipam": {"type": "host-local", "dataDir": data_dir, "routes": [{"dst": "0.0.0.0/0"}],
                      "ranges": [[{"subnet": "10.89.0.0/24", "gateway": "10.89.0.1"}]]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "firewall", "backend": ""},
            {"type": "tuning"},
            {"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 1_000_000,
             "egressRate": 6_000_000, "egressBurst": 1_000_000},
        ],
    });
    fs::write(conf_dir.join("web.conflist"), list.to_string())?;
    let podman = Podman::new(folder.path(), &plugins(&folder.path().join("bin"))?, &conf_dir)?;
    let archive = upstream::image_archive(folder.path(), "localhost/pod-app:latest", "pod-app")?;
    podman.run(&["load", "--input", &archive.display().to_string()])?;
    for _ in 0..2 {
        container_of_podman(&podman, &data_dir)?;
    }
    Ok(())
}

fn container_of_podman(podman: &Podman, data_dir: &Path) -> Result<()> {
    let id = podman.run(&[
        "run",
        "--detach",
        "--name=web",
        "--hostname=web",
        "--network=web",
        "--publish=8080:80",
        "--entrypoint=/pod-app",
        "localhost/pod-app:latest",
        "serve",
        "80",
    ])?;
    let format = "{{(index .NetworkSettings.Networks \"web\").IPAddress}}";
    let ip = podman.run(&["inspect", "--format", format, &id])?;
    for (address, port) in [(ip.as_str(), 80), (NODE_ADDRESS, 8080), ("127.0.0.1", 8080)] {
        let text = eventually("the container answers", Duration::from_secs(20), || get(address, port))?;
        assert!(text.contains("web"), "{address}:{port} is somebody else: {text}");
    }
    let (veths, ifbs) = (links("veth")?, links("bwp")?);
    assert_eq!((veths.len(), ifbs.len()), (1, 1), "{veths:?} {ifbs:?}");
    assert_eq!(bucket_rate(&veths[0])?, 1_000_000, "8 Mbit/s towards the container");
    assert_eq!(bucket_rate(&ifbs[0])?, 750_000, "6 Mbit/s from the container");
    podman.run(&["rm", "--force", "--time=1", &id])?;
    get(NODE_ADDRESS, 8080).expect_err("the port leads nowhere");
    let left = residue(data_dir, "web", &id, &ip)?;
    assert!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}
