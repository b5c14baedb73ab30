//! The status that follows from a definition and from those beside it: which names it gets, and whether it is served.
//!
//! Upstream's controllers do this one after the other while clients wait; here it is one step.

use serde_json::{Map, Value, json};

use super::rules::is_bundle;
use super::{list, text};

/// The names that another definition of the same group holds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Plural, singular and short names.
    pub resources: Vec<String>,
    /// Kind and kind of lists.
    pub kinds: Vec<String>,
}

impl Taken {
    /// The names that a definition holds.
    pub fn by(definition: &Value) -> Taken {
        let names = &definition["status"]["acceptedNames"];
        let one = |key: &str| names[key].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let short = list(&names["shortNames"]).iter().filter_map(Value::as_str).map(str::to_owned);
        Taken {
            resources: [one("plural"), one("singular")].into_iter().flatten().chain(short).collect(),
            kinds: [one("kind"), one("listKind")].into_iter().flatten().collect(),
        }
    }
}

/// The status that a definition gets, when it has another; `now` is the time as objects carry it.
pub fn settled(definition: &Value, others: &[Taken], now: &str) -> Option<Value> {
    let before = &definition["status"];
    let (names, verdict) = accept(&definition["spec"]["names"], &before["acceptedNames"], others);
    let mut status = before.clone();
    status["acceptedNames"] = names;
    let accepted = verdict.is_none();
    let (reason, message) = verdict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    set(&mut status, "NamesAccepted", accepted, reason, &message, now);
    if !is_true(definition, "Established") {
        let bundle = text(&definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]);
        match accepted {
            true if !bundle.is_empty() && !is_bundle(bundle) => {
                let words = "The conversion webhook CABundle is invalid";
                set(&mut status, "Established", false, "InvalidCABundle", words, now);
            }
            true => set(
                &mut status,
                "Established",
                true,
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            ),
            false => set(&mut status, "Established", false, "NotAccepted", "not all names are accepted", now),
        }
    }
    (status != *before).then_some(status)
}

/// Whether a definition has a condition.
pub fn is_true(definition: &Value, kind: &str) -> bool {
    list(&definition["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Whether a definition's objects are served.
pub fn is_served(definition: &Value) -> bool {
    is_true(definition, "NamesAccepted") || is_true(definition, "Established")
}

/// Sets a condition of a status.
pub fn set(status: &mut Value, kind: &str, holds: bool, reason: &str, message: &str, now: &str) {
    let word = if holds { "True" } else { "False" };
    let mut conditions = list(&status["conditions"]).to_vec();
    let mut condition = json!({"type": kind, "status": word, "reason": reason, "message": message, "lastTransitionTime": now});
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(known) => {
            if known["status"] == word {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
    status["conditions"] = conditions.into();
}

/// The names that are granted, each on its own, and the last conflict.
fn accept(wanted: &Value, held: &Value, others: &[Taken]) -> (Value, Option<(&'static str, String)>) {
    let mut names: Map<String, Value> = held.as_object().cloned().unwrap_or_default();
    let mut verdict = None;
    let resource = |name: &str| others.iter().any(|other| other.resources.iter().any(|taken| taken == name));
    let kind = |name: &str| others.iter().any(|other| other.kinds.iter().any(|taken| taken == name));
    let conflict =
        |name: &str, held: bool, taken: bool| (!held && taken).then(|| format!("{name:?} is already in use"));
    for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        let name = text(&wanted[key]);
        match conflict(name, held[key] == name, resource(name)) {
            Some(why) => verdict = Some((reason, why)),
            None => drop(names.insert(key.to_owned(), name.into())),
        }
    }
    let short = list(&wanted["shortNames"]);
    let complaints: Vec<String> = short
        .iter()
        .filter_map(|name| {
            conflict(text(name), list(&held["shortNames"]).contains(name), resource(text(name)))
        })
        .collect();
    match complaints.as_slice() {
        [] if short.is_empty() => drop(names.remove("shortNames")),
        [] => drop(names.insert("shortNames".to_owned(), short.into())),
        [one] => verdict = Some(("ShortNamesConflict", one.clone())),
        many => verdict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
    for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = text(&wanted[key]);
        match conflict(name, held[key] == name, kind(name)) {
            Some(why) => verdict = Some((reason, why)),
            None => drop(names.insert(key.to_owned(), name.into())),
        }
    }
    match list(&wanted["categories"]) {
        [] => drop(names.remove("categories")),
        categories => drop(names.insert("categories".to_owned(), categories.into())),
    }
    for key in ["plural", "kind"] {
        names.entry(key).or_insert_with(|| "".into());
    }
    names.retain(|key, name| matches!(key.as_str(), "plural" | "kind") || *name != "");
    (Value::Object(names), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({"spec": {"names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                                  "listKind": format!("{kind}List"), "shortNames": ["w"]}},
               "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}})
    }

    #[test]
    fn a_definition_is_established_with_its_names() {
        let mut first = definition("widgets", "Widget");
        first["status"] = settled(&first, &[], "T").unwrap();
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        assert!(is_true(&first, "Established") && is_true(&first, "NamesAccepted"));
        assert_eq!(first["status"]["conditions"][1]["reason"], "InitialNamesAccepted");
        assert_eq!(settled(&first, &[], "U"), None, "nothing more to say");

        let mut second = definition("gadgets", "Widget");
        second["status"] = settled(&second, &[Taken::by(&first)], "T").unwrap();
        let condition = &second["status"]["conditions"][0];
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("ListKindConflict"), &json!("\"WidgetList\" is already in use")),
            "the last conflict is told"
        );
        assert_eq!(second["status"]["acceptedNames"], json!({"plural": "gadgets", "kind": ""}));
        assert!(!is_served(&second));
        second["status"] = settled(&second, &[], "U").unwrap();
        assert!(is_true(&second, "Established"), "the names are free again");
    }
}
