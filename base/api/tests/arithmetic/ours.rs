//! Our answers, in the form in which the peer gives upstream's.

use podwire_api::image::ImageReference;
use podwire_api::owner::OwnerReference;
use podwire_api::pod_resources::PodResources;
use podwire_api::quantity::Quantity;
use podwire_api::resources::Resources;
use podwire_api::selector::{LabelSelector, NodePreferences, RequiredNodeAffinity};
use podwire_api::{condition, owner, toleration};
use serde_json::{Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Our answer to a question.
pub(crate) fn answer(question: &Value) -> Value {
    match text(&question["ask"]) {
        "quantity" => quantity(text(&question["text"])),
        "sum" => sum(text(&question["text"]), text(&question["right"])),
        "pod" => pod(&question["pod"]),
        "text selector" => match LabelSelector::parse(text(&question["text"])) {
            Ok(selector) => json!({"matches": selector.matches_with(labels(&question["labels"]))}),
            Err(error) => json!({"error": error.to_string()}),
        },
        "label selector" => match LabelSelector::from_object(&question["selector"]) {
            Ok(selector) => {
                let matches = selector.matches_with(labels(&question["labels"]));
                json!({"matches": matches, "text": selector.to_string()})
            }
            Err(_) => json!({"refused": true}),
        },
        "node" => {
            let node = &question["node"]["metadata"];
            let required = RequiredNodeAffinity::from(&question["pod"]["spec"]);
            json!({"matches": required.matches(text(&node["name"]), labels(&node["labels"]))})
        }
        "preferred" => preferred(&question["preferred"], &question["node"]["metadata"]),
        "toleration" => {
            let tolerations = question["tolerations"].as_array().unwrap();
            json!({"tolerated": toleration::tolerated(&question["taint"], tolerations)})
        }
        "image" => image(text(&question["text"])),
        "owner" => owners(&question["object"]["ownerReferences"], text(&question["owner"]["uid"])),
        "condition" => {
            let mut all = question["conditions"].as_array().unwrap().clone();
            let new = &question["condition"];
            let before = condition::is_true(&all, text(&new["type"]));
            let changed = condition::set(&mut all, new.clone());
            json!({"before": before, "changed": changed, "conditions": all})
        }
        other => panic!("no such question: {other}"),
    }
}

fn quantity(text: &str) -> Value {
    let quantity = match Quantity::parse(text) {
        Ok(quantity) => quantity,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let sign = i32::from(quantity.is_positive()) - i32::from(quantity.is_negative());
    let mut out =
        json!({"text": Quantity::stored(text).unwrap(), "canonical": quantity.to_string(), "sign": sign});
    // The peer leaves out what upstream cannot tell.
    for (name, number, scale) in [("value", quantity.value(), 1), ("milli", quantity.milli_value(), 1000)] {
        if sign >= 0 && quantity <= Quantity::from_integer(i64::MAX / scale) {
            out[name] = json!(number);
        }
    }
    out
}

fn sum(left: &str, right: &str) -> Value {
    let (left, right) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
    json!({"sum": left.plus(&right).to_string(), "order": left.cmp(&right) as i8})
}

fn list(resources: &Resources) -> Value {
    resources.iter().map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect()
}

fn pod(object: &Value) -> Value {
    let pod = PodResources::from(&object["spec"]);
    let assumed = Resources::from(&json!({"cpu": "100m", "memory": "200Mi"}));
    json!({
        "requests": list(&pod.requests()),
        "limits": list(&pod.limits()),
        "nonzero": list(&pod.requests_assuming(&assumed)),
        "effective": list(&PodResources::in_effect(object).requests()),
        "qos": pod.qos().as_str(),
    })
}

fn labels<'a>(labels: &'a Value) -> impl Fn(&str) -> Option<&'a str> {
    |key| labels[key].as_str()
}

fn preferred(terms: &Value, node: &Value) -> Value {
    let preferences = NodePreferences::from(terms);
    // Upstream refuses the list for one term that cannot be read; a term without weight is never read.
    if preferences.0.iter().any(|(weight, term)| *weight != 0 && !term.is_readable()) {
        return json!({"refused": true});
    }
    json!({"score": preferences.score(text(&node["name"]), labels(&node["labels"]))})
}

fn image(text: &str) -> Value {
    let Ok(reference) = ImageReference::parse(text) else { return json!({"refused": true}) };
    let mut out =
        json!({"text": reference.to_string(), "domain": reference.domain(), "path": reference.path()});
    for (name, part) in [("tag", reference.tag()), ("digest", reference.digest())] {
        if let Some(part) = part {
            out[name] = json!(part);
        }
    }
    out
}

fn owners(references: &Value, uid: &str) -> Value {
    let references = || references.as_array().into_iter().flatten();
    let mut out = json!({"controlled": owner::is_controlled_by(references(), uid)});
    if let Some(controller) = owner::controller(references()) {
        out["controller"] = json!(controller.uid());
    }
    out
}
