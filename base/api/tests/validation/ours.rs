//! Our answers, by the steps that the API server takes with an object before it is stored.

use podwire_api::validate::Beside;
use podwire_api::{Part, defaults, strategy, strict, validate};
use podwire_cel::device::Judge;
use serde_json::Value;

use crate::cases::Case;

/// Our complaints, in the form in which upstream's are recorded.
pub(crate) fn complaints(case: &Case) -> Vec<String> {
    let kind = case.kind;
    let shaped = |object: &Value| {
        let mut object = object.clone();
        strict::conform(kind, &mut object).unwrap();
        defaults::apply(kind, &mut object);
        let Value::Object(mut map) = object else { panic!("no object") };
        kind.strategy.stamp(&mut map, &|| "2026-01-02T00:00:00Z".to_owned());
        Value::Object(map)
    };
    let mut new = shaped(&case.new);
    let errors = match &case.old {
        None => {
            if new["metadata"]["uid"].is_null() {
                new["metadata"]["uid"] = "u".into();
            }
            kind.strategy.complete(&mut new);
            strategy::prepare_create(kind, &mut new);
            validate::create_beside(kind, &new, beside())
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
                None => validate::update_beside(kind, &new, &old, beside()),
                Some((_, part)) => validate::update_part_beside(kind, part, &new, &old, beside()),
            }
        }
    };
    errors
        .iter()
        .map(|error| {
            // What follows the first line shows an expression, which upstream's answers are recorded without.
            let message = error.message.lines().next().unwrap_or_default();
            format!("{} {}: {message}", error.reason.as_str(), error.field)
        })
        .collect()
}

/// Everybody may do everything here, so there is only the judge of expressions.
fn beside() -> Beside {
    Beside { before: Vec::new(), judge: Some(Box::new(Judge::default())) }
}
