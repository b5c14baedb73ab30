//! The store on a cluster that fails, comes back, is shared, or is not the one that was meant.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/etcd.rs"]
mod etcd;

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use podwire_store::{
    ClientTls, Door, EtcdConfig, Guard, News, Op, Outcome, Remote, RemoteConfig, Revision, Store, StoreError,
    TlsFiles, WatchStream,
};
use podwire_wire::etcd::{PutRequest, RangeRequest};
use tokio_util::sync::CancellationToken;

use self::etcd::{PATIENCE, Server};

fn at(server: &Server) -> RemoteConfig {
    RemoteConfig::new(vec![format!("http://{}", server.address())])
}

async fn written(store: &Remote, key: &str) -> Revision {
    match store.txn(key, Guard::Any, Op::Put { value: "x".into(), ttl: None }).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        Outcome::Conflict { current } => panic!("{key}: conflict with {current:?}"),
    }
}

/// Asks until something is so.
async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let begun = tokio::time::Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn revisions(watch: &mut WatchStream, count: usize) -> Vec<Revision> {
    let mut all = Vec::new();
    while all.len() < count {
        let news = tokio::time::timeout(PATIENCE, watch.next())
            .await
            .expect("in time")
            .expect("open")
            .expect("sound");
        if let News::Events(events) = news {
            all.extend(events.iter().map(|event| event.revision()));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_where_it_was_when_the_cluster_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::ours_with(EtcdConfig::new(dir.path())).await;
    let address = server.address();
    let store = at(&server).connect().await.unwrap();
    let mut watch = store.watch("/registry/", 0).await.unwrap();
    let mut made = vec![written(&store, "/registry/a").await, written(&store, "/registry/b").await];
    assert_eq!(revisions(&mut watch, 2).await, made);
    server.stop().await;
    let refused = store.txn("/registry/c", Guard::Any, Op::Delete).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    let health = store.health().await.unwrap_err();
    assert!(matches!(health, StoreError::Unavailable { .. }), "{health:?}");
    let read = store.get("/registry/a").await.unwrap_err();
    assert!(matches!(read, StoreError::Unavailable { .. }), "{read:?}");
    let _server = Server::ours_at(EtcdConfig::new(dir.path()), address).await;
    made.push(written(&store, "/registry/c").await);
    made.push(written(&store, "/registry/a").await);
    assert_eq!(revisions(&mut watch, 2).await, made[2..], "neither a gap nor one of them twice");
    store.health().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_away_is_passed_over() {
    let server = Server::ours().await;
    let mut config = at(&server);
    config.servers.insert(0, "http://127.0.0.1:1".into());
    config.servers.push("http://127.0.0.1:2".into());
    let store = config.connect().await.unwrap();
    for number in 0..5 {
        written(&store, &format!("/registry/{number}")).await;
    }
    let mut watch = store.watch("/registry/", 0).await.unwrap();
    assert_eq!(revisions(&mut watch, 5).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_of_two_prefixes_share_an_etcd_and_see_nothing_of_each_other() {
    let server = Server::ours().await;
    let (one, other) = (at(&server), RemoteConfig { prefix: "other/".into(), ..at(&server) });
    let (one, other) = (one.connect().await.unwrap(), other.connect().await.unwrap());
    written(&one, "/registry/pods/a").await;
    let made = written(&other, "/registry/pods/b").await;
    let keys = |items: Vec<podwire_store::KeyValue>| {
        items.into_iter().map(|kv| kv.key.to_string()).collect::<Vec<_>>()
    };
    let mine = one.list("/registry/", None, None, None).await.unwrap();
    assert_eq!(keys(mine.items), ["/registry/pods/a"]);
    let theirs = other.list("/registry/", None, None, None).await.unwrap();
    assert_eq!((theirs.revision, keys(theirs.items)), (made, vec!["/registry/pods/b".to_owned()]));
    let mut watch = other.watch("/registry/", 0).await.unwrap();
    written(&one, "/registry/pods/c").await;
    let next = written(&other, "/registry/pods/d").await;
    assert_eq!(revisions(&mut watch, 2).await, [made, next]);
    let request =
        RangeRequest { key: "/other/".into(), range_end: "/other0".into(), ..RangeRequest::default() };
    let found = server.kv().range(request).await.unwrap().into_inner().kvs;
    assert_eq!(found.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), ["/other/pods/b", "/other/pods/d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_cluster_compact_in_turns_and_only_what_is_a_round_old() {
    let server = Server::ours().await;
    let config = RemoteConfig { compaction_interval: Duration::from_millis(100), ..at(&server) };
    let (one, other) = (config.clone().connect().await.unwrap(), config.connect().await.unwrap());
    let first = written(&one, "/registry/a").await;
    let shutdown = CancellationToken::new();
    let look = async {
        eventually("the first revision is compacted", || async {
            written(&one, "/registry/a").await;
            let listed = one.list("/registry/", None, None, Some(first)).await;
            matches!(listed, Err(StoreError::Compacted { .. }))
        })
        .await;
        let newest = written(&one, "/registry/a").await;
        one.list("/registry/", None, None, Some(newest)).await.unwrap();
        shutdown.cancel();
    };
    tokio::join!(one.run(shutdown.clone()), other.run(shutdown.clone()), look);
    let request = RangeRequest { key: "compact_rev_key".into(), ..RangeRequest::default() };
    let value = server.kv().range(request).await.unwrap().into_inner().kvs.remove(0).value;
    let agreed: u64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
    assert!(agreed >= first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_text_is_left_out_and_the_rest_goes_on() {
    let server = Server::ours().await;
    let store = at(&server).connect().await.unwrap();
    let mut watch = store.watch("/registry/", 1).await.unwrap();
    let odd = PutRequest { key: b"/registry/\xff"[..].into(), value: "x".into(), ..PutRequest::default() };
    server.kv().put(odd).await.unwrap();
    let made = written(&store, "/registry/a").await;
    assert_eq!(revisions(&mut watch, 1).await, [made]);
    assert_eq!(store.list("/registry/", None, None, None).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_less_behind_it_than_was_seen_is_not_the_one() {
    let (one, other) = (Server::ours().await, Server::ours().await);
    let mut newest = 0;
    let store = at(&one).connect().await.unwrap();
    for _ in 0..5 {
        newest = written(&store, "/registry/a").await;
    }
    let store = at(&other).connect().await.unwrap();
    let error = store.watch("/registry/", newest).await.err().expect("it is refused");
    assert!(matches!(error, StoreError::FutureRevision { .. }), "{error:?}");
}

/// A certificate authority with a server and a client, as files.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        write("ca.crt", authority.pem());
        for name in ["server", "client"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let params =
                rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
            write(&format!("{name}.crt"), params.signed_by(&key, &authority).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { dir }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_known_by_its_certificate_and_asks_for_ours() {
    let (good, bad) = (Certificates::new(), Certificates::new());
    let files = TlsFiles {
        cert: good.file("server.crt"),
        key: good.file("server.key"),
        client_ca: Some(good.file("ca.crt")),
    };
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let door = Door { listener, tls: Some(files.load().unwrap()), metrics_only: false };
    let shutdown = CancellationToken::new();
    let server = EtcdConfig::new(dir.path()).open().unwrap();
    let asking = async {
        let tls = |authority: &Certificates, client: &Certificates| ClientTls {
            ca: Some(authority.file("ca.crt")),
            cert: Some(client.file("client.crt")),
            key: Some(client.file("client.key")),
        };
        let start_wait = Duration::from_millis(100);
        let with = |tls| RemoteConfig { tls, start_wait, ..RemoteConfig::new(vec![url.clone()]) };
        let store = with(tls(&good, &good)).connect().await.unwrap();
        written(&store, "/registry/a").await;
        // Those are refused at every attempt, and so they are at the start.
        for wrong in [tls(&bad, &good), tls(&good, &bad)] {
            let refused = tokio::time::timeout(Duration::from_secs(60), with(wrong).connect()).await.unwrap();
            let error = refused.err().expect("it is refused").to_string();
            assert!(
                error.contains("ertificate") || error.contains("UnknownCA") || error.contains("etcd"),
                "{error}"
            );
        }
        shutdown.cancel();
    };
    tokio::join!(server.run(vec![door], shutdown.clone()), asking);
}
