//! Pulls from a loopback registry, with good and bad manners.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "pull/registry.rs"]
mod registry;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use podwire_image::build::{Built, Compression, ImageBuilder, LayerBuilder};
use podwire_image::manifest::Platform;
use podwire_image::{Auth, Digest, Error, ImageStore, PullError, RegistryConfig, StoreConfig};
use registry::{Door, Fault, Registry};
use serde_json::json;

fn store(root: &Path, registries: RegistryConfig) -> ImageStore {
    StoreConfig { registries, ..StoreConfig::at(root) }.open().unwrap()
}

fn quick() -> RegistryConfig {
    RegistryConfig {
        backoff: Duration::from_millis(1),
        stall_timeout: Duration::from_millis(300),
        attempts: 3,
        ..RegistryConfig::default()
    }
}

/// Incompressible enough to come in several chunks.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    })
    .take(length)
    .collect()
}

/// Two layers; built once, for compressing takes a while without optimisation.
fn image() -> Built {
    static IMAGE: OnceLock<Built> = OnceLock::new();
    let build = || {
        let one = LayerBuilder::new().dir("a", 0o755).file("a/one", noise(1, 200_000), 0o644);
        let two = LayerBuilder::new().file("two", noise(2, 100_000), 0o600);
        ImageBuilder::new()
            .compression(Compression::Gzip)
            .layer(&one)
            .compression(Compression::Zstd(|tar| zstd::encode_all(tar, 1).unwrap()))
            .layer(&two)
            .cmd(&["x"])
            .build()
    };
    IMAGE.get_or_init(build).clone()
}

fn layer_path(built: &Built, at: usize) -> String {
    Digest::of(&built.layers[at].0).to_string()
}

fn nothing_left(root: &Path) {
    for folder in ["layers", "blobs", "images"] {
        assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[tokio::test]
async fn an_image_is_pulled_with_progress_and_pulled_again_without_its_layers() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "v1", &built);
    let store = store(dir.path(), quick());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&seen);
    let progress = Arc::new(move |progress| report.lock().unwrap().push(progress));
    let name = registry.name("app:v1");
    let image = store.pull(&name, Auth::default(), Some(progress)).await.unwrap();
    assert_eq!(image.id, built.id());
    assert_eq!(image.repo_tags, std::slice::from_ref(&name));
    assert_eq!(image.repo_digests, [registry.name(&format!("app@{}", built.digest()))]);
    assert_eq!(fs::read(image.layers[1].join("a/one")).unwrap(), noise(1, 200_000));
    assert_eq!(fs::read(image.layers[0].join("two")).unwrap(), noise(2, 100_000));
    let last = *seen.lock().unwrap().last().unwrap();
    let size: usize = built.layers.iter().map(|(bytes, _)| bytes.len()).sum();
    assert_eq!((last.received, last.total, last.layers_done, last.layers), (size as u64, size as u64, 2, 2));

    assert_eq!(store.pull(&name, Auth::default(), None).await.unwrap(), image);
    assert_eq!(registry.seen(&layer_path(&built, 0)), 1, "the layer is there");
    let by_digest = registry.name(&format!("app@{}", built.digest()));
    assert_eq!(store.pull(&by_digest, Auth::default(), None).await.unwrap().id, image.id);
}

#[tokio::test]
async fn ten_pulls_at_once_download_once() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "v1", &built);
    registry.offer("twin", "v1", &ImageBuilder::new().raw_layer(built.tars[0].clone()).build());
    registry.state.lock().unwrap().delay = Duration::from_millis(20);
    let store = store(dir.path(), quick());
    let name = registry.name("app:v1");
    let pulls = (0..10).map(|_| store.pull(&name, Auth::default(), None));
    for result in futures::future::join_all(pulls).await {
        assert_eq!(result.unwrap().id, built.id());
    }
    for at in 0..2 {
        assert_eq!(registry.seen(&layer_path(&built, at)), 1);
    }
    assert_eq!(registry.seen("manifests/v1"), 1);
}

#[tokio::test]
async fn the_manifest_for_this_machine_is_taken_from_an_index() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "amd", &built);
    let foreign = Digest::of(b"another architecture");
    let host = Platform::host();
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": foreign, "size": 1,
              "platform": { "os": "linux", "architecture": "s390x" } },
            { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": built.digest(),
              "size": built.manifest.len(), "platform": { "os": host.os, "architecture": host.architecture } },
        ],
    });
    let index = index.to_string().into_bytes();
    registry.put_manifest("app", "multi", &index, "application/vnd.oci.image.index.v1+json");
    let store = store(dir.path(), quick());
    let image = store.pull(&registry.name("app:multi"), Auth::default(), None).await.unwrap();
    assert_eq!(image.id, built.id());
    assert_eq!(image.repo_digests, [registry.name(&format!("app@{}", Digest::of(&index)))]);
}

#[tokio::test]
async fn every_way_of_authentication_works_and_wrong_credentials_are_denied() {
    let user = |username: &str| Auth { username: username.into(), password: "p".into(), ..Auth::default() };
    let identity = Auth { identity_token: "again".into(), ..Auth::default() };
    let token = Auth { registry_token: "direct".into(), ..Auth::default() };
    let cases = [
        (Door::Basic("dTpw"), user("u"), user("wrong")),
        (Door::Token(None), Auth::default(), user("u")),
        (Door::Token(Some("dTpw")), user("u"), Auth::default()),
        (Door::Token(Some("dTpw")), Auth { auth: "dTpw".into(), ..Auth::default() }, user("wrong")),
        (Door::Refresh("again"), identity, Auth { identity_token: "old".into(), ..Auth::default() }),
        (Door::Bearer("direct"), token, Auth { registry_token: "old".into(), ..Auth::default() }),
    ];
    for (door, good, bad) in cases {
        let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
        registry.offer("app", "v1", &built);
        registry.state.lock().unwrap().door = door.clone();
        let store = store(dir.path(), quick());
        let name = registry.name("app:v1");
        let error = store.pull(&name, bad, None).await.unwrap_err();
        assert!(matches!(error, Error::Pull(PullError::Denied { .. })), "{door:?}: {error:?}");
        nothing_left(dir.path());
        let elsewhere = Auth { server_address: "other.example".into(), ..good.clone() };
        if door != Door::Token(None) {
            assert!(
                store.pull(&name, elsewhere, None).await.is_err(),
                "{door:?}: credentials for another host"
            );
        }
        assert_eq!(store.pull(&name, good, None).await.unwrap().id, built.id(), "{door:?}");
    }
}

#[tokio::test]
async fn docker_credentials_are_used_when_the_call_brings_none() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "v1", &built);
    registry.state.lock().unwrap().door = Door::Basic("dTpw");
    let config = dir.path().join("config.json");
    let auths = json!({ "auths": { registry.address.to_string(): { "auth": "dTpw" } } });
    fs::write(&config, auths.to_string()).unwrap();
    let store = store(&dir.path().join("s"), RegistryConfig { docker_config: Some(config), ..quick() });
    store.pull(&registry.name("app:v1"), Auth::default(), None).await.unwrap();
}

#[tokio::test]
async fn faults_that_pass_are_survived() {
    for fault in [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Truncate(50_000),
        Fault::Truncate(0),
        Fault::Stall(70_000),
    ] {
        for ignore_ranges in [false, true] {
            let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
            registry.offer("app", "v1", &built);
            registry.state.lock().unwrap().ignore_ranges = ignore_ranges;
            registry.fault(&layer_path(&built, 0), 2, fault.clone());
            registry.fault("manifests", 1, Fault::Status(502));
            let store = store(dir.path(), quick());
            let image = store.pull(&registry.name("app:v1"), Auth::default(), None).await;
            let image = image.unwrap_or_else(|error| panic!("{fault:?}: {}", podwire_trace::chain(&error)));
            assert_eq!(fs::read(image.layers[1].join("a/one")).unwrap(), noise(1, 200_000), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_stopped() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "v1", &built);
    registry.fault(&layer_path(&built, 0), 1, Fault::Truncate(65_536));
    let store = store(dir.path(), quick());
    store.pull(&registry.name("app:v1"), Auth::default(), None).await.unwrap();
    let state = registry.state.lock().unwrap();
    let ranges: Vec<_> = state.seen.iter().filter_map(|(.., range)| range.clone()).collect();
    assert_eq!(ranges, ["bytes=65536-"]);
}

#[tokio::test]
async fn faults_that_stay_are_told_and_leave_nothing() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    registry.offer("app", "v1", &built);
    let store = store(dir.path(), quick());
    let pull = async |name: &str| store.pull(&registry.name(name), Auth::default(), None).await.unwrap_err();
    let error = pull("app:v9").await;
    assert!(matches!(error, Error::Pull(PullError::NotFound { .. })), "{error:?}");
    let error = pull(&format!("app@{}", Digest::of(b"none"))).await;
    assert!(matches!(error, Error::Pull(PullError::NotFound { .. })), "{error:?}");
    registry.fault(&layer_path(&built, 1), 1, Fault::Corrupt);
    let error = pull("app:v1").await;
    assert!(matches!(error, Error::DigestMismatch { .. } | Error::Unpack { .. }), "{error:?}");
    registry.fault("manifests", 1, Fault::Corrupt);
    let error = pull(&format!("app@{}", built.digest())).await;
    assert!(matches!(error, Error::DigestMismatch { .. }), "{error:?}");
    registry.fault("manifests", 3, Fault::Status(500));
    let error = pull("app:v1").await;
    assert!(error.to_string().starts_with("RegistryUnavailable"), "{error}");
    registry.fault("manifests", 3, Fault::Status(429));
    assert!(matches!(pull("app:v1").await, Error::Pull(PullError::TooManyRequests { .. })));
    registry.fault(&layer_path(&built, 1), 3, Fault::Truncate(0));
    let error = pull("app:v1").await;
    assert!(error.to_string().starts_with("RegistryUnavailable"), "{error}");
    drop(store);
    let store = StoreConfig { registries: quick(), ..StoreConfig::at(dir.path()) }.open().unwrap();
    nothing_left(dir.path());
    let gone = { Registry::start().await.address };
    let error = store.pull(&format!("{gone}/x:v1"), Auth::default(), None).await.unwrap_err();
    assert!(error.to_string().starts_with("RegistryUnavailable"), "{error}");
    assert_eq!(store.pull(&registry.name("app:v1"), Auth::default(), None).await.unwrap().id, built.id());
}

#[tokio::test]
async fn mirrors_come_first_and_the_registry_steps_in() {
    let (dir, mirror, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    mirror.offer("team/app", "v1", &built);
    let down = { Registry::start().await.address };
    let mirrors = vec![format!("http://{down}"), format!("http://{}", mirror.address)];
    let mirrors = BTreeMap::from([("registry.example".to_owned(), mirrors)]);
    let store_a = store(&dir.path().join("a"), RegistryConfig { mirrors, ..quick() });
    let image = store_a.pull("registry.example/team/app:v1", Auth::default(), None).await.unwrap();
    assert_eq!(image.repo_tags, ["registry.example/team/app:v1"]);
    assert!(mirror.state.lock().unwrap().seen[0].1.ends_with("?ns=registry.example"));

    // A mirror that lies about a layer: the registry behind it is asked.
    let registry = Registry::start().await;
    registry.offer("team/app", "v1", &built);
    mirror.fault(&layer_path(&built, 0), 100, Fault::Corrupt);
    let host = registry.address.to_string();
    let mirrors = BTreeMap::from([(host.clone(), vec![format!("http://{}", mirror.address)])]);
    let store_b = store(&dir.path().join("b"), RegistryConfig { mirrors, ..quick() });
    store_b.pull(&format!("{host}/team/app:v1"), Auth::default(), None).await.unwrap();
    assert_eq!(registry.seen(&layer_path(&built, 0)), 1);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    let storage = Registry::start().await;
    registry.offer("app", "v1", &built);
    storage.offer("app", "v1", &built);
    {
        let mut state = registry.state.lock().unwrap();
        state.door = Door::Basic("dTpw");
        state.elsewhere = Some(storage.address);
    }
    let auth = Auth { auth: "dTpw".into(), ..Auth::default() };
    let store = store(dir.path(), quick());
    store.pull(&registry.name("app:v1"), auth, None).await.unwrap();
    let state = storage.state.lock().unwrap();
    assert!(state.seen.len() >= 3);
    assert!(state.seen.iter().all(|(_, _, authorization, _)| authorization.is_none()));
}

#[tokio::test]
async fn only_the_registry_itself_may_ask_for_credentials_and_only_where_nobody_else_reads_them() {
    let auth = Auth { username: "u".into(), password: "p".into(), ..Auth::default() };
    let untold = |registry: &Registry| {
        let state = registry.state.lock().unwrap();
        assert!(!state.seen.is_empty());
        assert!(
            state.seen.iter().all(|(_, _, authorization, _)| authorization.is_none()),
            "{:?}",
            state.seen
        );
    };

    // A mirror asks: it stands for the registry, it is not the registry.
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start().await, image());
    let mirror = Registry::start().await;
    registry.offer("app", "v1", &built);
    registry.state.lock().unwrap().door = Door::Basic("dTpw");
    mirror.state.lock().unwrap().door = Door::Basic("dTpw");
    let host = registry.address.to_string();
    let mirrors = BTreeMap::from([(host.clone(), vec![format!("http://{}", mirror.address)])]);
    let behind = store(&dir.path().join("a"), RegistryConfig { mirrors, ..quick() });
    behind.pull(&format!("{host}/app:v1"), auth.clone(), None).await.unwrap();
    untold(&mirror);

    // The host that blobs are redirected to asks.
    let storage = Registry::start().await;
    storage.offer("app", "v1", &built);
    storage.state.lock().unwrap().door = Door::Basic("dTpw");
    registry.state.lock().unwrap().elsewhere = Some(storage.address);
    let store = store(&dir.path().join("b"), quick());
    let error = store.pull(&registry.name("app:v1"), auth.clone(), None).await.unwrap_err();
    assert!(matches!(error, Error::Pull(PullError::Denied { .. })), "{error:?}");
    untold(&storage);

    // A realm in the clear on another host: the loopback network has many.
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    registry.state.lock().unwrap().door = Door::Realm(listener.local_addr().unwrap());
    let error = store.pull(&registry.name("app:v1"), auth, None).await.unwrap_err();
    assert!(podwire_trace::chain(&error).contains("where others could read them"), "{error:?}");
    let touched = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    assert!(touched.is_err(), "nobody may even connect there with credentials");
}

#[tokio::test]
async fn certificates_are_checked_unless_the_host_is_declared_insecure() {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let secret = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .unwrap();
    let (dir, registry, built) = (tempfile::tempdir().unwrap(), Registry::start_tls(config).await, image());
    registry.offer("app", "v1", &built);
    let hosts = dir.path().join("certs.d");
    let folder = hosts.join("tls.example");
    fs::create_dir_all(&folder).unwrap();
    let url = format!("https://localhost:{}", registry.address.port());
    let settings =
        |extra: &str| fs::write(folder.join("hosts.toml"), format!("server = \"{url}\"\n{extra}")).unwrap();
    let pull = async |at: &str| {
        let config = RegistryConfig { hosts_dir: Some(hosts.clone()), ..quick() };
        store(&dir.path().join(at), config).pull("tls.example/app:v1", Auth::default(), None).await
    };
    settings("");
    let error = pull("strict").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    settings("skip_verify = true");
    pull("insecure").await.unwrap();
    settings("ca = \"own.crt\"");
    fs::write(folder.join("own.crt"), key.cert.pem()).unwrap();
    pull("trusted").await.unwrap();
}

#[tokio::test]
async fn a_large_image_is_synced_after_the_pull_and_dropped_if_the_machine_went_down_before() {
    let (dir, registry) = (tempfile::tempdir().unwrap(), Registry::start().await);
    let layer = (0..600).fold(LayerBuilder::new(), |layer, n| layer.file(&format!("f{n}"), "x", 0o644));
    let built = ImageBuilder::new().layer(&layer).build();
    registry.offer("app", "v1", &built);
    let store_a = store(dir.path(), quick());
    let name = registry.name("app:v1");
    store_a.pull(&name, Auth::default(), None).await.unwrap();
    let record = dir.path().join("images").join(built.id().trim_start_matches("sha256:"));
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&record).unwrap().contains(r#""pending":null"#) {
        assert!(std::time::Instant::now() < deadline, "the image was never synced");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(store_a);
    let rewrite = |boot: &str| {
        let text = fs::read_to_string(&record).unwrap();
        fs::write(&record, text.replace(r#""pending":null"#, &format!(r#""pending":"{boot}""#))).unwrap();
    };
    // The daemon was killed within this boot: the image is good, and the sync is made up for.
    rewrite(fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim());
    let store_b = store(dir.path(), quick());
    assert!(store_b.find(&name).is_some());
    while !fs::read_to_string(&record).unwrap().contains(r#""pending":null"#) {
        assert!(std::time::Instant::now() < deadline, "the sync was not made up for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(store_b);
    // The power was cut: what the layers hold is not known.
    rewrite("another-boot");
    let store_c = store(dir.path(), quick());
    assert!(store_c.find(&name).is_none());
    nothing_left(dir.path());
    store_c.pull(&name, Auth::default(), None).await.unwrap();
}
