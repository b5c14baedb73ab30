//! The network of pods through a power cut, and what it does with VLANs, which not every kernel has.

use std::{
    fs,
    io::Write,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{LinkRef, Socket},
};
use podwire_testkit::{eventually, isolate, node::bin_dir};
use serde_json::{Value, json};

use super::{PATIENCE, cut};

/// What outlives the machine.
const DISK: &str = "/disk/cni";

/// Attachments that are on the disk for sure when the power goes.
const SYNCED: usize = 6;

fn at(name: &str) -> PathBuf {
    Path::new(DISK).join(name)
}

struct Pod {
    id: String,
    netns: Netns,
}

impl Pod {
    fn new(id: &str) -> Result<Pod> {
        Ok(Pod { id: id.to_owned(), netns: netns::create()? })
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }
}

fn bridge(extra: &[(&str, Value)]) -> Value {
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {
            "type": "host-local", "dataDir": at("ipam"),
            "ranges": [[{"subnet": "10.99.0.0/16"}], [{"subnet": "fd99::/64"}]],
        },
    });
    for (key, value) in extra {
        conf[*key] = value.clone();
    }
    conf
}

fn plugin(verb: &str, pod: &Pod, conf: &Value) -> Result<Value> {
    let mut child = Command::new(bin_dir().join("podwire-cni"))
        .arg("bridge")
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &pod.id)
        .env("CNI_NETNS", pod.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/none")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no stdin")?.write_all(conf.to_string().as_bytes())?;
    let done = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("{verb} of {}: {text}", pod.id);
    }
    Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn podwire(words: &[&str]) -> Result<String> {
    let done = Command::new(bin_dir().join("podwire"))
        .arg("cni")
        .args(words)
        .arg("--data-dir")
        .arg(at("data"))
        .arg("--conf-dir")
        .arg(at("net.d"))
        .output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("podwire cni {words:?}: {text}{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(text)
}

/// The addresses with a file in the folder of reservations.
fn reserved() -> Vec<String> {
    let entries = fs::read_dir(at("ipam/net")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().display().to_string());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(at(folder)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().display().to_string()).collect()
}

/// Attaches by turns with the plugin alone and with `podwire cni`.
fn attach(number: usize) -> Result<Pod> {
    let pod = Pod::new(&format!("before{number}"))?;
    if number.is_multiple_of(2) {
        plugin("ADD", &pod, &bridge(&[]))?;
    } else {
        podwire(&["add", "--container-id", &pod.id, &pod.path()])?;
    }
    Ok(pod)
}

#[test]
fn cut_addresses_before() -> Result<()> {
    isolate()?;
    fs::create_dir_all(at("net.d"))?;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge(&[])]});
    fs::write(at("net.d/10-net.conflist"), list.to_string())?;
    let mut pods = (0..SYNCED).map(attach).collect::<Result<Vec<Pod>>>()?;
    assert_eq!(reserved().len(), 2 * SYNCED);
    rustix::fs::sync();
    let added = AtomicUsize::new(SYNCED);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let work = || {
                // For ever: the power goes in the middle of some of them.
                let mut pods = Vec::new();
                while let Ok(pod) = attach(added.fetch_add(1, Ordering::Relaxed)) {
                    pods.push(pod);
                }
            };
            std::thread::Builder::new().name("attach".to_owned()).spawn_scoped(scope, work)?;
        }
        eventually("more ADDs answered and begun", PATIENCE, || {
            let all = reserved().len();
            if all > 2 * SYNCED + 6 { Ok(()) } else { Err(format!("{all} reserved")) }
        })?;
        println!("{} reserved, ADDs on their way", reserved().len());
        pods.clear();
        cut()
    })
}

#[test]
fn cut_addresses_after() -> Result<()> {
    isolate()?;
    let stale = reserved();
    println!(
        "{} reservations of the boot before, {:?} in the journal",
        stale.len(),
        files("data/cni/state/attachments").len()
    );
    assert!(stale.len() >= 2 * SYNCED, "what was synced is still there: {stale:?}");
    // Beside what the power cut tore: a journal and a cached result that are certainly torn.
    for folder in ["data/cni/state/attachments", "data/cni/cache/results"] {
        fs::create_dir_all(at(folder))?;
    }
    fs::write(at("data/cni/state/attachments/torn@eth0"), "{\"magic\":\"podwire-cni-att")?;
    fs::write(at("data/cni/cache/results/net-torn-eth0"), "")?;
    let pod = Pod::new("after")?;
    let result = plugin("ADD", &pod, &bridge(&[]))?;
    let mut left = reserved();
    left.sort();
    let mut own: Vec<String> = result["ips"]
        .as_array()
        .context("no addresses")?
        .iter()
        .filter_map(|ip| Some(ip["address"].as_str()?.split('/').next()?.to_owned()))
        .collect();
    own.sort();
    assert_eq!(left, own, "earlier reservations are stale and released, this boot's is kept");
    plugin("CHECK", &pod, &bridge(&[("prevResult", result)]))?;
    let other = Pod::new("other")?;
    podwire(&["add", "--container-id", &other.id, &other.path()])?;
    podwire(&["gc", "--keep", "after/eth0", "--keep", "other/eth0"])?;
    assert_eq!(reserved().len(), 4);
    assert_eq!(files("data/cni/state/attachments"), ["other@eth0"], "journals of the boot before are gone");
    podwire(&["del", "--container-id", &other.id, &other.path()])?;
    plugin("DEL", &pod, &bridge(&[]))?;
    podwire(&["gc"])?;
    assert!(reserved().is_empty());
    assert!(files("data/cni/state/attachments").is_empty());
    let results = files("data/cni/cache/results");
    assert!(results.iter().all(|name| name == "net-torn-eth0"), "{results:?}");
    println!("doctor: {}", podwire(&["doctor", "--repair"])?.trim());
    Ok(())
}

#[test]
fn pods_of_a_vlan_reach_its_gateway_and_no_other_vlan() -> Result<()> {
    isolate()?;
    let on = |vlan: u16| {
        let ipam = json!({
            "type": "host-local", "dataDir": "/tmp/vlan-ipam",
            "ranges": [[{"subnet": format!("10.{vlan}.0.0/24")}]],
        });
        let name = json!(format!("vlan{vlan}"));
        bridge(&[("vlan", json!(vlan)), ("ipam", ipam), ("name", name), ("ipMasq", json!(false))])
    };
    let (first, second, other) = (Pod::new("first")?, Pod::new("second")?, Pod::new("other")?);
    let result = plugin("ADD", &first, &on(100))?;
    plugin("ADD", &second, &on(100))?;
    plugin("ADD", &other, &on(200))?;
    let names: Vec<&str> = result["interfaces"]
        .as_array()
        .context("none")?
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!((names.len(), names[3]), (4, "br0.100"), "the VLAN's gateway is the fourth interface");
    let mut socket = Socket::route()?;
    let port = socket.link(LinkRef::Name(names[1]))?.context("the port is gone")?;
    let vlans: Vec<u16> = socket.vlans(port.index)?.iter().map(|vlan| vlan.first).collect();
    assert_eq!(vlans, [100], "the port is in its VLAN only");
    let reaches = |from: &Pod, to: &str| -> Result<bool> {
        let done = from.netns.run(|| Command::new("ping").args(["-c", "1", "-W", "2", to]).output())??;
        Ok(done.status.success())
    };
    for address in ["10.100.0.1", "10.100.0.3"] {
        eventually("the VLAN carries packets", Duration::from_secs(20), || match reaches(&first, address) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{address} does not answer")),
            Err(error) => Err(format!("{error:#}")),
        })?;
    }
    // By layer 2 alone: without a route through the gateway the other VLAN is not there.
    let direct = |words: &[&str]| -> Result<()> {
        let status = first.netns.run(|| Command::new("ip").args(words).status())??;
        if status.success() { Ok(()) } else { bail!("ip {words:?}") }
    };
    direct(&["route", "add", "10.200.0.0/24", "dev", "eth0"])?;
    assert!(!reaches(&first, "10.200.0.2")?, "another VLAN is reached");
    plugin("CHECK", &first, &{
        let mut conf = on(100);
        conf["prevResult"] = result;
        conf
    })?;
    for (pod, vlan) in [(&first, 100), (&second, 100), (&other, 200)] {
        plugin("DEL", pod, &on(vlan))?;
    }
    Ok(())
}
