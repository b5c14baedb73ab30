//! Kinds that are stored as another kind: `events.k8s.io` events as legacy ones, old autoscalers as new ones.

pub(crate) mod autoscaler;

pub(crate) use autoscaler::METRICS;

use serde_json::{Map, Value};

const RENAMED: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("apiVersion", "apiVersion"),
];

fn rename(event: &mut Value, group: &str, forward: bool) {
    let Value::Object(map) = event else { return };
    let mut out = Map::new();
    for (key, value) in std::mem::take(map) {
        let found = RENAMED.iter().find(|(core, new)| if forward { *core == key } else { *new == key });
        let name = found.map(|(core, new)| (if forward { *new } else { *core }).to_owned());
        out.insert(name.unwrap_or(key), value);
    }
    if out.contains_key("apiVersion") {
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        out.insert("apiVersion".to_owned(), version.into());
    }
    *map = out;
    if let Some(kind) = crate::by_gvk(group, "v1", "Event") {
        // Ignored: an event that had the shape of one view has that of the other.
        crate::strict::conform(kind, event).ok();
    }
}

/// Turns an `events.k8s.io/v1` event into the stored `v1` form.
pub(crate) fn event_to_core(event: &mut Value) {
    rename(event, "", false);
}

/// Turns a stored `v1` event into its `events.k8s.io/v1` form.
pub(crate) fn event_from_core(event: &mut Value) {
    rename(event, "events.k8s.io", true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_keep_everything_in_both_views() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "message": "m",
            "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": null, "count": 2, "reportingComponent": "r",
            "reportingInstance": "i", "reason": "x", "type": "Normal", "eventTime": null,
        });
        let mut view = core.clone();
        event_from_core(&mut view);
        assert_eq!(view["apiVersion"], "events.k8s.io/v1");
        assert_eq!((view["regarding"]["name"].as_str(), view["note"].as_str()), (Some("p"), Some("m")));
        let kind = crate::by_resource("events.k8s.io", "v1", "events").unwrap();
        assert!(crate::strict::conform(kind, &mut view.clone()).unwrap().is_empty());
        event_to_core(&mut view);
        assert_eq!(view, core);
    }
}
