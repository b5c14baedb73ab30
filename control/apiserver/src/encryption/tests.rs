//! What is encrypted how, and which configurations are refused.

use podwire_store::{EmbeddedConfig, Guard, Op, Store};

use super::*;

const KEY: &str = "/registry/secrets/default/a";
const SIXTEEN: &str = "c2VjcmV0IGlzIHNlY3VyZQ==";
const TWENTY_FOUR: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
const THIRTY_TWO: &str = "dGhpcyBpcyB0aGUga2V5IG9mIGEgc2VjcmV0Ym94ISE=";

fn parse(resources: &str, providers: &str) -> Result<Encryption, EncryptionError> {
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
         resources: [{{resources: [{resources}], providers: [{providers}]}}]}}"
    );
    Encryption::parse(&text, "/registry")
}

fn encryption(resources: &str, providers: &str) -> Encryption {
    parse(resources, providers).unwrap()
}

fn provider(name: &str, key: &str, secret: &str) -> String {
    format!("{{{name}: {{keys: [{{name: {key}, secret: {secret}}}]}}}}")
}

#[test]
fn each_provider_writes_its_mark_and_reads_what_it_has_written() {
    let value = Bytes::from_static(b"k8s\0 a value that nobody may read");
    for (name, secrets) in [
        ("aescbc", [SIXTEEN, TWENTY_FOUR, THIRTY_TWO].as_slice()),
        ("aesgcm", &[SIXTEEN, TWENTY_FOUR, THIRTY_TWO]),
        ("secretbox", &[THIRTY_TWO]),
    ] {
        for secret in secrets {
            let with = encryption("secrets", &provider(name, "key1", secret));
            let sealed = with.seal(KEY, value.clone()).unwrap();
            assert!(sealed.starts_with(format!("k8s:enc:{name}:v1:key1:").as_bytes()), "{sealed:?}");
            assert!(!sealed.windows(5).any(|part| part == b"value"));
            assert_ne!(sealed, with.seal(KEY, value.clone()).unwrap(), "{name}: never the same");
            assert_eq!(with.open(KEY, &sealed).unwrap(), Opened { value: value.clone(), stale: false });
            let empty = with.seal(KEY, Bytes::new()).unwrap();
            assert_eq!(with.open(KEY, &empty).unwrap().value, Bytes::new());
            for damage in
                [&sealed[..sealed.len() - 1], &sealed[..25], b"k8s:enc:", b"k8s:enc:aescbc:v1:key2:x"]
            {
                let damaged = Bytes::copy_from_slice(damage);
                assert!(with.open(KEY, &damaged).is_err(), "{name} {damaged:?}");
            }
            // Only what is bound to its place is told from what lay elsewhere.
            let moved = with.open("/registry/secrets/default/b", &sealed);
            assert_eq!(moved.is_err(), name == "aesgcm", "{name}");
            assert!(with.open(KEY, &value).is_err(), "no provider has written it");
        }
    }
}

#[test]
fn the_first_provider_writes_and_any_reads_what_is_then_to_be_written_again() {
    let old = encryption("secrets", &provider("aescbc", "old", THIRTY_TWO));
    let sealed = old.seal(KEY, Bytes::from_static(b"v")).unwrap();
    let new = provider("secretbox", "new", THIRTY_TWO);
    let both = encryption(
        "secrets",
        &format!("{new}, {}, {{identity: {{}}}}", provider("aescbc", "old", THIRTY_TWO)),
    );
    let stale = Opened { value: Bytes::from_static(b"v"), stale: true };
    assert_eq!(both.open(KEY, &sealed).unwrap(), stale);
    assert_eq!(both.open(KEY, &Bytes::from_static(b"v")).unwrap(), stale, "as it is");
    let again = both.seal(KEY, Bytes::from_static(b"v")).unwrap();
    assert!(again.starts_with(b"k8s:enc:secretbox:v1:new:"));
    assert!(!both.open(KEY, &again).unwrap().stale);
    // Two keys of one provider, and one of the same name behind them.
    let keys = format!(
        "{{aescbc: {{keys: [{{name: a, secret: {SIXTEEN}}}, {{name: old, secret: {SIXTEEN}}}]}}}}, {}",
        provider("aescbc", "old", THIRTY_TWO)
    );
    assert!(encryption("secrets", &keys).open(KEY, &sealed).is_ok_and(|opened| opened.stale));
    let back = encryption("secrets", &format!("{{identity: {{}}}}, {new}"));
    assert_eq!(back.seal(KEY, Bytes::from_static(b"v")).unwrap(), Bytes::from_static(b"v"));
    assert!(back.open(KEY, &again).unwrap().stale, "on its way back");
}

#[test]
fn resources_are_named_alone_by_their_group_or_all_at_once() {
    let keyed = provider("aescbc", "k", THIRTY_TWO);
    let sealed = |resources: &str, key: &str| {
        let sealed = encryption(resources, &keyed).seal(key, Bytes::from_static(b"v")).unwrap();
        sealed.starts_with(MARK)
    };
    let (secret, deployment) = (KEY, "/registry/deployments/default/a");
    let (gear, event) = ("/registry/example.com/gears/default/a", "/registry/events/default/a");
    let (ports, lease) = ("/registry/ranges/servicenodeports", "/registry/masterleases/10.0.0.1");
    for (resources, expected) in [
        ("secrets, events", vec![secret, event]),
        ("deployments.apps", vec![deployment]),
        ("gears.example.com", vec![gear]),
        ("\"*.apps\", \"*.example.com\"", vec![deployment, gear]),
        ("\"*.\"", vec![secret, event]),
        ("\"*.*\"", vec![secret, event, deployment, gear]),
    ] {
        for key in [secret, deployment, gear, event, ports, lease, "compact_rev_key", "/podwire/moving"] {
            assert_eq!(sealed(resources, key), expected.contains(&key), "{resources} {key}");
        }
    }
    let several = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{{identity: {{}}}}]}}\n- {{resources: ['*.*'], providers: [{keyed}]}}\n"
    );
    let several = Encryption::parse(&several, "/registry").unwrap();
    let starts = |key: &str| several.seal(key, Bytes::from_static(b"v")).unwrap().starts_with(MARK);
    assert!(!starts(secret) && starts(deployment), "the one that names it, not the one for all");
    let unread = encryption("secrets", &keyed).open(deployment, &Bytes::from_static(b"k8s:enc:x"));
    assert!(unread.is_err(), "of a resource that no rule names");
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_by_field() {
    let good = provider("aescbc", "k", THIRTY_TWO);
    let short = provider("secretbox", "k", SIXTEEN);
    let wrong = |resources: &str, providers: &str| match parse(resources, providers).unwrap_err() {
        EncryptionError::Invalid(all) => all.join("; "),
        other => panic!("{other}"),
    };
    for (resources, providers, expected) in [
        ("", good.as_str(), "resources[0].resources: Required value"),
        ("secrets", "", "resources[0].providers: Required value"),
        (
            "Secrets",
            &good,
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain",
        ),
        ("\"*\"", &good, "use '*.' to encrypt"),
        ("\"pods.*\"", &good, "across groups"),
        ("apiserveripinfo", &good, "REST API"),
        ("events.events.k8s.io", &good, "Use 'events' instead"),
        ("ingresses.extensions", &good, "has been removed"),
        ("secrets, secrets", &good, "specified multiple times"),
        ("secrets, \"*.\"", &good, "will be masked"),
        ("deployments.apps, \"*.*\"", &good, "will be masked"),
        ("secrets", "{}", "does not contain any of the expected providers"),
        ("secrets", "{identity: {}, aescbc: {}}", "more than one provider"),
        ("secrets", "{aescbc: {}}", "resources[0].providers[0].aescbc.keys: Required value"),
        ("secrets", "{aescbc: {keys: [{name: a}]}}", "aescbc.keys[0].secret: Required value"),
        ("secrets", "{aescbc: {keys: [{secret: YQ==, name: ''}]}}", "aescbc.keys[0].name: Required value"),
        (
            "secrets",
            "{aesgcm: {keys: [{secret: '?', name: a}]}}",
            "REDACTED\": secrets must be base64 encoded",
        ),
        (
            "secrets",
            &short,
            "secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]",
        ),
        ("secrets", "{kms: {name: a}}", "resources[0].providers[0].kms: Forbidden"),
        ("secrets", "{identity: {}, aes: {}}", "unknown field \"resources[0].providers[0].aes\""),
    ] {
        let told = wrong(resources, providers);
        assert!(told.contains(expected), "{resources} {providers}: {told}");
        assert!(!told.contains(THIRTY_TWO) && !told.contains(SIXTEEN), "no secrets: {told}");
    }
    let list = |items: &str| {
        Encryption::parse(
            &format!("{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{items}]}}"),
            "/registry",
        )
        .unwrap_err()
        .to_string()
    };
    let two =
        format!("{{resources: ['*.'], providers: [{good}]}}, {{resources: [secrets], providers: [{good}]}}");
    assert!(list(&two).contains("resource \"secrets\" is masked by earlier rule \"*.\""), "{}", list(&two));
    assert!(list("").contains("resources: Required value"));
    for bad in
        ["", "[]", "a: b", "{apiVersion: v1, kind: Config, resources: []}", "resources: [", "{a: 1, a: 2}"]
    {
        assert!(Encryption::parse(bad, "/registry").is_err(), "{bad}");
    }
}

#[tokio::test]
async fn an_embedded_store_holds_no_word_of_a_secret_and_knows_what_is_to_be_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let inner = EmbeddedConfig::new(dir.path().to_owned()).open().unwrap();
    let put = |value: &'static str| Op::Put { value: Bytes::from_static(value.as_bytes()), ttl: None };
    inner.txn(KEY, Guard::Absent, put("before")).await.unwrap();
    let providers = format!("{}, {{identity: {{}}}}", provider("aesgcm", "k", THIRTY_TWO));
    let with = Arc::new(encryption("secrets", &providers));
    let store = Encrypted::new(inner.clone(), with.clone());
    let watch = store.watch("/registry/", 1).await.unwrap();
    let before = store.get(KEY).await.unwrap().unwrap();
    assert_eq!(&before.value[..], b"before");
    assert!(with.is_stale(&before));
    store.txn(KEY, Guard::ModRevision(before.mod_revision), put("before")).await.unwrap();
    let after = store.get(KEY).await.unwrap().unwrap();
    assert!(!with.is_stale(&after) && !with.is_stale(&before));
    let raw = inner.get(KEY).await.unwrap().unwrap();
    assert!(raw.value.starts_with(b"k8s:enc:aesgcm:v1:k:"));
    assert!(refuse(KEY, &raw.value).unwrap_err().to_string().contains("--encryption-provider-config"));
    let listed = store.list("/registry/", None, None, None).await.unwrap();
    assert_eq!(&listed.items[0].value[..], b"before");
    let told = futures::StreamExt::next(&mut { watch }).await.unwrap().unwrap();
    let podwire_store::News::Events(events) = told else { panic!("{told:?}") };
    assert_eq!(&events[0].kv.value[..], b"before");
    drop(store);
    inner.close().await;
}
