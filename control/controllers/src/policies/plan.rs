//! What the type checker has to say about a policy, given the schemas of the objects that it is about.
//!
//! Pure. Upstream says it in the same words; only warnings come of it, a policy is in force whatever they are.

use std::sync::Arc;

use podwire_cel::{Environment, Schema, admission};
use serde_json::{Map, Value, json};

/// The most kinds that one rule of a policy is checked against.
const MOST_OF_A_RULE: usize = 10;
/// The most of all its rules together. Upstream has no such bound.
const MOST: usize = 100;
/// How deep references are followed.
const DEEPEST: usize = 100;

/// A kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gvk {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

/// A resource that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gvr {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
}

/// The schema of a kind, if there is such a kind; what has none can be anything.
pub(super) type Found = Option<Option<Arc<Schema>>>;

impl std::fmt::Display for Gvk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

fn texts<'a>(of: &'a Value, key: &str) -> Vec<&'a str> {
    let mut texts: Vec<&str> = of[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts
}

/// Whether a text can be a part of a path: what is not, no server has.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    text.chars().all(plain) && !text.contains("..")
}

/// The resources that rules name, rule by rule; a rule with a star for groups or versions names none.
pub(super) fn resources(spec: &Value) -> Vec<Vec<Gvr>> {
    let rules = spec["matchConstraints"]["resourceRules"].as_array().map(Vec::as_slice).unwrap_or_default();
    rules.iter().map(of_rule).collect()
}

fn of_rule(rule: &Value) -> Vec<Gvr> {
    let (groups, versions) = (texts(rule, "apiGroups"), texts(rule, "apiVersions"));
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Vec::new();
    }
    let resources = texts(rule, "resources");
    let resources = || resources.iter().filter(|name| !name.contains(['*', '/']));
    let pairs = groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)));
    let named = pairs.filter(|(group, version)| is_plain(group) && !version.is_empty() && is_plain(version));
    let all = named.flat_map(|(group, version)| {
        resources().map(|resource| Gvr {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            resource: resource.to_lowercase(),
        })
    });
    // Not all of them need be served; so many that are not are not asked for either.
    all.take(MOST).collect()
}

/// The kinds to check against, in order. `kind` says which kind a resource is, if it is served.
pub(super) fn kinds(rules: &[Vec<Gvr>], kind: impl Fn(&Gvr) -> Option<String>) -> Vec<Gvk> {
    let mut kinds: Vec<Gvk> = Vec::new();
    for rule in rules {
        let found = rule.iter().filter_map(|resource| {
            let Gvr { group, version, .. } = resource.clone();
            Some(Gvk { group, version, kind: kind(resource)? })
        });
        let found: Vec<Gvk> = found.take(MOST_OF_A_RULE).collect();
        let full = found.len() == MOST_OF_A_RULE;
        kinds.extend(found);
        if full || kinds.len() >= MOST {
            break;
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

/// The kind of a policy's parameters, if it names one that can be.
pub(super) fn params(spec: &Value) -> Option<Gvk> {
    let text = |key: &str| spec["paramKind"][key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let plain = is_plain(group) && is_plain(version) && !version.is_empty() && !text("kind").is_empty();
    plain.then(|| Gvk { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() })
}

/// The schema of a kind in a document of OpenAPI 3.
pub(super) fn schema(document: &Value, wanted: &Gvk) -> Found {
    let schemas = document["components"]["schemas"].as_object()?;
    let this = json!({"group": wanted.group, "version": wanted.version, "kind": wanted.kind});
    let is_this = |schema: &Value| {
        let tags = schema["x-kubernetes-group-version-kind"].as_array();
        tags.is_some_and(|tags| tags.contains(&this))
    };
    let (name, found) = schemas.iter().find(|(_, schema)| is_this(schema))?;
    let whole = Inliner { schemas, within: vec![name] }.inline(found);
    Some(Schema::from_openapi(&whole, &wanted.kind, true))
}

/// Puts what is referred to in the place of references; what contains itself is an empty object there.
struct Inliner<'a> {
    schemas: &'a Map<String, Value>,
    within: Vec<&'a str>,
}

impl<'a> Inliner<'a> {
    fn inline(&mut self, schema: &'a Value) -> Value {
        let Some(name) = referred(schema) else { return self.parts(schema) };
        let found = self.schemas.get_key_value(name);
        let Some((name, found)) =
            found.filter(|_| !self.within.contains(&name) && self.within.len() < DEEPEST)
        else {
            return json!({"type": "object"});
        };
        self.within.push(name);
        let whole = self.parts(found);
        self.within.pop();
        whole
    }

    fn parts(&mut self, schema: &'a Value) -> Value {
        let Value::Object(keys) = schema else { return schema.clone() };
        let mut whole = Map::new();
        for (key, value) in keys {
            let value = match (key.as_str(), value) {
                ("properties", Value::Object(fields)) => {
                    let fields = fields.iter().map(|(name, field)| (name.clone(), self.inline(field)));
                    Value::Object(fields.collect())
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.inline(value),
                _ => value.clone(),
            };
            whole.insert(key.clone(), value);
        }
        if schema["format"] == "int-or-string" {
            whole.insert("x-kubernetes-int-or-string".to_owned(), true.into());
        }
        Value::Object(whole)
    }
}

/// What a schema refers to; a reference with something beside it is wrapped.
fn referred(schema: &Value) -> Option<&str> {
    let own = schema["$ref"].as_str();
    let wrapped = || schema["allOf"].as_array().into_iter().flatten().find_map(referred);
    own.map(|name| name.trim_start_matches("#/components/schemas/")).or_else(wrapped)
}

/// The expressions that are checked, each with where it stands.
pub(super) fn expressions(spec: &Value) -> Vec<(String, &str)> {
    let validations = spec["validations"].as_array().into_iter().flatten().enumerate();
    let both = validations.flat_map(|(at, validation)| {
        let of = move |key: &str| {
            let text = validation[key].as_str().filter(|text| key == "expression" || !text.is_empty())?;
            Some((format!("spec.validations[{at}].{key}"), text))
        };
        [of("expression"), of("messageExpression")]
    });
    both.flatten().collect()
}

/// The variables of a policy's expressions about objects of one kind.
pub(super) fn environment(
    spec: &Value,
    object: Option<&Arc<Schema>>,
    params: Option<Option<&Arc<Schema>>>,
) -> Environment {
    let environment = admission::typed(object, params);
    let mut environment = environment.with_composition();
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let text = |key: &str| variable[key].as_str().unwrap_or_default();
        let program = environment.compile(text("expression")).ok();
        environment.compose(text("name"), program.as_ref().map(|program| program.output_type()));
    }
    environment
}

/// What is to be said about an expression, if anything.
pub(super) fn warning(place: &str, text: &str, environments: &[(Gvk, Environment)]) -> Option<Value> {
    let complaints = environments.iter().filter_map(|(kind, environment)| {
        let errors = environment.compile(text).err()?;
        Some(format!("{kind}: {errors}\n"))
    });
    let complaints: Vec<String> = complaints.collect();
    let told = || json!({"fieldRef": place, "warning": complaints.join("\n")});
    (!complaints.is_empty()).then(told)
}

/// The status of a policy that was checked.
pub(super) fn status(generation: i64, warnings: &[Value]) -> Value {
    let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    json!({"observedGeneration": generation, "typeChecking": checking})
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod tests {
    use super::*;

    fn rule(groups: Value, versions: Value, resources: Value) -> Value {
        json!({"apiGroups": groups, "apiVersions": versions, "resources": resources})
    }

    fn named(rules: Value) -> Vec<String> {
        let rules = resources(&json!({"matchConstraints": {"resourceRules": rules}}));
        let kinds =
            kinds(&rules, |resource| (resource.resource != "none").then(|| resource.resource.clone()));
        kinds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kinds_are_those_that_rules_name_without_a_star() {
        let rules = json!([
            rule(json!(["apps"]), json!(["v1"]), json!(["b", "a", "a/status", "*", "none"])),
            rule(json!(["*"]), json!(["v1"]), json!(["c"])),
            rule(json!(["", "x/../../y", "A"]), json!(["v1", "", ".."]), json!(["d"])),
            rule(json!(["apps"]), json!(["v1"]), json!(["a"])),
        ]);
        assert_eq!(named(rules), ["/v1, Kind=d", "apps/v1, Kind=a", "apps/v1, Kind=b"]);
        let many: Vec<String> = (0..30).map(|number| format!("r{number:02}")).collect();
        let rules = json!([
            rule(json!([""]), json!(["v1"]), json!(many)),
            rule(json!([""]), json!(["v1"]), json!(["z"]))
        ]);
        let found = named(rules);
        assert_eq!((found.len(), found.last().unwrap().as_str()), (10, "/v1, Kind=r09"));
    }

    #[test]
    fn references_are_followed_and_what_contains_itself_is_an_empty_object() {
        let tag = json!([{"group": "", "version": "v1", "kind": "T"}]);
        let document = json!({"components": {"schemas": {
            "t": {"type": "object", "x-kubernetes-group-version-kind": tag, "properties": {
                "spec": {"allOf": [{"$ref": "#/components/schemas/s"}], "default": {}},
                "port": {"$ref": "#/components/schemas/p"}}},
            "s": {"type": "object", "properties": {"n": {"type": "integer"},
                "again": {"type": "array", "items": {"$ref": "#/components/schemas/t"}}}},
            "p": {"oneOf": [], "format": "int-or-string"}}}});
        let kind = |name: &str| Gvk { group: String::new(), version: "v1".to_owned(), kind: name.to_owned() };
        assert!(schema(&document, &kind("U")).is_none());
        let typed = schema(&document, &kind("T")).unwrap();
        let spec = json!({"variables": [{"name": "n", "expression": "object.spec.n"}], "validations": [
            {"expression": "object.spec.n > 1 && object.port == 'a' && variables.n > 0"},
            {"expression": "object.spec.m > 1", "messageExpression": "object.spec.again[0].spec"},
            {"expression": "variables.n == 'a'"}]});
        let environments = [(kind("T"), environment(&spec, typed.as_ref(), None))];
        let told = expressions(&spec);
        let told: Vec<Value> =
            told.iter().filter_map(|(place, text)| warning(place, text, &environments)).collect();
        let at = |number: usize| told[number]["fieldRef"].as_str().unwrap();
        assert_eq!(told.len(), 3, "{told:#?}");
        assert_eq!(at(0), "spec.validations[1].expression");
        assert_eq!(
            told[0]["warning"],
            "/v1, Kind=T: ERROR: <input>:1:12: undefined field 'm'\n | object.spec.m > 1\n | ...........^\n"
        );
        assert_eq!(at(1), "spec.validations[1].messageExpression");
        assert_eq!(at(2), "spec.validations[2].expression");
    }
}
