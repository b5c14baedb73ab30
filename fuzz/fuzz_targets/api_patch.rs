//! Any document and any patch of each type: JSON, merge and strategic merge must not panic.
//!
//! The first byte chooses the kind; the rest is a JSON list of the document and the patch.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_api::{kinds, patch, strict};
use serde_json::Value;

fuzz_target!(init: {
    podwire_fuzz::seed_kinds(0, |kind| {
        let (document, change) = (podwire_fuzz::full(&kind.schema, 2), podwire_fuzz::full(&kind.schema, 2));
        format!("[{document},{change}]").into_bytes()
    });
    let operations = [
        r#"[{"a":[1,2]},[{"op":"add","path":"/a/-","value":1},{"op":"remove","path":"/a/0"},{"op":"replace","path":"/a/0","value":2},{"op":"copy","from":"/a","path":"/b"},{"op":"move","from":"/a","path":"/c"},{"op":"test","path":"/c","value":[2]}]]"#,
        r#"[{"spec":{"containers":[{"name":"a","image":"b"}]}},{"spec":{"containers":[{"name":"a","$patch":"delete"}],"$setElementOrder/containers":[{"name":"a"}],"$retainKeys":["containers"],"$deleteFromPrimitiveList/finalizers":["x"]}}]"#,
    ];
    for (number, text) in operations.iter().enumerate() {
        podwire_fuzz::seed(1000 + number, format!("0{text}").as_bytes());
    }
}, |data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let kind = &kinds()[usize::from(*first) % kinds().len()];
    let Ok(Value::Array(both)) = serde_json::from_slice::<Value>(body) else { return };
    let [document, change] = both.as_slice() else { return };
    drop(patch::json(&mut document.clone(), change));
    let mut merged = document.clone();
    if patch::merge(&mut merged, change).is_ok() {
        let once = merged.clone();
        patch::merge(&mut merged, change).expect("what was a patch is still one");
        assert_eq!(merged, once, "a merge patch applied twice changes nothing more");
    }
    let mut object = document.clone();
    if object.is_object() && strict::conform(kind, &mut object).is_ok() {
        drop(patch::strategic(kind, &mut object, change));
    }
});
