//! The embedded engine as its callers see it: guards, watches, restarts, torn tails, compaction, expiry.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use podwire_store::{
    Embedded, EmbeddedConfig, Event, EventKind, Guard, KeyValue, News, Op, Outcome, Revision, Store,
    StoreError, WatchStream,
};

const DEADLINE: Duration = Duration::from_secs(10);

fn open(dir: &Path) -> Embedded {
    EmbeddedConfig::new(dir).open().expect("the directory is ours and sound")
}

fn put(value: &str) -> Op {
    Op::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None }
}

async fn committed(store: &Embedded, key: &str, guard: Guard, op: Op) -> Revision {
    match store.txn(key, guard, op).await.expect("writable") {
        Outcome::Committed { revision, .. } => revision,
        Outcome::Conflict { current } => panic!("{key}: conflict with {current:?}"),
    }
}

async fn contents(store: &Embedded) -> BTreeMap<String, (String, Revision)> {
    let listing = store.list("", None, None, None).await.unwrap();
    let text = |kv: &KeyValue| String::from_utf8(kv.value.to_vec()).unwrap();
    listing.items.iter().map(|kv| (kv.key.to_string(), (text(kv), kv.mod_revision))).collect()
}

async fn next_events(watch: &mut WatchStream) -> Vec<Arc<Event>> {
    loop {
        let news = tokio::time::timeout(DEADLINE, watch.next()).await.expect("events in time");
        if let News::Events(events) = news.expect("open").expect("not compacted") {
            return events;
        }
    }
}

async fn next_revisions(watch: &mut WatchStream, count: usize) -> Vec<Revision> {
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.extend(next_events(watch).await.iter().map(|event| event.revision()));
    }
    seen
}

#[tokio::test]
async fn room_made_in_the_log_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let large = "x".repeat(100_000);
    for number in 0..20 {
        committed(&store, &format!("/k{number}"), Guard::Absent, put(&large)).await;
    }
    let (all, revision) = (contents(&store).await, store.revision().await.unwrap());
    // What a power cut would leave: the files as they are while the store is open.
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let zeros = |dir: &Path| {
        let logs =
            fs::read_dir(dir).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default());
        logs.map(|log| log.iter().rev().take_while(|byte| **byte == 0).count()).max().unwrap()
    };
    assert!(zeros(copy.path()) > 100_000, "there is room to overwrite");
    let again = open(copy.path());
    assert_eq!(contents(&again).await, all);
    assert_eq!(again.revision().await.unwrap(), revision, "nothing was torn, so no revision is burnt");
    committed(&again, "/next", Guard::Absent, put("a")).await;
    again.close().await;
    store.close().await;
    assert!(zeros(dir.path()) < 100_000, "room is given back at the end");
}

#[tokio::test]
async fn guards_decide_who_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = committed(&store, "/k", Guard::Absent, put("a")).await;
    let again = store.txn("/k", Guard::Absent, put("b")).await.unwrap();
    assert!(matches!(again, Outcome::Conflict { current: Some(kv) } if kv.value == "a"));
    let second = committed(&store, "/k", Guard::ModRevision(first), put("c")).await;
    let stale = store.txn("/k", Guard::ModRevision(first), Op::Delete).await.unwrap();
    assert!(matches!(stale, Outcome::Conflict { current: Some(kv) } if kv.mod_revision == second));
    let kv = store.get("/k").await.unwrap().expect("there");
    assert_eq!((kv.create_revision, kv.mod_revision, &kv.value[..]), (first, second, &b"c"[..]));
    committed(&store, "/k", Guard::ModRevision(second), Op::Delete).await;
    assert_eq!(store.get("/k").await.unwrap(), None);
    let reborn = committed(&store, "/k", Guard::Absent, put("d")).await;
    assert_eq!(store.get("/k").await.unwrap().unwrap().create_revision, reborn);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_increments_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    committed(&store, "/n", Guard::Absent, put("0")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while done < 25 {
                let kv = store.get("/n").await.unwrap().unwrap();
                let n: u32 = std::str::from_utf8(&kv.value).unwrap().parse().unwrap();
                let op = put(&(n + 1).to_string());
                if let Outcome::Committed { .. } =
                    store.txn("/n", Guard::ModRevision(kv.mod_revision), op).await.unwrap()
                {
                    done += 1;
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(store.get("/n").await.unwrap().unwrap().value, "200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sees_every_write_once_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    committed(&store, "/other/x", Guard::Any, put("noise")).await;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/pods/", start).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0..50 {
                committed(&store, &format!("/pods/{writer}/{n}"), Guard::Absent, put("x")).await;
                committed(&store, &format!("/nodes/{writer}"), Guard::Any, put("x")).await;
            }
        });
    }
    let seen = next_revisions(&mut watch, 400).await;
    tasks.join_all().await;
    assert!(seen.is_sorted_by(|a, b| a < b), "out of order: {seen:?}");
    let resumed = next_revisions(&mut store.watch("/pods/", seen[199]).await.unwrap(), 200).await;
    assert_eq!(resumed, seen[200..], "a resumed watch continues where the first one was");
}

#[tokio::test]
async fn a_deletion_event_carries_the_last_value_and_its_own_revision() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let made = committed(&store, "/k", Guard::Any, put("last words")).await;
    let gone = committed(&store, "/k", Guard::Any, Op::Delete).await;
    let mut watch = store.watch("/", made).await.unwrap();
    let events = next_events(&mut watch).await;
    assert_eq!((events[0].kind, events[0].kv.mod_revision), (EventKind::Delete, gone));
    assert_eq!((&events[0].kv.value[..], events[0].kv.create_revision), (&b"last words"[..], made));
    assert_eq!(events[0].previous.as_ref().unwrap().mod_revision, made);
}

#[tokio::test]
async fn watches_and_lists_before_the_compaction_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..5 {
        committed(&store, "/k", Guard::Any, put(&n.to_string())).await;
    }
    store.compact(3).await.unwrap();
    assert!(matches!(store.watch("/", 2).await.err(), Some(StoreError::Compacted { oldest: 3 })));
    assert!(matches!(store.list("/", None, None, Some(2)).await, Err(StoreError::Compacted { oldest: 3 })));
    assert_eq!(store.list("/", None, None, Some(3)).await.unwrap().items[0].value, "2");
    assert!(matches!(store.watch("/", 9).await.err(), Some(StoreError::FutureRevision { .. })));
}

#[tokio::test]
async fn a_watcher_that_falls_behind_is_told_and_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedConfig { history_events: 10, ..EmbeddedConfig::new(dir.path()) }.open().unwrap();
    let mut watch = store.watch("/", 0).await.unwrap();
    for n in 0..100 {
        committed(&store, &format!("/k{n}"), Guard::Any, put("x")).await;
    }
    assert!(matches!(watch.next().await, Some(Err(StoreError::Compacted { .. }))));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_restart_keeps_keys_revisions_and_history() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = committed(&store, "/a", Guard::Any, put("1")).await;
    committed(&store, "/b", Guard::Any, put("2")).await;
    let last = committed(&store, "/b", Guard::Any, Op::Delete).await;
    let before = contents(&store).await;
    store.close().await;
    assert!(matches!(store.get("/a").await, Err(StoreError::Closed)));
    let store = open(dir.path());
    assert_eq!(contents(&store).await, before);
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(next_revisions(&mut store.watch("/", first).await.unwrap(), 2).await, [2, 3]);
    assert!(committed(&store, "/c", Guard::Any, put("3")).await > last);
}

#[tokio::test]
async fn a_close_ends_watches() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut watch = store.watch("/", 0).await.unwrap();
    store.close().await;
    let item = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
    assert!(matches!(item, Some(Err(StoreError::Closed))));
}

#[tokio::test]
async fn a_taken_directory_is_refused_by_name_of_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let error = EmbeddedConfig::new(dir.path()).open().err().expect("taken");
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())), "{error}");
    drop(store);
    open(dir.path());
}

fn first_segment(dir: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-"))
        .collect();
    logs.sort();
    logs.into_iter().next().expect("a store has a log")
}

#[tokio::test]
async fn a_tail_cut_at_any_byte_loses_only_what_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let log = first_segment(dir.path());
    let mut ends = vec![(fs::metadata(&log).unwrap().len(), 0)];
    for n in 0..6 {
        let revision = committed(&store, &format!("/k{n}"), Guard::Any, put(&"v".repeat(n * 7))).await;
        ends.push((fs::metadata(&log).unwrap().len(), revision));
    }
    store.close().await;
    let whole = fs::read(&log).unwrap();
    for cut in 0..whole.len() as u64 {
        let copy = tempfile::tempdir().unwrap();
        let cut_log = copy.path().join(log.file_name().unwrap());
        fs::write(&cut_log, &whole[..usize::try_from(cut).unwrap()]).unwrap();
        let store = open(copy.path());
        let kept = ends.iter().filter(|(end, revision)| *end <= cut && *revision > 0).count();
        assert_eq!(contents(&store).await.len(), kept, "cut at {cut}");
        let torn = !ends.iter().any(|(end, _)| *end == cut);
        let next = committed(&store, "/next", Guard::Any, put("x")).await;
        assert!(!torn || next > ends.last().unwrap().1, "revision {next} was reused after a cut at {cut}");
        drop(store);
        let store = open(copy.path());
        assert_eq!(store.get("/next").await.unwrap().unwrap().mod_revision, next, "cut at {cut}");
    }
}

#[tokio::test]
async fn rot_in_acknowledged_data_is_an_error_that_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let log = first_segment(dir.path());
    let at = fs::metadata(&log).unwrap().len();
    committed(&store, "/a", Guard::Any, put("acknowledged")).await;
    committed(&store, "/b", Guard::Any, put("later")).await;
    store.close().await;
    let mut bytes = fs::read(&log).unwrap();
    bytes[usize::try_from(at).unwrap() + 30] ^= 1;
    fs::write(&log, bytes).unwrap();
    match EmbeddedConfig::new(dir.path()).open().err() {
        Some(StoreError::Corrupt { path, offset, .. }) => assert_eq!((path, offset), (log, at)),
        other => panic!("expected corruption, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_stays_bounded_and_a_snapshot_restores_all() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { snapshot_log_bytes: 64 << 10, ..EmbeddedConfig::new(dir.path()) };
    let store = config.clone().open().unwrap();
    let value = "v".repeat(1000);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, value) = (store.clone(), value.clone());
        tasks.spawn(async move {
            for n in 0..200 {
                let key = format!("/w{writer}/{}", n % 10);
                committed(&store, &key, Guard::Any, put(&format!("{n}{value}"))).await;
                if n % 7 == 0 {
                    committed(&store, &key, Guard::Any, Op::Delete).await;
                }
            }
        });
    }
    tasks.join_all().await;
    // A snapshot may still be under way on a slow disk; the next writes see it through.
    let on_disk = || {
        let sizes = fs::read_dir(dir.path()).unwrap().filter_map(|entry| entry.unwrap().metadata().ok());
        sizes.map(|meta| meta.len()).sum::<u64>()
    };
    let begun = std::time::Instant::now();
    while on_disk() > 600 << 10 || dir.path().join("log-0000000000000001").exists() {
        assert!(begun.elapsed() < DEADLINE, "{} bytes for 80 keys of 1 kB", on_disk());
        committed(&store, "/w0/0", Guard::Any, put(&value)).await;
    }
    let (before, revision) = (contents(&store).await, store.revision().await.unwrap());
    drop(store);
    let store = config.open().unwrap();
    assert_eq!(contents(&store).await, before);
    assert_eq!(store.revision().await.unwrap(), revision);
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { snapshot_log_bytes: 4 << 10, ..EmbeddedConfig::new(dir.path()) };
    let store = config.clone().open().unwrap();
    for n in 0..40 {
        committed(&store, "/k", Guard::Any, put(&format!("{n}{}", "v".repeat(500)))).await;
    }
    drop(store);
    fs::remove_file(first_segment(dir.path())).unwrap();
    assert!(matches!(config.open().err(), Some(StoreError::Corrupt { .. })));
}

#[tokio::test]
async fn keys_with_a_time_to_live_expire_even_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let short =
        |millis| Op::Put { value: Bytes::from_static(b"e"), ttl: Some(Duration::from_millis(millis)) };
    let made = committed(&store, "/events/a", Guard::Any, short(50)).await;
    committed(&store, "/events/renewed", Guard::Any, short(50)).await;
    committed(&store, "/events/renewed", Guard::Any, put("for good")).await;
    let mut watch = store.watch("/events/a", made).await.unwrap();
    let gone = next_events(&mut watch).await;
    assert_eq!((gone[0].kind, &*gone[0].kv.key), (EventKind::Delete, "/events/a"));
    committed(&store, "/events/b", Guard::Any, short(300)).await;
    let last = store.revision().await.unwrap();
    store.close().await;
    let store = open(dir.path());
    assert!(store.get("/events/b").await.unwrap().is_some(), "its time had not come");
    let mut watch = store.watch("/events/b", last).await.unwrap();
    let gone = next_events(&mut watch).await;
    assert_eq!(gone[0].kind, EventKind::Delete);
    assert_eq!(store.get("/events/renewed").await.unwrap().unwrap().value, "for good");
}

#[tokio::test]
async fn an_oversized_value_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let op = Op::Put { value: Bytes::from(vec![0; 17 << 20]), ttl: None };
    assert!(matches!(store.txn("/k", Guard::Any, op).await, Err(StoreError::TooLarge { .. })));
}

/// True when the newest snapshot has nothing in the log behind it.
#[tokio::test]
async fn a_full_store_refuses_what_is_new_and_takes_what_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedConfig { quota_bytes: 100_000, ..EmbeddedConfig::new(dir.path()) }.open().unwrap();
    for i in 0..9 {
        committed(&store, &format!("/k{i}"), Guard::Absent, put(&"x".repeat(10_000))).await;
    }
    let refused = store.txn("/new", Guard::Absent, put(&"x".repeat(20_000))).await;
    assert!(matches!(refused, Err(StoreError::Quota { quota: 100_000, .. })), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("delete what is not needed"));
    committed(&store, "/k9", Guard::Absent, put(&"x".repeat(9_000))).await;
    // An object that is marked for deletion grows a little.
    let grown = store.txn("/k1", Guard::Any, put(&"x".repeat(10_500))).await;
    assert!(matches!(grown, Ok(Outcome::Committed { .. })), "{grown:?}");
    let refused = store.txn("/k1", Guard::Any, put(&"x".repeat(50_000))).await;
    assert!(matches!(refused, Err(StoreError::Quota { .. })), "{refused:?}");
    committed(&store, "/k2", Guard::Any, Op::Delete).await;
    committed(&store, "/k3", Guard::Any, Op::Delete).await;
    committed(&store, "/new", Guard::Absent, put(&"x".repeat(15_000))).await;
    store.close().await;
}

fn log_is_empty(dir: &Path) -> bool {
    let newest = |stem: &str| {
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(stem)))
            .max()
    };
    let number = |path: &Path| path.to_string_lossy().rsplit('-').next().map(str::to_owned);
    match (newest("snapshot-"), newest("log-")) {
        // A segment with a header and no frame is shorter than any that has one.
        (Some(snapshot), Some(log)) => {
            number(&snapshot) == number(&log) && fs::metadata(&log).is_ok_and(|file| file.len() < 64)
        }
        _ => false,
    }
}

#[tokio::test]
async fn a_snapshot_that_ends_with_a_deletion_keeps_its_revision() {
    let dir = tempfile::tempdir().unwrap();
    // Due at every commit, so that a snapshot with nothing in the log behind it comes soon.
    let config = EmbeddedConfig { snapshot_log_bytes: 1, ..EmbeddedConfig::new(dir.path()) };
    let mut store = config.clone().open().unwrap();
    for round in 0..10 {
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            store.txn("/gone", Guard::Any, put("x")).await.unwrap();
            // The snapshot that the write began must be over before the deletion can begin one.
            tokio::time::sleep(Duration::from_millis(10)).await;
            store.txn("/gone", Guard::Any, Op::Delete).await.unwrap();
            let settled = std::time::Instant::now() + Duration::from_millis(200);
            while !log_is_empty(dir.path()) && std::time::Instant::now() < settled {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if log_is_empty(dir.path()) {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "no snapshot was written");
        }
        let before = store.revision().await.unwrap();
        drop(store);
        store = config.clone().open().unwrap();
        assert!(
            store.revision().await.unwrap() >= before,
            "round {round}: a revision would be given out again"
        );
        match store.list("/", None, None, Some(before - 1)).await {
            Ok(listing) => assert_eq!(listing.items.len(), 1, "round {round}: the key was there then"),
            Err(StoreError::Compacted { .. }) => {}
            Err(other) => panic!("round {round}: {other}"),
        }
    }
}

/// A small generator, so that a failing run can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

type Model = BTreeMap<String, (String, Revision)>;

/// Applies one random transaction to the store and to a plain map, and compares the outcome.
async fn one_step(store: &Embedded, model: &mut Model, dice: &mut Dice, seed: u64) {
    let key = format!("/{}/{}", dice.roll(3), dice.roll(6));
    let current = model.get(&key).map(|(_, revision)| *revision);
    let guard = match dice.roll(4) {
        0 => Guard::Absent,
        1 => Guard::ModRevision(current.unwrap_or(7)),
        2 => Guard::ModRevision(dice.roll(50)),
        _ => Guard::Any,
    };
    let holds = match guard {
        Guard::Absent => current.is_none(),
        Guard::ModRevision(wanted) => current == Some(wanted),
        Guard::Any => true,
    };
    let delete = dice.roll(3) == 0;
    let value = dice.roll(1000).to_string();
    let op = if delete { Op::Delete } else { put(&value) };
    match store.txn(&key, guard, op).await.unwrap() {
        Outcome::Committed { revision, previous } => {
            assert!(holds && !(delete && current.is_none()), "seed {seed}: {key} {guard:?}");
            assert_eq!(previous.map(|kv| kv.mod_revision), current, "seed {seed}");
            if delete {
                model.remove(&key);
            } else {
                model.insert(key, (value, revision));
            }
        }
        Outcome::Conflict { current: found } => {
            assert!(!holds || (delete && current.is_none()), "seed {seed}: {key} {guard:?}");
            assert_eq!(found.map(|kv| kv.mod_revision), current, "seed {seed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_agrees_with_a_plain_map_through_restarts() {
    for seed in 1..=6 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let dir = tempfile::tempdir().unwrap();
        let config = EmbeddedConfig { snapshot_log_bytes: 2 << 10, ..EmbeddedConfig::new(dir.path()) };
        let mut store = config.clone().open().unwrap();
        let mut model = Model::new();
        let mut past: Vec<(Revision, Model)> = Vec::new();
        for _ in 0..300 {
            one_step(&store, &mut model, &mut dice, seed).await;
            past.push((store.revision().await.unwrap(), model.clone()));
            if dice.roll(40) == 0 {
                drop(store);
                store = config.clone().open().unwrap();
                assert_eq!(contents(&store).await, model, "seed {seed}");
            }
        }
        for (revision, then) in &past {
            match store.list("/1/", None, None, Some(*revision)).await {
                Ok(listing) => {
                    let found: Vec<_> = listing.items.iter().map(|kv| (&*kv.key, kv.mod_revision)).collect();
                    let expected: Vec<_> = then
                        .iter()
                        .filter(|(key, _)| key.starts_with("/1/"))
                        .map(|(key, (_, at))| (key.as_str(), *at))
                        .collect();
                    assert_eq!(found, expected, "seed {seed} at {revision}");
                }
                Err(StoreError::Compacted { oldest }) => assert!(oldest > *revision),
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }
}

#[tokio::test]
async fn the_trait_is_usable_behind_a_pointer() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(open(dir.path()));
    store.txn("/k", Guard::Any, put("x")).await.unwrap();
    assert_eq!(store.list("/", None, None, None).await.unwrap().items.len(), 1);
}
