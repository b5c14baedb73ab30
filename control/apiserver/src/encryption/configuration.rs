//! kube-apiserver's `EncryptionConfiguration` as rules; what cannot be meant is refused by field, in upstream's words where it has some.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::cipher::{AES_KEYS, BOX_KEYS, Cipher};
use super::{EncryptionError, Provider, Resource, Rule};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const PROVIDERS: &[&str] = &["aescbc", "aesgcm", "identity", "kms", "secretbox"];

/// Makes a cipher of a key, if that has the right length.
type Make = fn(&[u8]) -> Option<Cipher>;

/// Everything that is wrong, by field.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn required(&mut self, path: &str, why: &str) {
        self.0.push(format!("{path}: Required value: {why}"));
    }

    fn invalid(&mut self, path: &str, value: impl std::fmt::Display, why: &str) {
        self.0.push(format!("{path}: Invalid value: {value}: {why}"));
    }

    /// The members of an object, of which there are no others.
    fn known(&mut self, path: &str, object: &Value, fields: &[&str]) {
        let Some(map) = object.as_object() else {
            let path = if path.is_empty() { KIND } else { path };
            return self.invalid(path, object, "must be an object");
        };
        for key in map.keys().filter(|key| !fields.contains(&key.as_str())) {
            let dot = if path.is_empty() { "" } else { "." };
            self.0.push(format!("unknown field \"{path}{dot}{key}\""));
        }
    }

    /// The items of a list, of which there is one at least.
    fn items<'a>(&mut self, path: &str, name: &str, list: &'a Value) -> &'a [Value] {
        let items: &[Value] = match list {
            Value::Null => &[],
            Value::Array(items) => items.as_slice(),
            other => {
                self.invalid(path, other, "must be a list");
                return &[];
            }
        };
        if items.is_empty() {
            self.required(path, &format!("at least one {name} is required"));
        }
        items
    }
}

/// The rules of a configuration, in their order.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, EncryptionError> {
    // Not read as JSON at once: a key that is there twice is an error.
    let parsed: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)?;
    let object: Value = serde_yaml_ng::from_value(parsed)?;
    let mut wrong = Wrong::default();
    wrong.known("", &object, &["apiVersion", "kind", "resources"]);
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        if object[field] != expected {
            wrong.invalid(field, &object[field], &format!("must be {expected}"));
        }
    }
    let mut rules = Vec::new();
    let mut masks: Vec<Resource> = Vec::new();
    for (at, one) in wrong.items("resources", "resources", &object["resources"]).iter().enumerate() {
        let path = format!("resources[{at}]");
        wrong.known(&path, one, &["resources", "providers"]);
        let resources = resources(&format!("{path}.resources"), &one["resources"], &mut wrong);
        let providers = providers(&format!("{path}.providers"), &one["providers"], &mut wrong);
        for resource in &resources {
            mask(resource, &masks, &mut wrong);
        }
        masks.extend(resources.iter().filter(|(_, name)| name == "*").cloned());
        rules.push(Rule { resources, providers });
    }
    if wrong.0.is_empty() { Ok(rules) } else { Err(EncryptionError::Invalid(wrong.0)) }
}

/// Nothing comes behind a rule that hides it.
fn mask(resource: &Resource, earlier: &[Resource], wrong: &mut Wrong) {
    let masks = |mask: &&Resource| mask.0 == resource.0 || mask.0 == "*";
    if let Some(mask) = earlier.iter().find(masks) {
        wrong.0.push(format!(
            "resource {:?} is masked by earlier rule {:?}",
            written(resource),
            written(mask)
        ));
    }
}

fn written((group, resource): &Resource) -> String {
    match (group.as_str(), resource.as_str()) {
        ("", "*") => "*.".to_owned(),
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    }
}

/// `secrets`, `*.apps`: a resource and, behind the first dot, its group.
fn parse(text: &str) -> Resource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    (group.to_owned(), resource.to_owned())
}

fn resources(path: &str, list: &Value, wrong: &mut Wrong) -> Vec<Resource> {
    let items = wrong.items(path, path, list);
    let mut resources: Vec<Resource> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Some(text) = item.as_str() else {
            wrong.invalid(&path, item, "must be a string");
            continue;
        };
        if let Some(why) = misnamed(text) {
            wrong.invalid(&path, item, why);
        }
        resources.push(parse(text));
    }
    let twice = |(at, one): (usize, &Resource)| resources[..at].contains(one);
    if resources.iter().enumerate().any(twice) {
        wrong.invalid(path, list, "the same resource cannot be specified multiple times");
    }
    let all = |(group, resource): &Resource| group == "*" && resource == "*";
    let hidden = |(at, one): (usize, &Resource)| {
        let others = resources.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
        let mut others = others.filter(|other| *other != one);
        others.any(|other| all(one) || (one.0 == other.0 && one.1 == "*"))
    };
    if resources.iter().enumerate().any(hidden) {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
        wrong.invalid(path, list, why);
    }
    resources
}

/// Why a resource cannot be called that.
fn misnamed(text: &str) -> Option<&'static str> {
    let (group, resource) = parse(text);
    if text.chars().any(char::is_uppercase) {
        return Some("resource name should not contain capital letters");
    }
    match (group.as_str(), resource.as_str()) {
        ("", "*") if text == "*" => {
            Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
        }
        ("", "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations") => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        ("events.k8s.io", _) => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        ("extensions", _) => Some("'extensions' group has been removed and cannot be used for encryption"),
        ("*", resource) if resource != "*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        _ => None,
    }
}

fn providers(path: &str, list: &Value, wrong: &mut Wrong) -> Vec<Provider> {
    let items = wrong.items(path, path, list);
    let one = |(at, item)| provider(&format!("{path}[{at}]"), item, wrong);
    items.iter().enumerate().filter_map(one).collect()
}

fn provider(path: &str, item: &Value, wrong: &mut Wrong) -> Option<Provider> {
    wrong.known(path, item, PROVIDERS);
    let named: Vec<&str> = PROVIDERS.iter().copied().filter(|name| !item[*name].is_null()).collect();
    let [name] = named.as_slice() else {
        let why = match named.is_empty() {
            true => {
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
            }
            false => {
                "more than one provider specified in a single element, should split into different list elements"
            }
        };
        // Not the value itself: it may hold keys.
        wrong.invalid(path, format!("{named:?}"), why);
        return None;
    };
    let (path, given) = (format!("{path}.{name}"), &item[*name]);
    let (prefix, lengths, make): (_, _, Make) = match *name {
        "identity" => {
            wrong.known(&path, given, &[]);
            return Some(Provider::Identity);
        }
        "aescbc" => ("k8s:enc:aescbc:v1:", AES_KEYS, Cipher::cbc),
        "aesgcm" => ("k8s:enc:aesgcm:v1:", AES_KEYS, Cipher::gcm),
        "secretbox" => ("k8s:enc:secretbox:v1:", BOX_KEYS, Cipher::secretbox),
        _ => {
            wrong.0.push(format!("{path}: Forbidden: this server speaks to no key management service"));
            return None;
        }
    };
    wrong.known(&path, given, &["keys"]);
    let path = format!("{path}.keys");
    let items = wrong.items(&path, "keys", &given["keys"]);
    let one = |(at, item)| key(&format!("{path}[{at}]"), item, lengths, make, wrong);
    Some(Provider::Sealing { prefix, keys: items.iter().enumerate().filter_map(one).collect() })
}

fn key(
    path: &str,
    item: &Value,
    lengths: &[usize],
    make: Make,
    wrong: &mut Wrong,
) -> Option<(String, Cipher)> {
    wrong.known(path, item, &["name", "secret"]);
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    for field in ["name", "secret"] {
        if text(field).is_empty() {
            wrong.required(&format!("{path}.{field}"), &format!("{field} is a mandatory field for a key"));
        }
    }
    let path = format!("{path}.secret");
    if text("secret").is_empty() {
        return None;
    }
    let Ok(secret) = BASE64.decode(text("secret")) else {
        wrong.invalid(&path, "\"REDACTED\"", "secrets must be base64 encoded");
        return None;
    };
    let Some(cipher) = make(&secret) else {
        let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
        let (length, lengths) = (secret.len(), lengths.join(" "));
        let why = format!("secret is not of the expected length, got {length}, expected one of [{lengths}]");
        wrong.invalid(&path, "\"REDACTED\"", &why);
        return None;
    };
    Some((text("name").to_owned(), cipher))
}
