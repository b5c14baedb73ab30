//! Selectors of devices, as ResourceClaims and DeviceClasses have them: one variable, `device`.
//!
//! `device.driver`, `device.allowMultipleAllocations`, `device.attributes[domain].name`, `device.capacity[domain].name`. A domain
//! that a device does not mention is an empty map, a name that it does not mention is an error.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use podwire_api::validate::BadSelector;
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
static NEW_ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| Environment::new_devices().with_schema("device", &schema()));

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

/// Judges the selectors of an object that is to be stored; each is compiled once. What one of several that were cloned
/// knows the others know.
#[derive(Debug, Clone)]
pub struct Judge(Arc<Mutex<Judged>>);

/// A selector, and whether it is stored already.
type Asked = (String, bool);

#[derive(Debug)]
struct Judged {
    verdicts: HashMap<Asked, Result<(), BadSelector>>,
    /// How many bytes more are compiled when somebody asks.
    room: usize,
    put_off: Vec<Asked>,
}

impl Default for Judge {
    fn default() -> Self {
        Judge::with_room(usize::MAX)
    }
}

impl Judge {
    /// A judge that compiles so many bytes when it is asked, which takes microseconds each, and finds nothing wrong with
    /// the rest before [`Judge::compile_rest`].
    pub fn with_room(room: usize) -> Judge {
        Judge(Arc::new(Mutex::new(Judged { verdicts: HashMap::new(), room, put_off: Vec::new() })))
    }

    /// Whether something was not compiled.
    pub fn has_rest(&self) -> bool {
        !self.judged().put_off.is_empty()
    }

    /// Compiles what was put off; whoever asks again is told.
    pub fn compile_rest(&self) {
        let mut judged = self.judged();
        for asked in std::mem::take(&mut judged.put_off) {
            let verdict = judge(&asked.0, asked.1);
            judged.verdicts.insert(asked, verdict);
        }
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl podwire_api::validate::Judge for Judge {
    fn selector(&mut self, expression: &str, is_stored: bool) -> Result<(), BadSelector> {
        let (asked, mut judged) = ((expression.to_owned(), is_stored), self.judged());
        if let Some(verdict) = judged.verdicts.get(&asked) {
            return verdict.clone();
        }
        let Some(room) = judged.room.checked_sub(expression.len()) else {
            judged.room = 0;
            judged.put_off.push(asked);
            return Ok(());
        };
        let verdict = judge(expression, is_stored);
        judged.room = room;
        judged.verdicts.insert(asked, verdict.clone());
        verdict
    }
}

fn judge(expression: &str, is_stored: bool) -> Result<(), BadSelector> {
    let compile = if is_stored { Selector::compile } else { Selector::compile_new };
    let selector = compile(expression).map_err(|error| BadSelector::Invalid(error.to_string()))?;
    match selector.estimated_cost().most > DEVICE_SELECTOR {
        true => Err(BadSelector::TooComplex),
        false => Ok(()),
    }
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

/// An attribute of a device, as a ResourceSlice has it.
#[derive(Clone, Copy, Debug)]
pub enum Attribute<'a> {
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    String(&'a str),
    /// A semantic version.
    Version(&'a str),
    /// Nothing that this version knows.
    Unknown,
}

/// A device that was read once, for any number of selectors: matching copies nothing of it.
#[derive(Clone, Debug)]
pub struct ReadDevice(Result<Value<'static>, EvalError>);

impl ReadDevice {
    /// Reads a device; `capacity` has the texts of quantities. What cannot be read fails each selector.
    pub fn new<'a>(
        driver: &str,
        allow_multiple_allocations: bool,
        attributes: impl IntoIterator<Item = (&'a str, Attribute<'a>)>,
        capacity: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> ReadDevice {
        let text = |text: &str| Text::Shared(text.into());
        let attribute = |one| match one {
            Attribute::Int(number) => Ok(Value::Int(number)),
            Attribute::Bool(value) => Ok(Value::Bool(value)),
            Attribute::String(value) => Ok(Value::String(text(value))),
            Attribute::Version(value) => version(value),
            Attribute::Unknown => Err(UNKNOWN_ATTRIBUTE.to_owned()),
        };
        let attributes = attributes.into_iter().map(|(name, one)| (name, attribute(one)));
        let attributes = named(driver, attributes, text);
        let capacity = named(driver, capacity.into_iter().map(|(name, one)| (name, quantity(one))), text);
        ReadDevice(attributes.and_then(|attributes| {
            Ok(object(Text::Shared(driver.into()), allow_multiple_allocations, attributes, capacity?))
        }))
    }
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
    /// Compiles a selector that is stored.
    pub fn compile(text: &str) -> Result<Selector, SelectorError> {
        Self::compile_in(&ENVIRONMENT, text)
    }

    /// Compiles a selector that is to be stored, which may use less.
    pub fn compile_new(text: &str) -> Result<Selector, SelectorError> {
        Self::compile_in(&NEW_ENVIRONMENT, text)
    }

    fn compile_in(environment: &Environment, text: &str) -> Result<Selector, SelectorError> {
        let program = environment.compile(text).map_err(SelectorError::Compile)?;
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
        self.answer(device.value())
    }

    /// Whether a device is meant.
    pub fn matches_read(&self, device: &ReadDevice) -> Selected {
        self.answer(device.0.clone())
    }

    fn answer<'a>(&'a self, device: Result<Value<'a>, EvalError>) -> Selected {
        let value = match device {
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

const UNKNOWN_ATTRIBUTE: &str = "unsupported attribute value";

impl<'a> Device<'a> {
    fn value(&self) -> Result<Value<'a>, EvalError> {
        let attributes = self.attributes.into_iter().flatten();
        let attributes = attributes.map(|(name, json)| (name.as_str(), attribute(json)));
        let capacity = self.capacity.into_iter().flatten().map(|(name, json)| {
            (name.as_str(), quantity(json.get("value").and_then(Json::as_str).unwrap_or_default()))
        });
        let attributes = named(self.driver, attributes, Text::Borrowed)?;
        let capacity = named(self.driver, capacity, Text::Borrowed)?;
        Ok(object(Text::Borrowed(self.driver), self.allow_multiple_allocations, attributes, capacity))
    }
}

fn object<'a>(
    driver: Text<'a>,
    allow_multiple_allocations: bool,
    attributes: Value<'a>,
    capacity: Value<'a>,
) -> Value<'a> {
    let key = |name: &'static str| Key::String(Text::Borrowed(name));
    let fields = BTreeMap::from([
        (key("driver"), Value::String(driver)),
        (key("allowMultipleAllocations"), Value::Bool(allow_multiple_allocations)),
        (key("attributes"), attributes),
        (key("capacity"), capacity),
    ]);
    Value::Map(Map::Made(Arc::new(fields)))
}

/// Values by their domains and names; `text` makes keys of both.
fn named<'n, 'a>(
    driver: &'n str,
    from: impl Iterator<Item = (&'n str, Result<Value<'a>, String>)>,
    text: impl Fn(&'n str) -> Text<'a>,
) -> Result<Value<'a>, EvalError> {
    let mut domains: Domains<'a> = BTreeMap::new();
    for (name, value) in from {
        let value = value.map_err(|why| EvalError::new(format!("attribute {name}: {why}")))?;
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        domains.entry(Key::String(text(domain))).or_default().insert(Key::String(text(id)), value);
    }
    let made = domains.into_iter().map(|(domain, values)| (domain, Value::Map(Map::Made(Arc::new(values)))));
    Ok(Value::Map(Map::WithDefault(Arc::new(made.collect()))))
}

fn quantity<'a>(text: &str) -> Result<Value<'a>, String> {
    Amount::parse(text).map(Value::Quantity).map_err(|error| error.to_string())
}

fn version<'a>(text: &str) -> Result<Value<'a>, String> {
    Semver::parse(text)
        .map(|version| Value::Semver(Arc::new(version)))
        .map_err(|why| format!("parse semantic version: {why}"))
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
        Some(text) => version(text),
        None => Err(UNKNOWN_ATTRIBUTE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_device_that_was_read_once_is_the_device() {
        let json = json!({
            "attributes": {"size": {"int": 3}, "example.org/on": {"bool": true}, "name": {"string": "x"}},
            "more": {"driver": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": "2Gi"}},
        });
        let map = |key: &str| json[key].as_object();
        let read = |attributes: &[(&'static str, Attribute<'static>)]| {
            ReadDevice::new("a.example", true, attributes.iter().copied(), [("memory", "2Gi")])
        };
        let first = read(&[
            ("size", Attribute::Int(3)),
            ("example.org/on", Attribute::Bool(true)),
            ("name", Attribute::String("x")),
        ]);
        let second = read(&[("driver", Attribute::Version("1.2.3"))]);
        let pairs = [("attributes", first), ("more", second)];
        for (text, matches) in [
            ("device.driver == 'a.example' && device.allowMultipleAllocations", [true, true]),
            ("has(device.attributes['a.example'].size)", [true, false]),
            ("'on' in device.attributes['example.org']", [true, false]),
            ("has(device.attributes['a.example'].name)", [true, false]),
            (
                "has(device.attributes['a.example'].driver) && device.attributes['a.example'].driver == semver('1.2.3')",
                [false, true],
            ),
            ("device.capacity['a.example'].memory == quantity('2048Mi')", [true, true]),
        ] {
            let selector = Selector::compile(text).unwrap();
            for ((key, read), expected) in pairs.iter().zip(matches) {
                let device = Device {
                    driver: "a.example",
                    allow_multiple_allocations: true,
                    attributes: map(key),
                    capacity: map("capacity"),
                };
                assert_eq!(selector.matches(&device).matches, Ok(expected), "{text} {key}");
                assert_eq!(selector.matches_read(read).matches, Ok(expected), "{text} {key}, read");
            }
        }
    }

    #[test]
    fn a_judge_compiles_what_there_is_room_for_and_the_rest_when_it_is_told_to() {
        use podwire_api::validate::Judge as _;
        let (good, bad) = ("device.driver == 'a'", "device.nothing");
        let mut judge = Judge::with_room(good.len() + bad.len());
        assert_eq!(judge.selector(good, false), Ok(()));
        assert!(judge.selector(bad, false).is_err());
        assert!(judge.selector(bad, false).is_err(), "once more takes no room");
        assert!(!judge.has_rest());
        assert_eq!(judge.selector("1", false), Ok(()));
        assert_eq!(judge.selector("true", false), Ok(()));
        assert!(judge.has_rest());
        judge.clone().compile_rest();
        assert!(!judge.has_rest());
        assert!(judge.selector("1", false).is_err());
        assert_eq!(judge.selector("true", false), Ok(()));
        let expensive = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a + b + c + d != ''))))";
        assert_eq!(Judge::default().selector(expensive, false), Err(BadSelector::TooComplex));
    }

    #[test]
    fn what_no_device_can_have_yet_is_only_for_what_is_stored() {
        use podwire_api::validate::Judge as _;
        let text = "device.attributes['a.example'].names.includes('x')";
        assert_eq!(Judge::default().selector(text, true), Ok(()));
        assert!(Judge::default().selector(text, false).is_err());
    }

    #[test]
    fn what_cannot_be_read_fails_each_selector() {
        let selector = Selector::compile("true").unwrap();
        let with = |one| ReadDevice::new("a.example", false, [("v", one)], []);
        assert!(selector.matches_read(&with(Attribute::Int(1))).matches.unwrap());
        assert!(selector.matches_read(&with(Attribute::Version("one"))).matches.is_err());
        assert!(selector.matches_read(&with(Attribute::Unknown)).matches.is_err());
    }
}
