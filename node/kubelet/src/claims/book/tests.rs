//! The book through the life of claims, alone and shared.

use super::*;

fn key(name: &str) -> Key {
    ("default".to_owned(), name.to_owned())
}

fn want(name: &str, uid: &str, device: &str) -> Wanted {
    let exclusive = Exclusive { driver: "d".to_owned(), pool: "p".to_owned(), device: device.to_owned() };
    Wanted {
        key: key(name),
        uid: uid.to_owned(),
        drivers: ["d".to_owned()].into(),
        exclusive: [exclusive].into(),
    }
}

fn pod(name: &str) -> PodUid {
    name.into()
}

/// The claims that are to be asked for.
fn go(turn: Turn) -> Vec<String> {
    match turn {
        Turn::Go { todo, .. } => todo.into_iter().map(|one| one.key.1).collect(),
        Turn::Wait => panic!("it has to wait"),
    }
}

/// A book in which `who` has had claims prepared.
fn prepared(who: &[(&str, Wanted)]) -> Book {
    let mut book = Book::default();
    for (name, want) in who {
        let todo = go(book.take(&pod(name), std::slice::from_ref(want)).unwrap());
        book.prepared_by(&want.key, "d", vec![Device { name: "x".to_owned(), ..Device::default() }]);
        book.prepared(&want.key);
        book.release(todo.iter().map(|name| key(name)).collect::<Vec<_>>().iter());
    }
    book
}

fn undone(book: &mut Book, name: &str) {
    book.unprepared_by(&key(name), "d");
    book.settle(&key(name));
    book.release([key(name)].iter());
}

#[test]
fn a_shared_claim_is_prepared_once_and_undone_by_the_last() {
    let mut book = prepared(&[("a", want("c", "1", "x"))]);
    assert!(go(book.take(&pod("b"), &[want("c", "1", "x")]).unwrap()).is_empty(), "it is prepared");
    assert!(go(book.leave("a")).is_empty(), "another uses it");
    assert!(!book.holds("a") && book.holds("b"));
    assert_eq!(go(book.leave("b")), ["c"]);
    assert_eq!(book.take(&pod("c"), &[want("c", "1", "x")]), Ok(Turn::Wait), "it is being undone");
    undone(&mut book, "c");
    assert!(book.claims().is_empty() && !book.holds("b"));
}

#[test]
fn nobody_asks_drivers_about_a_claim_that_somebody_asks_about() {
    let mut book = Book::default();
    assert_eq!(go(book.take(&pod("a"), &[want("c", "1", "x")]).unwrap()), ["c"]);
    let both = [want("c", "1", "x"), want("e", "2", "y")];
    assert_eq!(book.take(&pod("b"), &both), Ok(Turn::Wait));
    assert!(book.held(&key("e"), "b").is_none(), "all or nothing");
    book.release([key("c")].iter());
    assert_eq!(go(book.take(&pod("b"), &both).unwrap()), ["c", "e"], "the first attempt failed");
}

#[test]
fn a_claim_or_device_of_a_pod_that_is_no_more_is_nobodys_until_it_is_undone() {
    let mut book = prepared(&[("a", want("c", "1", "x"))]);
    let other = book.take(&pod("b"), &[want("c", "2", "y")]).unwrap_err();
    assert_eq!(
        other.to_string(),
        "old ResourceClaim with same name c and different UID 1 still exists (previous pod force-deleted?!)"
    );
    book.give_up(&pod("a"));
    assert!(!book.holds("a"), "its end does not wait any more");
    assert!(go(book.leave("a")).is_empty(), "nor again");
    let held = book.take(&pod("b"), &[want("other", "2", "x")]).unwrap_err();
    assert_eq!(
        held.to_string(),
        "device x in pool p of DRA driver d is still prepared for ResourceClaim default/c (1)"
    );
    assert!(book.held(&key("other"), "b").is_none());
    let (_, todo) = book.forsaken(|_| true);
    assert_eq!(todo.len(), 1, "it is tried again though the pod's object is still there");
    undone(&mut book, "c");
    assert_eq!(go(book.take(&pod("b"), &[want("other", "2", "x")]).unwrap()), ["other"]);
}

#[test]
fn what_vanished_pods_left_is_undone_unless_others_use_it() {
    let mut book = prepared(&[("a", want("c", "1", "x")), ("b", want("e", "2", "y"))]);
    assert!(go(book.take(&pod("b"), &[want("c", "1", "x")]).unwrap()).is_empty());
    let (changed, todo) = book.forsaken(|pod| *pod == *"b");
    assert!(changed && todo.is_empty());
    assert!(book.held(&key("c"), "a").is_none() && book.held(&key("c"), "b").is_some());
    let (_, todo) = book.forsaken(|_| false);
    assert_eq!(todo.iter().map(|one| one.key.1.as_str()).collect::<Vec<_>>(), ["c", "e"]);
}

#[test]
fn a_driver_that_has_undone_its_part_is_not_asked_again() {
    let mut both = want("c", "1", "x");
    both.drivers.insert("e".to_owned());
    let mut book = prepared(&[("a", both)]);
    let Turn::Go { todo, .. } = book.leave("a") else { panic!("nobody else is at it") };
    assert_eq!(todo[0].drivers, ["d", "e"]);
    undone(&mut book, "c");
    assert!(book.holds("a"), "the other driver has not");
    let Turn::Go { todo, .. } = book.leave("a") else { panic!("nobody else is at it") };
    assert_eq!(todo[0].drivers, ["e"]);
}

#[test]
fn requests_choose_devices() {
    let device = |name: &str, requests: &[&str]| Device {
        requests: requests.iter().map(|name| (*name).to_owned()).collect(),
        cdi_ids: vec![name.to_owned()],
        ..Device::default()
    };
    let devices = vec![device("all", &[]), device("one", &["a"]), device("two", &["b", "a"])];
    let entry = Entry { drivers: [("d".to_owned(), devices)].into(), ..Entry::default() };
    let ids = |request: &str| entry.cdi_ids(request).collect::<Vec<_>>().join(" ");
    assert_eq!(
        (ids(""), ids("a"), ids("b"), ids("c")),
        ("all one two".to_owned(), "all one two".to_owned(), "all two".to_owned(), "all".to_owned())
    );
}
