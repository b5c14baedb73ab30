//! Rules of limit ranges and resource quotas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
pub use super::pod::resources::is_extended;
use super::pod::resources::{container_resource_name, overcommits, resource_name};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

/// A whole number of thousandths of what is larger than this does not fit.
pub const MOST_IN_MILLI: i64 = i64::MAX / 1000;
/// Resources that a quota may name without a domain.
const IN_QUOTAS: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// Those of which there are only whole numbers.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const OF_PODS: &[&str] =
    &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "pods"];
const OF_CLAIMS: &[&str] = &["persistentvolumeclaims", "requests.storage"];

/// The quantities of a list by name.
fn amounts(list: &Value) -> BTreeMap<&str, Quantity> {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.as_str(), Quantity::parse(text(amount)).ok()?))).collect()
}

/// Rules of a limit range.
pub(crate) fn limit_range(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let limits = spec.child("limits");
    let mut seen = Seen::default();
    for (at, limit) in list(&object["spec"]["limits"]).iter().enumerate() {
        let path = limits.index(at);
        limit_type(text(&limit["type"]), &path.child("type"), errors);
        if seen.again(text(&limit["type"])) {
            errors.duplicate(&path.child("type"), text(&limit["type"]));
        }
        Limit::read(limit).validate(&path, errors);
    }
}

fn limit_type(given: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = syntax::qualified_name(given);
    if !complaints.is_empty() {
        errors.all_invalid(path, given, complaints);
    } else if !given.contains('/') && !matches!(given, "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(path, given, "must be a standard limit type or fully qualified");
    }
}

/// One item of a limit range.
struct Limit<'a> {
    of: &'a str,
    max: BTreeMap<&'a str, Quantity>,
    min: BTreeMap<&'a str, Quantity>,
    default: BTreeMap<&'a str, Quantity>,
    default_request: BTreeMap<&'a str, Quantity>,
    ratio: BTreeMap<&'a str, Quantity>,
}

impl<'a> Limit<'a> {
    fn read(limit: &'a Value) -> Self {
        let of = |key: &str| amounts(&limit[key]);
        Self {
            of: text(&limit["type"]),
            max: of("max"),
            min: of("min"),
            default: of("default"),
            default_request: of("defaultRequest"),
            ratio: of("maxLimitRequestRatio"),
        }
    }

    fn names(&self, list: &BTreeMap<&str, Quantity>, key: &str, path: &Path<'_>, errors: &mut Errors) {
        let path = path.child(key);
        for name in list.keys() {
            let here = path.key(name);
            match self.of {
                "Pod" | "Container" => container_resource_name(name, &here, errors),
                _ => resource_name(name, &here, errors),
            }
        }
    }

    fn validate(&mut self, path: &Path<'_>, errors: &mut Errors) {
        self.names(&self.max, "max", path, errors);
        self.names(&self.min, "min", path, errors);
        if self.of == "Pod" {
            for (list, key) in [(&mut self.default, "default"), (&mut self.default_request, "defaultRequest")]
            {
                if !list.is_empty() {
                    errors.forbidden(&path.child(key), "may not be specified when `type` is 'Pod'");
                    list.clear();
                }
            }
        }
        self.names(&self.default, "default", path, errors);
        self.names(&self.default_request, "defaultRequest", path, errors);
        let bounded = self.min.contains_key("storage") || self.max.contains_key("storage");
        if self.of == "PersistentVolumeClaim" && !bounded {
            let words = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&path.child("limits"), words);
        }
        self.names(&self.ratio, "maxLimitRequestRatio", path, errors);
        let lists = [&self.max, &self.min, &self.default, &self.default_request, &self.ratio];
        let names: BTreeSet<&str> = lists.iter().flat_map(|list| list.keys().copied()).collect();
        for name in names {
            self.agree(name, path, errors);
        }
    }

    /// What is said of one resource must go together.
    fn agree(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let (min, max, ratio) = (self.min.get(name), self.max.get(name), self.ratio.get(name));
        let (default, request) = (self.default.get(name), self.default_request.get(name));
        let mut ordered =
            |less: Option<&Quantity>, more: Option<&Quantity>, field, shown: Side, words: [&str; 2]| {
                let (Some(less), Some(more)) = (less, more) else { return };
                if less > more {
                    let shown = if matches!(shown, Side::Less) { less } else { more };
                    let detail = format!("{} {less} is greater than {} {more}", words[0], words[1]);
                    errors.invalid(&path.child(field).key(name), &shown.to_string(), &detail);
                }
            };
        ordered(min, max, "min", Side::Less, ["min value", "max value"]);
        ordered(min, request, "defaultRequest", Side::More, ["min value", "default request value"]);
        ordered(request, max, "defaultRequest", Side::Less, ["default request value", "max value"]);
        ordered(
            request,
            default,
            "defaultRequest",
            Side::Less,
            ["default request value", "default limit value"],
        );
        ordered(min, default, "default", Side::Less, ["min value", "default value"]);
        ordered(default, max, "default", Side::More, ["default value", "max value"]);
        if let Some(ratio) = ratio {
            let path = path.child("maxLimitRequestRatio");
            let here = path.key(name);
            if *ratio < Quantity::from_integer(1) {
                errors.invalid(&here, &ratio.to_string(), &format!("ratio {ratio} is less than 1"));
            }
            if let (Some(min), Some(max)) = (min, max)
                && let Some(most) = over(ratio, min, max)
            {
                let words = format!("ratio {ratio} is greater than max/min = {most:.6}");
                errors.invalid(&here, &ratio.to_string(), &words);
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && !overcommits(name)
            && default != request
        {
            let words =
                format!("default value {default} must equal to defaultRequest value {request} in {name}");
            errors.invalid(&path.child("defaultRequest").key(name), &request.to_string(), &words);
        }
    }
}

/// Which of two quantities an error shows.
enum Side {
    Less,
    More,
}

/// The ratio of the bounds, if the ratio allowed is beyond it.
#[allow(clippy::cast_precision_loss, reason = "upstream compares ratios as floating-point numbers")]
fn over(ratio: &Quantity, min: &Quantity, max: &Quantity) -> Option<f64> {
    let fine = [ratio, min, max].iter().all(|quantity| quantity.value() < MOST_IN_MILLI);
    let (given, most) = if fine {
        (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64)
    } else {
        (ratio.value() as f64, max.value() as f64 / min.value() as f64)
    };
    (given > most).then_some(most)
}

/// Whether quotas know the resource without a domain.
fn in_quotas(name: &str) -> bool {
    IN_QUOTAS.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

fn quota_amounts(amounts: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let here = path.key(name);
        resource_name(name, &here, errors);
        if !name.contains('/') && !in_quotas(name) {
            errors.invalid(&here, name, "must be a standard resource for quota");
        }
        let Ok(quantity) = Quantity::parse(text(amount)) else { continue };
        if quantity.is_negative() {
            errors.invalid(&here, text(amount), "must be greater than or equal to 0");
        }
        if (WHOLE.contains(&name.as_str()) || is_extended(name)) && quantity.milli_value() % 1000 != 0 {
            errors.invalid(&here, text(amount), "must be an integer");
        }
    }
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn scope_knows(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => OF_PODS.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => OF_CLAIMS.contains(&resource),
        _ => true,
    }
}

/// Rules of a resource quota.
pub(crate) fn resource_quota(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    quota_amounts(&object["spec"]["hard"], &spec.child("hard"), errors);
    scopes(&object["spec"], &spec, errors);
    scope_selector(&object["spec"], &spec, errors);
}

/// Rules of what is written as a quota's status.
pub(crate) fn resource_quota_status(object: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    for key in ["hard", "used"] {
        quota_amounts(&object["status"][key], &status.child(key), errors);
    }
}

/// A quota measures the same objects for as long as it lives.
pub(crate) fn resource_quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    let of = |quota: &Value| -> BTreeSet<String> {
        list(&quota["spec"]["scopes"]).iter().map(|scope| text(scope).to_owned()).collect()
    };
    if of(new) != of(old) {
        let spec = Path::root("spec");
        errors.invalid(&spec.child("scopes"), &new["spec"]["scopes"], "field is immutable");
    }
}

/// How many of the resources that a quota names each scope does not fit, counted once for each scope.
struct Misplaced<'a> {
    spec: &'a Value,
    known: BTreeMap<&'a str, usize>,
}

impl<'a> Misplaced<'a> {
    fn in_spec(spec: &'a Value) -> Self {
        Self { spec, known: BTreeMap::new() }
    }

    fn under(&mut self, scope: &'a str) -> usize {
        *self.known.entry(scope).or_insert_with(|| {
            let hard = self.spec["hard"].as_object().into_iter().flatten();
            let amiss = hard.filter(|(name, _)| in_quotas(name) && !scope_knows(scope, name));
            if SCOPES.contains(&scope) { amiss.count() } else { 0 }
        })
    }
}

fn conflicting(given: &BTreeSet<&str>) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| given.contains(scope))).count()
}

fn scopes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("scopes");
    let given: Vec<&str> = list(&spec["scopes"]).iter().map(text).collect();
    let mut misplaced = Misplaced::in_spec(spec);
    for scope in &given {
        if !SCOPES.contains(scope) {
            errors.invalid(&path, &spec["scopes"], "unsupported scope");
        }
        for _ in 0..misplaced.under(scope) {
            errors.invalid(&path, &spec["scopes"], "unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicting(&given.into_iter().collect()) {
        errors.invalid(&path, &spec["scopes"], "conflicting scopes");
    }
}

fn scope_selector(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
    let selector = path.child("scopeSelector");
    let path = selector.child("matchExpressions");
    let mut given = BTreeSet::new();
    let mut misplaced = Misplaced::in_spec(spec);
    for requirement in list(&spec["scopeSelector"]["matchExpressions"]) {
        let (scope, operator) = (text(&requirement["scopeName"]), text(&requirement["operator"]));
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..misplaced.under(scope) {
            let shown = Shown(internal(&spec["scopeSelector"]));
            errors.invalid(&path, shown, "unsupported scope applied to resource");
        }
        let flags = !matches!(scope, "PriorityClass" | "VolumeAttributesClass") && SCOPES.contains(&scope);
        if flags && operator != "Exists" {
            errors.invalid(&path.child("operator"), operator, EXISTS);
        }
        let values = list(&requirement["values"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let words =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), words);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let words =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), &requirement["values"], words);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
        }
        given.insert(scope);
    }
    for _ in 0..conflicting(&given) {
        errors.invalid(&path, &spec["scopes"], "conflicting scopes");
    }
}

/// A selector with the names and the order of upstream's internal type.
fn internal(selector: &Value) -> String {
    let requirements = list(&selector["matchExpressions"]).iter();
    let renamed = requirements.map(|one| {
        let (scope, operator, values) = (&one["scopeName"], &one["operator"], &one["values"]);
        format!("{{\"ScopeName\":{scope},\"Operator\":{operator},\"Values\":{values}}}")
    });
    format!("{{\"MatchExpressions\":[{}]}}", renamed.collect::<Vec<_>>().join(","))
}

/// What a quota warns of: requests that may come to more than limits.
pub(crate) fn quota_warnings(quota: &Value) -> Vec<String> {
    let hard = amounts(&quota["spec"]["hard"]);
    let mut warnings = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (prefixed, limits) = (format!("requests.{name}"), format!("limits.{name}"));
        let bare = matches!(name, "cpu" | "memory").then_some(name);
        let request = [Some(prefixed.as_str()), bare]
            .into_iter()
            .flatten()
            .find_map(|name| Some((name, hard.get(name)?)));
        if let (Some((name, request)), Some(limit)) = (request, hard.get(limits.as_str()))
            && request > limit
        {
            warnings.push(format!("ResourceQuota {name} ({request}) should be less than {limits} ({limit})"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{FieldError, create, update};
    use super::*;

    fn complaints(resource: &str, spec: Value) -> Vec<String> {
        let kind = crate::by_resource("", "v1", resource).unwrap();
        let object = json!({"metadata": {"name": "x", "namespace": "n"}, "spec": spec});
        let line = |error: FieldError| format!("{}: {}", error.field, error.message);
        create(kind, &object).into_iter().map(line).collect()
    }

    #[test]
    fn bounds_and_defaults_of_a_limit_must_go_together() {
        let none: [&str; 0] = [];
        let good = json!({"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"},
            "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "10"}}]});
        assert_eq!(complaints("limitranges", good), none);
        let bad = json!({"limits": [
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1500m"},
             "maxLimitRequestRatio": {"cpu": "500m", "memory": "3"}},
            {"type": "Container", "default": {"example.com/a": "2"}, "defaultRequest": {"example.com/a": "1"}},
            {"type": "Pod", "default": {"cpu": "1"}, "max": {"pods": "1"}},
            {"type": "PersistentVolumeClaim", "max": {"cpu": "1"}},
            {"type": "Volume"},
            {"type": "example.com/x", "min": {"memory": "1Gi"}, "max": {"memory": "4Gi"}, "maxLimitRequestRatio": {"memory": "5"}},
        ]});
        assert_eq!(
            complaints("limitranges", bad),
            [
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1500m",
                "spec.limits[0].default[cpu]: Invalid value: \"1\": default value 1500m is greater than max value 1",
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
                "spec.limits[1].type: Duplicate value: \"Container\"",
                "spec.limits[1].defaultRequest[example.com/a]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in example.com/a",
                "spec.limits[2].max[pods]: Invalid value: \"pods\": must be a standard resource for containers",
                "spec.limits[2].default: Forbidden: may not be specified when `type` is 'Pod'",
                "spec.limits[3].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
                "spec.limits[4].type: Invalid value: \"Volume\": must be a standard limit type or fully qualified",
                "spec.limits[5].maxLimitRequestRatio[memory]: Invalid value: \"5\": ratio 5 is greater than max/min = 4.000000",
            ]
        );
    }

    #[test]
    fn a_quota_names_what_can_be_counted_and_scopes_that_fit() {
        let none: [&str; 0] = [];
        let good = json!({"hard": {"pods": "2", "requests.cpu": "1500m", "count/widgets.example.com": "3",
            "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "requests.example.com/gpu": "4"}});
        assert_eq!(complaints("resourcequotas", good), none);
        let bad = json!({"hard": {"pods": "1500m", "secrets": "-1", "flowers": "1", "services": "1"},
            "scopes": ["BestEffort", "NotBestEffort", "Odd"],
            "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In"},
                {"scopeName": "Terminating", "operator": "NotIn", "values": ["a"]}]}});
        let found = complaints("resourcequotas", bad);
        for words in [
            "spec.hard[flowers]: Invalid value: \"flowers\": must be a standard resource for quota",
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.hard[secrets]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\",\"Odd\"]: unsupported scope",
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\",\"Odd\"]: unsupported scope applied to resource",
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\",\"Odd\"]: conflicting scopes",
            "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ] {
            assert!(found.iter().any(|line| line == words), "{words} in {found:#?}");
        }
        assert!(found.iter().any(|line| line.starts_with(
            "spec.scopeSelector.matchExpressions.operator: Invalid value: \"NotIn\": must be 'Exists'"
        )));
        let kind = crate::by_resource("", "v1", "resourcequotas").unwrap();
        let of = |scopes: Value| json!({"metadata": {"name": "x", "namespace": "n"}, "spec": {"hard": {"pods": "1"}, "scopes": scopes}});
        let changed = update(kind, &of(json!(["BestEffort"])), &of(json!(["Terminating"])));
        assert_eq!(changed.len(), 1);
        assert_eq!(
            (changed[0].field.as_str(), changed[0].message.as_str()),
            ("spec.scopes", "Invalid value: [\"BestEffort\"]: field is immutable")
        );
    }

    #[test]
    fn a_quota_whose_requests_exceed_its_limits_is_warned_about() {
        let quota = json!({"spec": {"hard": {"cpu": "3", "limits.cpu": "2", "requests.memory": "1Gi", "limits.memory": "2Gi"}}});
        assert_eq!(quota_warnings(&quota), ["ResourceQuota cpu (3) should be less than limits.cpu (2)"]);
    }
}
