//! Kubernetes' dialect of CEL: parsed, type-checked, weighed and evaluated. Pure: no I/O, no clock, no async.
//!
//! An [`Environment`] says which variables an expression has; [`Environment::compile`] makes a [`Program`] of a text, or says
//! what is wrong with it in upstream's words; [`Program::estimated_cost`] says what it may cost, by the sizes that schemas allow;
//! [`Program::evaluate`] runs it on [`Bindings`] with a budget and says what it cost.
//! Objects are borrowed: a [`Value`] is a view of JSON, through a [`Schema`] where there is one.
//!
//! ```
//! use podwire_cel::{Bindings, Environment, Schema, Value, limits};
//!
//! let schema = serde_json::json!({"type": "object", "properties": {
//!     "replicas": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}, "maxItems": 10}}});
//! let schema = Schema::from_openapi(&schema, "self", false).unwrap();
//! let environment = Environment::kubernetes().with_schema("self", &schema);
//! let rule = environment.compile("self.replicas <= 3 && self.names.all(n, n.startsWith('a'))").unwrap();
//! let object = serde_json::json!({"replicas": 2, "names": ["ab", "ac"]});
//! let bindings = Bindings::new().with("self", Value::typed(&object, &schema).unwrap());
//! let outcome = rule.evaluate(&bindings, limits::PER_CALL);
//! assert!(matches!(outcome.value, Ok(Value::Bool(true))));
//! assert_eq!(outcome.cost, 16);
//! assert!(rule.estimated_cost().most < limits::ESTIMATED_PER_RULE);
//! let wrong = environment.compile("self.replica").err().unwrap();
//! assert_eq!(wrong.0[0].message, "undefined field 'replica'");
//! ```
//!
//! `docs/adr/0018` says why this is our own.
//! <https://kubernetes.io/docs/reference/using-api/cel/>, <https://github.com/google/cel-spec/blob/master/doc/langdef.md>

pub mod admission;
mod ast;
pub mod authorizer;
mod check;
mod compare;
mod composition;
mod declare;
mod depth;
pub mod device;
mod environment;
mod error;
mod estimate;
mod eval;
mod functions;
mod kind;
mod lex;
pub mod limits;
mod list;
mod literal;
mod literals;
mod macros;
mod map;
pub mod names;
mod parse;
mod pattern;
mod plan;
mod price;
mod program;
mod schema;
mod text;
mod time;
mod unify;
mod value;

pub use compare::{equal, order};
pub use composition::{Composition, OutOfBudget, Scope};
pub use environment::Environment;
pub use error::{CompileError, CompileErrors, EvalError};
pub use estimate::Range;
pub use functions::format::Format;
pub use functions::network::{Address, Network};
pub use functions::quantity::Amount;
pub use functions::semver::Semver;
pub use functions::url::Url;
pub use kind::Type;
pub use list::List;
pub use map::{Key, Map};
pub use program::{Bindings, Outcome, Program};
pub use schema::{ListKind, Schema, Shape};
pub use text::Text;
pub use time::Moment;
pub use value::Value;
