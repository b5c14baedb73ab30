//! Our answers to the questions.

use podwire_cel::authorizer::{Authorizer, Decision, Object, Question, Resource};
use podwire_cel::device::{Device, Selector};
use podwire_cel::{Bindings, Environment, Key, Schema, Type, Value, limits};
use serde_json::{Value as Json, json};

/// The answer to one question, in the form of upstream's.
pub(crate) fn answer(question: &Json) -> Json {
    let expr = question["expr"].as_str().unwrap();
    let (x, y) = (&question["x"], &question["y"]);
    match question["env"].as_str().unwrap() {
        "plain" => {
            let environment =
                Environment::kubernetes().with_variable("x", Type::Dyn).with_variable("y", Type::Dyn);
            let bindings = Bindings::new().with("x", Value::json(x)).with("y", Value::json(y));
            evaluated(&environment, expr, &bindings)
        }
        env @ ("schema" | "optional") => {
            let root = question["root"].as_bool().unwrap_or(false);
            let Some(schema) = Schema::from_openapi(&question["schema"], "selfType", root) else {
                return json!({"hidden": true});
            };
            let environment = Environment::kubernetes().with_schema("self", &schema);
            let old = &question["old"];
            let environment = match env {
                "optional" => environment.with_optional_schema("oldSelf", &schema),
                _ => environment.with_schema("oldSelf", &schema),
            };
            let mut bindings = Bindings::new();
            if let Ok(value) = Value::typed(&question["self"], &schema) {
                bindings = bindings.with("self", value);
            }
            let typed = || Value::typed(old, &schema).unwrap();
            bindings = match (env, old.is_null()) {
                ("optional", true) => bindings.with("oldSelf", Value::Optional(None)),
                ("optional", false) => bindings.with("oldSelf", Value::Optional(Some(typed().into()))),
                (_, false) => bindings.with("oldSelf", typed()),
                _ => bindings,
            };
            evaluated(&environment, expr, &bindings)
        }
        "authorizer" => {
            let environment = Environment::kubernetes().with_authorizer();
            let resource = Resource {
                group: "apps".to_owned(),
                resource: "deployments".to_owned(),
                namespace: "default".to_owned(),
                name: "good".to_owned(),
                ..Resource::default()
            };
            let bindings = Bindings::new()
                .with("authorizer", Value::authorizer(&Decided))
                .with("authorizer.requestResource", Value::request_resource(&Decided, resource));
            evaluated(&environment, expr, &bindings)
        }
        "device" => on_device(expr, &question["device"]),
        other => panic!("there is no environment {other}"),
    }
}

/// Allows what is called "good" and fails for what is called "broken".
struct Decided;

impl Authorizer for Decided {
    fn authorize(&self, question: &Question) -> Decision {
        let user = match &question.service_account {
            Some((namespace, name)) => format!("system:serviceaccount:{namespace}:{name}"),
            None => "somebody".to_owned(),
        };
        let verb = &question.verb;
        let text = match &question.object {
            Object::Path(path) => format!("{user}|{verb}||||||{path}"),
            Object::Resource(Resource { group, resource, subresource, namespace, name, .. }) => {
                format!("{user}|{verb}|{group}|{resource}|{subresource}|{namespace}|{name}|")
            }
        };
        let broken = text.contains("broken");
        Decision {
            allowed: !broken && text.contains("good"),
            reason: if broken { String::new() } else { text.clone() },
            error: broken.then(|| format!("cannot say: {text}")),
        }
    }
}

fn on_device(expr: &str, device: &Json) -> Json {
    let selector = match Selector::compile(expr) {
        Ok(selector) => selector,
        Err(error) => return json!({"refused": true, "why": error.to_string()}),
    };
    let selected = selector.matches(&Device {
        driver: device["driver"].as_str().unwrap(),
        allow_multiple_allocations: device["allowMultipleAllocations"].as_bool().unwrap_or(false),
        attributes: device["attributes"].as_object(),
        capacity: device["capacity"].as_object(),
    });
    let mut out = json!({"most": selector.estimated_cost().most.to_string()});
    if !device["attributes"]["a"].is_object() {
        out["cost"] = json!(selected.cost.to_string());
    }
    match selected.matches {
        Ok(matches) => out["value"] = json!(matches),
        Err(error) => out["failed"] = json!(error.to_string()),
    }
    out
}

fn evaluated(environment: &Environment, expr: &str, bindings: &Bindings<'_>) -> Json {
    let program = match environment.compile(expr) {
        Ok(program) => program,
        Err(errors) => return json!({"refused": true, "why": errors.to_string()}),
    };
    let outcome = program.evaluate(bindings, limits::PER_CALL);
    let estimate = program.estimated_cost();
    let mut out = json!({
        "least": estimate.least.to_string(),
        "most": estimate.most.to_string(),
        "type": program.output_type().to_string(),
        "cost": outcome.cost.to_string(),
    });
    match outcome.value {
        Ok(value) => out["value"] = shown(&value),
        Err(error) => out["failed"] = json!(error.to_string()),
    }
    out
}

/// A value in the form that both sides print.
fn shown(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!({"int": value.to_string()}),
        Value::Uint(value) => json!({"uint": value.to_string()}),
        Value::Double(value) if value.is_nan() => json!({"double": "nan"}),
        Value::Double(value) => json!({"double": format!("{:016x}", value.to_bits())}),
        Value::String(text) => json!(&**text),
        Value::Bytes(bytes) => {
            json!({"bytes": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
        }
        Value::Timestamp(moment) => json!({"timestamp": moment.to_string()}),
        Value::Duration(nanos) => json!({"duration": nanos.to_string()}),
        Value::Optional(None) => json!({"optional": null}),
        Value::Optional(Some(inner)) => json!({"optional": [shown(inner)]}),
        Value::Type(kind) => json!({"type": kind.name()}),
        Value::Quantity(amount) => json!({"quantity": amount.quantity.to_string()}),
        Value::Url(url) => json!({"url": url.to_string()}),
        Value::Ip(address) => json!({"ip": address.to_string()}),
        Value::Cidr(network) => json!({"cidr": network.to_string()}),
        Value::Semver(version) => json!({"semver": version.to_string()}),
        Value::Format(format) => json!({"format": format.name}),
        Value::List(list) => list.iter().map(|value| shown(&value.unwrap())).collect(),
        Value::Map(map) => {
            let mut entries: Vec<(String, Json)> = map
                .entries()
                .map(|(key, value)| {
                    let key: Key<'_> = key;
                    let key = shown(&key.value());
                    (key.to_string(), json!([key, shown(&value.unwrap())]))
                })
                .collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            json!({"map": entries.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>()})
        }
        other => json!({"other": other.kind().name()}),
    }
}
