//! A node without a runtime: a bridge and pods as namespaces, a plan, and the table that it is loaded into.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use podwire_linux::netns::{self, Netns};
use podwire_linux::rtnl::{Batch, Bridge, LinkChange, LinkRef, NewAddress, Peer, Route, Socket, Veth};
use podwire_netplugin::cluster_policy::ClusterPolicy;
use podwire_netplugin::plan::evaluate::{Flow, judge};
use podwire_netplugin::plan::tables::Family;
use podwire_netplugin::plan::{Node, Planner, Pod, Sandbox};
use podwire_netplugin::policy::{Direction, ObjectKey, Policy, TCP, UDP};
use podwire_netplugin::table::{Frame, Table};
use serde_json::{Value, json};

const MOMENT: Duration = Duration::from_millis(60);
const NAMES: [&str; 4] = ["x/a", "x/b", "y/a", "y/b"];

pub(crate) struct World {
    host: Netns,
    pods: BTreeMap<String, (Arc<Netns>, IpAddr)>,
    planner: Planner,
    table: Table,
    /// What was said, to say it again.
    policies: BTreeMap<String, Value>,
}

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').expect("NAMESPACE/NAME");
    ObjectKey { namespace: namespace.into(), name: name.into() }
}

fn frame() -> Frame {
    let floor = vec!["10.77.0.0/24".parse().expect("net")];
    Frame { families: vec![Family::V4, Family::V6], floor, links: vec!["br0".into()] }
}

fn index(socket: &mut Socket, name: &str) -> u32 {
    socket.link(LinkRef::Name(name)).expect("look up").expect("link").index
}

impl World {
    pub(crate) fn new() -> World {
        let host = netns::create().expect("namespace (needs root)");
        host.run(|| {
            let mut socket = Socket::route().expect("socket");
            let mut batch = Batch::new();
            batch.set_link(LinkRef::Name("lo"), &LinkChange { up: Some(true), ..LinkChange::default() });
            batch.add_bridge(&Bridge { name: "br0", ..Bridge::default() });
            socket.exchange(&mut batch).expect("bridge");
            let bridge = index(&mut socket, "br0");
            let mut batch = Batch::new();
            batch.add_address(&NewAddress {
                link: bridge,
                net: "10.77.0.1/24".parse().expect("net"),
                no_dad: true,
                broadcast: true,
            });
            batch.filter_bridged(bridge);
            socket.exchange(&mut batch).expect("bridge");
        })
        .expect("host");
        let mut pods = BTreeMap::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            let ip = IpAddr::from([10, 77, 0, u8::try_from(at + 2).expect("small")]);
            pods.insert(name.to_owned(), (Arc::new(attach(&host, at, ip)), ip));
        }
        let (planner, table) = host.run(open).expect("host");
        let mut world = World { host, pods, planner, table, policies: BTreeMap::new() };
        world.fill();
        world
    }

    fn fill(&mut self) {
        for name in ["x", "y"] {
            self.planner.namespace(name, [("ns".to_owned(), name.to_owned())].into());
        }
        for name in NAMES {
            self.place(name);
        }
        let found = self.table.read().expect("read");
        let change = self.planner.against(&found);
        self.table.apply(&change).expect("load");
    }

    fn place(&mut self, name: &str) {
        let key = key(name);
        let labels: BTreeMap<String, String> = [("pod".to_owned(), key.name.clone())].into();
        let ports = vec![("web".to_owned(), TCP, 80), ("dns".to_owned(), UDP, 81)];
        let pod =
            Pod { uid: name.into(), labels: labels.clone(), node: "here".into(), ports, ..Pod::default() };
        self.planner.pod(key.clone(), pod);
        let addresses = vec![self.pods[name].1];
        self.planner.sandbox(Sandbox { id: name.into(), pod: key, uid: name.into(), labels, addresses });
    }

    fn load(&mut self) {
        let change = self.planner.take();
        self.table.apply(&change).unwrap_or_else(|error| panic!("{error}: {change:?}: {error:?}"));
    }

    /// Another process takes over: it knows nothing but what it is told, and finds the table.
    pub(crate) fn restart(&mut self) {
        let (planner, table) = self.host.run(open).expect("host");
        (self.planner, self.table) = (planner, table);
        for (name, spec) in self.policies.clone() {
            self.planner.policy(read(&name, &spec));
        }
        self.fill();
    }

    pub(crate) fn run(&mut self, name: &str) {
        self.place(name);
        self.load();
    }

    pub(crate) fn stop(&mut self, name: &str) {
        let gone = self.planner.sandbox_gone(name);
        self.load();
        self.table.forget(|one| gone.contains(&one.source) || gone.contains(&one.answers)).expect("forget");
    }

    pub(crate) fn policy(&mut self, name: &str, spec: &Value) {
        self.policies.insert(name.to_owned(), spec.clone());
        self.planner.policy(read(name, spec));
        self.load();
        self.forget_all();
    }

    pub(crate) fn gone(&mut self, name: &str) {
        self.policies.remove(name);
        self.planner.policy_gone(&key(name));
        self.load();
        self.forget_all();
    }

    pub(crate) fn cluster(&mut self, name: &str, spec: &Value) {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.planner.cluster_policy(ClusterPolicy::read(&object).expect("policy"));
        self.load();
        self.forget_all();
    }

    /// The node has this label and the address that pods see.
    pub(crate) fn node(&mut self, name: &str, role: &str) {
        let labels = [("role".to_owned(), role.to_owned())].into();
        self.planner.node(name, Node { labels, addresses: vec![self.address("node")] });
        self.load();
        self.forget_all();
    }

    /// So that each probe is a new connection.
    fn forget_all(&mut self) {
        self.table.forget(|_| true).expect("forget");
    }

    pub(crate) fn net(&self) -> String {
        "10.77.0.0/24".into()
    }

    pub(crate) fn block(&self, name: &str) -> String {
        format!("{}/32", self.pods[name].1)
    }

    fn netns(&self, name: &str) -> &Netns {
        self.pods.get(name).map_or(&self.host, |(netns, _)| netns)
    }

    fn address(&self, name: &str) -> IpAddr {
        self.pods.get(name).map_or(IpAddr::from([10, 77, 0, 1]), |(_, ip)| *ip)
    }

    pub(crate) fn passes(&self, from: &str, to: &str, protocol: u8, port: u16) -> bool {
        passes(self.netns(from), None, self.netns(to), SocketAddr::new(self.address(to), port), protocol)
    }

    /// Whether what should pass does, at last: a busy machine may be late.
    pub(crate) fn reaches(&self, from: &str, to: &str, protocol: u8, port: u16) -> bool {
        // A new link's carrier is told up to a second late, more on a busy machine; and each attempt waits for itself.
        (0..50).any(|_| self.passes(from, to, protocol, port))
    }

    pub(crate) fn passes_from(&self, from: &str, ip: &str, to: &str) -> bool {
        let source = SocketAddr::new(ip.parse().expect("address"), 0);
        passes(self.netns(from), Some(source), self.netns(to), SocketAddr::new(self.address(to), 80), UDP)
    }

    /// Gives a pod an address that is not its own, and everybody the way to it.
    pub(crate) fn spoof(&self, name: &str, ip: &str) {
        let net: IpNet = format!("{ip}/32").parse().expect("net");
        self.netns(name)
            .run(|| {
                let mut socket = Socket::route().expect("socket");
                let link = index(&mut socket, "eth0");
                let mut batch = Batch::new();
                batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: false });
                socket.exchange(&mut batch).expect("address");
            })
            .expect("inside");
    }

    /// Every pod to every other, on ports that policies name and do not name; the plan and the kernel must agree.
    pub(crate) fn check(&self, what: &str) {
        let asks: Vec<(&str, &str, u8, u16)> = NAMES
            .iter()
            .flat_map(|from| NAMES.iter().filter(move |to| *to != from).map(move |to| (*from, *to)))
            .flat_map(|(from, to)| {
                [(TCP, 80), (TCP, 81), (UDP, 80), (UDP, 81)].map(|(p, port)| (from, to, p, port))
            })
            .collect();
        let wrong: Vec<String> = std::thread::scope(|scope| {
            // Ports are listened to inside pods: probes of one target do not run at once.
            let of_target = |target: &'static str| {
                let asks: Vec<_> = asks.iter().copied().filter(|ask| ask.1 == target).collect();
                move || {
                    let mut wrong = Vec::new();
                    for (from, to, protocol, port) in asks {
                        let expected = self.planned(from, to, protocol, port);
                        let mut passed = self.passes(from, to, protocol, port);
                        for _ in 0..3 {
                            // A busy machine may be late with what passes.
                            passed = passed || expected && self.passes(from, to, protocol, port);
                        }
                        if passed != expected {
                            wrong.push(format!(
                                "{from} -> {to} {protocol}/{port}: planned {expected}, passed {passed}"
                            ));
                        }
                    }
                    wrong
                }
            };
            let threads: Vec<_> = NAMES
                .into_iter()
                .map(|target| {
                    std::thread::Builder::new()
                        .name("probe".into())
                        .spawn_scoped(scope, of_target(target))
                        .expect("thread")
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("probe")).collect()
        });
        assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
    }

    fn planned(&self, from: &str, to: &str, protocol: u8, port: u16) -> bool {
        let flow =
            Flow { source: self.address(from), destination: self.address(to), protocol, port: Some(port) };
        let floor = &frame().floor;
        Direction::BOTH.iter().all(|direction| judge(self.planner.tables(), floor, flow, *direction).allowed)
    }

    /// What is read back from the kernel says of every connection what the plan says.
    pub(crate) fn check_listing(&mut self) {
        let listing = self.table.list().expect("list");
        assert!(listing.unknown.is_empty(), "{:?}", listing.unknown);
        for (from, to) in NAMES.iter().flat_map(|from| NAMES.iter().map(move |to| (from, to))) {
            for (protocol, port) in [(TCP, 80), (TCP, 5), (TCP, 10), (UDP, 80), (UDP, 5)] {
                let flow = Flow {
                    source: self.address(from),
                    destination: self.address(to),
                    protocol,
                    port: Some(port),
                };
                for direction in Direction::BOTH {
                    let planned = judge(self.planner.tables(), &[], flow, direction);
                    assert_eq!(judge(&listing.tables, &[], flow, direction), planned);
                }
            }
        }
    }

    /// Whoever looks at the node with `nft` sees the table.
    pub(crate) fn check_with_nft(&self) {
        let out = self.host.run(|| std::process::Command::new("nft").args(["list", "ruleset"]).output());
        let out = out.expect("inside").expect("nft");
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("podwire"), "{}: {text}", out.status);
    }

    /// Sends packets from one to the other as fast as it can, until it is told to stop.
    pub(crate) fn bombard(&self, from: &str, to: &str) -> Bombardment {
        let address = SocketAddr::new(self.address(to), 9);
        let bind = SocketAddr::from(([0, 0, 0, 0], 9));
        let server = self.netns(to).run(|| UdpSocket::bind(bind)).expect("inside").expect("bind");
        let client = self.netns(from).run(|| UdpSocket::bind("0.0.0.0:0")).expect("inside").expect("bind");
        server.set_nonblocking(true).expect("non-blocking");
        let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count) = (over.clone(), sent.clone());
        let thread = std::thread::Builder::new()
            .name("bombard".into())
            .spawn(move || {
                while !until.load(Ordering::Relaxed) {
                    if client.send_to(b"x", address).is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
            .expect("thread");
        Bombardment { over, sent, server, thread }
    }
}

pub(crate) struct Bombardment {
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    server: UdpSocket,
    thread: std::thread::JoinHandle<()>,
}

impl Bombardment {
    /// How many packets were sent, and how many arrived.
    pub(crate) fn stop(self) -> (u64, u64) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("sender");
        let mut arrived = 0;
        while self.server.recv_from(&mut [0; 4]).is_ok() {
            arrived += 1;
        }
        (self.sent.load(Ordering::Relaxed), arrived)
    }
}

fn open() -> (Planner, Table) {
    let mut table = Table::open("test_policy", frame()).expect("table");
    table.lay_floor().expect("floor");
    (Planner::new("here", &[Family::V4, Family::V6]), table)
}

fn read(name: &str, spec: &Value) -> Policy {
    let key = key(name);
    let object = json!({"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec});
    Policy::read(&serde_json::from_value(object).expect("policy"))
}

fn attach(host: &Netns, at: usize, ip: IpAddr) -> Netns {
    let pod = netns::create().expect("namespace");
    let name = format!("veth{at}");
    host.run(|| {
        let mut socket = Socket::route().expect("socket");
        let master = Some(index(&mut socket, "br0"));
        let mut batch = Batch::new();
        let peer = Peer { name: "eth0", netns: Some(pod.as_fd()), mac: None };
        batch.add_veth(&Veth { name: &name, up: true, master, mtu: None, mac: None, peer });
        socket.exchange(&mut batch).expect("veth");
    })
    .expect("host");
    pod.run(|| {
        let mut socket = Socket::route().expect("socket");
        let link = index(&mut socket, "eth0");
        let mut batch = Batch::new();
        for name in ["lo", "eth0"] {
            batch.set_link(LinkRef::Name(name), &LinkChange { up: Some(true), ..LinkChange::default() });
        }
        let net = IpNet::new(ip, 24).expect("net");
        batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
        batch.add_route(&Route::by_gateway(
            "0.0.0.0/0".parse().expect("net"),
            IpAddr::from([10, 77, 0, 1]),
            link,
        ));
        socket.exchange(&mut batch).expect("inside");
    })
    .expect("pod");
    pod
}

fn passes(
    source: &Netns,
    bind: Option<SocketAddr>,
    target: &Netns,
    address: SocketAddr,
    protocol: u8,
) -> bool {
    let listen = SocketAddr::from(([0, 0, 0, 0], address.port()));
    if protocol == TCP {
        let listener = target.run(|| TcpListener::bind(listen)).expect("inside").expect("bind");
        let connected = source.run(|| TcpStream::connect_timeout(&address, MOMENT)).expect("inside");
        let Ok(mut stream) = connected else { return false };
        stream.set_read_timeout(Some(MOMENT)).expect("time-out");
        drop(listener.accept().expect("accept"));
        return stream.read(&mut [0; 1]).is_ok();
    }
    let any = bind.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
    let server = target.run(|| UdpSocket::bind(listen)).expect("inside").expect("bind");
    let client = source.run(|| UdpSocket::bind(any)).expect("inside").expect("bind");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(MOMENT)).expect("time-out");
    }
    // Ignored: what may not be sent does not arrive.
    client.send_to(b"?", address).ok();
    let Ok((_, peer)) = server.recv_from(&mut [0; 4]) else { return false };
    server.send_to(b"!", peer).expect("answer");
    bind.is_some() || client.recv_from(&mut [0; 4]).is_ok()
}
