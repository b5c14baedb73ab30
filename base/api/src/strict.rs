//! From bytes to an object of the kind's shape: duplicate and unknown fields, wrong types, Go's JSON form.
//!
//! [`conform`] does in one walk what a round trip through upstream's Go structs does: unknown fields go, empty
//! `omitempty` fields go, fields Go always writes appear, quantities and times become canonical.

mod complain;
mod json;
mod shape;

use serde_json::Value;

use crate::Kind;
use crate::schema::Message;

use complain::Complaints;
pub use complain::{complaints, duplicates};
pub use json::{DEEPEST, MOST_MEMORY, TOO_DEEP, TOO_LARGE, TOO_MANY};
pub use json::{DecodeError, Decoded, decode_from, decode_json};
pub(crate) use json::{Room, decode_within};
pub(crate) use shape::{Shaping, json_type};

/// A value has the wrong JSON type; the text is that of Go's decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

/// Brings an object into the kind's shape; returns the complaints (`unknown field "spec.foo"`) of what was dropped.
pub fn conform(kind: &Kind, object: &mut Value) -> Result<Vec<String>, TypeError> {
    conform_message(&kind.schema, object)
}

/// [`conform`] for a message that is no kind of the table, such as `DeleteOptions`.
pub fn conform_message(schema: &Message, object: &mut Value) -> Result<Vec<String>, TypeError> {
    let mut shaping = Shaping::default();
    shaping.root(schema, object)?;
    Ok(shaping.into_list())
}

/// The message with this OpenAPI definition name.
pub fn message(name: &str) -> Option<&'static Message> {
    Message::named(name)
}

/// Complaints about fields the kind does not have.
pub fn unknown_fields(kind: &Kind, object: &Value) -> Vec<String> {
    conform(kind, &mut object.clone()).unwrap_or_default()
}

/// Drops fields the kind does not have; a value of the wrong type leaves the object as it is.
pub fn prune(kind: &Kind, object: &mut Value) {
    let mut copy = object.clone();
    if conform(kind, &mut copy).is_ok() {
        *object = copy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> &'static std::sync::Arc<Kind> {
        crate::by_resource("", "v1", "pods").unwrap()
    }

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let mut object = json!({"spec": {"foo": 1, "containers": [{"name": "a", "bar": 2}]}, "top": 1, "metadata": {"name": "x"}});
        let unknown = conform(pod(), &mut object).unwrap();
        assert_eq!(
            unknown,
            [
                "unknown field \"spec.containers[0].bar\"",
                "unknown field \"spec.foo\"",
                "unknown field \"top\""
            ]
        );
        assert_eq!(object["spec"]["containers"][0], json!({"name": "a", "resources": {}}));
    }

    #[test]
    fn objects_take_the_shape_go_prints() {
        let mut object = json!({
            "metadata": {"name": "x", "labels": {}, "creationTimestamp": null},
            "spec": {
                "nodeName": "",
                "hostNetwork": false,
                "containers": [{"name": "a", "ports": [], "resources": {"limits": {"cpu": "0.5", "memory": 1073741824}}}],
                "terminationGracePeriodSeconds": 0
            }
        });
        assert!(conform(pod(), &mut object).unwrap().is_empty());
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "x"},
                "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1073741824"}}}], "terminationGracePeriodSeconds": 0},
                "status": {}
            })
        );
    }

    #[test]
    fn wrong_types_get_gos_texts() {
        let map = crate::by_resource("", "v1", "configmaps").unwrap();
        for (kind, object, error) in [
            (
                map,
                json!({"data": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                map,
                json!({"data": "x"}),
                "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                map,
                json!({"metadata": {"labels": []}}),
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (map, json!([]), "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
            (
                pod(),
                json!({"spec": {"containers": {}}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                pod(),
                json!({"spec": {"containers": [{"env": [{"value": 1}]}]}}),
                "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string",
            ),
            (
                pod(),
                json!({"spec": {"terminationGracePeriodSeconds": 1.5}}),
                "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                pod(),
                json!({"spec": {"terminationGracePeriodSeconds": 1.0}}),
                "json: cannot unmarshal number 1.0 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                pod(),
                json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "abc"}}}]}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                pod(),
                json!({"spec": {"hostNetwork": "yes"}}),
                "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
            ),
        ] {
            assert_eq!(conform(kind, &mut object.clone()).unwrap_err().to_string(), error, "{object}");
        }
    }

    #[test]
    fn times_are_kept_in_utc() {
        let mut object = json!({"metadata": {"creationTimestamp": "2026-11-15T12:00:00.5+01:00"}});
        conform(pod(), &mut object).unwrap();
        assert_eq!(object["metadata"]["creationTimestamp"], "2026-11-15T11:00:00Z");
        let lease = crate::by_resource("coordination.k8s.io", "v1", "leases").unwrap();
        let mut object = json!({"spec": {"renewTime": "2026-11-15T11:00:00Z"}});
        conform(lease, &mut object).unwrap();
        assert_eq!(object["spec"]["renewTime"], "2026-11-15T11:00:00.000000Z");
    }

    #[test]
    fn every_kind_conforms_to_itself() {
        for kind in crate::kinds() {
            let mut object = json!({"metadata": {"name": "x"}});
            conform(kind, &mut object).unwrap();
            let once = object.clone();
            assert!(conform(kind, &mut object).unwrap().is_empty(), "{}", kind.kind);
            assert_eq!(once, object, "{}", kind.kind);
        }
    }
}
