//! Events, in the legacy shape they are stored in and in the new one; they are forgotten after an hour.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::{Facts, Strategy};
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::event::Door;
use crate::validate::{self, Errors};
use crate::{Kind, convert, fields, syntax};

const FACTS: Facts = Facts { creates_on_update: true, ttl: Some(Duration::from_secs(3600)), ..Facts::PLAIN };

/// Events of the legacy group.
#[derive(Debug)]
pub(crate) struct LegacyEvents;

impl Strategy for LegacyEvents {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn measure(&self) -> Measure {
        Measure::Nothing
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::path_segment(name)
    }

    fn has_common_metadata(&self) -> bool {
        false
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::event::event(object, Door::Legacy, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::EVENT
    }

    fn field_sources<'a>(&self, _: &'a Kind) -> Vec<&'a str> {
        vec!["involvedObject", "reason", "reportingComponent", "source", "type"]
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        match field {
            "source" => source(object, "source", "reportingComponent"),
            _ => fields::plain(object, field),
        }
    }
}

/// Events of `events.k8s.io`.
#[derive(Debug)]
pub(crate) struct Events;

impl Strategy for Events {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn measure(&self) -> Measure {
        Measure::Nothing
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let event = in_core(object);
        validate::event::event(&event, Door::New, errors);
        validate::event::new_event(&event, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let (new, old) = (in_core(new), in_core(old));
        validate::event::event(&new, Door::New, errors);
        validate::event::new_event_update(&new, &old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::EVENT
    }

    fn field_sources<'a>(&self, _: &'a Kind) -> Vec<&'a str> {
        vec!["regarding", "reason", "reportingController", "deprecatedSource", "type"]
    }

    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        match field {
            "source" => source(object, "deprecatedSource", "reportingController"),
            _ => fields::plain(object, field),
        }
    }

    fn is_converted(&self) -> bool {
        true
    }

    fn to_storage(&self, object: &mut Value) {
        convert::event_to_core(object);
    }

    fn to_served(&self, object: &mut Value) {
        convert::event_from_core(object);
    }
}

/// An event of `events.k8s.io` in the shape in which all are judged.
fn in_core(event: &Value) -> Value {
    let mut event = event.clone();
    convert::event_to_core(&mut event);
    event
}

fn source<'a>(object: &'a Value, source: &str, reporter: &str) -> Option<Cow<'a, str>> {
    let component = object[source]["component"].as_str().filter(|c| !c.is_empty());
    component.or_else(|| object[reporter].as_str()).map(Cow::Borrowed)
}
