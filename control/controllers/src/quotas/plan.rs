//! Decides what the status of a quota should say.
//!
//! Pure.

use podwire_api::quota::Quota;
use podwire_api::resources::Resources;
use serde_json::{Map, Value, json};

/// Whether the status does not say yet what the specification allows.
pub(super) fn is_behind(object: &Value) -> bool {
    let quota = Quota::from(object);
    quota.wanted != quota.hard || quota.wanted.iter().any(|(name, _)| quota.used.get(name).is_none())
}

/// The change of a quota's status that is due when this much was counted; `None` if it says so already.
pub(super) fn patch(object: &Value, counted: &Resources) -> Option<Value> {
    let quota = Quota::from(object);
    let mut used = quota.used.clone();
    counted.iter().for_each(|(name, amount)| used.set(name, *amount));
    used.retain(|name, _| quota.wanted.get(name).is_some());
    let has_status = |key: &str| object["status"][key].is_object();
    if quota.wanted == quota.hard && used == quota.used && has_status("hard") && has_status("used") {
        return None;
    }
    let version = &object["metadata"]["resourceVersion"];
    let hard = written(&object["status"]["hard"], &quota.wanted);
    let used = written(&object["status"]["used"], &used);
    Some(json!({"metadata": {"resourceVersion": version}, "status": {"hard": hard, "used": used}}))
}

/// Amounts as a merge patch of what was there before.
fn written(before: &Value, now: &Resources) -> Map<String, Value> {
    let gone = before.as_object().into_iter().flatten().map(|(name, _)| (name.clone(), Value::Null));
    gone.chain(now.iter().map(|(name, amount)| (name.to_owned(), amount.to_string().into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_follows_the_specification_and_the_count() {
        let mut quota = json!({"metadata": {"resourceVersion": "7"}, "spec": {"hard": {"pods": "2", "count/x.example.com": "1"}}});
        assert!(is_behind(&quota));
        let counted = Resources::from(&json!({"pods": "1"}));
        let patch = |quota: &Value, counted: &Resources| super::patch(quota, counted);
        let first = patch(&quota, &counted).unwrap();
        assert_eq!(
            first["status"],
            json!({"hard": {"pods": "2", "count/x.example.com": "1"}, "used": {"pods": "1"}})
        );
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        quota["status"] = first["status"].clone();
        assert_eq!(patch(&quota, &counted), None, "it says so already");
        assert_eq!(
            patch(&quota, &Resources::from(&json!({"pods": "0"}))).unwrap()["status"]["used"],
            json!({"pods": "0"})
        );
        quota["spec"]["hard"] = json!({"secrets": "1"});
        let changed = patch(&quota, &Resources::from(&json!({"secrets": "0"}))).unwrap();
        assert_eq!(changed["status"]["used"], json!({"pods": null, "secrets": "0"}));
        assert_eq!(
            changed["status"]["hard"],
            json!({"pods": null, "count/x.example.com": null, "secrets": "1"})
        );
        assert!(is_behind(&quota));
    }
}
