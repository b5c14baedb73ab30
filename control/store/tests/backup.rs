//! Snapshots: saved while the store is used, checked as a whole, and a store again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/etcd.rs"]
mod etcd;

use bytes::Bytes;
use podwire_store::backup::{restore, save_cluster, save_folder, status};
use podwire_store::{
    EmbeddedConfig, EtcdConfig, Guard, Op, Outcome, RemoteConfig, Revision, Store, StoreError,
};
use podwire_wire::etcd::{
    HashKvRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest,
};

use self::etcd::Server;

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let value = Bytes::copy_from_slice(value.as_bytes());
    match store.txn(key, Guard::Any, Op::Put { value, ttl: None }).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        Outcome::Conflict { current } => panic!("{key}: conflict with {current:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_saved_while_it_is_written_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    // Small, so that the files are replaced all the time.
    let config =
        EmbeddedConfig { snapshot_log_bytes: 16 << 10, ..EmbeddedConfig::new(dir.path().join("store")) };
    let store = config.open().unwrap();
    for number in 0..300 {
        put(&store, &format!("/k/{number:03}"), &"x".repeat(200)).await;
    }
    store.txn("/k/007", Guard::Any, Op::Delete).await.unwrap();
    let acknowledged = store.revision().await.unwrap();
    let file = dir.path().join("one.snapshot");
    let saving = {
        let (folder, file) = (dir.path().join("store"), file.clone());
        tokio::task::spawn_blocking(move || save_folder(&folder, &file))
    };
    let mut number = 0;
    while !saving.is_finished() {
        put(&store, &format!("/later/{}", number % 50), &"y".repeat(500)).await;
        number += 1;
    }
    let saved = saving.await.unwrap().unwrap();
    assert!(saved.revision >= acknowledged && saved.keys >= 299, "{saved:?}");
    assert_eq!(status(&file).unwrap(), saved);
    let (again, bumped) = (dir.path().join("again"), dir.path().join("bumped"));
    restore(&file, &again, 0).unwrap();
    let restored = EmbeddedConfig::new(&again).open().unwrap();
    let listing = restored.list("/k/", None, None, None).await.unwrap();
    assert_eq!((listing.items.len(), listing.revision), (299, saved.revision));
    let before = store.list("/k/", None, None, None).await.unwrap();
    assert_eq!(before.items, listing.items);
    assert!(put(&restored, "/new", "z").await > saved.revision);
    // Who bumps is beyond everything that the old store may have come to.
    restore(&file, &bumped, 1_000_000).unwrap();
    let bumped = EmbeddedConfig::new(&bumped).open().unwrap();
    assert_eq!(put(&bumped, "/new", "z").await, saved.revision + 1_000_001);
    assert!(bumped.get("/k/001").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_is_saved_over_the_wire_with_history_and_leases() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::ours().await;
    let lease =
        server.lease().lease_grant(LeaseGrantRequest { ttl: 900, id: 77 }).await.unwrap().into_inner().id;
    for number in 0..200 {
        let key = format!("/h/{}", number % 20).into();
        let lease = if number % 20 == 3 { lease } else { 0 };
        let request = PutRequest { key, value: number.to_string().into(), lease, ..PutRequest::default() };
        server.kv().put(request).await.unwrap();
    }
    let hash = |server: &Server| {
        let mut client = server.maintenance();
        async move { client.hash_kv(HashKvRequest { revision: 0 }).await.unwrap().into_inner() }
    };
    let before = hash(&server).await;
    let cluster = RemoteConfig::new(vec![format!("http://{}", server.address())]).connect().await.unwrap();
    let file = dir.path().join("one.snapshot");
    save_cluster(&cluster, &file).await.unwrap();
    let saved = status(&file).unwrap();
    assert_eq!(
        (saved.keys, saved.revision, saved.compacted),
        (20, before.header.unwrap().revision.cast_unsigned(), None)
    );
    let folder = dir.path().join("again");
    restore(&file, &folder, 0).unwrap();
    let again = Server::ours_with(EtcdConfig::new(&folder)).await;
    assert_eq!(hash(&again).await.hash, before.hash);
    let old = RangeRequest { key: "/h/3".into(), revision: 100, ..RangeRequest::default() };
    let (there, here) = (server.kv().range(old.clone()).await.unwrap(), again.kv().range(old).await.unwrap());
    assert_eq!(there.get_ref().kvs, here.get_ref().kvs);
    assert_eq!(here.get_ref().kvs.len(), 1);
    let asked = LeaseTimeToLiveRequest { id: lease, keys: true };
    let left = again.lease().lease_time_to_live(asked).await.unwrap().into_inner();
    assert_eq!((left.granted_ttl, left.keys), (900, vec![Bytes::from_static(b"/h/3")]));
}

#[tokio::test]
async fn what_is_not_whole_is_refused_and_no_store_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("store");
    let store = EmbeddedConfig::new(&folder).open().unwrap();
    for number in 0..5 {
        put(&store, &format!("/k/{number}"), "x").await;
    }
    let file = dir.path().join("one.snapshot");
    let saved = save_folder(&folder, &file).unwrap();
    assert_eq!((saved.keys, saved.revision), (5, 5));
    let good = std::fs::read(&file).unwrap();
    assert_eq!(good.len() % 512, 32, "etcdctl tells a whole file by this");
    let bad = dir.path().join("bad");
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&bad, &bytes).unwrap();
        assert!(matches!(status(&bad), Err(StoreError::Corrupt { .. })), "byte {at}");
    }
    for length in [0, 31, 32, 512, good.len() - 1, good.len() - 512] {
        std::fs::write(&bad, &good[..length]).unwrap();
        let target = dir.path().join("target");
        assert!(restore(&bad, &target, 0).is_err(), "{length} bytes");
        assert!(!target.exists());
    }
    assert!(matches!(restore(&file, &folder, 0), Err(StoreError::Taken { .. })));
    store.close().await;
    assert!(matches!(restore(&file, &folder, 0), Err(StoreError::Occupied { .. })));
    let missing = save_folder(&dir.path().join("nothing"), &dir.path().join("x"));
    assert!(matches!(missing, Err(StoreError::Io { .. })), "{missing:?}");
    assert!(!dir.path().join("x").exists() && !dir.path().join("nothing").exists());
}
