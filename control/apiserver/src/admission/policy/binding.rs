//! What a policy applies to: its own constraints, and a binding that narrows them and names parameters.
//!
//! Pure.

use podwire_api::selector::LabelSelector;
use serde_json::Value;

use super::super::matching::{Rule, selector, text};

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub(super) struct Target {
    pub(super) rules: Vec<Rule>,
    pub(super) excluded: Vec<Rule>,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) equivalent: bool,
}

impl Target {
    pub(super) fn read(given: &Value) -> Target {
        Target {
            rules: Rule::read_all(&given["resourceRules"]),
            excluded: Rule::read_all(&given["excludeResourceRules"]),
            namespaces: selector(&given["namespaceSelector"]),
            objects: selector(&given["objectSelector"]),
            equivalent: given["matchPolicy"] != "Exact",
        }
    }
}

/// A binding.
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// What it narrows the policy to, if it does.
    pub(super) target: Option<Target>,
    pub(super) params: Option<ParamRef>,
    pub(super) denies: bool,
    pub(super) warns: bool,
}

/// Which parameters a binding uses.
pub(super) struct ParamRef {
    pub(super) chosen: Chosen,
    /// Empty for that of the request.
    pub(super) namespace: String,
    /// Whether nothing is admitted without any.
    pub(super) required: bool,
}

/// How parameters are chosen.
pub(super) enum Chosen {
    Name(String),
    Labels(LabelSelector),
}

impl Binding {
    pub(super) fn read(object: &Value) -> Binding {
        let spec = &object["spec"];
        let actions = spec["validationActions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has = |wanted: &str| actions.iter().any(|action| action == wanted);
        Binding {
            name: text(&object["metadata"]["name"]),
            policy: text(&spec["policyName"]),
            target: spec["matchResources"].is_object().then(|| Target::read(&spec["matchResources"])),
            params: spec["paramRef"].is_object().then(|| ParamRef::read(&spec["paramRef"])),
            denies: has("Deny"),
            warns: has("Warn"),
        }
    }
}

impl ParamRef {
    fn read(given: &Value) -> ParamRef {
        let chosen = match given["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => Chosen::Name(name.to_owned()),
            None => Chosen::Labels(selector(&given["selector"])),
        };
        ParamRef {
            chosen,
            namespace: text(&given["namespace"]),
            required: given["parameterNotFoundAction"] == "Deny",
        }
    }
}
