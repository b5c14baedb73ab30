//! Any bytes in the files the network side keeps: journal, cached result, reservations, index and last address.
//!
//! Whatever is there, an address is given out and taken back again, or a clear error says why not.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use podwire_cni_lib::hostile;
use podwire_cni_lib::ipam::{Owner, Range, RangeSet, Store};

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let text = String::from_utf8_lossy(bytes);
    hostile::journal(&text);
    hostile::cached(bytes);
    drop(Owner::parse(&text));
    let folder = podwire_fuzz::folder();
    let subnet = "10.1.0.0/28".parse().expect("a subnet");
    let sets = [RangeSet(vec![Range::new(subnet, None, None, None).expect("a range")])];
    let owner = |name: &str| Owner { container: name.to_owned(), ifname: "eth0".to_owned() };
    // A first reservation makes all the files; one of them is then damaged.
    let store = Store::open(folder.path(), "net").expect("a store");
    let first = store.reserve(&owner("a"), &sets, &[]).expect("an address");
    store.unlock();
    let mut files = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    let damaged = &files[usize::from(which) % files.len()];
    std::fs::write(damaged, bytes).expect("the file can be written");
    let Ok(store) = Store::open(folder.path(), "net") else { return };
    if let Ok(second) = store.reserve(&owner("b"), &sets, &[]) {
        let given: Vec<&IpAddr> = second.iter().filter(|ip| first.contains(ip)).collect();
        assert!(given.is_empty(), "{given:?} was given twice");
        store.release(&owner("b"), &sets).expect("what was given can be taken back");
    }
});
