//! Expressions in CEL that admission evaluates: how they are compiled, and on what they are evaluated.
//!
//! Pure. Match conditions of webhooks and everything in policies share these.

use podwire_cel::authorizer::Authorizer;
use podwire_cel::{Bindings, Environment, Program, Type, Value as Cel};
use serde_json::Value;

pub(super) use podwire_cel::admission::Sight;

/// Compiles an expression whose value has one of some types; none leave it open. The error is upstream's.
pub(super) fn compile(environment: &Environment, text: &str, wanted: &[Type]) -> Result<Program, String> {
    let program = environment.compile(text).map_err(|errors| format!("compilation failed: {errors}"))?;
    let given = program.output_type();
    if wanted.is_empty() || wanted.iter().any(|kind| kind.is_exactly(given)) {
        return Ok(program);
    }
    let given = declared(given);
    Err(match wanted {
        [one] => format!("must evaluate to {} but got {given}", declared(one)),
        many => {
            let many: Vec<String> = many.iter().map(declared).collect();
            format!("must evaluate to one of [{}] but got {given}", many.join(" "))
        }
    })
}

/// A type as declarations name it.
fn declared(kind: &Type) -> String {
    match kind {
        Type::List(element) => format!("list({})", declared(element)),
        Type::Map(both) => format!("map({}, {})", declared(&both.0), declared(&both.1)),
        Type::Optional(value) => format!("optional_type({})", declared(value)),
        Type::Type(_) | Type::Param(_) | Type::Free(_) => kind.to_string(),
        other => other.name().to_owned(),
    }
}

/// What expressions are evaluated on.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) object: &'a Value,
    pub(super) old: &'a Value,
    pub(super) request: &'a Value,
    pub(super) namespace: &'a Value,
    pub(super) params: &'a Value,
}

impl<'a> Subject<'a> {
    /// The values of the variables.
    pub(super) fn bindings(self) -> Bindings<'a> {
        Bindings::new()
            .with("object", Cel::json(self.object))
            .with("oldObject", Cel::json(self.old))
            .with("request", Cel::json(self.request))
            .with("namespaceObject", Cel::json(self.namespace))
            .with("params", Cel::json(self.params))
    }
}

/// With the authorizer of the request.
pub(super) fn with_authorizer<'a>(
    bindings: Bindings<'a>,
    authorizer: &'a dyn Authorizer,
    resource: Cel<'a>,
) -> Bindings<'a> {
    bindings.with("authorizer", Cel::authorizer(authorizer)).with("authorizer.requestResource", resource)
}

/// Why an expression failed, in upstream's words.
pub(super) fn failed(expression: &str, why: &str) -> String {
    format!("expression '{expression}' resulted in error: {why}")
}
