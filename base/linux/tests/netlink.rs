//! Requests against the running kernel, in network namespaces of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use ipnet::IpNet;
use podwire_linux::netns;
use podwire_linux::nft::expr::{self, MetaKey, PayloadBase, Side};
use podwire_linux::nft::transaction::SetValue;
use podwire_linux::nft::{
    Base, CmpOp, Element, Expr, Family, Hook, Register, Set, Table, Transaction, Verdict,
};
use podwire_linux::rtnl::{
    Batch, Bridge, Link, LinkChange, LinkRef, Mac, Neighbour, NewAddress, Peer, Route, Socket, Veth,
};

fn inside(test: impl FnOnce() + Send) {
    netns::create().expect("namespace (needs root)").run(test).expect("inside");
}

fn up(name: &str) {
    let mut batch = Batch::new();
    batch.set_link(LinkRef::Name(name), &LinkChange { up: Some(true), ..LinkChange::default() });
    Socket::route().expect("socket").exchange(&mut batch).expect("up");
}

fn net(text: &str) -> IpNet {
    text.parse().expect("net")
}

#[test]
fn a_batch_goes_on_past_a_refusal_and_names_it() {
    inside(|| {
        let mut socket = Socket::route().expect("socket");
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "br0", mtu: Some(1400), ..Bridge::default() });
        batch.del_link(LinkRef::Name("none0"));
        batch.add_bridge(&Bridge { name: "br1", ..Bridge::default() });
        let outcome = socket.run(&mut batch).expect("run");
        assert_eq!(outcome.refusals.len(), 1);
        assert_eq!((outcome.refusals[0].index, outcome.refusals[0].attempt), (1, "delete link"));
        assert_eq!(outcome.replies.iter().filter_map(Link::parse).count(), 2, "the new bridges are echoed");
        let link = socket.link(LinkRef::Name("br0")).expect("look up").expect("br0");
        // Kernels before 6.2 echo nothing.
        for echoed in [outcome.replies.as_slice(), &[]] {
            let made = socket.made(echoed, "br0").expect("look up").expect("made");
            assert_eq!((made.index, made.name.as_str()), (link.index, "br0"));
        }
        assert_eq!((link.mtu, link.kind.as_deref(), link.is_up()), (1400, Some("bridge"), true));
        assert!(socket.link(LinkRef::Name("none0")).expect("look up").is_none());
    });
}

#[test]
fn a_veth_is_born_in_its_namespace_with_addresses_routes_and_neighbours() {
    inside(|| {
        let pod = netns::create().expect("pod");
        let mut socket = Socket::route().expect("socket");
        let mut batch = Batch::new();
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        let peer = Peer { name: "eth0", netns: Some(pod.as_fd()), mac: Some(mac) };
        batch.add_veth(&Veth { name: "veth0", up: true, master: None, mtu: Some(1400), mac: None, peer });
        let replies = socket.exchange(&mut batch).expect("veth");
        let host = replies.iter().find_map(Link::parse).expect("echo");
        let index = host.peer.expect("peer");
        let asked = socket.made(&[], "veth0").expect("look up").expect("made");
        assert_eq!((asked.index, asked.peer), (host.index, host.peer), "the same without an echo");
        pod.run(|| {
            let mut socket = Socket::route().expect("socket");
            let mut batch = Batch::new();
            for text in ["10.1.0.2/24", "fd01::2/64"] {
                batch.add_address(&NewAddress { link: index, net: net(text), no_dad: true, broadcast: true });
            }
            batch.set_link(LinkRef::Index(index), &LinkChange { up: Some(true), ..LinkChange::default() });
            let gateway = "10.1.0.1".parse().expect("ip");
            batch.add_route(&Route {
                mtu: Some(1300),
                priority: Some(7),
                ..Route::by_gateway(net("0.0.0.0/0"), gateway, index)
            });
            batch.set_neighbour(&Neighbour { link: index, ip: gateway, mac });
            batch.get_link(LinkRef::Index(index));
            let replies = socket.exchange(&mut batch).expect("all in one");
            let link = replies.iter().find_map(Link::parse).expect("link");
            assert_eq!((link.mac, link.mtu, link.name.as_str()), (Some(mac), 1400, "eth0"));
            let addresses = socket.addresses(index).expect("addresses");
            assert!(
                addresses.iter().any(|a| a.net == net("fd01::2/64") && a.flags & 0x40 == 0),
                "usable at once: {addresses:?}"
            );
            let routes = socket.routes(Some(index), false).expect("routes");
            assert!(
                routes
                    .iter()
                    .any(|r| r.mtu == Some(1300) && r.priority == Some(7) && r.gateway == Some(gateway)),
                "{routes:?}"
            );
            assert_eq!(socket.route_to("9.9.9.9".parse().expect("ip")).expect("route"), Some(index));
            assert!(
                socket.neighbours(index).expect("neighbours").iter().any(|n| n.ip == gateway && n.mac == mac)
            );
            let mut batch = Batch::new();
            batch.del_neighbour(index, gateway);
            batch.del_address(index, net("10.1.0.2/24"));
            socket.exchange(&mut batch).expect("remove");
        })
        .expect("in the pod");
    });
}

const TABLE: Table<'static> = Table { family: Family::Inet, name: "test" };

fn commit(build: impl FnOnce(&mut Transaction)) -> Result<(), podwire_linux::nft::Error> {
    let mut tx = Transaction::new();
    build(&mut tx);
    tx.commit(&mut podwire_linux::nft::Socket::netfilter().expect("socket"))
}

#[test]
fn a_transaction_is_all_or_nothing() {
    inside(|| {
        let error = commit(|tx| {
            tx.add_table(TABLE, None);
            tx.add_chain(TABLE, "a", None);
            tx.add_rule(TABLE, "missing", &[Expr::Counter], None);
        })
        .expect_err("no such chain");
        assert!(error.is_absent(), "{error}");
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        assert!(socket.nft_tables(Family::Inet).expect("tables").is_empty());
        commit(|tx| {
            tx.add_table(TABLE, Some("a note"));
            tx.add_chain(TABLE, "a", None);
            tx.add_rule(TABLE, "a", &[Expr::Counter, Expr::Verdict(Verdict::Return)], Some("mine"));
        })
        .expect("table");
        let rules = socket.nft_rules(TABLE, Some("a")).expect("rules");
        assert_eq!(rules[0].comment.as_deref(), Some("mine"));
        commit(|tx| tx.delete_rule(TABLE, "a", rules[0].handle)).expect("delete by handle");
        assert!(socket.nft_rules(TABLE, None).expect("rules").is_empty());
        assert!(socket.nft_rules(Table { name: "none", ..TABLE }, None).expect("absent is empty").is_empty());
        commit(|tx| tx.delete_table(TABLE)).expect("delete");
    });
}

/// Sends to a port of this namespace's own and tells whether it arrived.
fn arrives(port: u16) -> bool {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("bind");
    server.set_read_timeout(Some(Duration::from_millis(200))).expect("time-out");
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    client.send_to(b"x", SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)).expect("send");
    server.recv_from(&mut [0; 4]).is_ok()
}

#[test]
fn sets_and_verdict_maps_decide_about_packets() {
    inside(|| {
        up("lo");
        let port = |number: u16| Element { key: number.to_be_bytes().to_vec(), ..Element::default() };
        let load_port = Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to: Register::R1 };
        commit(|tx| {
            tx.add_table(TABLE, None);
            tx.add_chain(TABLE, "refuse", None);
            tx.add_rule(TABLE, "refuse", &[Expr::Verdict(Verdict::Drop)], None);
            tx.add_chain(
                TABLE,
                "input",
                Some(Base { kind: "filter", hook: Hook::Input, priority: 0, drop: false }),
            );
            tx.add_set(
                TABLE,
                &Set { name: "closed", key_type: 13, key_len: 2, interval: false, value: SetValue::None },
            );
            tx.add_set(
                TABLE,
                &Set {
                    name: "verdicts",
                    key_type: 13,
                    key_len: 2,
                    interval: false,
                    value: SetValue::Verdict,
                },
            );
            let mut by_set = expr::l4proto(17);
            by_set.extend([
                load_port.clone(),
                Expr::Lookup { set: "closed".into(), from: Register::R1, to: None, invert: false },
                Expr::Verdict(Verdict::Drop),
            ]);
            tx.add_rule(TABLE, "input", &by_set, None);
            let mut by_map = expr::l4proto(17);
            by_map.extend([
                load_port,
                Expr::Lookup {
                    set: "verdicts".into(),
                    from: Register::R1,
                    to: Some(Register::VERDICT),
                    invert: false,
                },
            ]);
            tx.add_rule(TABLE, "input", &by_map, None);
            tx.add_elements(TABLE, "closed", &[Element { comment: Some("why".into()), ..port(1001) }], true);
            let jump = Element { verdict: Some(Verdict::Jump("refuse".into())), ..port(1002) };
            tx.add_elements(TABLE, "verdicts", &[jump], true);
        })
        .expect("ruleset");
        assert_eq!([arrives(1000), arrives(1001), arrives(1002)], [true, false, false]);
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        let found =
            socket.nft_element(TABLE, "closed", &1001u16.to_be_bytes()).expect("get").expect("element");
        assert_eq!(found.comment.as_deref(), Some("why"));
        assert!(socket.nft_element(TABLE, "closed", &9u16.to_be_bytes()).expect("get").is_none());
        assert!(
            commit(|tx| tx.add_elements(TABLE, "closed", &[port(1001)], true))
                .is_err_and(|error| error.is_present())
        );
        // One transaction opens one port and closes another.
        commit(|tx| {
            tx.delete_elements(TABLE, "closed", &[port(1001)]);
            tx.add_elements(TABLE, "closed", &[port(1000)], true);
            tx.flush_set(TABLE, "verdicts");
        })
        .expect("update");
        assert_eq!([arrives(1000), arrives(1001), arrives(1002)], [false, true, true]);
        assert_eq!(socket.nft_elements(TABLE, "closed").expect("list").len(), 1);
    });
}

#[test]
fn a_map_of_ports_rewrites_destinations() {
    inside(|| {
        up("lo");
        let table = Table { family: Family::Ip, name: "test" };
        let result = commit(|tx| {
            tx.add_table(table, None);
            tx.add_chain(
                table,
                "output",
                Some(Base { kind: "nat", hook: Hook::Output, priority: -100, drop: false }),
            );
            // protocol . port : address . port
            let value = SetValue::Data { kind: 7 << 6 | 13, len: 8 };
            tx.add_set(
                table,
                &Set { name: "ports", key_type: 12 << 6 | 13, key_len: 8, interval: false, value },
            );
            let rule = [
                Expr::Meta { key: MetaKey::L4Proto, to: Register::word(0) },
                Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to: Register::word(1) },
                Expr::Lookup {
                    set: "ports".into(),
                    from: Register::word(0),
                    to: Some(Register::word(0)),
                    invert: false,
                },
                Expr::Dnat { v6: false, addr: Register::word(0), port: Some(Register::word(1)) },
            ];
            tx.add_rule(table, "output", &rule, None);
            let key = [&[17, 0, 0, 0], 4000u16.to_be_bytes().as_slice(), &[0, 0]].concat();
            let data = [&[127, 0, 0, 1], 5000u16.to_be_bytes().as_slice(), &[0, 0]].concat();
            tx.add_elements(table, "ports", &[Element { key, data: Some(data), ..Element::default() }], true);
        });
        result.expect("ruleset");
        let server = UdpSocket::bind("127.0.0.1:5000").expect("bind");
        server.set_read_timeout(Some(Duration::from_secs(2))).expect("time-out");
        let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
        client.send_to(b"x", "127.0.0.1:4000").expect("send");
        server.recv_from(&mut [0; 4]).expect("rewritten");
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        assert!(socket.forget_connections(false, 17, 4000).expect("forget") >= 1);
        assert_eq!(socket.forget_connections(false, 17, 4000).expect("forget"), 0);
    });
}

#[test]
fn addresses_are_matched_with_their_prefix() {
    inside(|| {
        up("lo");
        let blocked = |text: &str, op| {
            commit(|tx| {
                tx.add_table(TABLE, None);
                tx.add_chain(
                    TABLE,
                    "input",
                    Some(Base { kind: "filter", hook: Hook::Input, priority: 0, drop: false }),
                );
                tx.flush_chain(TABLE, "input");
                let mut rule = expr::nfproto(false);
                rule.extend(expr::l4proto(17));
                rule.extend(expr::address(Side::Source, op, net(text)));
                rule.push(Expr::Verdict(Verdict::Drop));
                tx.add_rule(TABLE, "input", &rule, None);
            })
            .expect("rule");
            !arrives(2000)
        };
        assert!(blocked("127.0.0.1/32", CmpOp::Eq));
        assert!(blocked("127.0.0.0/8", CmpOp::Eq));
        assert!(!blocked("127.0.0.0/30", CmpOp::Ne));
        assert!(blocked("128.0.0.0/1", CmpOp::Ne));
        assert!(!blocked("10.0.0.0/8", CmpOp::Eq));
    });
}

#[test]
fn the_probe_finds_what_pods_need() {
    podwire_linux::rtnl::probe().expect("this kernel has bridges and veths");
}

#[test]
fn a_ruleset_is_read_back_as_it_was_written() {
    inside(|| {
        let address = |last: u8| Element { key: vec![10, 0, 0, last], ..Element::default() };
        let mut rule = expr::l4proto(6);
        rule.extend([
            Expr::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to: Register::R1 },
            Expr::Cmp { op: CmpOp::Gte, from: Register::R1, data: 80u16.to_be_bytes().to_vec() },
            Expr::Cmp { op: CmpOp::Lte, from: Register::R1, data: 90u16.to_be_bytes().to_vec() },
        ]);
        rule.extend(expr::address(Side::Source, CmpOp::Eq, net("10.0.0.0/8")));
        rule.extend([
            expr::load_address(Side::Source, false, Register::R1),
            Expr::Lookup { set: "peers".into(), from: Register::R1, to: None, invert: true },
            Expr::Verdict(Verdict::Goto("leaf".into())),
        ]);
        let elements: Vec<Element> = (1..=200).map(address).collect();
        commit(|tx| {
            tx.add_table(TABLE, None);
            tx.add_noted_chain(TABLE, "leaf", "whose it is");
            tx.add_chain(TABLE, "root", None);
            let plain =
                Set { name: "peers", key_type: 7, key_len: 4, interval: false, value: SetValue::None };
            tx.add_set(TABLE, &plain);
            tx.add_set(TABLE, &Set { name: "ways", value: SetValue::Verdict, ..plain });
            tx.add_elements(TABLE, "peers", &elements, true);
            let way = Element { verdict: Some(Verdict::Jump("leaf".into())), ..address(1) };
            tx.add_elements(TABLE, "ways", &[way], true);
            tx.add_rule(TABLE, "root", &rule, Some("first"));
            tx.add_rule(TABLE, "leaf", &[Expr::Counter, Expr::Verdict(Verdict::Drop)], None);
        })
        .expect("ruleset");
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        let chains = socket.nft_chains(TABLE).expect("chains");
        let leaf = chains.iter().find(|chain| chain.name == "leaf").expect("leaf");
        assert_eq!((chains.len(), leaf.comment.as_deref()), (2, Some("whose it is")));
        assert_eq!(socket.nft_sets(TABLE).expect("sets"), ["peers", "ways"]);
        assert_eq!(socket.nft_elements(TABLE, "peers").expect("elements").len(), 200);
        let ways = socket.nft_elements(TABLE, "ways").expect("elements");
        assert_eq!(ways[0].verdict, Some(Verdict::Jump("leaf".into())));
        let listed = socket.nft_listing(TABLE, Some("root")).expect("rules");
        assert_eq!((listed[0].exprs.as_ref(), listed[0].comment.as_deref()), (Some(&rule), Some("first")));
        let all = socket.nft_listing(TABLE, None).expect("rules");
        let drop = all.iter().find(|rule| rule.chain == "leaf").expect("drop");
        assert_eq!(
            (drop.packets, drop.exprs.as_deref()),
            (Some(0), Some(&[Expr::Verdict(Verdict::Drop)][..]))
        );
    });
}

#[test]
fn ranges_with_holes_are_an_interval_set() {
    inside(|| {
        up("lo");
        let edge = |last: u8, end: bool| Element {
            key: vec![127, 0, 0, last],
            interval_end: end,
            ..Element::default()
        };
        commit(|tx| {
            tx.add_table(TABLE, None);
            let base = Base { kind: "filter", hook: Hook::Input, priority: 0, drop: false };
            tx.add_chain(TABLE, "input", Some(base));
            let set = Set { name: "block", key_type: 7, key_len: 4, interval: true, value: SetValue::None };
            tx.add_set(TABLE, &set);
            // 127.0.0.0 to 127.0.0.9 without 127.0.0.4 to 127.0.0.5.
            tx.add_elements(
                TABLE,
                "block",
                &[edge(0, false), edge(4, true), edge(6, false), edge(10, true)],
                true,
            );
            let mut rule = expr::l4proto(17);
            rule.extend([
                expr::load_address(Side::Destination, false, Register::R1),
                Expr::Lookup { set: "block".into(), from: Register::R1, to: None, invert: false },
                Expr::Verdict(Verdict::Drop),
            ]);
            tx.add_rule(TABLE, "input", &rule, None);
        })
        .expect("ruleset");
        let arrives_at = |last: u8| {
            let address = SocketAddr::from(([127, 0, 0, last], 4100));
            let server = UdpSocket::bind(address).expect("bind");
            server.set_read_timeout(Some(Duration::from_millis(200))).expect("time-out");
            let client = UdpSocket::bind("127.0.0.50:0").expect("bind");
            client.send_to(b"x", address).expect("send");
            server.recv_from(&mut [0; 4]).is_ok()
        };
        let arrived: Vec<bool> = [1, 3, 4, 5, 6, 9, 10].into_iter().map(arrives_at).collect();
        assert_eq!(arrived, [false, false, true, true, false, false, true]);
    });
}

#[test]
fn connections_are_listed_and_forgotten_one_by_one() {
    inside(|| {
        up("lo");
        // Without a rule that asks for it nothing is tracked.
        commit(|tx| {
            tx.add_table(TABLE, None);
            let base = Base { kind: "filter", hook: Hook::Input, priority: 0, drop: false };
            tx.add_chain(TABLE, "input", Some(base));
            let mut rule = expr::ct_state(2);
            rule.push(Expr::Verdict(Verdict::Accept));
            tx.add_rule(TABLE, "input", &rule, None);
        })
        .expect("ruleset");
        assert!(arrives(4200));
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        let found = socket.connections(false).expect("list");
        let ours: Vec<_> = found.into_iter().filter(|one| one.port == Some(4200)).collect();
        assert_eq!(ours.len(), 1);
        assert_eq!((ours[0].protocol, ours[0].answers), (17, IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(socket.forget(&ours).expect("forget"), 1);
        assert_eq!(socket.forget(&ours).expect("again"), 0);
        assert!(socket.connections(true).expect("list").is_empty());
    });
}

#[test]
fn a_ruleset_larger_than_a_sockets_buffer_is_one_transaction() {
    inside(|| {
        let address =
            |n: u32| Element { key: (0x0a00_0000 + n).to_be_bytes().to_vec(), ..Element::default() };
        let elements: Vec<Element> = (0..60_000).map(address).collect();
        commit(|tx| {
            tx.add_table(TABLE, None);
            let set = Set { name: "many", key_type: 7, key_len: 4, interval: false, value: SetValue::None };
            tx.add_set(TABLE, &set);
            tx.add_elements(TABLE, "many", &elements, true);
        })
        .expect("taken");
        let mut socket = podwire_linux::nft::Socket::netfilter().expect("socket");
        assert_eq!(socket.nft_elements(TABLE, "many").expect("elements").len(), 60_000);
    });
}
