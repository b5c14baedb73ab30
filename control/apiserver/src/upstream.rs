//! A store whose values lie there as kube-apiserver writes them, so that it and this server read each other's objects.
//!
//! In front are the values of this server (`codec`), behind are upstream's: built-in kinds as protobuf in its envelope, in the
//! version that upstream stores; custom resources and definitions as JSON. Keys are the same on both sides. What cannot be read is handed on as
//! it is: its reader says so, and everything else goes on. What is encrypted is decrypted behind this (`encryption`), or refused by name.

mod definition;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use podwire_api::{Kind, Registry, builtin, protobuf};
use podwire_store::{KeyValue, Store, StoreError};
use serde_json::Value;

use crate::coded::{Coded, Coding};
use crate::{codec, encryption};

/// A store in upstream's encoding.
pub type Transcoded<S> = Coded<S, Encoding>;

/// Turns values from one encoding into the other.
#[derive(Default)]
pub struct Encoding {
    /// What custom resources are called, by the prefix of their keys: as the definitions say that came by.
    kinds: RwLock<HashMap<String, String>>,
}

/// The built-in kind whose objects lie under a key, in the version they are stored in.
pub(crate) fn builtin_at(key: &str) -> Option<&'static Arc<Kind>> {
    static STORED: OnceLock<BTreeMap<&'static str, &'static Arc<Kind>>> = OnceLock::new();
    let stored = STORED.get_or_init(|| {
        let kinds = Registry::builtin().kinds().iter();
        let stored = kinds.filter(|kind| kind.is_stored() && !kind.strategy.is_converted());
        stored.map(|kind| (kind.storage_prefix.as_ref(), kind)).collect()
    });
    let (prefix, kind) = stored.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
    key.starts_with(prefix).then_some(*kind)
}

/// What the keys of custom resources of one definition begin with.
pub(crate) fn prefix_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("/registry/")?;
    let group = rest.find('/')?;
    let resource = rest.get(group + 1..)?.find('/')?;
    key.get(..key.len() - rest.len() + group + resource + 2)
}

impl Encoding {
    /// Remembers what the objects of a definition are called.
    fn learn(&self, definition: &Value) {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        if kind.is_empty() {
            return;
        }
        let prefix = podwire_api::definition::storage_prefix(definition);
        let known = self
            .kinds
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&prefix)
            .is_some_and(|known| known == kind);
        if !known {
            self.kinds.write().unwrap_or_else(PoisonError::into_inner).insert(prefix, kind.to_owned());
        }
    }

    fn kind_at(&self, key: &str) -> Option<String> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).get(prefix_of(key)?).cloned()
    }

    /// A value of ours as upstream writes it.
    fn encoded(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        // Allocations are no objects that anybody is served; they lie as upstream's on every store.
        if protobuf::is_envelope(&value) {
            return Ok(value);
        }
        let failed = |reason: String| StoreError::Encoding { key: key.to_owned(), reason };
        let kv = KeyValue { key: key.into(), value, create_revision: 0, mod_revision: 0 };
        let text = codec::json_text(&kv).map_err(|error| failed(error.to_string()))?;
        let Some(kind) = builtin_at(key) else {
            let kind =
                self.kind_at(key).ok_or_else(|| failed("no definition of its kind is known".into()))?;
            let version = codec::version(&kv).ok_or_else(|| failed("it does not say its version".into()))?;
            let group = key.split('/').nth(2).unwrap_or_default();
            let mut out = format!("{{\"apiVersion\":\"{group}/{version}\",\"kind\":\"{kind}\",").into_bytes();
            out.extend_from_slice(text.get(1..).unwrap_or_default());
            out.push(b'\n');
            return Ok(out.into());
        };
        let mut object: Value = serde_json::from_slice(text).map_err(|error| failed(error.to_string()))?;
        if !kind.strategy.defines_kinds() {
            return Ok(protobuf::encode(kind, &object).into());
        }
        self.learn(&object);
        definition::to_v1beta1(&mut object);
        let mut out = serde_json::to_vec(&object).map_err(|error| failed(error.to_string()))?;
        out.push(b'\n');
        Ok(out.into())
    }

    /// A value of upstream's as ours; what is not an object of a kind stays as it is.
    fn inward(&self, key: &str, value: &Bytes) -> Result<Option<Bytes>, StoreError> {
        let failed = |reason: String| StoreError::Encoding { key: key.to_owned(), reason };
        encryption::refuse(key, value)?;
        let builtin = builtin_at(key);
        if protobuf::is_envelope(value) {
            let Some(kind) = builtin else { return Ok(None) };
            return from_protobuf(kind, value).map(Some).map_err(failed);
        }
        if value.first() != Some(&b'{') {
            return Ok(None);
        }
        let mut object: Value = serde_json::from_slice(value).map_err(|error| failed(error.to_string()))?;
        let Some(kind) = builtin else {
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let version = api_version.split_once('/').map(|(_, version)| version.to_owned());
            let version = version.ok_or_else(|| failed(format!("its version is {api_version:?}")))?;
            return Ok(Some(codec::encode(&object, Some(&version))));
        };
        if kind.strategy.defines_kinds() {
            definition::to_v1(&mut object);
            self.learn(&object);
        } else {
            let (api_version, named) = (text(&object["apiVersion"]), text(&object["kind"]));
            to_stored(kind, &api_version, &named, &mut object).map_err(failed)?;
        }
        Ok(Some(codec::encode(&object, None)))
    }

    /// A key with its value as ours.
    fn read(&self, mut kv: KeyValue) -> KeyValue {
        match self.inward(&kv.key, &kv.value) {
            Ok(Some(value)) => kv.value = value,
            Ok(None) => {}
            Err(error) => {
                tracing::error!(key = %kv.key, error = %crate::error_chain(&error), "an object in etcd cannot be read");
            }
        }
        kv
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn from_protobuf(kind: &Arc<Kind>, value: &[u8]) -> Result<Bytes, String> {
    let (api_version, named) = protobuf::envelope_kind(value).map_err(|error| error.to_string())?;
    let mut object = if named == kind.kind && api_version == kind.api_version() {
        protobuf::decode(kind, value)
    } else {
        protobuf::decode_any(value)
    }
    .map_err(|error| error.to_string())?;
    to_stored(kind, &api_version, &named, &mut object)?;
    complete(kind, &mut object);
    Ok(codec::encode(&object, None))
}

/// What upstream adds to every object that it reads from etcd: defaults, and what claims in a template are.
fn complete(kind: &Kind, object: &mut Value) {
    podwire_api::defaults::apply(kind, object);
    let templates = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    let claims = builtin::persistent_volume_claims();
    for template in templates.into_iter().flatten() {
        template["apiVersion"] = claims.api_version().into();
        template["kind"] = (*claims.kind).into();
    }
}

/// Turns an object of another version of its kind into the one that is stored here.
fn to_stored(kind: &Kind, api_version: &str, named: &str, object: &mut Value) -> Result<(), String> {
    if named == kind.kind && api_version == kind.api_version() {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let served = Registry::builtin().by_gvk(group, version, named);
    let served = served.filter(|served| served.storage_prefix == kind.storage_prefix);
    let served =
        served.ok_or_else(|| format!("it is a {named} of {api_version}, which is not known here"))?;
    served.strategy.to_storage(object);
    Ok(())
}

impl<S: Store> Transcoded<S> {
    /// A store in front of this one.
    pub fn new(store: S) -> Self {
        Self { store, coding: Arc::default() }
    }
}

impl Coding for Encoding {
    fn outward(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        self.encoded(key, value)
    }

    fn asked(&self, kv: KeyValue) -> Result<KeyValue, StoreError> {
        Ok(self.read(kv))
    }

    fn listed(&self, kv: KeyValue) -> Result<KeyValue, StoreError> {
        encryption::refuse(&kv.key, &kv.value)?;
        Ok(self.read(kv))
    }

    fn told(&self, kv: KeyValue) -> KeyValue {
        self.read(kv)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours(value: &Value, version: Option<&str>) -> Bytes {
        codec::encode(value, version)
    }

    #[test]
    fn a_kind_of_the_table_lies_there_as_protobuf_in_the_version_that_is_stored() {
        let encoding = Encoding::default();
        for (key, api_version, kind, object) in [
            (
                "/registry/configmaps/d/a",
                "v1",
                "ConfigMap",
                json!({"metadata": {"name": "a", "namespace": "d"}, "data": {"k": "v"}}),
            ),
            (
                "/registry/minions/a",
                "v1",
                "Node",
                json!({"metadata": {"name": "a"}, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {}}),
            ),
            (
                "/registry/events/d/a",
                "v1",
                "Event",
                json!({"metadata": {"name": "a", "namespace": "d"}, "reason": "R", "involvedObject": {"kind": "Pod"}}),
            ),
        ] {
            let there = encoding.outward(key, ours(&object, None)).unwrap();
            assert_eq!(
                protobuf::envelope_kind(&there).unwrap(),
                (api_version.to_owned(), kind.to_owned()),
                "{key}"
            );
            let back = encoding.inward(key, &there).unwrap().expect("it is an object");
            let kv = KeyValue { key: key.into(), value: back, create_revision: 1, mod_revision: 1 };
            let back: Value = serde_json::from_slice(codec::json_text(&kv).unwrap()).unwrap();
            assert_eq!(back["metadata"]["name"], "a");
            assert_eq!((&back["data"], &back["reason"]), (&object["data"], &object["reason"]));
        }
    }

    #[test]
    fn a_custom_resource_lies_there_as_json_that_says_what_it_is() {
        let encoding = Encoding::default();
        let object = json!({"metadata": {"name": "a", "namespace": "d"}, "spec": {"size": 3}});
        let key = "/registry/example.com/widgets/d/a";
        let unknown = encoding.outward(key, ours(&object, Some("v1"))).unwrap_err();
        assert!(matches!(unknown, StoreError::Encoding { .. }));
        let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true}]}});
        let at = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";
        let there = encoding.outward(at, ours(&definition, None)).unwrap();
        let told: Value = serde_json::from_slice(&there).unwrap();
        assert_eq!(
            (&told["apiVersion"], &told["spec"]["version"]),
            (&json!("apiextensions.k8s.io/v1beta1"), &json!("v1"))
        );
        let there = encoding.outward(key, ours(&object, Some("v1"))).unwrap();
        let told: Value = serde_json::from_slice(&there).unwrap();
        assert_eq!(told["apiVersion"], "example.com/v1");
        assert_eq!((&told["kind"], &told["spec"]), (&json!("Widget"), &object["spec"]));
        assert_eq!(encoding.inward(key, &there).unwrap(), Some(ours(&object, Some("v1"))));
        // A server that hears of the definition only from the cluster knows the name too.
        let other = Encoding::default();
        other.inward(at, &encoding.outward(at, ours(&definition, None)).unwrap()).unwrap();
        assert_eq!(other.outward(key, ours(&object, Some("v1"))).unwrap(), there);
    }

    #[test]
    fn what_is_encrypted_is_named_and_what_is_no_object_is_left_alone() {
        let encoding = Encoding::default();
        let encrypted = Bytes::from_static(b"k8s:enc:aescbc:v1:key1:xxxx");
        let error = encoding.inward("/registry/secrets/d/a", &encrypted).unwrap_err();
        assert!(
            error.to_string().contains("/registry/secrets/d/a") && error.to_string().contains("encrypted")
        );
        let range = Bytes::from_static(b"k8s\0\x0a\x02\x0a\x00");
        assert_eq!(encoding.inward("/registry/ranges/servicenodeports", &range).unwrap(), None);
        let hostile = Bytes::from_static(b"k8s\0\xff\xff\xff");
        assert!(encoding.inward("/registry/pods/d/a", &hostile).is_err());
        let foreign = Bytes::from_static(b"k8s\0\x0a\x10\x0a\x07apps/v9\x12\x05Thing");
        assert!(encoding.inward("/registry/pods/d/a", &foreign).is_err());
    }
}
