//! Clients that read, swap and list the same few keys at once, and the history of what they were told.
//!
//! A swap puts a value that nobody else ever puts, on the condition that nothing has changed since this client saw another one. What
//! cannot have been done is no part of the history; what may have been done is told to be unknown.

use std::{
    collections::BTreeMap,
    future::Future,
    io::Write,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::node::peer;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::dice::Dice;

/// The keys of every history: few, so that clients meet.
pub(crate) const KEYS: &[&str] = &["one", "two", "three"];

/// Clients at once.
const CLIENTS: usize = 6;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a client saw under a key: the value, and the version that a condition names. Nothing: there is no such key.
pub(crate) type Seen = Option<(String, i64)>;

/// Nobody told what became of it.
#[derive(Debug)]
pub(crate) struct Unknown;

/// A store as a client of it sees it.
pub(crate) trait Registers: Clone + Send + Sync + 'static {
    /// What is under a key.
    fn read(&self, key: &str) -> impl Future<Output = Result<Seen, Unknown>> + Send;
    /// Puts a value (none: deletes the key) if what was seen is still there; the revision (0: not told) if so.
    fn swap(
        &self,
        key: &str,
        seen: &Seen,
        put: Option<&str>,
    ) -> impl Future<Output = Result<Option<i64>, Unknown>> + Send;
    /// Every key's value, and the revision.
    fn list(&self) -> impl Future<Output = Result<(BTreeMap<String, String>, i64), Unknown>> + Send;
}

/// Clients that are at work.
pub(crate) struct Work {
    clients: JoinSet<Vec<Value>>,
    stop: CancellationToken,
    begun: Instant,
    told: Arc<AtomicUsize>,
}

impl Work {
    /// Sets clients to work; the same seed throws the same dice.
    pub(crate) fn begin<R: Registers>(registers: &R, seed: u64) -> Work {
        let (stop, told, begun) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)), Instant::now());
        let mut clients = JoinSet::new();
        for id in 0..CLIENTS {
            let dice = Dice::new(seed * 1000 + id as u64);
            let (registers, told, stop) = (registers.clone(), told.clone(), stop.clone());
            let client =
                Client { id, registers, begun, told, dice, seen: BTreeMap::new(), history: Vec::new() };
            clients.spawn(client.work(stop));
        }
        Work { clients, stop, begun, told }
    }

    /// Waits until so many more operations were answered.
    pub(crate) async fn goes_on(&self, more: usize) -> Result<()> {
        let (wanted, begun) = (self.told.load(Ordering::Relaxed) + more, Instant::now());
        while self.told.load(Ordering::Relaxed) < wanted {
            ensure!(begun.elapsed() < Duration::from_secs(120), "the clients are not answered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The history, when all have ended; a list of everything is its end.
    pub(crate) async fn end<R: Registers>(mut self, registers: &R) -> Result<Vec<Value>> {
        self.stop.cancel();
        let mut history = Vec::new();
        while let Some(client) = self.clients.join_next().await {
            history.extend(client?);
        }
        loop {
            let begun = nanoseconds(self.begun);
            if let Ok(Ok(told)) = tokio::time::timeout(PATIENCE, registers.list()).await {
                history.push(listed(CLIENTS, begun, nanoseconds(self.begun), &told));
                return Ok(history);
            }
            ensure!(self.begun.elapsed() < Duration::from_secs(600), "nobody answers at the end");
        }
    }
}

fn nanoseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn listed(client: usize, begun: u64, ended: u64, told: &(BTreeMap<String, String>, i64)) -> Value {
    json!({"client": client, "begun": begun, "ended": ended, "kind": "list", "all": told.0, "revision": told.1})
}

struct Client<R> {
    id: usize,
    registers: R,
    begun: Instant,
    told: Arc<AtomicUsize>,
    dice: Dice,
    /// What it believes to be there: what it compares with.
    seen: BTreeMap<&'static str, Seen>,
    history: Vec<Value>,
}

impl<R: Registers> Client<R> {
    async fn work(mut self, stop: CancellationToken) -> Vec<Value> {
        while !stop.is_cancelled() {
            let key = self.dice.pick(KEYS);
            let begun = nanoseconds(self.begun);
            let answered = match self.dice.below(10) {
                0 => self.list(begun).await,
                1..=3 => self.read(key, begun).await,
                _ => match self.seen.remove(key) {
                    None => self.read(key, begun).await,
                    Some(seen) => self.swap(key, seen, begun).await,
                },
            };
            if answered {
                self.told.fetch_add(1, Ordering::Relaxed);
            }
            // So that a history of many seconds can be judged; and who is asked may be away for a while.
            tokio::time::sleep(Duration::from_millis(if answered { 2 } else { 50 })).await;
        }
        self.history
    }

    async fn list(&mut self, begun: u64) -> bool {
        let Ok(Ok(told)) = tokio::time::timeout(PATIENCE, self.registers.list()).await else { return false };
        self.history.push(listed(self.id, begun, nanoseconds(self.begun), &told));
        true
    }

    async fn read(&mut self, key: &'static str, begun: u64) -> bool {
        let Ok(Ok(seen)) = tokio::time::timeout(PATIENCE, self.registers.read(key)).await else {
            return false;
        };
        self.history.push(json!({
            "client": self.id, "begun": begun, "ended": nanoseconds(self.begun), "kind": "read", "key": key,
            "value": seen.as_ref().map(|seen| &seen.0),
        }));
        self.seen.insert(key, seen);
        true
    }

    async fn swap(&mut self, key: &'static str, seen: Seen, begun: u64) -> bool {
        let delete = seen.is_some() && self.dice.one_in(12);
        let put = (!delete).then(|| format!("{}.{}", self.id, self.history.len()));
        let asked = self.registers.swap(key, &seen, put.as_deref());
        let told = tokio::time::timeout(PATIENCE, asked).await.unwrap_or(Err(Unknown));
        let (done, revision) = match &told {
            Ok(Some(revision)) => (true, *revision),
            _ => (false, 0),
        };
        self.history.push(json!({
            "client": self.id, "begun": begun, "ended": nanoseconds(self.begun), "kind": "swap", "key": key,
            "expect": seen.map(|seen| seen.0), "put": put, "done": done, "unknown": told.is_err(), "revision": revision,
        }));
        if let (true, Some(put), true) = (done, put, revision != 0) {
            self.seen.insert(key, Some((put, revision)));
        }
        told.is_ok()
    }
}

/// What porcupine says of a history: its first word is `ok` or `illegal`.
pub(crate) fn judged(history: &[Value]) -> Result<String> {
    let mut child = Command::new(peer("linearizability")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the checker")?;
    let lines: String = history.iter().map(|operation| format!("{operation}\n")).collect();
    child.stdin.take().context("no input")?.write_all(lines.as_bytes())?;
    let told = child.wait_with_output()?;
    ensure!(told.status.success(), "the checker ended with {}", told.status);
    Ok(String::from_utf8(told.stdout)?)
}
