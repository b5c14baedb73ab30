//! Any bytes as a network configuration: every plugin's reading of it must not panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_cni_lib::networks::conflist::Conflist;
use podwire_cni_lib::plugins::{bridge, host_local, portmap};
use podwire_cni_lib::spec::request::{Command, Request};
use podwire_cni_lib::spec::version::{self, Version};

fuzz_target!(|input: (&str, &[u8])| {
    let (args, bytes) = input;
    drop((Version::parse(args), version::reconcile(args, &["0.4.0", "1.0.0", "1.1.0"])));
    if let Ok(list) = Conflist::parse(bytes, None) {
        for step in 0..list.plugins.len() {
            std::hint::black_box(list.kind(step));
        }
    }
    let Ok(conf) = serde_json::from_slice(bytes) else { return };
    let request = Request {
        command: Command::Add,
        container_id: "c1".to_owned(),
        netns: "/run/netns/n".to_owned(),
        ifname: "eth0".to_owned(),
        args: args.to_owned(),
        path: Vec::new(),
        netns_override: false,
        trace: Vec::new(),
        netns_is_dying: false,
        is_program: false,
        conf,
    };
    drop((request.version(), request.network(), request.prev_result(), request.valid_attachments()));
    drop((bridge::conf::Conf::parse(&request), portmap::conf::Conf::parse(&request)));
    if let Ok(conf) = host_local::Conf::parse(&request) {
        for set in &conf.sets {
            drop((set.check(), set.to_string()));
            for range in &set.0 {
                assert!(range.contains(range.start) && range.contains(range.end), "a range holds its ends");
                std::hint::black_box(range.size());
            }
        }
    }
});
