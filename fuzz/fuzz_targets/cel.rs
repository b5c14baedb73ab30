//! Any text as an expression: parsing, checking, estimating and evaluating must not panic, nor cost more than it is allowed.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use podwire_cel::device::{Device, Selector};
use podwire_cel::{Bindings, Environment, Schema, Type, Value};
use serde_json::{Value as Json, json};

/// What one evaluation may cost: little, so that many fit into a second.
const LIMIT: u64 = 20_000;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "count": {"type": "integer"}, "port": {"x-kubernetes-int-or-string": true},
        "since": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }});
    Schema::from_openapi(&schema, "self", true).expect("expressions see it")
});

static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    json!({"metadata": {"name": "a"}, "name": "hello", "count": 3, "port": "http", "since": "2026-11-15T11:22:33Z", "wait": "1h",
        "list": ["a", "b"], "labels": {"app": "web"}})
});

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::kubernetes()
        .with_schema("self", &SCHEMA)
        .with_schema("oldSelf", &SCHEMA)
        .with_variable("x", Type::Dyn)
});

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "self.list.all(l, l.startsWith('a')) && self.count > 1 || has(self.labels.app)",
        "self.?name.orValue('x') == oldSelf.name ? [1, 2].map(i, i * 2) : [?x.?a, 3]",
        "{'a': 1u, \"b\": 0x1Fu}.transformMap(k, v, v + 1u).exists(k, v, k == 'a')",
        "timestamp('2020-01-01T00:00:00Z').getHours('+01:00') + int(duration('1h') / 2)",
        "'%s %d %.2f'.format(['a', 1, 1.5]).matches(r'^[a-z]+\\s(\\d{1,3})') || b'\\xff' == bytes('é')",
        "url('https://[::1]:80/a?b=c').getPort() + string(cidr('10.0.0.0/8').masked()) + semver('v1', true).major()",
        "quantity('1.5Gi').add(1).isGreaterThan(quantity('1G')) && format.dns1123Label().validate('a').hasValue()",
        "cel.bind(d, device.attributes['a.b'], d.one == 1) && device.driver.replace('a', 'bb').split('').join('-').find('x') == ''",
    ]);
}, |text: &str| {
    if let Ok(program) = ENVIRONMENT.compile(text) {
        let estimate = program.estimated_cost();
        assert!(estimate.least <= estimate.most || estimate.most == 0, "{estimate:?}");
        let object = Value::typed(&OBJECT, &SCHEMA).expect("an object of the schema");
        let bindings =
            Bindings::new().with("self", object.clone()).with("oldSelf", object).with("x", Value::json(&OBJECT));
        drop(program.evaluate(&bindings, LIMIT).value.map(|value| value.to_string()));
    }
    if let Ok(selector) = Selector::compile(text) {
        std::hint::black_box(selector.estimated_cost());
        let attributes = json!({"one": {"int": 1}, "a.b/two": {"version": "1.2.3"}});
        let device = Device {
            driver: "a.b",
            allow_multiple_allocations: false,
            attributes: attributes.as_object(),
            capacity: None,
        };
        drop(selector.matches(&device));
    }
});
