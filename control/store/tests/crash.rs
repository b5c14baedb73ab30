//! What is left after the worst moments: the writing process is killed, the disk is full.
//!
//! Runs without the usual harness, because it starts itself again as the process that is killed
//! (`crash --write DIR`) and inside a mount namespace with a tiny disk (`crash --fill DIR`).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it did"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use podwire_store::{Embedded, EmbeddedConfig, Guard, Op, Outcome, Store, StoreError};

const WRITERS: usize = 16;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--write", dir] => write_until_killed(Path::new(dir)),
        ["--fill", dir] => fill_the_disk(Path::new(dir)),
        _ => {
            every_acknowledged_write_survives_kill_9();
            a_full_disk_fails_the_write_and_heals();
            many_writers_share_one_sync();
            println!("crash: all passed");
        }
    }
    ExitCode::SUCCESS
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn open(dir: &Path) -> Embedded {
    EmbeddedConfig { snapshot_log_bytes: 256 << 10, ..EmbeddedConfig::new(dir) }.open().expect("opens")
}

fn put(value: String) -> Op {
    Op::Put { value: Bytes::from(value), ttl: None }
}

/// The child: writes without end and says each acknowledged write on its standard output.
fn write_until_killed(dir: &Path) {
    let store = open(dir);
    let rt = runtime();
    rt.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            tasks.spawn(async move {
                for n in 0.. {
                    let (key, filler) = (format!("/w/{writer}/{}", n % 20), "x".repeat(n % 700));
                    let outcome = store.txn(&key, Guard::Any, put(format!("{n}:{filler}"))).await.unwrap();
                    let Outcome::Committed { revision, .. } = outcome else {
                        panic!("no guard, no conflict")
                    };
                    writeln!(std::io::stdout().lock(), "{key} {n} {revision}").unwrap();
                }
            });
        }
        tasks.join_all().await;
    });
}

fn every_acknowledged_write_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut highest = 0;
    let mut acknowledged: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--write".as_ref(), dir.path().as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let kill_after = 200 + round * 371;
        let mut count = 0;
        for line in lines {
            let line = line.unwrap();
            let mut parts = line.split(' ');
            let (Some(key), Some(n), Some(revision)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let (Ok(n), Ok(revision)) = (n.parse(), revision.parse::<u64>()) else { continue };
            if count == 0 {
                assert!(revision > highest, "round {round}: revision {revision} was given out before");
            }
            highest = highest.max(revision);
            let latest = acknowledged.entry(key.into()).or_insert((n, revision));
            if revision > latest.1 {
                *latest = (n, revision);
            }
            count += 1;
            if count == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(count >= kill_after, "the child wrote only {count}");
        check(dir.path(), &acknowledged, highest, round);
    }
    println!("every_acknowledged_write_survives_kill_9: ok ({highest} revisions)");
}

fn check(dir: &Path, acknowledged: &BTreeMap<String, (u64, u64)>, highest: u64, round: u64) {
    let store = open(dir);
    runtime().block_on(async {
        assert!(store.revision().await.unwrap() >= highest, "round {round}: revisions went back");
        for (key, (n, revision)) in acknowledged {
            let kv = store.get(key).await.unwrap().unwrap_or_else(|| panic!("round {round}: {key} lost"));
            assert!(kv.mod_revision >= *revision, "round {round}: {key} went back to {}", kv.mod_revision);
            if kv.mod_revision == *revision {
                assert!(
                    kv.value.starts_with(format!("{n}:").as_bytes()),
                    "round {round}: {key} has a wrong value"
                );
            }
        }
    });
}

fn a_full_disk_fails_the_write_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m,nosuid none \"$2\" && exec \"$1\" --fill \"$2\"";
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .args([std::env::current_exe().unwrap().as_os_str(), dir.path().as_os_str()])
        .status()
        .expect("util-linux is installed and this runs as root");
    assert!(status.success(), "the child on the full disk failed");
    println!("a_full_disk_fails_the_write_and_heals: ok");
}

/// The child in its own mount namespace, on a disk of 2 MiB.
fn fill_the_disk(dir: &Path) {
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let store = EmbeddedConfig::new(dir).open().unwrap();
    let written = runtime().block_on(async {
        let mut written = 0_u64;
        let full = loop {
            let op = put("x".repeat(5000));
            match store.txn(&format!("/k{written}"), Guard::Any, op).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::Full { .. }), "{full:?}");
        assert_eq!(store.revision().await.unwrap(), written, "a failed write moves nothing");
        assert!(store.get("/k0").await.unwrap().is_some(), "reads go on");
        assert!(store.get(&format!("/k{written}")).await.unwrap().is_none());
        let again = store.txn("/again", Guard::Any, put("x".repeat(5000))).await;
        assert!(matches!(again, Err(StoreError::Full { .. })), "still full: {again:?}");
        std::fs::remove_file(&ballast).unwrap();
        let healed = store.txn("/healed", Guard::Any, put("x".repeat(5000))).await.expect("space again");
        assert_eq!(healed, Outcome::Committed { revision: written + 1, previous: None }, "no gap");
        written
    });
    drop(store);
    let store = EmbeddedConfig::new(dir).open().expect("the log is whole");
    runtime().block_on(async {
        assert_eq!(store.revision().await.unwrap(), written + 1);
        assert_eq!(store.list("/", None, None, None).await.unwrap().items.len() as u64, written + 1);
    });
}

fn many_writers_share_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedConfig::new(dir.path()).open().unwrap();
    let (each, value) = (200, "v".repeat(1000));
    let begun = Instant::now();
    runtime().block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..64 {
            let (store, value) = (store.clone(), value.clone());
            tasks.spawn(async move {
                for n in 0..each {
                    store.txn(&format!("/{writer}/{n}"), Guard::Absent, put(value.clone())).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
    });
    let took = begun.elapsed();
    let rate = f64::from(64 * each) / took.as_secs_f64();
    println!("many_writers_share_one_sync: {rate:.0} durable writes of 1 kB per second, 64 at once");
    assert!(took < Duration::from_secs(60), "one sync per write would take this long");
}
