//! The same operations, thrown by dice, to the real etcd and to `podwire etcd`: every answer has to agree, with its revisions, and so
//! have the events of a watch and the hash of everything that is kept.
#![cfg(feature = "interop")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells what it compared"
)]

#[path = "../../../tests/peers/dice.rs"]
#[allow(dead_code, reason = "shared by tests of several crates")]
mod dice;
#[path = "support/etcd.rs"]
mod etcd;

use bytes::Bytes;
use podwire_wire::etcd::compare::TargetUnion;
use podwire_wire::etcd::request_op::Request as Op;
use podwire_wire::etcd::watch_request::RequestUnion;
use podwire_wire::etcd::{
    CompactionRequest, Compare, DeleteRangeRequest, Event, HashKvRequest, LeaseGrantRequest,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp,
    ResponseHeader, TxnRequest, WatchCreateRequest, WatchRequest,
};
use tokio::sync::mpsc;

use self::dice::Dice;
use self::etcd::{PATIENCE, Server};

const KEYS: &[&[u8]] = &[b"a", b"aa", b"ab", b"b", b"ba", b"c", b"\xff", b"\0", b"\x01\xfe", b"z"];
const ENDS: &[&[u8]] = &[b"", b"", b"b", b"c", b"\0", b"zz", b"a", b"\xff\xff"];

/// What is asked of both.
#[derive(Debug, Clone)]
enum Ask {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    Hash(HashKvRequest),
}

fn key(dice: &mut Dice) -> Bytes {
    if dice.one_in(60) { Bytes::new() } else { Bytes::from_static(dice.pick(KEYS)) }
}

fn end(dice: &mut Dice) -> Bytes {
    Bytes::from_static(dice.pick(ENDS))
}

/// A revision near the newest, mostly one that there is.
fn near(dice: &mut Dice, newest: i64) -> i64 {
    match dice.below(6) {
        0..=2 => 0,
        3 => newest + i64::try_from(dice.below(3)).unwrap() - 1,
        _ => newest - i64::try_from(dice.below(40)).unwrap(),
    }
}

fn number(dice: &mut Dice, below: usize) -> i64 {
    i64::try_from(dice.below(below)).unwrap()
}

fn range(dice: &mut Dice, newest: i64) -> RangeRequest {
    let sort_target = dice.pick(&[0, 0, 0, 1, 2, 3, 4, 9]);
    RangeRequest {
        key: key(dice),
        range_end: end(dice),
        // What is equal in another order than that of keys comes in any order: then all of it is asked for.
        limit: if sort_target == 0 { number(dice, 4) } else { 0 },
        revision: near(dice, newest),
        sort_order: dice.pick(&[0, 0, 1, 2, 7]),
        sort_target,
        serializable: dice.one_in(2),
        keys_only: dice.one_in(4),
        count_only: dice.one_in(6),
        min_mod_revision: if dice.one_in(6) { near(dice, newest) } else { 0 },
        max_mod_revision: if dice.one_in(6) { near(dice, newest) } else { 0 },
        min_create_revision: if dice.one_in(8) { near(dice, newest) } else { 0 },
        max_create_revision: if dice.one_in(8) { near(dice, newest) } else { 0 },
    }
}

fn put(dice: &mut Dice) -> PutRequest {
    let ignore_value = dice.one_in(12);
    PutRequest {
        key: key(dice),
        value: if ignore_value && !dice.one_in(5) { Bytes::new() } else { dice.digits(3).into() },
        lease: if dice.one_in(4) { number(dice, 5) } else { 0 },
        prev_kv: dice.one_in(2),
        ignore_value,
        ignore_lease: dice.one_in(10),
    }
}

fn delete(dice: &mut Dice) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key(dice), range_end: end(dice), prev_kv: dice.one_in(2) }
}

fn compare(dice: &mut Dice, newest: i64) -> Compare {
    let target_union = match dice.below(6) {
        0 => Some(TargetUnion::Version(number(dice, 4))),
        1 => Some(TargetUnion::CreateRevision(near(dice, newest))),
        2 => Some(TargetUnion::ModRevision(near(dice, newest))),
        3 => Some(TargetUnion::Value(dice.digits(3).into())),
        4 => Some(TargetUnion::Lease(number(dice, 3))),
        _ => None,
    };
    let target = match &target_union {
        Some(TargetUnion::Version(_)) => 0,
        Some(TargetUnion::CreateRevision(_)) => 1,
        Some(TargetUnion::ModRevision(_)) => 2,
        Some(TargetUnion::Value(_)) => 3,
        Some(TargetUnion::Lease(_)) => 4,
        None => i32::try_from(dice.below(5)).unwrap(),
    };
    let range_end = if dice.one_in(4) { end(dice) } else { Bytes::new() };
    Compare { result: i32::try_from(dice.below(4)).unwrap(), target, key: key(dice), target_union, range_end }
}

fn txn(dice: &mut Dice, newest: i64, depth: usize) -> TxnRequest {
    let ops = |dice: &mut Dice| {
        let op = |dice: &mut Dice| RequestOp {
            request: match dice.below(if depth == 0 { 12 } else { 15 }) {
                0..=3 => Some(Op::RequestRange(range(dice, newest))),
                4..=8 => Some(Op::RequestPut(put(dice))),
                9..=11 => {
                    let request = delete(dice);
                    // Upstream does not see that a deletion without an end meets a write, and sees it of some that delete nothing.
                    let plain = request.range_end != "\0" && request.range_end > request.key;
                    let range_end = if plain { request.range_end } else { Bytes::new() };
                    Some(Op::RequestDeleteRange(DeleteRangeRequest { range_end, ..request }))
                }
                _ => Some(Op::RequestTxn(txn(dice, newest, depth - 1))),
            },
        };
        (0..dice.below(4)).map(|_| op(dice)).collect::<Vec<_>>()
    };
    TxnRequest {
        compare: (0..dice.below(3)).map(|_| compare(dice, newest)).collect(),
        success: ops(dice),
        failure: ops(dice),
    }
}

fn ask(dice: &mut Dice, newest: i64) -> Ask {
    match dice.below(100) {
        0..=34 => Ask::Put(put(dice)),
        35..=59 => Ask::Range(range(dice, newest)),
        60..=67 => Ask::Delete(delete(dice)),
        68..=87 => Ask::Txn(txn(dice, newest, 2)),
        88..=89 => Ask::Compact(CompactionRequest { revision: near(dice, newest), physical: true }),
        90..=92 => Ask::Grant(LeaseGrantRequest { ttl: 1000 + number(dice, 3), id: 1 + number(dice, 4) }),
        93 => Ask::Revoke(LeaseRevokeRequest { id: 1 + number(dice, 4) }),
        94..=95 => Ask::TimeToLive(LeaseTimeToLiveRequest { id: number(dice, 5), keys: true }),
        96 => Ask::Leases,
        _ => Ask::Hash(HashKvRequest { revision: newest }),
    }
}

/// Who answered differs; the revision must not.
fn strip(header: &mut Option<ResponseHeader>) -> i64 {
    let revision = header.as_ref().map_or(0, |header| header.revision);
    *header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
    revision
}

/// Puts what is equal in the asked order into the order of keys.
fn settle(request: &RangeRequest, kvs: &mut [podwire_wire::etcd::KeyValue]) {
    match request.sort_target {
        1 => kvs.sort_by_key(|kv| (kv.version, kv.key.clone())),
        2 => kvs.sort_by_key(|kv| (kv.create_revision, kv.key.clone())),
        3 => kvs.sort_by_key(|kv| (kv.mod_revision, kv.key.clone())),
        4 => kvs.sort_by_key(|kv| (kv.value.clone(), kv.key.clone())),
        _ => return,
    }
    if request.sort_order == 2 {
        kvs.reverse();
    }
}

/// The same, wherever it is in a transaction.
fn settle_txn(request: &TxnRequest, answer: &mut podwire_wire::etcd::TxnResponse) {
    use podwire_wire::etcd::response_op::Response;
    let ops = if answer.succeeded { &request.success } else { &request.failure };
    for (op, response) in ops.iter().zip(&mut answer.responses) {
        match (&op.request, &mut response.response) {
            (Some(Op::RequestRange(request)), Some(Response::ResponseRange(answer))) => {
                settle(request, &mut answer.kvs);
            }
            (Some(Op::RequestTxn(request)), Some(Response::ResponseTxn(answer))) => {
                settle_txn(request, answer)
            }
            _ => {}
        }
    }
}

/// The answer in words, and the revision it names.
async fn answer(server: &Server, ask: &Ask) -> (String, i64) {
    macro_rules! told {
        ($answered:expr, $mend:expr) => {
            match $answered.await {
                Ok(answer) => {
                    let mut answer = answer.into_inner();
                    let revision = strip(&mut answer.header);
                    #[allow(clippy::redundant_closure_call, reason = "each answer is mended in its own way")]
                    ($mend)(&mut answer);
                    (format!("{answer:?}"), revision)
                }
                Err(status) => (format!("{:?}: {}", status.code(), status.message()), 0),
            }
        };
    }
    match ask.clone() {
        Ask::Range(request) => {
            told!(
                server.kv().range(request.clone()),
                |answer: &mut podwire_wire::etcd::RangeResponse| settle(&request, &mut answer.kvs)
            )
        }
        Ask::Put(request) => told!(server.kv().put(request), |_: &mut _| ()),
        Ask::Delete(request) => told!(server.kv().delete_range(request), |_: &mut _| ()),
        Ask::Txn(request) => {
            told!(server.kv().txn(request.clone()), |answer: &mut _| settle_txn(&request, answer))
        }
        Ask::Compact(request) => told!(server.kv().compact(request), |_: &mut _| ()),
        Ask::Grant(request) => told!(server.lease().lease_grant(request), |_: &mut _| ()),
        Ask::Revoke(request) => told!(server.lease().lease_revoke(request), |_: &mut _| ()),
        Ask::TimeToLive(request) => told!(
            server.lease().lease_time_to_live(request),
            |answer: &mut podwire_wire::etcd::LeaseTimeToLiveResponse| {
                answer.keys.sort();
                // It passes while both are asked.
                answer.ttl = answer.ttl.min(0);
            }
        ),
        Ask::Leases => told!(
            server.lease().lease_leases(LeaseLeasesRequest {}),
            |answer: &mut podwire_wire::etcd::LeaseLeasesResponse| answer
                .leases
                .sort_by_key(|lease| lease.id)
        ),
        Ask::Hash(request) => told!(server.maintenance().hash_kv(request), |_: &mut _| ()),
    }
}

/// Watches every key from the beginning and passes events on.
async fn events(server: &Server) -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(1 << 16);
    let create = WatchCreateRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        start_revision: 1,
        prev_kv: true,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let asked = futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let mut answers = server.watch().watch(asked).await.unwrap().into_inner();
    let created = answers.message().await.unwrap().unwrap();
    assert!(created.created && !created.canceled, "{created:?}");
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Ok(Some(answer)) = answers.message().await {
            for event in answer.events {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

async fn heard(events: &mut mpsc::Receiver<Event>, until: &Bytes) -> Vec<Event> {
    let mut heard = Vec::new();
    loop {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("events come").expect("open");
        let last = event.kv.as_ref().is_some_and(|kv| kv.key == until);
        heard.push(event);
        if last {
            return heard;
        }
    }
}

async fn compare_both(ours: Server, seed: u64, steps: usize) {
    let theirs = Server::theirs().await;
    let (mut our_events, mut their_events) = (events(&ours).await, events(&theirs).await);
    // A watch that has caught up is not ended by a compaction, as one may be that has not.
    let first = Ask::Put(PutRequest { key: "the beginning".into(), ..PutRequest::default() });
    assert_eq!(answer(&ours, &first).await, answer(&theirs, &first).await);
    let until = Bytes::from_static(b"the beginning");
    assert_eq!(heard(&mut our_events, &until).await, heard(&mut their_events, &until).await);
    let mut dice = Dice::new(seed);
    let (mut newest, mut agreed, mut refused) = (2, 0, 0);
    let mut compacted = Vec::new();
    for step in 0..steps {
        let ask = ask(&mut dice, newest);
        match &ask {
            // Upstream remembers the hash that it computed before it compacted, and tells that one.
            Ask::Hash(request) if compacted.contains(&request.revision) => continue,
            Ask::Compact(request) => compacted.push(request.revision),
            _ => {}
        }
        let ((ours, revision), (theirs, _)) = (answer(&ours, &ask).await, answer(&theirs, &ask).await);
        assert_eq!(ours, theirs, "seed {seed}, step {step}: ours left, etcd's right, of {ask:#?}");
        newest = newest.max(revision);
        agreed += 1;
        refused += usize::from(revision == 0);
    }
    let last = Ask::Put(PutRequest { key: "the end".into(), ..PutRequest::default() });
    assert_eq!(answer(&ours, &last).await, answer(&theirs, &last).await);
    let until = Bytes::from_static(b"the end");
    let (ours, theirs) = (heard(&mut our_events, &until).await, heard(&mut their_events, &until).await);
    assert_eq!(ours.len(), theirs.len(), "seed {seed}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // Upstream looks previous values up when it sends, and may find them compacted.
        let theirs = if theirs.prev_kv.is_none() {
            &Event { prev_kv: ours.prev_kv.clone(), ..theirs.clone() }
        } else {
            theirs
        };
        assert_eq!(ours, theirs, "seed {seed}");
    }
    println!(
        "seed {seed}: {agreed} answers agree, {refused} of them refusals, and {} events; revision {newest}",
        ours.len()
    );
    assert!(refused * 3 < agreed && newest > 100, "seed {seed} asks too little");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_events_and_hashes_agree_with_etcd() {
    for seed in 1..=4 {
        compare_both(Server::podwire().await, seed, 600).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_this_process_agrees_with_etcd() {
    compare_both(Server::ours().await, 1, 600).await;
}
