//! Real programs on a real device, of every kind of attachment, and none of them left.

use super::*;
use crate::netns;
use crate::rtnl::{
    LinkRef, Peer, Veth,
    wire::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL},
};

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const LINK_CREATE: libc::c_int = 28;
const TYPE_CLASSIFIER: u32 = 3;
const TYPE_XDP: u32 = 6;
const XDP: u32 = 37;

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    rest: [u64; 8],
}

#[repr(C)]
#[derive(Default)]
struct Create {
    program: u32,
    link: u32,
    attach_type: u32,
    flags: u32,
    rest: [u64; 6],
}

/// A program that lets everything through: what it returns means that in either world.
fn program(kind: u32, answer: u64) -> OwnedFd {
    // mov r0, answer; exit
    let code = [0xb7_u64 | answer << 32, 0x95];
    let mut load = Load {
        kind,
        count: 2,
        code: code.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..Load::default()
    };
    let fd = call(PROG_LOAD, &mut load).unwrap();
    // SAFETY: a fresh descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn attach(kind: &str, link: u32, socket: &mut Socket) -> Option<OwnedFd> {
    let classifier = || program(TYPE_CLASSIFIER, 0);
    let number = |program: &OwnedFd| program.as_raw_fd().cast_unsigned();
    let created = |program: OwnedFd, attach_type: u32| {
        let mut create = Create { program: number(&program), link, attach_type, ..Create::default() };
        let fd = call(LINK_CREATE, &mut create).unwrap();
        // SAFETY: a fresh descriptor that nobody else owns.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    match kind {
        "tcx" => {
            let own = classifier();
            let mut attach = Detach { link, program: number(&own), attach_type: TCX[0], flags: 0 };
            call(PROG_ATTACH, &mut attach).unwrap();
            None
        }
        "tcx held" => created(classifier(), TCX[1]),
        "xdp held" => created(program(TYPE_XDP, 2), XDP),
        "xdp" => {
            let own = program(TYPE_XDP, 2);
            let mut batch = Batch::new();
            batch.set_xdp(link, Some(own.as_raw_fd()), 0);
            socket.exchange(&mut batch).unwrap();
            None
        }
        _ => {
            let own = classifier();
            let mut batch = Batch::new();
            let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
            let to = |parent: u32, info: u32| {
                let words = [0, link, 0xffff_0000 & parent, parent, info];
                words.map(u32::to_ne_bytes).concat()
            };
            batch.push("add hooks", 36, flags, |m| {
                m.put(&to(0xffff_fff1, 0)).str(1, "clsact");
            });
            // Straight to its answer, on the way in, for all protocols.
            batch.push("add filter", 44, flags, |m| {
                let mut header = to(0xffff_fff2, 1 << 16 | 0x0300);
                header[8..12].fill(0);
                m.put(&header).str(1, "bpf").nested(2, |m| {
                    m.u32(6, own.as_raw_fd().cast_unsigned()).str(7, "test").u32(8, 1);
                });
            });
            let outcome = socket.run(&mut batch).unwrap();
            // The hooks may be there from the round before.
            assert!(outcome.refusals.iter().all(|no| no.index == 0 && no.errno == rustix::io::Errno::EXIST));
            None
        }
    }
}

#[test]
fn programs_of_every_kind_are_taken_off_a_device_and_off_no_other() {
    netns::create()
        .unwrap()
        .run(|| {
            let mut socket = Socket::route().unwrap();
            let mut batch = Batch::new();
            let peer = Peer { name: "far0", netns: None, mac: None };
            batch.add_veth(&Veth { name: "near0", up: true, master: None, mtu: None, mac: None, peer });
            socket.exchange(&mut batch).unwrap();
            let index = |socket: &mut Socket, name| socket.link(LinkRef::Name(name)).unwrap().unwrap().index;
            let (near, far) = (index(&mut socket, "near0"), index(&mut socket, "far0"));
            assert_eq!(detach(near).unwrap(), 0, "there is none");
            let kept = attach("tcx held", far, &mut socket);
            for kinds in
                [&["tcx"][..], &["tcx held"], &["xdp"], &["xdp held"], &["filter"], &["tcx", "xdp", "filter"]]
            {
                let held: Vec<_> = kinds.iter().map(|kind| attach(kind, near, &mut socket)).collect();
                assert_eq!(detach(near).unwrap(), kinds.len(), "{kinds:?}");
                assert_eq!(detach(near).unwrap(), 0, "{kinds:?} is gone");
                assert!(
                    socket.xdp(near).unwrap().is_empty() && tcx(near, TCX[0]).unwrap().is_empty(),
                    "{kinds:?}"
                );
                drop(held);
            }
            assert_eq!(tcx(far, TCX[1]).unwrap().len(), 1);
            drop(kept);
        })
        .unwrap();
}
