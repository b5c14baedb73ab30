//! One rule of a role: what it allows, what it covers, and how it reads in a refusal.
//!
//! Pure. Matching decides about requests; covering decides whether somebody who has some rules may give others away,
//! as upstream's `k8s.io/component-helpers/auth/rbac/validation` does.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Attributes;

/// A rule as roles hold them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Verbs, `*` for all.
    pub(crate) verbs: Vec<String>,
    /// API groups, `*` for all.
    pub(crate) groups: Vec<String>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub(crate) resources: Vec<String>,
    /// The only objects meant, if there are any.
    pub(crate) names: Vec<String>,
    /// Paths that are no resources, perhaps with `*` at their end.
    pub(crate) urls: Vec<String>,
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Reads a rule of a Role or ClusterRole.
    pub(crate) fn read(rule: &Value) -> Self {
        Self {
            verbs: strings(&rule["verbs"]),
            groups: strings(&rule["apiGroups"]),
            resources: strings(&rule["resources"]),
            names: strings(&rule["resourceNames"]),
            urls: strings(&rule["nonResourceURLs"]),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::read).collect()
    }

    /// The rule as objects carry it.
    pub(crate) fn to_value(&self) -> Value {
        let mut out = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            out[key] = json!(list);
        }
        out
    }

    /// Whether the rule allows what is asked for.
    pub(crate) fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, asked.verb) {
            return false;
        }
        let Some(resource) = asked.resource else {
            return self.urls.iter().any(|url| url_allows(url, asked.path));
        };
        has_or_all(&self.groups, &resource.group)
            && self
                .resources
                .iter()
                .any(|rule| resource_allows(rule, &resource.resource, &resource.subresource))
            && (self.names.is_empty() || has(&self.names, &resource.name))
    }

    /// The rule as several, each about one verb and one thing.
    pub(crate) fn broken_down(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut out = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let whole = Self {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        out.push(whole);
                    } else {
                        out.extend(self.names.iter().map(|name| Self { names: one(name), ..whole.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            out.extend(self.verbs.iter().map(|verb| Self {
                verbs: one(verb),
                urls: one(url),
                ..Self::default()
            }));
        }
        out
    }

    /// Whether everything that the broken-down `other` allows is allowed by this rule.
    fn covers(&self, other: &Self) -> bool {
        let all =
            |mine: &[String], theirs: &[String]| has(mine, "*") || theirs.iter().all(|item| has(mine, item));
        let named = self.names.is_empty()
            || (!other.names.is_empty() && other.names.iter().all(|n| has(&self.names, n)));
        all(&self.verbs, &other.verbs)
            && all(&self.groups, &other.groups)
            && other.resources.iter().all(|resource| covers_resource(&self.resources, resource))
            && other.urls.iter().all(|url| self.urls.iter().any(|mine| covers_url(mine, url)))
            && named
    }

    /// How refusals show it.
    fn brief(&self) -> String {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// A list of strings as Go's `%q` shows it.
pub(crate) fn quoted(list: &[String]) -> String {
    let shown: Vec<String> = list.iter().map(|item| Value::from(item.as_str()).to_string()).collect();
    format!("[{}]", shown.join(" "))
}

fn resource_allows(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let part = rule.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/'));
    part == Some(subresource) || rule.strip_prefix("*/") == Some(subresource)
}

fn url_allows(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

fn covers_resource(mine: &[String], resource: &str) -> bool {
    if has_or_all(mine, resource) {
        return true;
    }
    let Some((_, part)) = resource.split_once('/') else { return false };
    mine.iter().any(|item| item.strip_prefix("*/") == Some(part))
}

fn covers_url(mine: &str, url: &str) -> bool {
    mine == url || (mine.ends_with('*') && url.starts_with(mine.trim_end_matches('*')))
}

/// What of `wanted` no rule of `held` covers, broken down.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let single = wanted.iter().flat_map(Rule::broken_down);
    single.filter(|rule| !held.iter().any(|mine| mine.covers(rule))).collect()
}

/// Missing rules as the lines of a refusal: those that differ by their verb alone are put together.
pub(crate) fn describe(missing: &[Rule]) -> String {
    let mut together: Vec<Rule> = Vec::new();
    for rule in missing {
        let same = |other: &&mut Rule| {
            rule.urls.is_empty()
                && other.urls.is_empty()
                && (&other.groups, &other.resources, &other.names)
                    == (&rule.groups, &rule.resources, &rule.names)
        };
        match together.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs.iter().cloned()),
            None => together.push(rule.clone()),
        }
    }
    let lines: BTreeSet<String> = together.iter().map(Rule::brief).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use crate::request::RequestInfo;

    fn allowed(rule: &Value, method: &http::Method, path: &str) -> bool {
        let info = RequestInfo::parse(method, path, &Query::default());
        Rule::read(rule).allows(&Attributes::from(&info))
    }

    #[test]
    fn a_rule_names_verbs_groups_resources_and_objects() {
        let get = &http::Method::GET;
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"], "resourceNames": ["a"]});
        assert!(allowed(&rule, get, "/api/v1/namespaces/x/pods/a"));
        assert!(allowed(&rule, get, "/api/v1/namespaces/x/pods/a/log"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods/b"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods/a/status"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods"));
        assert!(!allowed(&rule, get, "/apis/apps/v1/namespaces/x/pods/a"));
        assert!(!allowed(&rule, &http::Method::DELETE, "/api/v1/namespaces/x/pods/a"));
        let paths = json!({"verbs": ["*"], "nonResourceURLs": ["/metrics", "/debug/*"]});
        assert!(allowed(&paths, get, "/metrics") && allowed(&paths, get, "/debug/x"));
        assert!(!allowed(&paths, get, "/other") && !allowed(&paths, get, "/metrics/"));
    }

    #[test]
    fn stars_stand_for_all_resources_or_for_one_part_of_all_and_nothing_else() {
        let rule = |resource: &str| json!({"verbs": ["get"], "apiGroups": ["*"], "resources": [resource]});
        let get = &http::Method::GET;
        let (pod, log) = ("/api/v1/namespaces/x/pods/a", "/api/v1/namespaces/x/pods/a/log");
        assert!(allowed(&rule("*"), get, pod) && allowed(&rule("*"), get, log));
        assert!(!allowed(&rule("pods"), get, log) && allowed(&rule("*/log"), get, log));
        assert!(!allowed(&rule("*/log"), get, pod) && !allowed(&rule("*/og"), get, log));
        assert!(!allowed(&rule("pods/*"), get, log), "upstream knows no such star");
    }

    #[test]
    fn coverage_is_what_upstream_says_it_is() {
        for (at, line) in include_str!("rule/covers.jsonl").lines().enumerate() {
            let case: Value = serde_json::from_str(line).unwrap();
            let rules =
                |key: &str| -> Vec<Rule> { case[key].as_array().unwrap().iter().map(Rule::read).collect() };
            assert_eq!(missing(&rules("held"), &rules("wanted")), rules("missing"), "line {}", at + 1);
        }
    }

    #[test]
    fn what_is_missing_is_said_in_one_line_per_resource() {
        let wanted = json!({"rules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert_eq!(
            describe(&missing(&[], &Rule::all_of(&wanted))),
            "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"a\"], Verbs:[\"get\" \"list\"]}\n{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
        );
    }
}
