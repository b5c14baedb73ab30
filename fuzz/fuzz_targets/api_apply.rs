//! Any live object and any configuration: server-side apply and the tracking of updates must not panic.
//!
//! The first byte chooses the kind and whether to force; the rest is a JSON list of the live object, the configuration
//! and an updated object.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_api::apply::{Operation, Writer, server_side, track_update};
use podwire_api::{kinds, strict};
use serde_json::{Value, json};

fuzz_target!(init: {
    podwire_fuzz::seed_kinds(1, |kind| {
        let one = podwire_fuzz::full(&kind.schema, 2);
        let mut other = one.clone();
        other["metadata"]["managedFields"] = serde_json::Value::Null;
        format!("[{one},{other},{one}]").into_bytes()
    });
}, |data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let kind = &kinds()[usize::from(*first >> 1) % kinds().len()];
    let Ok(Value::Array(all)) = serde_json::from_slice::<Value>(body) else { return };
    let [live, config, updated] = all.as_slice() else { return };
    let writer =
        Writer { manager: "fuzz", operation: Operation::Apply, subresource: "", time: Default::default() };
    let conformed = |value: &Value| {
        let mut value = value.clone();
        (value.is_object() && strict::conform(kind, &mut value).is_ok()).then_some(value)
    };
    let live = conformed(live);
    let mut config = config.clone();
    if config.is_object() {
        config["apiVersion"] = json!(kind.api_version());
        config["kind"] = json!(kind.kind);
    }
    if let Ok(applied) = server_side(kind, live.as_ref(), &config, &writer, *first & 1 == 1) {
        // Ignored: a live object that was never stored may conflict with itself; only panics count.
        drop(server_side(kind, Some(&applied), &config, &writer, false));
        if let Some(mut updated) = conformed(updated) {
            let writer = Writer { manager: "other", operation: Operation::Update, ..writer };
            track_update(kind, Some(&applied), &mut updated, &writer);
        }
    }
});
