//! Addresses: never twice, not soon again, at constant cost, and none lost whatever happens to the folder.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use podwire_cni_lib::ipam::{Owner, Range, RangeSet, Store};

fn set(text: &str) -> RangeSet {
    RangeSet(vec![Range::new(text.parse().expect("net"), None, None, None).expect("range")])
}

fn owner(name: &str) -> Owner {
    Owner { container: name.into(), ifname: "eth0".into() }
}

fn reserve(dir: &Path, sets: &[RangeSet], name: &str) -> IpAddr {
    Store::open(dir, "net").expect("store").reserve(&owner(name), sets, &[]).expect("reserve")[0]
}

#[test]
fn the_cost_does_not_grow_with_the_number_of_reservations() {
    let cost = |reservations: u32| {
        // In memory, as the fixture alone is 20,000 files.
        let dir = tempfile::tempdir_in("/dev/shm").expect("folder");
        let sets = [set("10.0.0.0/16")];
        std::fs::create_dir(dir.path().join("net")).expect("folder");
        for number in 2..2 + reservations {
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + number);
            std::fs::write(dir.path().join("net").join(ip.to_string()), format!("c{number}\r\neth0"))
                .expect("write");
        }
        // The first look at a folder somebody else has filled reads all of it, once.
        assert_eq!(
            Store::open(dir.path(), "net").expect("store").owned(&owner("c5"), &sets).expect("owned").len(),
            1
        );
        let store = Store::open(dir.path(), "net").expect("store");
        let taken = store.reserve(&owner("new"), &sets, &[]).expect("reserve");
        let adding = store.touched();
        drop(store);
        assert_eq!(taken[0], IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0002 + reservations)));
        let store = Store::open(dir.path(), "net").expect("store");
        assert_eq!(store.release(&owner("new"), &sets).expect("release"), taken);
        (adding, store.touched())
    };
    assert_eq!(cost(10), cost(20_000));
    assert!(cost(10).0 <= 2, "an ADD looks at almost nothing");
}

#[test]
fn threads_never_get_the_same_address() {
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/16"), set("fd00::/64")];
    let all: Vec<Vec<IpAddr>> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (dir, sets) = (dir.path(), &sets);
            move || -> Vec<IpAddr> {
                (0..40)
                    .flat_map(|n| {
                        let store = Store::open(dir, "net").expect("store");
                        let owner = owner(&format!("t{thread}-{n}"));
                        let ips = store.reserve(&owner, sets, &[]).expect("reserve");
                        if n % 4 == 0 {
                            store.release(&owner, sets).expect("release");
                            return Vec::new();
                        }
                        ips
                    })
                    .collect()
            }
        };
        let threads: Vec<_> = (0..16)
            .map(|thread| std::thread::Builder::new().spawn_scoped(scope, work(thread)).expect("thread"))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("worker")).collect()
    });
    let held: Vec<IpAddr> = all.into_iter().flatten().collect();
    let distinct: HashSet<&IpAddr> = held.iter().collect();
    assert_eq!(held.len(), 16 * 30 * 2);
    assert_eq!(distinct.len(), held.len());
    assert_eq!(Store::open(dir.path(), "net").expect("store").reserved().expect("list").len(), held.len());
}

#[test]
fn a_released_address_is_given_out_last() {
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/29")];
    let first = reserve(dir.path(), &sets, "a");
    Store::open(dir.path(), "net").expect("store").release(&owner("a"), &sets).expect("release");
    let next: Vec<IpAddr> = (0..4).map(|n| reserve(dir.path(), &sets, &format!("b{n}"))).collect();
    assert!(!next.contains(&first), "{next:?}");
    assert_eq!(reserve(dir.path(), &sets, "last"), first);
    let error =
        Store::open(dir.path(), "net").expect("store").reserve(&owner("none"), &sets, &[]).expect_err("full");
    assert!(
        error.msg.contains("no IP addresses available in range set: 10.0.0.1-10.0.0.6 (6 of 6 in use)"),
        "{error}"
    );
    assert!(!Store::open(dir.path(), "net").expect("store").has_room(&sets[0]).expect("room"));
}

#[test]
fn files_of_released_addresses_become_files_of_new_ones() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/24")];
    let inode = |ip: IpAddr| {
        std::fs::metadata(dir.path().join("net").join(ip.to_string())).expect("reservation").ino()
    };
    let first = inode(reserve(dir.path(), &sets, "a-long-name-of-a-container"));
    Store::open(dir.path(), "net")
        .expect("store")
        .release(&owner("a-long-name-of-a-container"), &sets)
        .expect("release");
    let second = reserve(dir.path(), &sets, "b");
    assert_eq!(inode(second), first, "a file is made and removed only once");
    let text = std::fs::read_to_string(dir.path().join("net").join(second.to_string())).expect("record");
    assert_eq!(text, "b\r\neth0", "nothing of the earlier owner is left");
    // A spare file that somebody has taken away is missed by nobody.
    Store::open(dir.path(), "net").expect("store").release(&owner("b"), &sets).expect("release");
    std::fs::remove_file(dir.path().join(".podwire-ipam/net/spare.0")).expect("the spare file");
    for name in ["c", "d"] {
        reserve(dir.path(), &sets, name);
    }
    assert_eq!(Store::open(dir.path(), "net").expect("store").reservations().expect("list").len(), 2);
}

#[test]
fn a_container_is_refused_a_second_address_and_the_gateway_is_never_given() {
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/24")];
    reserve(dir.path(), &sets, "a");
    let store = Store::open(dir.path(), "net").expect("store");
    let error = store.reserve(&owner("a"), &sets, &[]).expect_err("duplicate");
    assert!(error.msg.contains("duplicate allocation is not allowed"), "{error}");
    let gateway = Some("10.0.0.1".parse().expect("ip"));
    store.reserve(&owner("b"), &sets, &[gateway]).expect_err("the gateway");
    let wanted: IpAddr = "10.0.0.77".parse().expect("ip");
    assert_eq!(store.reserve(&owner("b"), &sets, &[Some(wanted)]).expect("free"), [wanted]);
    store.reserve(&owner("c"), &sets, &[Some(wanted)]).expect_err("taken");
    assert!(store.owned(&owner("c"), &sets).expect("owned").is_empty());
}

#[test]
fn changes_by_the_reference_plugin_are_seen() {
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/24")];
    assert_eq!(reserve(dir.path(), &sets, "a").to_string(), "10.0.0.2");
    // Another program takes the next address, and releases ours.
    std::fs::write(dir.path().join("net/10.0.0.3"), "foreign\r\neth0").expect("write");
    assert_eq!(reserve(dir.path(), &sets, "b").to_string(), "10.0.0.4");
    std::fs::remove_file(dir.path().join("net/10.0.0.2")).expect("remove");
    let store = Store::open(dir.path(), "net").expect("store");
    assert!(store.owned(&owner("a"), &sets).expect("owned").is_empty());
    assert_eq!(store.release(&owner("foreign"), &sets).expect("release").len(), 1);
    // A file of old has no interface in it.
    std::fs::write(dir.path().join("net/10.0.0.9"), "old").expect("write");
    assert_eq!(store.release(&owner("old"), &sets).expect("release").len(), 1);
}

#[test]
fn reservations_of_an_earlier_boot_are_released() {
    // Another boot's record, and those a power cut leaves: half a record, none of its bytes.
    for boot in ["00000000-0000-0000-0000-000000000000", "0000", ""] {
        let dir = tempfile::tempdir().expect("folder");
        let sets = [set("10.0.0.0/24")];
        reserve(dir.path(), &sets, "before");
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let file = std::fs::File::options().write(true).open(dir.path().join("net/10.0.0.2")).expect("open");
        file.set_modified(old).expect("age");
        reserve(dir.path(), &sets, "after");
        let state = dir.path().join(".podwire-ipam/net/state");
        let text = std::fs::read_to_string(&state).expect("state");
        let other = text.lines().nth(1).map(|own| text.replace(own, boot)).expect("a boot in the state");
        std::fs::write(state, other).expect("write");
        std::fs::write(dir.path().join(".podwire-ipam/net/boot"), boot).expect("write");
        let left = Store::open(dir.path(), "net").expect("store").reservations().expect("list");
        assert_eq!(left.len(), 1, "{boot:?}");
        assert_eq!(left[0].1, Some(owner("after")));
        // Within one boot age decides nothing: a clock may have been set.
        let file = std::fs::File::options().write(true).open(dir.path().join("net/10.0.0.3")).expect("open");
        file.set_modified(old).expect("age");
        assert_eq!(Store::open(dir.path(), "net").expect("store").reserved().expect("list").len(), 1);
    }
}

#[test]
fn files_without_owner_and_torn_indexes_do_no_harm() {
    let dir = tempfile::tempdir().expect("folder");
    let sets = [set("10.0.0.0/24")];
    reserve(dir.path(), &sets, "a");
    std::fs::write(dir.path().join("net/10.0.0.3"), "").expect("write");
    for file in std::fs::read_dir(dir.path().join(".podwire-ipam/net")).expect("index") {
        let path = file.expect("entry").path();
        let bytes = std::fs::read(&path).expect("read");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("tear");
    }
    assert_eq!(reserve(dir.path(), &sets, "b").to_string(), "10.0.0.4");
    let store = Store::open(dir.path(), "net").expect("store");
    assert_eq!(store.owned(&owner("a"), &sets).expect("owned").len(), 1);
    let swept = store.sweep(|owner| owner.container == "b").expect("sweep");
    assert_eq!(swept.len(), 2);
    drop(store);
    assert_eq!(Store::open(dir.path(), "net").expect("store").reserved().expect("list").len(), 1);
}

#[test]
fn a_network_cannot_be_called_out_of_its_folder() {
    let dir = tempfile::tempdir().expect("folder");
    for bad in ["", "..", "../x", "a/b", ".podwire-ipam"] {
        assert!(Store::open(dir.path(), bad).is_err(), "{bad}");
    }
}
