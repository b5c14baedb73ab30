//! Flow control: which requests belong together, and how much of the server they may have.

use serde_json::Value;

use super::{Facts, Generation, Object, Strategy, keep_metadata};
use crate::defaults::{absent, child, nonzero};
use crate::validate::{self, Errors};
use crate::{Kind, Part};

const FACTS: Facts = Facts { generation: Generation::Counted, ..Facts::PLAIN };

/// Flow schemas.
#[derive(Debug)]
pub(crate) struct Schemas;

impl Strategy for Schemas {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        nonzero(child(object, "spec"), "matchingPrecedence", 1000);
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        keep_metadata(new, old);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::flow::schema(object, errors);
        validate::flow::status(object, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::flow::status(new, errors);
        }
    }
}

/// Levels of priority.
#[derive(Debug)]
pub(crate) struct Levels;

impl Strategy for Levels {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        let spec = child(object, "spec");
        if let Some(Value::Object(limited)) = spec.get_mut("limited") {
            absent(limited, "nominalConcurrencyShares", 30);
            absent(limited, "lendablePercent", 0);
            let queuing = limited.get_mut("limitResponse").and_then(|response| response.get_mut("queuing"));
            if let Some(Value::Object(queuing)) = queuing {
                nonzero(queuing, "handSize", 8);
                nonzero(queuing, "queues", 64);
                nonzero(queuing, "queueLengthLimit", 50);
            }
        }
        if let Some(Value::Object(exempt)) = spec.get_mut("exempt") {
            absent(exempt, "nominalConcurrencyShares", 0);
            absent(exempt, "lendablePercent", 0);
        }
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        keep_metadata(new, old);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::flow::level(object, errors);
        validate::flow::status(object, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::flow::status(new, errors);
        }
    }
}
