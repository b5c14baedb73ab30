//! Network policies: what a pod's rules cost when it starts, a remote pod's change, a cold start, memory, and what enforced
//! packets cost beside those of a plain bridge.
//!
//! Plan and kernel's table as the plugin has them, without the runtime around: `make bench WHAT=nri` is about that.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use ipnet::IpNet;
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{Batch, Bridge, LinkChange, LinkRef, NewAddress, Peer, Socket, Veth},
};
use podwire_netplugin::{
    plan::{Planner, Pod, Sandbox, tables::Family},
    policy::{ObjectKey, Policy},
    table::{Frame, Table},
};
use serde_json::json;

use crate::{
    measure::percentile,
    report::{self, Row},
};

const NAMESPACES: usize = 20;
const LOCAL: usize = 110;
const ROUNDS: usize = 200;
const SECONDS: u64 = 3;
/// The number of an address that no other pod has.
const PEER: usize = 50_000;

/// A cluster of so many policies and pods, seen from one of its nodes.
struct Cluster {
    planner: Planner,
    table: Table,
    /// From nothing to a loaded table.
    cold: Duration,
}

fn key(number: usize) -> ObjectKey {
    ObjectKey { namespace: format!("ns{}", number % NAMESPACES), name: format!("pod{number}") }
}

/// Five labels, and so five selectors that take it, as in a cluster of many small applications.
fn labels(number: usize, policies: usize) -> BTreeMap<String, String> {
    let app = number % policies.max(1);
    (0..5).map(|at| (format!("l{at}"), format!("v{}", (app + at * 7) % policies.max(1)))).collect()
}

fn address(number: usize) -> IpAddr {
    IpAddr::from((0x0a64_0000 + u32::try_from(number).unwrap_or(0)).to_be_bytes())
}

fn policy(number: usize) -> Result<Policy> {
    let rule = |at: usize| {
        json!({
            "from": [{"podSelector": {"matchLabels": {format!("l{at}"): format!("v{number}")}}}],
            "ports": [{"port": 8000 + at}],
        })
    };
    let object = json!({
        "metadata": {"namespace": format!("ns{}", number % NAMESPACES), "name": format!("p{number}")},
        "spec": {
            "podSelector": {"matchLabels": {"l0": format!("v{number}")}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [rule(0), rule(1), rule(2)],
            "egress": [{}],
        },
    });
    Ok(Policy::read(&serde_json::from_value(object)?))
}

fn pod(number: usize, policies: usize, local: bool) -> Pod {
    Pod {
        uid: format!("u{number}"),
        labels: labels(number, policies),
        node: if local { "here" } else { "there" }.to_owned(),
        addresses: vec![address(number)],
        ..Pod::default()
    }
}

fn sandbox(number: usize, policies: usize) -> Sandbox {
    let (pod, labels) = (key(number), labels(number, policies));
    Sandbox {
        id: format!("s{number}"),
        pod,
        uid: format!("u{number}"),
        labels,
        addresses: vec![address(number)],
    }
}

impl Cluster {
    fn new(policies: usize, pods: usize) -> Result<Cluster> {
        let mut all = Vec::new();
        for number in 0..policies {
            all.push(policy(number)?);
        }
        let name = format!("bench_policy_{policies}");
        let begun = Instant::now();
        let frame = Frame {
            families: vec![Family::V4, Family::V6],
            floor: vec!["10.100.0.0/16".parse()?],
            links: Vec::new(),
        };
        let mut table = Table::open(&name, frame)?;
        table.lay_floor()?;
        let mut planner = Planner::new("here", &[Family::V4, Family::V6]);
        for at in 0..NAMESPACES {
            planner.namespace(&format!("ns{at}"), BTreeMap::from([("n".to_owned(), at.to_string())]));
        }
        for policy in all {
            planner.policy(policy);
        }
        for number in 0..pods {
            planner.pod(key(number), pod(number, policies, number < LOCAL));
        }
        for number in 0..LOCAL.min(pods) {
            planner.sandbox(sandbox(number, policies));
        }
        let found = table.read()?;
        let change = planner.against(&found);
        table.apply(&change)?;
        Ok(Cluster { planner, table, cold: begun.elapsed() })
    }

    fn load(&mut self) -> Result<()> {
        let change = self.planner.take();
        Ok(self.table.apply(&change)?)
    }

    /// A pod of this node comes and goes; the time until its rules stand.
    fn local(&mut self, policies: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let number = 60_000 + round % 100;
            let begun = Instant::now();
            self.planner.sandbox(sandbox(number, policies));
            self.load()?;
            times.push(begun.elapsed());
            self.planner.sandbox_gone(&format!("s{number}"));
            self.load()?;
        }
        Ok(times)
    }

    /// A pod of another node gets its address.
    fn remote(&mut self, policies: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let number = 61_000 + round % 100;
            let begun = Instant::now();
            self.planner.pod(key(number), pod(number, policies, false));
            self.load()?;
            times.push(begun.elapsed());
            self.planner.pod_gone(&key(number));
            self.load()?;
        }
        Ok(times)
    }

    /// A policy is edited.
    fn edited(&mut self) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let mut edited = policy(0)?;
            if round % 2 == 0 {
                edited.ingress.iter_mut().for_each(|rules| rules.truncate(1));
            }
            let begun = Instant::now();
            self.planner.policy(edited);
            self.load()?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<f64>()? / 1024.0)
}

/// Measures everything and prints the table.
pub fn run() -> Result<()> {
    let mut rows = Vec::new();
    for (policies, pods, start, cold) in [(100, 1000, 1.0, None), (1000, 10_000, 2.0, Some(0.5))] {
        let host = netns::create()?;
        let before = resident()?;
        let figures = host.run(|| -> Result<_> {
            let mut cluster = Cluster::new(policies, pods)?;
            let memory = resident()?;
            Ok((cluster.local(policies)?, cluster.remote(policies)?, cluster.edited()?, cluster.cold, memory))
        })??;
        let (local, remote, edited, begun, memory) = figures;
        let what = |text: &str| format!("{text}, {policies} policies, {pods} pods");
        rows.push(Row::new(
            &what("pod's rules p50"),
            "ms",
            millis(percentile(&local, 50)),
            None,
            Some(start),
        ));
        rows.push(Row::new(&what("pod's rules p99"), "ms", millis(percentile(&local, 99)), None, None));
        rows.push(Row::new(&what("remote pod p50"), "ms", millis(percentile(&remote, 50)), None, Some(5.0)));
        rows.push(Row::new(&what("policy edited p50"), "ms", millis(percentile(&edited, 50)), None, None));
        rows.push(Row::new(&what("cold start"), "s", begun.as_secs_f64(), None, cold));
        rows.push(Row::new(&what("memory"), "MB", memory - before, None, Some(60.0)));
    }
    throughput(&mut rows)?;
    report::print(&rows);
    Ok(())
}

/// Two pods on a bridge, one stream between them: plain, then enforced, by turns.
fn throughput(rows: &mut Vec<Row>) -> Result<()> {
    const TURNS: usize = 3;
    let mut rates: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for _ in 0..TURNS {
        for policies in [0, 1, 1000] {
            rates.entry(policies).or_default().push(rate(policies)?);
        }
    }
    let median = |policies: usize| {
        let mut all = rates.get(&policies).cloned().unwrap_or_default();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    let plain = median(0);
    rows.push(Row::rate("stream on a plain bridge", "Gbit/s", plain, None, None));
    for policies in [1, 1000] {
        let what = format!("stream of an enforced pod, {policies} policies");
        rows.push(Row::rate(&what, "Gbit/s", median(policies), None, Some(plain * 0.9)));
    }
    Ok(())
}

/// Gigabits a second; without policies the bridge is left as it comes.
fn rate(policies: usize) -> Result<f64> {
    let host = netns::create()?;
    let (a, b) = (netns::create()?, netns::create()?);
    host.run(|| -> Result<()> {
        let mut socket = Socket::route()?;
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "br0", ..Bridge::default() });
        socket.exchange(&mut batch)?;
        let bridge = socket.link(LinkRef::Name("br0"))?.context("no bridge")?.index;
        for (at, pod) in [&a, &b].into_iter().enumerate() {
            let (name, mut batch) = (format!("veth{at}"), Batch::new());
            let peer = Peer { name: "eth0", netns: Some(pod.as_fd()), mac: None };
            batch.add_veth(&Veth { name: &name, up: true, master: Some(bridge), mtu: None, mac: None, peer });
            socket.exchange(&mut batch)?;
        }
        if policies > 0 {
            let mut batch = Batch::new();
            batch.filter_bridged(bridge);
            socket.exchange(&mut batch)?;
            // Policy 0 governs pod 0 and allows those with its own first label: another replica, on this node too.
            let mut cluster = Cluster::new(policies, 1000)?;
            let replica = Sandbox { addresses: vec![address(PEER)], ..sandbox(0, policies) };
            let pod = ObjectKey { name: "peer".to_owned(), ..key(0) };
            cluster.planner.sandbox(Sandbox {
                id: "peer".to_owned(),
                uid: "peer".to_owned(),
                pod,
                ..replica
            });
            cluster.load()?;
        }
        Ok(())
    })??;
    configure(&a, address(0))?;
    configure(&b, address(PEER))?;
    stream(&a, &b, address(0))
}

fn configure(pod: &Netns, ip: IpAddr) -> Result<()> {
    pod.run(|| -> Result<()> {
        let mut socket = Socket::route()?;
        let link = socket.link(LinkRef::Name("eth0"))?.context("no eth0")?.index;
        let mut batch = Batch::new();
        batch.set_link(LinkRef::Index(link), &LinkChange { up: Some(true), ..LinkChange::default() });
        batch.add_address(&NewAddress { link, net: IpNet::new(ip, 16)?, no_dad: true, broadcast: true });
        socket.exchange(&mut batch)?;
        Ok(())
    })?
}

fn stream(to: &Netns, from: &Netns, address: IpAddr) -> Result<f64> {
    let at = SocketAddr::new(address, 8000);
    let listener = to.run(|| TcpListener::bind(at))??;
    let sender = from.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)))??;
    let (mut receiver, _) = listener.accept()?;
    let thread = std::thread::Builder::new().name("send".into()).spawn(move || {
        let (mut sender, block) = (sender, vec![0_u8; 256 * 1024]);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(SECONDS) && sender.write_all(&block).is_ok() {}
    })?;
    let (mut buffer, mut bytes) = (vec![0_u8; 256 * 1024], 0_u64);
    let begun = Instant::now();
    loop {
        match receiver.read(&mut buffer)? {
            0 => break,
            some => bytes += u64::try_from(some)?,
        }
    }
    let taken = begun.elapsed().as_secs_f64();
    thread.join().map_err(|_| anyhow::anyhow!("the sender broke off"))?;
    Ok(bytes as f64 * 8.0 / taken / 1e9)
}
