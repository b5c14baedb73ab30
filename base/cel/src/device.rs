//! Selectors of devices, as ResourceClaims and DeviceClasses have them: one variable, `device`.
//!
//! `device.driver`, `device.allowMultipleAllocations`, `device.attributes[domain].name`, `device.capacity[domain].name`. A domain
//! that a device does not mention is an empty map, a name that it does not mention is an error.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map as JsonMap, Value as Json};

use crate::environment::Environment;
use crate::error::EvalError;
use crate::estimate::Range;
use crate::functions::quantity::Amount;
use crate::functions::semver::Semver;
use crate::kind::Type;
use crate::limits::DEVICE_SELECTOR;
use crate::map::{Key, Map};
use crate::program::{Bindings, Program};
use crate::schema::{Schema, Shape};
use crate::text::Text;
use crate::value::Value;

/// Characters of a domain or a driver's name.
const LONGEST_DOMAIN: u64 = 63;
/// Characters of the name of an attribute or a capacity.
const LONGEST_NAME: u64 = 32;
/// Characters of an attribute's value.
const LONGEST_VALUE: u64 = 64;
/// Attributes and capacities of one device.
const MOST_NAMES: u64 = 32;

static ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| Environment::devices().with_schema("device", &schema()));

fn schema() -> Arc<Schema> {
    let text = |most: u64| Arc::new(Schema::new("string", Shape::String, most));
    let named = |values: Schema| {
        let inner = Shape::Map { keys: text(LONGEST_NAME), values: Arc::new(values) };
        let inner = Arc::new(Schema::new("map", inner, MOST_NAMES));
        let outer = Shape::Map { keys: text(LONGEST_DOMAIN), values: inner };
        Arc::new(Schema::new("map", outer, MOST_NAMES))
    };
    let fields = BTreeMap::from([
        ("driver".to_owned(), text(LONGEST_DOMAIN)),
        ("allowMultipleAllocations".to_owned(), Arc::new(Schema::new("bool", Shape::Bool, 1))),
        ("attributes".to_owned(), named(Schema::new("any", Shape::Any, LONGEST_VALUE))),
        ("capacity".to_owned(), named(Schema::new("quantity", Shape::Quantity, 0))),
    ]);
    Arc::new(Schema::new("kubernetes.DRADevice", Shape::Object { fields }, 0))
}

/// A compiled selector.
pub struct Selector(Program);

/// Why a selector is refused.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// It is no expression of this environment.
    #[error("compilation failed: {0}")]
    Compile(crate::error::CompileErrors),
    /// It is not about yes or no.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    Type(Type),
}

/// A device, as a ResourceSlice has it.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// The name of its driver, which is the domain of names without one.
    pub driver: &'a str,
    /// Whether several claims may have it.
    pub allow_multiple_allocations: bool,
    /// `attributes`: names to `{"int": 1}`, `{"bool": true}`, `{"string": "a"}` or `{"version": "1.0.0"}`.
    pub attributes: Option<&'a JsonMap<String, Json>>,
    /// `capacity`: names to `{"value": "1Gi"}`.
    pub capacity: Option<&'a JsonMap<String, Json>>,
}

/// The answer of a selector.
#[derive(Debug)]
pub struct Selected {
    /// Whether the device is one of those that are meant.
    pub matches: Result<bool, EvalError>,
    /// What it cost.
    pub cost: u64,
}

impl Selector {
    /// Compiles a selector.
    pub fn compile(text: &str) -> Result<Selector, SelectorError> {
        let program = ENVIRONMENT.compile(text).map_err(SelectorError::Compile)?;
        match program.output_type() {
            Type::Bool | Type::Any => Ok(Selector(program)),
            other => Err(SelectorError::Type(other.clone())),
        }
    }

    /// What it may cost; more than [`crate::limits::DEVICE_SELECTOR`] at most is refused.
    pub fn estimated_cost(&self) -> Range {
        self.0.estimated_cost()
    }

    /// Whether a device is meant.
    pub fn matches(&self, device: &Device<'_>) -> Selected {
        let value = match device.value() {
            Ok(value) => value,
            Err(error) => return Selected { matches: Err(error), cost: 0 },
        };
        let outcome = self.0.evaluate(&Bindings::new().with("device", value), DEVICE_SELECTOR);
        let matches = match outcome.value {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(other) => {
                let name = other.kind();
                let message = format!("CEL result of type {} could not be converted to bool", name.name());
                Err(EvalError::new(message))
            }
            Err(error) => Err(error),
        };
        Selected { matches, cost: outcome.cost }
    }
}

type Domains<'a> = BTreeMap<Key<'a>, BTreeMap<Key<'a>, Value<'a>>>;

impl<'a> Device<'a> {
    fn value(&self) -> Result<Value<'a>, EvalError> {
        let key = |name: &'static str| Key::String(Text::Borrowed(name));
        let attributes = self.named(self.attributes, attribute)?;
        let capacity = self.named(self.capacity, |json| {
            let text = json.get("value").and_then(Json::as_str).unwrap_or_default();
            Amount::parse(text).map(Value::Quantity).map_err(|error| error.to_string())
        })?;
        let fields = BTreeMap::from([
            (key("driver"), Value::String(Text::Borrowed(self.driver))),
            (key("allowMultipleAllocations"), Value::Bool(self.allow_multiple_allocations)),
            (key("attributes"), attributes),
            (key("capacity"), capacity),
        ]);
        Ok(Value::Map(Map::Made(Arc::new(fields))))
    }

    /// Values by their domains and names.
    fn named(
        &self,
        from: Option<&'a JsonMap<String, Json>>,
        read: fn(&'a Json) -> Result<Value<'a>, String>,
    ) -> Result<Value<'a>, EvalError> {
        let mut domains: Domains<'a> = BTreeMap::new();
        for (name, json) in from.into_iter().flatten() {
            let value = read(json).map_err(|why| EvalError::new(format!("attribute {name}: {why}")))?;
            let (domain, id) = name.split_once('/').unwrap_or((self.driver, name));
            let text = |text: &'a str| Key::String(Text::Borrowed(text));
            domains.entry(text(domain)).or_default().insert(text(id), value);
        }
        let made =
            domains.into_iter().map(|(domain, values)| (domain, Value::Map(Map::Made(Arc::new(values)))));
        Ok(Value::Map(Map::WithDefault(Arc::new(made.collect()))))
    }
}

/// The one value of an attribute.
fn attribute(json: &Json) -> Result<Value<'_>, String> {
    let get = |key: &str| json.get(key).filter(|value| !value.is_null());
    if let Some(number) = get("int").and_then(Json::as_i64) {
        return Ok(Value::Int(number));
    }
    if let Some(value) = get("bool").and_then(Json::as_bool) {
        return Ok(Value::Bool(value));
    }
    if let Some(text) = get("string").and_then(Json::as_str) {
        return Ok(Value::String(Text::Borrowed(text)));
    }
    match get("version").and_then(Json::as_str) {
        Some(text) => Semver::parse(text)
            .map(|version| Value::Semver(Arc::new(version)))
            .map_err(|why| format!("parse semantic version: {why}")),
        None => Err("unsupported attribute value".to_owned()),
    }
}
