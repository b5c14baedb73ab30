//! Any text as a label selector, a field selector, a quantity, a duration: parsing and matching must not panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_api::quantity::Quantity;
use podwire_api::selector::{FieldSelector, LabelSelector};
use podwire_api::{kinds, time};
use serde_json::json;

fuzz_target!(init: {
    let texts = [
        "a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2", "metadata.name=a,spec.nodeName!=b\\,c", "1500m", "1.5Gi", "-1e3", "1h2m3.5s",
        r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}"#,
    ];
    for (number, text) in texts.iter().enumerate() {
        podwire_fuzz::seed(number, text.as_bytes());
    }
}, |text: &str| {
    let labels = json!({"app": "web", "tier": "1", "": ""});
    let labels = labels.as_object().expect("an object");
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(labels);
        assert!(!selector.is_empty() || selector.matches(labels), "an empty selector chooses everything");
    }
    if let Ok(object) = serde_json::from_str(text) {
        drop(LabelSelector::from_object(&object));
    }
    if let Ok(mut selector) = FieldSelector::parse(text) {
        selector.matches(|name| labels.get(name).and_then(|value| value.as_str()).map(Into::into));
        for kind in kinds().iter().take(4) {
            drop(selector.check(kind));
        }
    }
    if let Ok(quantity) = Quantity::parse(text) {
        std::hint::black_box((quantity.milli_value(), quantity.value(), quantity.plus(&quantity), Quantity::stored(text).is_ok()));
        let again = Quantity::parse(&quantity.to_string()).expect("the canonical form is a quantity");
        assert_eq!(again.to_string(), quantity.to_string(), "the canonical form is stable");
    }
    if let Some(nanos) = time::parse_duration(text) {
        drop(time::format_duration(nanos));
    }
});
