//! What the API server relies on, asked of every store behind the trait: the embedded one, `podwire etcd` through the wire, and the
//! real etcd (feature `interop`). The same cases, and the same results wherever the trait promises one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/etcd.rs"]
mod etcd;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use podwire_store::{
    EmbeddedConfig, Event, EventKind, Guard, Listing, News, Op, Outcome, RemoteConfig, Revision, Store,
    StoreError, WatchStream,
};

use self::etcd::{PATIENCE, Server};

/// A store and what must live as long.
struct Subject {
    store: Arc<dyn Store>,
    _dir: Option<tempfile::TempDir>,
    _server: Option<Server>,
}

impl Subject {
    fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedConfig::new(dir.path()).open().unwrap();
        Self { store: Arc::new(store), _dir: Some(dir), _server: None }
    }

    async fn on(server: Server) -> Self {
        let config = RemoteConfig::new(vec![format!("http://{}", server.address())]);
        let store = config.connect().await.unwrap();
        Self { store: Arc::new(store), _dir: None, _server: Some(server) }
    }
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        mod on_the_embedded_store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Subject::embedded().store.clone()).await;
            })*
        }

        mod on_podwire_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let subject = super::Subject::on(super::Server::ours().await).await;
                super::$case(subject.store.clone()).await;
            })*
        }

        #[cfg(feature = "interop")]
        mod on_the_real_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let subject = super::Subject::on(super::Server::theirs().await).await;
                super::$case(subject.store.clone()).await;
            })*
        }
    };
}

cases! {
    a_guard_that_does_not_hold_changes_nothing_and_tells_what_is_there,
    a_key_is_read_with_the_writes_that_made_it,
    lists_come_in_key_order_in_pages_of_one_revision,
    a_long_list_is_whole_while_it_is_written,
    a_watch_tells_every_write_once_in_order_with_what_was_before,
    a_watch_goes_on_behind_any_revision,
    many_watches_hear_the_same,
    what_has_not_happened_is_not_read_nor_watched,
    what_is_compacted_is_refused_and_the_rest_is_there,
    a_key_with_an_end_goes_and_one_without_stays,
    increments_from_all_sides_lose_nothing,
    a_watch_hears_that_nothing_happened_to_its_keys,
    any_bytes_are_kept,
}

fn put(value: &str) -> Op {
    Op::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None }
}

async fn written(store: &dyn Store, key: &str, op: Op) -> Revision {
    match store.txn(key, Guard::Any, op).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        Outcome::Conflict { current } => panic!("{key}: conflict with {current:?}"),
    }
}

async fn news(watch: &mut WatchStream) -> Option<Result<News, StoreError>> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("news in time")
}

/// At least this many events.
async fn events(watch: &mut WatchStream, count: usize) -> Vec<Arc<Event>> {
    let mut all = Vec::new();
    while all.len() < count {
        match news(watch).await.expect("the watch is open").expect("nothing is wrong") {
            News::Events(more) => all.extend(more),
            News::Progress(_) => {}
        }
    }
    all
}

/// What is wrong with where a watch begins: told at once or as the first item.
async fn refusal(store: &dyn Store, prefix: &str, after: Revision) -> StoreError {
    match store.watch(prefix, after).await {
        Err(error) => error,
        Ok(mut watch) => news(&mut watch).await.expect("it is told").expect_err("it is refused"),
    }
}

fn keys(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|kv| &*kv.key).collect()
}

async fn a_guard_that_does_not_hold_changes_nothing_and_tells_what_is_there(store: Arc<dyn Store>) {
    let key = "/g/a";
    let nothing = store.txn(key, Guard::ModRevision(1), put("x")).await.unwrap();
    assert_eq!(nothing, Outcome::Conflict { current: None });
    assert_eq!(store.txn(key, Guard::Any, Op::Delete).await.unwrap(), Outcome::Conflict { current: None });
    assert_eq!(store.txn(key, Guard::Absent, Op::Delete).await.unwrap(), Outcome::Conflict { current: None });
    let before = store.revision().await.unwrap();
    let made = store.txn(key, Guard::Absent, put("1")).await.unwrap();
    assert_eq!(made, Outcome::Committed { revision: before + 1, previous: None });
    let first = store.get(key).await.unwrap().unwrap();
    for guard in [Guard::Absent, Guard::ModRevision(before), Guard::ModRevision(before + 2)] {
        for op in [put("2"), Op::Delete] {
            let outcome = store.txn(key, guard, op).await.unwrap();
            assert_eq!(outcome, Outcome::Conflict { current: Some(first.clone()) }, "{guard:?}");
        }
    }
    assert_eq!(store.revision().await.unwrap(), before + 1, "a conflict is no write");
    let changed = store.txn(key, Guard::ModRevision(before + 1), put("2")).await.unwrap();
    assert_eq!(changed, Outcome::Committed { revision: before + 2, previous: Some(first) });
    let second = store.get(key).await.unwrap().unwrap();
    let gone = store.txn(key, Guard::ModRevision(before + 2), Op::Delete).await.unwrap();
    assert_eq!(gone, Outcome::Committed { revision: before + 3, previous: Some(second) });
    assert_eq!(store.get(key).await.unwrap(), None);
    assert_eq!(store.revision().await.unwrap(), before + 3);
}

async fn a_key_is_read_with_the_writes_that_made_it(store: Arc<dyn Store>) {
    let made = written(&*store, "/k", put("1")).await;
    let changed = written(&*store, "/k", put("2")).await;
    let kv = store.get("/k").await.unwrap().unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, &kv.value[..]), (made, changed, &b"2"[..]));
    written(&*store, "/k", Op::Delete).await;
    let again = written(&*store, "/k", put("3")).await;
    let kv = store.get("/k").await.unwrap().unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, &*kv.key), (again, again, "/k"));
    assert_eq!(store.get("/k/").await.unwrap(), None);
    assert_eq!(store.get("/").await.unwrap(), None);
}

async fn lists_come_in_key_order_in_pages_of_one_revision(store: Arc<dyn Store>) {
    for key in ["/p/b", "/p/a", "/q/a", "/p/a/x", "/o/z", "/p", "/p0", "/p/c"] {
        written(&*store, key, put(key)).await;
    }
    let all = store.list("/p/", None, None, None).await.unwrap();
    assert_eq!(keys(&all), ["/p/a", "/p/a/x", "/p/b", "/p/c"]);
    assert_eq!((all.more, all.remaining, all.revision), (false, 0, store.revision().await.unwrap()));
    let page = store.list("/p/", None, Some(2), None).await.unwrap();
    assert_eq!((keys(&page), page.more, page.remaining), (vec!["/p/a", "/p/a/x"], true, 2));
    written(&*store, "/p/b", Op::Delete).await;
    written(&*store, "/p/c", put("new")).await;
    written(&*store, "/p/d", put("new")).await;
    let rest = store.list("/p/", Some("/p/a/x"), Some(2), Some(page.revision)).await.unwrap();
    assert_eq!((keys(&rest), rest.more, rest.remaining), (vec!["/p/b", "/p/c"], false, 0));
    assert_eq!((rest.revision, &rest.items[1].value[..]), (page.revision, &b"/p/c"[..]));
    let now = store.list("/p/", Some("/p/a/x"), None, None).await.unwrap();
    assert_eq!(keys(&now), ["/p/c", "/p/d"]);
    assert!(store.list("/none/", None, None, None).await.unwrap().items.is_empty());
    assert_eq!(keys(&store.list("/p/", Some("/p/d"), Some(5), None).await.unwrap()), [""; 0]);
    assert_eq!(store.list("", None, None, None).await.unwrap().items.len(), 8);
    // Behind a key that is not there, and before the prefix altogether.
    assert_eq!(keys(&store.list("/p/", Some("/p/bb"), Some(1), None).await.unwrap()), ["/p/c"]);
    assert_eq!(keys(&store.list("/p/", Some("/a"), Some(1), None).await.unwrap()), ["/p/a"]);
}

async fn a_long_list_is_whole_while_it_is_written(store: Arc<dyn Store>) {
    const COUNT: usize = 2_345;
    let writes = (0..COUNT).map(|number| {
        let store = store.clone();
        async move { written(&*store, &format!("/long/{number:05}"), put("x")).await }
    });
    futures::stream::iter(writes).buffer_unordered(64).collect::<Vec<_>>().await;
    let newest = store.revision().await.unwrap();
    let writing = async {
        for number in 0..200 {
            written(&*store, &format!("/long/{number:05}"), Op::Delete).await;
            written(&*store, &format!("/long/new{number}"), put("y")).await;
        }
    };
    let reading = async {
        for _ in 0..20 {
            let listing = store.list("/long/", None, None, None).await.unwrap();
            // At every revision one of the two has been done once more than the other, or as often.
            assert!((COUNT - 1..=COUNT).contains(&listing.items.len()), "{}", listing.items.len());
            assert!(listing.items.iter().all(|kv| kv.mod_revision <= listing.revision));
            assert!(listing.items.is_sorted_by(|a, b| a.key < b.key));
        }
    };
    futures::join!(writing, reading);
    let old = store.list("/long/", None, None, Some(newest)).await.unwrap();
    assert!(old.items.len() == COUNT && old.items.iter().all(|kv| kv.value == "x"));
}

async fn a_watch_tells_every_write_once_in_order_with_what_was_before(store: Arc<dyn Store>) {
    let start = written(&*store, "/w/a", put("before")).await;
    let mut watch = store.watch("/w/", start).await.unwrap();
    let changed = written(&*store, "/w/a", put("1")).await;
    let made = written(&*store, "/w/b", put("2")).await;
    written(&*store, "/x/a", put("not watched")).await;
    let gone = written(&*store, "/w/a", Op::Delete).await;
    let told = events(&mut watch, 3).await;
    let seen: Vec<_> = told
        .iter()
        .map(|event| (event.kind, &*event.kv.key, event.revision(), event.kv.value.clone()))
        .collect();
    let value = Bytes::from_static;
    assert_eq!(
        seen,
        [
            (EventKind::Put, "/w/a", changed, value(b"1")),
            (EventKind::Put, "/w/b", made, value(b"2")),
            (EventKind::Delete, "/w/a", gone, value(b"1")),
        ]
    );
    let previous: Vec<_> = told
        .iter()
        .map(|event| event.previous.as_ref().map(|kv| (kv.mod_revision, kv.value.clone())))
        .collect();
    assert_eq!(previous, [Some((start, value(b"before"))), None, Some((changed, value(b"1")))]);
    assert_eq!((told[2].kv.create_revision, told[0].kv.create_revision), (start, start));
}

async fn a_watch_goes_on_behind_any_revision(store: Arc<dyn Store>) {
    let start = store.revision().await.unwrap();
    let mut made = Vec::new();
    for number in 0..30 {
        made.push(written(&*store, &format!("/r/{}", number % 7), put(&number.to_string())).await);
    }
    let revisions = |told: &[Arc<Event>]| told.iter().map(|event| event.revision()).collect::<Vec<_>>();
    let mut watch = store.watch("/r/", start).await.unwrap();
    assert_eq!(revisions(&events(&mut watch, 30).await), made);
    let mut later = store.watch("/r/", made[17]).await.unwrap();
    assert_eq!(revisions(&events(&mut later, 12).await), made[18..]);
    // Both go on with what comes.
    let next = written(&*store, "/r/0", put("next")).await;
    assert_eq!(revisions(&events(&mut watch, 1).await), [next]);
    assert_eq!(revisions(&events(&mut later, 1).await), [next]);
}

async fn many_watches_hear_the_same(store: Arc<dyn Store>) {
    let start = store.revision().await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(store.watch("/m/", start).await.unwrap());
    }
    let writes = (0..100).map(|number| {
        let store = store.clone();
        async move { written(&*store, &format!("/m/{number}"), put("x")).await }
    });
    let mut made: Vec<_> = futures::stream::iter(writes).buffer_unordered(16).collect().await;
    made.sort_unstable();
    for mut watch in watches {
        let told = events(&mut watch, 100).await;
        assert_eq!(told.iter().map(|event| event.revision()).collect::<Vec<_>>(), made);
    }
}

async fn what_has_not_happened_is_not_read_nor_watched(store: Arc<dyn Store>) {
    let newest = written(&*store, "/f", put("x")).await;
    let listed = store.list("/f", None, None, Some(newest + 5)).await;
    let named =
        matches!(listed, Err(StoreError::FutureRevision { requested, .. }) if requested == newest + 5);
    assert!(named, "{listed:?}");
    let refused = refusal(&*store, "/f", newest + 5).await;
    let told = matches!(refused, StoreError::FutureRevision { requested, current } if (requested, current) == (newest + 5, newest));
    assert!(told, "{refused:?}");
    assert!(store.watch("/f", newest).await.is_ok(), "now has happened");
}

async fn what_is_compacted_is_refused_and_the_rest_is_there(store: Arc<dyn Store>) {
    let mut made = Vec::new();
    for number in 0..6 {
        made.push(written(&*store, "/c/a", put(&number.to_string())).await);
    }
    written(&*store, "/c/b", put("x")).await;
    store.compact(made[3]).await.unwrap();
    let listed = store.list("/c/", None, None, Some(made[2])).await;
    assert!(matches!(listed, Err(StoreError::Compacted { .. })), "{listed:?}");
    let refused = refusal(&*store, "/c/", made[1]).await;
    assert!(matches!(refused, StoreError::Compacted { oldest } if oldest == made[3]), "{refused:?}");
    let kept = store.list("/c/", None, None, Some(made[3])).await.unwrap();
    assert_eq!(&kept.items[0].value[..], b"3");
    let told = events(&mut store.watch("/c/", made[3]).await.unwrap(), 3).await;
    assert_eq!(
        told.iter().map(|event| event.revision()).collect::<Vec<_>>(),
        [made[4], made[5], made[5] + 1]
    );
    // Again, earlier, and further than there is: all that is no failure.
    for before in [made[3], made[1], made[5] + 100] {
        store.compact(before).await.unwrap();
    }
    assert_eq!(keys(&store.list("/c/", None, None, None).await.unwrap()), ["/c/a", "/c/b"]);
}

async fn a_key_with_an_end_goes_and_one_without_stays(store: Arc<dyn Store>) {
    let short = |value: &str| Op::Put { value: value.to_owned().into(), ttl: Some(Duration::from_secs(1)) };
    let begun = tokio::time::Instant::now();
    let made = written(&*store, "/t/a", short("last")).await;
    written(&*store, "/t/b", short("renewed")).await;
    written(&*store, "/t/b", put("for good")).await;
    let mut watch = store.watch("/t/a", made).await.unwrap();
    let told = events(&mut watch, 1).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((told[0].kind, &told[0].kv.value[..]), (EventKind::Delete, &b"last"[..]));
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    assert_eq!(store.get("/t/b").await.unwrap().unwrap().value, "for good");
    // A lease that others may join lasts longer than asked, and its keys still are there until then.
    for number in 0..50 {
        let op = Op::Put { value: "x".into(), ttl: Some(Duration::from_secs(3600)) };
        written(&*store, &format!("/t/long/{number}"), op).await;
    }
    assert_eq!(store.list("/t/long/", None, None, None).await.unwrap().items.len(), 50);
}

async fn increments_from_all_sides_lose_nothing(store: Arc<dyn Store>) {
    written(&*store, "/n", put("0")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut current = store.get("/n").await.unwrap();
            let mut done = 0;
            while done < 20 {
                let kv = current.take().unwrap();
                let number: u32 = std::str::from_utf8(&kv.value).unwrap().parse().unwrap();
                let op = put(&(number + 1).to_string());
                match store.txn("/n", Guard::ModRevision(kv.mod_revision), op).await.unwrap() {
                    Outcome::Committed { previous, .. } => {
                        assert_eq!(previous, Some(kv));
                        done += 1;
                        current = store.get("/n").await.unwrap();
                    }
                    Outcome::Conflict { current: other } => current = other,
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(store.get("/n").await.unwrap().unwrap().value, "160");
}

async fn a_watch_hears_that_nothing_happened_to_its_keys(store: Arc<dyn Store>) {
    let mine = written(&*store, "/mine/a", put("x")).await;
    let mut watch = store.watch("/mine/", mine).await.unwrap();
    for _ in 0..3 {
        written(&*store, "/other/a", put("x")).await;
        let newest = store.revision().await.unwrap();
        // Who reads what he has heard of waits for this.
        loop {
            match news(&mut watch).await.expect("open").expect("sound") {
                News::Progress(revision) if revision >= newest => break,
                News::Progress(_) => {}
                News::Events(events) => panic!("nothing of mine was written: {events:?}"),
            }
        }
    }
    let next = written(&*store, "/mine/b", put("x")).await;
    assert_eq!(events(&mut watch, 1).await[0].revision(), next);
}

async fn any_bytes_are_kept(store: Arc<dyn Store>) {
    let every: Vec<u8> = (0..=u8::MAX).collect();
    for (key, value) in [("/b/empty", Vec::new()), ("/b/ä\u{10ffff}", every), ("/b/large", vec![7; 1 << 20])]
    {
        let op = Op::Put { value: value.clone().into(), ttl: None };
        written(&*store, key, op).await;
        assert_eq!(store.get(key).await.unwrap().unwrap().value, value, "{key}");
    }
    assert_eq!(
        keys(&store.list("/b/", None, None, None).await.unwrap()),
        ["/b/empty", "/b/large", "/b/ä\u{10ffff}"]
    );
}
