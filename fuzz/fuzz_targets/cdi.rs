//! Any text as a vendor's CDI file, in JSON and in YAML: what a device adds to a spec is what its file says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_runtime::hostile;
use serde_json::Value;

/// Whether a number or a text occurs anywhere in the file.
fn says(file: &Value, wanted: &Value) -> bool {
    file == wanted
        || match file {
            Value::Array(items) => items.iter().any(|item| says(item, wanted)),
            Value::Object(fields) => fields.values().any(|field| says(field, wanted)),
            _ => false,
        }
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        r#"{"cdiVersion":"0.6.0","kind":"vendor.com/net","containerEdits":{"env":["CLASS=1"],"hooks":[{"hookName":"prestart","path":"/h","args":["a"],"env":["b"],"timeout":3}]},"devices":[{"name":"zero","containerEdits":{"env":["DEV=zero"],"additionalGIDs":[5],"deviceNodes":[{"path":"/dev/zero0","type":"c","major":1,"minor":5,"fileMode":438,"permissions":"rw","uid":1,"gid":2}],"mounts":[{"hostPath":"/etc","containerPath":"/vendor","options":["ro","rbind"],"type":"bind"}]}}]}"#,
        r#"{"kind":"v.com/c","devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/x","type":"b","major":8,"minor":-1}]}}]}"#,
        "kind: v.com/c\ndevices:\n- name: a\n  containerEdits: &e {env: [A=1], deviceNodes: [{path: /dev/x, type: b, major: 8, minor: -1}]}\n- name: b\n  containerEdits: *e\n",
        "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nkind: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
        &("{\"kind\":".to_owned() + &"[".repeat(1000)),
    ]);
}, |text: &str| {
    let folder = podwire_fuzz::folder();
    std::fs::write(folder.path().join("vendor.yaml"), text).expect("the file can be written");
    drop(hostile::cdi(folder.path()));
    std::fs::remove_file(folder.path().join("vendor.yaml")).expect("the file is there");
    std::fs::write(folder.path().join("vendor.json"), text).expect("the file can be written");
    let specs = hostile::cdi(folder.path());
    // A file may hold what nobody reads and what is no text.
    let Ok(file) = serde_json::from_str::<Value>(text) else { return };
    for spec in specs {
        let spec = serde_json::to_value(spec).expect("a spec is JSON");
        let size = spec.to_string().len();
        assert!(size <= 20_000 + 20 * text.len(), "{size} bytes of spec from {} bytes of file", text.len());
        for device in spec["linux"]["devices"].as_array().into_iter().flatten() {
            for key in ["path", "major", "minor"] {
                // What is not said is zero.
                let wanted = device.get(key).unwrap_or(&Value::Null);
                assert!(wanted == 0 || says(&file, wanted), "a device with {key} {wanted}, which nobody said");
            }
            let nodes = file["devices"].as_array().into_iter().flatten().chain([&file]);
            let mut nodes = nodes.flat_map(|one| one["containerEdits"]["deviceNodes"].as_array().into_iter().flatten());
            let same = |node: &Value, key: &str| node.get(key).unwrap_or(&Value::from(0)) == &device[key];
            assert!(
                nodes.any(|node| same(node, "major") && same(node, "minor")),
                "{device} is not the device of any node"
            );
        }
    }
});
