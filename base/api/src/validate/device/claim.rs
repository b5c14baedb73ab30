//! Rules of what claims and their templates ask for.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{MOST_CONFIGS, MOST_REQUESTS, fully_qualified_name, quoted};
use super::{config, each, label, meta, named, selectors, set, shown, toleration};
use crate::Kind;
use crate::path::Path;
use crate::syntax;
use crate::validate::error::{Errors, list, text};

const MOST_ALTERNATIVES: usize = 8;
const MOST_CONSTRAINTS: usize = 32;

/// A new claim.
pub(crate) fn claim_object(object: &Value, errors: &mut Errors) {
    spec(&object["spec"], &Path::root("spec"), errors);
}

/// A new template, or one that was changed.
pub(crate) fn template_object(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    template_metadata(&object["spec"]["metadata"], &path.child("metadata"), errors);
    spec(&object["spec"]["spec"], &path.child("spec"), errors);
}

/// Only the labels and annotations of what a template makes are anybody's to say.
fn template_metadata(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    const OTHERS: &[&str] = &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    meta::annotations(&given["annotations"], &path.child("annotations"), errors);
    meta::labels(&given["labels"], &path.child("labels"), errors);
    for field in OTHERS.iter().filter(|field| !given[**field].is_null()) {
        // As upstream makes a field's name out of that in Go.
        let shown = if *field == "uid" { "uID" } else { field };
        errors.forbidden(&path.child(shown), "cannot be set");
    }
}

/// Nothing of a claim's specification changes once it is stored.
pub(crate) fn claim_change(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    meta::create(kind, new, errors);
    meta::update_known(new, old, errors);
    if new["spec"] != old["spec"] {
        errors.invalid(&Path::root("spec"), shown::claim(&new["spec"]), "field is immutable");
    }
}

/// Nor of a template's.
pub(crate) fn template_change(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    meta::create(kind, new, errors);
    template_object(new, errors);
    meta::update_known(new, old, errors);
    if new["spec"] != old["spec"] {
        errors.invalid(&Path::root("spec"), shown::template(&new["spec"]), "field is immutable");
    }
}

fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (devices, path) = (&spec["devices"], path.child("devices"));
    let names = RequestNames::of(devices);
    named(&devices["requests"], "name", MOST_REQUESTS, &path.child("requests"), errors, request);
    each(
        &devices["constraints"],
        MOST_CONSTRAINTS,
        &path.child("constraints"),
        errors,
        |one, path, errors| constraint(one, &names, path, errors),
    );
    each(&devices["config"], MOST_CONFIGS, &path.child("config"), errors, |one, path, errors| {
        names.check(&one["requests"], &path.child("requests"), errors);
        config(one, false, path, errors);
    });
}

/// What requests and alternatives of requests a claim has.
pub(super) struct RequestNames<'a>(HashMap<&'a str, HashSet<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn of(devices: &'a Value) -> Self {
        let alternatives = |request: &'a Value| {
            list(&request["firstAvailable"]).iter().map(|one| text(&one["name"])).collect()
        };
        let requests = list(&devices["requests"]).iter();
        Self(requests.map(|request| (text(&request["name"]), alternatives(request))).collect())
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            None => self.0.contains_key(name),
            Some((request, alternative)) => {
                self.0.get(request).is_some_and(|alternatives| alternatives.contains(alternative))
            }
        }
    }

    /// A name that is to be that of a request or of an alternative.
    pub(super) fn check_one(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        const WORDS: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        if name.matches('/').count() > 1 {
            return errors.invalid(path, name, WORDS);
        }
        for part in name.split('/') {
            label(part, path, errors);
        }
        if !self.has(name) {
            errors.invalid(path, name, WORDS);
        }
    }

    /// Such names, each once.
    pub(super) fn check(&self, given: &Value, path: &Path<'_>, errors: &mut Errors) {
        let one = |name: &Value, path: &Path<'_>, errors: &mut Errors| {
            self.check_one(text(name), path, errors);
        };
        set(given, MOST_REQUESTS, path, errors, one, text, quoted);
    }
}

fn request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    label(text(&request["name"]), &path.child("name"), errors);
    let has_alternatives = !list(&request["firstAvailable"]).is_empty();
    match (request["exactly"].is_object(), has_alternatives) {
        (false, false) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let words =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, &Value::Null, words);
        }
        (true, false) => wanted(&request["exactly"], &path.child("exactly"), errors),
        (false, true) => {
            let here = path.child("firstAvailable");
            named(
                &request["firstAvailable"],
                "name",
                MOST_ALTERNATIVES,
                &here,
                errors,
                |one, path, errors| {
                    label(text(&one["name"]), &path.child("name"), errors);
                    wanted(one, path, errors);
                },
            );
        }
    }
}

/// Which devices are wanted and how many.
fn wanted(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    let here = path.child("deviceClassName");
    match text(&request["deviceClassName"]) {
        "" => errors.required(&here, ""),
        name => errors.all_invalid(&here, name, syntax::dns_subdomain(name)),
    }
    selectors(&request["selectors"], false, &path.child("selectors"), errors);
    let (count, here) = (request["count"].as_i64().unwrap_or(0), path.child("count"));
    match text(&request["allocationMode"]) {
        "All" if count != 0 => {
            errors.invalid(&here, count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errors.invalid(&here, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => errors.not_supported(&path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    let here = path.child("tolerations");
    for (i, one) in list(&request["tolerations"]).iter().enumerate() {
        toleration(one, &here.index(i), errors);
    }
}

fn constraint(constraint: &Value, names: &RequestNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    names.check(&constraint["requests"], &path.child("requests"), errors);
    // As upstream has it, the first that is given is looked at, and the words fit neither case.
    let given = ["matchAttribute", "distinctAttribute"].into_iter().find(|key| constraint[*key].is_string());
    match given {
        Some(key) => fully_qualified_name(text(&constraint[key]), &path.child(key), errors),
        None => errors.required(
            path,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        ),
    }
}
