//! Which of the devices are offered: an expression over their attributes, in DRANET's terms.
//!
//! A device that the expression fails on is kept, one that it gives anything but a truth value for is not, as upstream.

use podwire_cel::{Bindings, Environment, Program, Type, Value, limits};
use serde_json::{Map, Value as Json, json};

use crate::plan::devices::{Attribute, Device};

/// All but the ends of wires: most of those are pods'.
pub const DEFAULT: &str =
    r#"!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue != "veth""#;

/// A filter.
pub(crate) struct Filter(Option<Program>);

impl Filter {
    /// Reads a filter; an empty one lets everything through.
    pub(crate) fn parse(text: &str) -> Result<Filter, String> {
        if text.trim().is_empty() {
            return Ok(Filter(None));
        }
        let environment = Environment::kubernetes().with_variable("attributes", Type::Dyn);
        environment.compile(text).map(|program| Filter(Some(program))).map_err(|errors| errors.to_string())
    }

    /// Whether a device is offered.
    pub(crate) fn passes(&self, device: &Device) -> bool {
        let Some(program) = &self.0 else { return true };
        let value = |attribute: &Attribute| match attribute {
            Attribute::Text(text) => json!({"StringValue": text}),
            Attribute::Number(number) => json!({"IntValue": number}),
            Attribute::Flag(flag) => json!({"BoolValue": flag}),
        };
        let all: Map<String, Json> =
            device.attributes.iter().map(|(name, one)| (name.clone(), value(one))).collect();
        let all = Json::Object(all);
        let bindings = Bindings::new().with("attributes", Value::json(&all));
        match program.evaluate(&bindings, limits::PER_CALL).value {
            Ok(Value::Bool(verdict)) => verdict,
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(device = device.name, %error, "the filter says nothing of a device: it is offered");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::devices::What;

    fn device(kind: &str) -> Device {
        let attributes = BTreeMap::from([("dra.net/type".to_owned(), Attribute::Text(kind.to_owned()))]);
        Device {
            name: "d".into(),
            what: What::Link { name: "d".into(), index: 1 },
            attributes,
            files: Vec::new(),
        }
    }

    #[test]
    fn devices_pass_by_their_attributes() {
        let passes = |text: &str, kind: &str| Filter::parse(text).unwrap().passes(&device(kind));
        assert!(passes(DEFAULT, "macvlan") && !passes(DEFAULT, "veth") && passes("", "veth"));
        assert!(passes(r#"attributes["dra.net/none"].IntValue == 7"#, "veth"), "what fails is kept");
        assert!(!passes(r#""neither""#, "veth"), "what is no truth is not");
        assert!(Filter::parse("attributes[").is_err());
    }
}
