//! The node that plugins are measured on: both sides' plugins, networks, pods.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use podwire_cni_lib::{Attachment, DefaultNetwork, RuntimeConfig, write_default_conflist};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{Batch, Bridge, Link, NewAddress, Socket},
};
use podwire_testkit::node::{bin_dir, peer};
use rustix::process::WaitOptions;
use serde_json::{Value, json};

/// Whose plugins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// `podwire-cni`.
    Ours,
    /// containernetworking/plugins.
    Reference,
    /// The program that does the least a plugin can.
    Floor,
}

/// A pod without a network.
pub struct Pod {
    number: u32,
    id: String,
    netns: Netns,
}

impl Pod {
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }
}

/// The node.
pub struct World {
    dir: tempfile::TempDir,
    reference: Option<PathBuf>,
    floor_bridge: u32,
    pods: AtomicU32,
}

impl World {
    /// Links to our plugins in a folder of its own.
    pub fn new() -> Result<World> {
        let dir = tempfile::Builder::new().prefix("podwire-bench-").tempdir()?;
        let bin = dir.path().join("bin");
        fs::create_dir(&bin)?;
        for name in ["bridge", "host-local"] {
            std::os::unix::fs::symlink(bin_dir().join("podwire-cni"), bin.join(name))?;
        }
        let reference = peer("cni/bridge").ok().and_then(|file| file.parent().map(Path::to_owned));
        // What a plugin leaves behind is ours to wait for, and then counts.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(World { dir, reference, floor_bridge: floor_bridge()?, pods: AtomicU32::new(0) })
    }

    /// Whether a side's plugins are there.
    pub fn has(&self, side: Side) -> bool {
        side != Side::Reference || self.reference.is_some()
    }

    fn bin(&self, side: Side) -> PathBuf {
        match (&self.reference, side) {
            (Some(reference), Side::Reference) => reference.clone(),
            _ => self.dir.path().join("bin"),
        }
    }

    fn data_dir(&self, side: Side) -> PathBuf {
        self.dir.path().join(format!("ipam-{side:?}"))
    }

    fn conf(&self, side: Side, network: &str) -> Value {
        let (bridge, second) = if side == Side::Ours { ("ours0", 60) } else { ("ref0", 70) };
        let number = ["plain", "masq", "few", "many"].iter().position(|name| *name == network).unwrap_or(9);
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": network, "type": "bridge", "bridge": format!("{bridge}{number}"),
            "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": self.data_dir(side), "routes": [{"dst": "0.0.0.0/0"}],
                "ranges": [[{"subnet": format!("10.{}.0.0/16", second + number)}]],
            },
        });
        if network == "masq" {
            conf["ipMasq"] = json!(true);
            conf["ipMasqBackend"] = json!("nftables");
        }
        conf
    }

    /// New pods.
    pub fn pods(&self, count: usize) -> Result<Vec<Pod>> {
        let pod = |_| {
            let number = self.pods.fetch_add(1, Ordering::Relaxed);
            Ok(Pod { number, id: format!("pod{number}"), netns: netns::create()? })
        };
        (0..count).map(pod).collect()
    }

    /// Executes a verb of the bridge plugin; how long it took.
    pub fn timed(&self, side: Side, verb: &str, network: &str, pod: &Pod) -> Result<Duration> {
        let conf = self.conf(side, network).to_string();
        let bin = self.bin(side);
        let program = if side == Side::Floor { bin_dir().join("attach_floor") } else { bin.join("bridge") };
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("FLOOR_BRIDGE", self.floor_bridge.to_string())
            .env("FLOOR_ADDRESS", format!("{}/16", Ipv4Addr::from(FLOOR_NET + 2 + pod.number % 60_000)))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &pod.id)
            .env("CNI_NETNS", pod.path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &bin)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        child.stdin.take().context("no stdin")?.write_all(conf.as_bytes())?;
        let output = child.wait_with_output()?;
        let took = begun.elapsed();
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("{verb} by {side:?}: {}", String::from_utf8_lossy(&said));
        }
        Ok(took)
    }

    /// Puts reservations of other containers into a network's folder, as the reference plugin writes them.
    pub fn fill(&self, side: Side, network: &str, count: usize) -> Result<()> {
        let folder = self.data_dir(side).join(network);
        fs::create_dir_all(&folder)?;
        let conf = self.conf(side, network);
        let subnet = conf["ipam"]["ranges"][0][0]["subnet"].as_str().context("no subnet")?;
        let start = subnet.trim_end_matches("0.0/16");
        for number in 2..count + 2 {
            let ip = format!("{start}{}.{}", number / 256, number % 256);
            fs::write(folder.join(&ip), format!("other{number}\r\neth0"))?;
            fs::write(folder.join("last_reserved_ip.0"), ip)?;
        }
        Ok(())
    }

    /// Fails when a network still has reservations.
    pub fn assert_empty(&self, side: Side, network: &str) -> Result<()> {
        if side == Side::Floor {
            return Ok(());
        }
        for entry in fs::read_dir(self.data_dir(side).join(network))? {
            let name = entry?.file_name().display().to_string();
            if name.parse::<std::net::IpAddr>().is_ok() {
                bail!("{side:?} left {name} reserved");
            }
        }
        Ok(())
    }

    /// Attaches and detaches in this process, as the runtime does; how long each took.
    pub fn in_process(&self, count: usize) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let at = |name: &str| self.dir.path().join("process").join(name);
        let network = DefaultNetwork {
            name: "pods".into(),
            bridge: "inproc0".into(),
            subnets: vec!["10.90.0.0/16".parse()?],
            data_dir: at("ipam"),
            nft_prefix: "pwbench".into(),
            mtu: None,
            cluster: Vec::new(),
        };
        write_default_conflist(&at("net.d"), &network)?;
        let config = RuntimeConfig {
            conf_dir: at("net.d"),
            bin_dirs: Vec::new(),
            cache_dir: at("cache"),
            state_dir: at("state"),
            builtin: true,
            timeout: Duration::from_secs(30),
        };
        let networks = config.open()?;
        let (mut attach, mut detach) = (Vec::new(), Vec::new());
        for pod in self.pods(count)? {
            let attachment = Attachment {
                container_id: pod.id.clone(),
                netns: PathBuf::from(pod.path()),
                ifname: "eth0".into(),
                ..Attachment::default()
            };
            let begun = Instant::now();
            networks.ensure(&attachment)?;
            attach.push(begun.elapsed());
            let begun = Instant::now();
            networks.detach_dying(&attachment)?;
            detach.push(begun.elapsed());
        }
        Ok((attach, detach))
    }
}

/// The first address of the floor's network, 10.80.0.0/16.
const FLOOR_NET: u32 = 0x0a50_0000;

/// A bridge with an address, as the plugins make theirs; its index.
fn floor_bridge() -> Result<u32> {
    let mut socket = Socket::route()?;
    let mut batch = Batch::new();
    batch.add_bridge(&Bridge { name: "floor0", ..Bridge::default() });
    let replies = socket.exchange(&mut batch)?;
    let link = replies.iter().find_map(Link::parse).context("the kernel did not describe the bridge")?.index;
    let net = IpNet::new(Ipv4Addr::from(FLOOR_NET + 1).into(), 16)?;
    let mut batch = Batch::new();
    batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
    socket.exchange(&mut batch)?;
    Ok(link)
}

/// CPU of children that have ended; those which plugins left behind are waited for.
pub fn children_cpu() -> Result<Duration> {
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(rustix::io::Errno::CHILD)) {}
    let text = fs::read_to_string("/proc/self/stat")?;
    // The command may hold spaces; the numbers follow the last parenthesis.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let mut ticks = 0;
    for field in fields.iter().skip(13).take(2) {
        ticks += field.parse::<u64>()?;
    }
    // USER_HZ is 100 on every Linux that matters here.
    Ok(Duration::from_millis(ticks * 10))
}
