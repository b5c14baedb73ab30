//! Rules of jobs and of what makes them by the clock.
//!
//! The labels that the server itself gives a job, and the status of a job, are not judged.

use std::collections::HashSet;

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use super::{cron, ingress, meta, workload};
use crate::path::Path;
use crate::selector::LabelSelector;
use crate::syntax;

/// A job.
pub(crate) fn job(object: &Value, lenient: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    job_with_selector(spec, lenient, &path, errors);
    let completions = spec["completions"].as_i64().unwrap_or(0);
    if spec["completionMode"] == "Indexed" && completions > 0 {
        let name = text(&object["metadata"]["name"]);
        let host = format!("{name}-{}", completions - 1);
        if !syntax::dns_label(&host).is_empty() {
            let words = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&Path::root("metadata").child("name"), name, &words);
        }
    }
}

fn job_with_selector(spec: &Value, lenient: bool, path: &Path<'_>, errors: &mut Errors) {
    job_spec(spec, path, errors);
    let (here, selector) = (path.child("selector"), &spec["selector"]);
    if selector.is_null() {
        errors.required(&here, "");
    } else {
        meta::label_selector_with(selector, lenient, &here, errors);
    }
    let labels = spec["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches(&labels)) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        let shown = &spec["template"]["metadata"]["labels"];
        errors.invalid(&metadata.child("labels"), shown, "`selector` does not match template `labels`");
    }
}

/// What of a job changes once it is there; upstream looks at the rest a second time.
pub(crate) fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    let lenient = meta::is_bad_selector(&before["selector"]);
    job(new, lenient, errors);
    job_with_selector(spec, lenient, &path, errors);
    let (here, completions) = (path.child("completions"), &spec["completions"]);
    if spec["completionMode"] != "Indexed" {
        errors.immutable(&here, completions, &before["completions"]);
    } else if completions.is_i64()
        && *completions != before["completions"]
        && *completions != spec["parallelism"]
    {
        errors.invalid(&here, completions, "can only be modified in tandem with spec.parallelism");
    }
    workload::keep_selector(new, old, errors);
    template_update(new, old, &path.child("template"), errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        errors.immutable(&path.child(field), &spec[field], &before[field]);
    }
}

/// The template stays, but for where pods go and what they need as long as the job waits.
fn template_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let status = &old["status"];
    let halted =
        list(&status["conditions"]).iter().any(|c| c["type"] == "Suspended" && c["status"] == "True");
    let waits = old["spec"]["suspend"] == true
        && (status["startTime"].is_null() || halted)
        && status["active"].as_i64().unwrap_or(0) == 0;
    let template = &new["spec"]["template"];
    let mut before = old["spec"]["template"].clone();
    if waits {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            follow(&mut before["spec"], &template["spec"], field);
        }
        for field in ["labels", "annotations"] {
            follow(&mut before["metadata"], &template["metadata"], field);
        }
        follow_affinity(&mut before["spec"], &template["spec"]["affinity"]);
        for field in ["containers", "initContainers"] {
            follow_resources(before["spec"].get_mut(field), list(&template["spec"][field]));
        }
    }
    let same = |part: &str| -> bool {
        let empty =
            |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        template[part] == before[part] || (empty(&template[part]) && empty(&before[part]))
    };
    if waits {
        errors.immutable(&path.child("spec"), &template["spec"], &before["spec"]);
    } else if !same("spec") || !same("metadata") {
        errors.invalid(path, template, "field is immutable");
    }
}

/// Takes over one entry, or its absence.
fn follow(before: &mut Value, now: &Value, field: &str) {
    match (before.as_object_mut(), now.get(field)) {
        (Some(before), Some(value)) => {
            before.insert(field.to_owned(), value.clone());
        }
        (Some(before), None) => {
            before.remove(field);
        }
        (None, Some(value)) => *before = serde_json::json!({field: value}),
        (None, None) => {}
    }
}

/// Takes over the affinity to nodes; no affinity at all is as good as one to none.
fn follow_affinity(before: &mut Value, now: &Value) {
    let mut affinity = before["affinity"].clone();
    follow(&mut affinity, now, "nodeAffinity");
    if affinity.as_object().is_none_or(serde_json::Map::is_empty) && now.is_null() {
        affinity = Value::Null;
    }
    let wrapped = serde_json::json!({"affinity": affinity});
    let none = Value::Object(serde_json::Map::new());
    follow(before, if wrapped["affinity"].is_null() { &none } else { &wrapped }, "affinity");
}

/// Takes over what containers of the same name need.
fn follow_resources(before: Option<&mut Value>, now: &[Value]) {
    let before = before.and_then(Value::as_array_mut);
    let Some(before) = before.filter(|before| before.len() == now.len()) else { return };
    for (before, now) in before.iter_mut().zip(now).filter(|(before, now)| before["name"] == now["name"]) {
        follow(before, now, "resources");
    }
}

const MOST_INDEXES: i64 = 100_000;
const MOST_OF_MANY: i64 = 10_000;

/// The specification of a job without its selector, which is made for those that cron jobs make.
fn job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        const MOST: usize = 63;
        ingress::domain_prefixed_path(manager, &path.child("managedBy"), errors);
        if manager.len() > MOST {
            errors.too_long(&path.child("managedBy"), MOST);
        }
    }
    if let Some(mode) = spec["completionMode"].as_str()
        && !matches!(mode, "NonIndexed" | "Indexed")
    {
        errors.not_supported(&path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    match spec["completionMode"].as_str() {
        Some("Indexed") => indexed(spec, path, errors),
        None | Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = spec[field].as_i64() {
                    errors.invalid(&path.child(field), number, "requires indexed completion mode");
                }
            }
        }
        Some(_) => {}
    }
    if spec["podFailurePolicy"].is_object() {
        failure_policy(spec, &path.child("podFailurePolicy"), errors);
    }
    if spec["successPolicy"].is_object() {
        let here = path.child("successPolicy");
        if spec["completionMode"] == "Indexed" {
            success_policy(spec, &here, errors);
        } else {
            errors.invalid(
                &here,
                Shown(shown_success(&spec["successPolicy"])),
                "requires indexed completion mode",
            );
        }
    }
    if let Some(policy) = spec["podReplacementPolicy"].as_str() {
        let supported: &[&str] = if spec["podFailurePolicy"].is_object() {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        if !supported.contains(&policy) {
            errors.not_supported(&path.child("podReplacementPolicy"), policy, supported);
        }
    }
    workload::template_spec(&spec["template"], &path.child("template"), errors);
    restart_policy(spec, &path.child("template"), errors);
}

fn restart_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let here = path.child("spec");
    let here = here.child("restartPolicy");
    match text(&spec["template"]["spec"]["restartPolicy"]) {
        "" | "Always" => errors.required(&here, "valid values: \"OnFailure\", \"Never\""),
        policy @ "OnFailure" if spec["podFailurePolicy"].is_object() => {
            errors.invalid(&here, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&here, other, &["OnFailure", "Never"]),
    }
}

fn indexed(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = |field: &str| spec[field].as_i64();
    let (completions, parallelism, failed) =
        (number("completions"), number("parallelism"), number("maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    if let Some(parallelism) = parallelism.filter(|parallelism| *parallelism > MOST_INDEXES) {
        let words = format!("must be less than or equal to {MOST_INDEXES} when completion mode is Indexed");
        errors.invalid(&path.child("parallelism"), parallelism, &words);
    }
    let here = path.child("maxFailedIndexes");
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errors.invalid(&here, failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|failed| *failed > MOST_INDEXES) {
        errors.invalid(&here, failed, &format!("must be less than or equal to {MOST_INDEXES}"));
    }
    if !(completions.is_some_and(|completions| completions > MOST_INDEXES)
        && number("backoffLimitPerIndex").is_some())
    {
        return;
    }
    if failed.is_none() {
        errors.required(&here, &format!("must be specified when completions is above {MOST_INDEXES}"));
    }
    let words = format!(
        "must be less than or equal to {MOST_OF_MANY} when completions are above {MOST_INDEXES} and used with backoff limit per index"
    );
    for (field, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
        if let Some(value) = value.filter(|value| *value > MOST_OF_MANY) {
            errors.invalid(&path.child(field), value, &words);
        }
    }
}

fn failure_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 20;
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let (here, rules) = (path.child("rules"), list(&spec["podFailurePolicy"]["rules"]));
    if rules.len() > MOST {
        errors.too_many(&here, rules.len(), MOST);
    }
    let pod = &spec["template"]["spec"];
    let names: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|f| list(&pod[*f]))
        .map(|c| text(&c["name"]))
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        let at = here.index(i);
        match text(&rule["action"]) {
            "" => errors.required(&at.child("action"), &format!("valid values: {}", quoted(&ACTIONS))),
            action @ "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
                errors.invalid(&at.child("action"), action, "requires the backoffLimitPerIndex to be set");
            }
            action if !ACTIONS.contains(&action) => {
                errors.not_supported(&at.child("action"), action, &ACTIONS)
            }
            _ => {}
        }
        let (codes, conditions) = (&rule["onExitCodes"], list(&rule["onPodConditions"]));
        if codes.is_object() {
            exit_codes(codes, &names, &at.child("onExitCodes"), errors);
        }
        pod_conditions(conditions, &at.child("onPodConditions"), errors);
        let words = match (codes.is_object(), conditions.is_empty()) {
            (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.invalid_without_value(&at, words);
    }
}

/// Words as Go prints a list of them.
fn quoted(words: &[&str]) -> String {
    format!("[{}]", words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "))
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 255;
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let operator = text(&codes["operator"]);
    match operator {
        "" => errors.required(&path.child("operator"), &format!("valid values: {}", quoted(&OPERATORS))),
        operator if !OPERATORS.contains(&operator) => {
            errors.not_supported(&path.child("operator"), operator, &OPERATORS);
        }
        _ => {}
    }
    if let Some(name) = codes["containerName"].as_str().filter(|name| !containers.contains(*name)) {
        let words = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), name, words);
    }
    let (here, values) = (path.child("values"), list(&codes["values"]));
    if values.is_empty() {
        errors.invalid(&here, &codes["values"], "at least one value is required");
    } else if values.len() > MOST {
        errors.too_many(&here, values.len(), MOST);
    }
    let mut seen = Seen::default();
    let values: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or(0)).collect();
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(&here.index(i), *value, "must not be 0 for the In operator");
        }
        if seen.again(*value) {
            errors.duplicate(&here.index(i), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(&here, &codes["values"], "must be ordered");
    }
}

fn pod_conditions(patterns: &[Value], path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 20;
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    if patterns.len() > MOST {
        errors.too_many(path, patterns.len(), MOST);
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let (here, kind) = (path.index(i), text(&pattern["type"]));
        errors.all_invalid(&here.child("type"), kind, syntax::qualified_name(kind));
        match text(&pattern["status"]) {
            "" => errors.required(&here.child("status"), &format!("valid values: {}", quoted(&STATUSES))),
            status if !STATUSES.contains(&status) => {
                errors.not_supported(&here.child("status"), status, &STATUSES)
            }
            _ => {}
        }
    }
}

/// A policy of success as upstream's internal type prints itself.
fn shown_success(policy: &Value) -> String {
    let rule = |rule: &Value| {
        format!(
            "{{\"SucceededIndexes\":{},\"SucceededCount\":{}}}",
            rule["succeededIndexes"], rule["succeededCount"]
        )
    };
    let rules: Vec<String> = list(&policy["rules"]).iter().map(rule).collect();
    if policy["rules"].is_null() {
        "{\"Rules\":null}".to_owned()
    } else {
        format!("{{\"Rules\":[{}]}}", rules.join(","))
    }
}

fn success_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 20;
    const MOST_BYTES: usize = 64 * 1024;
    // Without completions the job is refused, and there is nothing to compare with.
    let completions = spec["completions"].as_i64().unwrap_or(0);
    let (here, rules) = (path.child("rules"), list(&spec["successPolicy"]["rules"]));
    if rules.is_empty() {
        errors.required(&here, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MOST {
        errors.too_many(&here, rules.len(), MOST);
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = here.index(i);
        let (indexes, count) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
        if indexes.is_none() && count.is_none() {
            errors.required(&at, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if let Some(given) = indexes {
            let at = at.child("succeededIndexes");
            if given.len() > MOST_BYTES {
                errors.too_long(&at, MOST_BYTES);
            }
            match count_indexes(given, completions) {
                Ok(counted) => total = counted,
                Err(why) => errors.invalid(&at, given, &format!("error parsing succeededIndexes: {why}")),
            }
        }
        let Some(count) = count else { continue };
        let at = at.child("succeededCount");
        errors.nonnegative(&at, &rule["succeededCount"]);
        if count > completions {
            let words =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&at, count, &words);
        }
        if indexes.is_some() && count > total {
            let words = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&at, count, &words);
        }
    }
}

/// How many indexes a text such as `1,3-5` names.
fn count_indexes(given: &str, completions: i64) -> Result<i64, String> {
    if given.is_empty() {
        return Ok(0);
    }
    let index = |text: &str| -> Result<i64, String> {
        let index: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions { Err(format!("too large index: {text:?}")) } else { Ok(index) }
    };
    let order = |previous: i64, current: i64| {
        if previous < current {
            return Ok(());
        }
        Err(format!("non-increasing order, previous: {previous}, current: {current}"))
    };
    let (mut last, mut total) = (None, 0);
    for interval in given.split(',') {
        let (low, high) = match interval.split('-').collect::<Vec<_>>()[..] {
            [one] => (index(one)?, index(one)?),
            [low, high] => {
                let (low, high) = (index(low)?, index(high)?);
                order(low, high)?;
                (low, high)
            }
            _ => {
                return Err(format!(
                    "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
        };
        if let Some(last) = last {
            order(last, low)?;
        }
        (last, total) = (Some(high), total + high - low + 1);
    }
    Ok(total)
}

/// A cron job, new or changed from `old`.
pub(crate) fn cron_job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &new["spec"];
    schedule(spec, old, &path.child("schedule"), errors);
    errors.nonnegative(&path.child("startingDeadlineSeconds"), &spec["startingDeadlineSeconds"]);
    if old.is_none_or(|old| old["spec"]["timeZone"] != spec["timeZone"]) {
        time_zone(&spec["timeZone"], &path.child("timeZone"), errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    errors.one_of(&path.child("concurrencyPolicy"), &spec["concurrencyPolicy"], &policies);
    let template = path.child("jobTemplate");
    let (here, job) = (template.child("spec"), &spec["jobTemplate"]["spec"]);
    job_spec(job, &here, errors);
    if !job["selector"].is_null() {
        let shown = Shown(meta::shown_selector(&job["selector"]));
        errors.invalid(&here.child("selector"), shown, "`selector` will be auto-generated");
    }
    if job["manualSelector"] == true {
        errors.not_supported(&here.child("manualSelector"), &job["manualSelector"], &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.nonnegative(&path.child(field), &spec[field]);
    }
    let name = text(&new["metadata"]["name"]);
    if old.is_none() && name.len() > 52 {
        errors.invalid(&Path::root("metadata").child("name"), name, "must be no more than 52 characters");
    }
}

fn schedule(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let schedule = text(&spec["schedule"]);
    if schedule.is_empty() {
        return errors.required(path, "");
    }
    if let Err(words) = cron::parse(schedule) {
        errors.invalid(path, schedule, &words);
    }
    let had_zone = old.is_some_and(|old| text(&old["spec"]["schedule"]).contains("TZ"));
    if !schedule.contains("TZ") {
        return;
    }
    if !had_zone {
        errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if !spec["timeZone"].is_null() {
        errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

fn time_zone(zone: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(zone) = zone.as_str() else { return };
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    let fits = |part: &str| {
        (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    if !zone.split('/').all(fits) {
        return errors.invalid(path, zone, &format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let words = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What upstream shows as the value is a Go type; only the rest is compared.
    #[test]
    fn a_template_stays_unless_the_job_waits() {
        let job = |suspend: bool, image: &str, zone: &str| {
            let pod = json!({"containers": [{"name": "c", "image": image}], "nodeSelector": {"zone": zone}});
            json!({"spec": {"suspend": suspend, "template": {"spec": pod}}})
        };
        let complaints = |new: &Value, old: &Value| -> Vec<String> {
            let mut errors = Errors::default();
            template_update(new, old, &Path::root("spec").child("template"), &mut errors);
            errors.done().into_iter().map(|error| error.field).collect()
        };
        let old = job(false, "i", "a");
        assert!(complaints(&job(true, "i", "a"), &old).is_empty());
        assert_eq!(complaints(&job(false, "j", "a"), &old), ["spec.template"]);
        assert_eq!(complaints(&job(false, "i", "b"), &old), ["spec.template"]);
        let mut waiting = job(true, "i", "a");
        assert!(complaints(&job(true, "i", "b"), &waiting).is_empty());
        assert_eq!(complaints(&job(true, "j", "b"), &waiting), ["spec.template.spec"]);
        waiting["status"] = json!({"startTime": "2026-01-01T00:00:00Z", "active": 1});
        assert_eq!(complaints(&job(true, "i", "b"), &waiting), ["spec.template"]);
    }
}
