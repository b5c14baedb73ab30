//! One webhook as its configuration describes it, and whether it is to be called.
//!
//! Pure but for the client that it makes.

use std::time::Duration;

use podwire_api::selector::LabelSelector;
use serde_json::Value;

use super::super::matching::{Rule, selector, text, texts};
use super::conditions::Conditions;
use crate::callout::Client;
use crate::handler::BODY_LIMIT;

/// Who asks.
const AGENT: &str = "kube-apiserver-admission";

/// A webhook.
pub(super) struct Hook {
    /// Unique among all.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) conditions: Conditions,
    pub(super) fails_open: bool,
    pub(super) equivalent: bool,
    /// Whether it wants to be called again.
    pub(super) again: bool,
    /// Whether it may be called for a trial.
    pub(super) may_try: bool,
    /// The version of the review it is sent.
    pub(super) review_version: &'static str,
    pub(super) client: Client,
}

impl Hook {
    /// The webhooks of a configuration in their order; one whose selector cannot be read is called for everything.
    pub(super) fn of_configuration(configuration: &Value) -> Vec<Hook> {
        let name = text(&configuration["metadata"]["name"]);
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| Hook::read(&name, hook)).collect()
    }

    fn read(configuration: &str, hook: &Value) -> Hook {
        let versions = texts(&hook["admissionReviewVersions"]);
        let review_version =
            match versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")) {
                Some(version) if version == "v1beta1" => "v1beta1",
                _ => "v1",
            };
        let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        Hook {
            id: format!("{configuration}/{}", text(&hook["name"])),
            name: text(&hook["name"]),
            rules: Rule::read_all(&hook["rules"]),
            namespaces: selector(&hook["namespaceSelector"]),
            objects: selector(&hook["objectSelector"]),
            conditions: Conditions::of_webhook(hook),
            fails_open: hook["failurePolicy"] == "Ignore",
            equivalent: hook["matchPolicy"] != "Exact",
            again: hook["reinvocationPolicy"] == "IfNeeded",
            may_try: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            review_version,
            client: Client::read(&hook["clientConfig"], Duration::from_secs(seconds), BODY_LIMIT, AGENT),
        }
    }
}
