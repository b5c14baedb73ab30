//! Our answers, by the steps that the API server takes with an object before it is stored.

use podwire_api::{Part, defaults, strategy, strict, validate};
use serde_json::Value;

use crate::cases::Case;

/// Our complaints, in the form in which upstream's are recorded.
pub(crate) fn complaints(case: &Case) -> Vec<String> {
    let kind = case.kind;
    let shaped = |object: &Value| {
        let mut object = object.clone();
        strict::conform(kind, &mut object).unwrap();
        defaults::apply(kind, &mut object);
        object
    };
    let mut new = shaped(&case.new);
    let errors = match &case.old {
        None => {
            if new["metadata"]["uid"].is_null() {
                new["metadata"]["uid"] = "u".into();
            }
            kind.strategy.complete(&mut new);
            strategy::prepare_create(kind, &mut new);
            validate::create(kind, &new)
        }
        Some(old) => {
            let old = shaped(old);
            match case.part {
                None => strategy::prepare_update(kind, &mut new, &old),
                Some((_, Part::Status)) => strategy::prepare_status_update(kind, &mut new, &old),
                Some((_, part)) => new = kind.strategy.prepare_part(part, new, &old),
            }
            kind.strategy.finish_update(
                case.part.map(|(_, part)| part),
                &mut new,
                &old,
                "2026-01-02T00:00:00Z",
            );
            match case.part {
                None => validate::update(kind, &new, &old),
                Some((_, part)) => validate::update_part(kind, part, &new, &old),
            }
        }
    };
    errors
        .iter()
        .map(|error| format!("{} {}: {}", error.reason.as_str(), error.field, error.message))
        .collect()
}
