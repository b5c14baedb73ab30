//! Expressions in CEL that admission evaluates: what they see, and how they are compiled.
//!
//! Pure. Match conditions of webhooks and everything in policies share these.

use std::sync::{Arc, LazyLock};

use podwire_cel::authorizer::Authorizer;
use podwire_cel::{Bindings, Environment, Program, Schema, Shape, Type, Value as Cel};
use serde_json::{Value, json};

/// The fields of an AdmissionRequest that expressions see; the object is a variable of its own.
static REQUEST: LazyLock<Option<Arc<Schema>>> = LazyLock::new(|| {
    let word = json!({"type": "string"});
    let words = json!({"type": "array", "items": word});
    let named =
        |last: &str| json!({"type": "object", "properties": {"group": word, "version": word, last: word}});
    let user = json!({"type": "object", "properties": {"username": word, "uid": word, "groups": words,
        "extra": {"type": "object", "additionalProperties": words}}});
    let request = json!({"type": "object", "properties": {
        "kind": named("kind"), "resource": named("resource"), "subResource": word,
        "requestKind": named("kind"), "requestResource": named("resource"), "requestSubResource": word,
        "name": word, "namespace": word, "operation": word, "userInfo": user,
        "dryRun": {"type": "boolean"}}});
    let known = Schema::from_openapi(&request, "request", false)?;
    let Shape::Object { fields } = known.shape() else { return None };
    // Whatever a client may say is an option.
    let options = Arc::new(Schema::new("options", Shape::Dyn, 0));
    let fields = fields.iter().map(|(name, field)| (name.clone(), field.clone()));
    let fields = fields.chain([("options".to_owned(), options)]).collect();
    Some(Arc::new(Schema::new("request", Shape::Object { fields }, known.most())))
});

/// The fields of a namespace that expressions see.
static NAMESPACE: LazyLock<Option<Arc<Schema>>> = LazyLock::new(|| {
    let (word, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let (words, moment) =
        (json!({"type": "array", "items": word}), json!({"type": "string", "format": "date-time"}));
    let map = json!({"type": "object", "additionalProperties": word});
    let condition = json!({"type": "object", "properties": {"status": word, "type": word, "message": word,
        "reason": word, "lastTransitionTime": moment}});
    let metadata = json!({"type": "object", "properties": {"name": word, "generateName": word, "namespace": word,
        "labels": map, "annotations": map, "UID": word, "creationTimestamp": moment, "generation": number,
        "deletionTimestamp": moment, "deletionGracePeriodSeconds": number, "resourceVersion": word,
        "finalizers": words}});
    let namespace = json!({"type": "object", "properties": {"metadata": metadata,
        "spec": {"type": "object", "properties": {"finalizers": words}},
        "status": {"type": "object", "properties": {"phase": word,
            "conditions": {"type": "array", "items": condition}}}}});
    Schema::from_openapi(&namespace, "namespaceObject", false)
});

/// What an expression sees beside the objects, the request and the namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) params: bool,
    pub(super) authorizer: bool,
}

impl Sight {
    /// The variables of these expressions.
    pub(super) fn environment(self) -> Environment {
        let environment = Environment::kubernetes()
            .with_variable("object", Type::Dyn)
            .with_variable("oldObject", Type::Dyn);
        let with = |environment: Environment, name: &str, schema: Option<&Arc<Schema>>| match schema {
            Some(schema) => environment.with_schema(name, schema),
            None => environment.with_variable(name, Type::Dyn),
        };
        let environment = with(environment, "request", REQUEST.as_ref());
        let environment = with(environment, "namespaceObject", NAMESPACE.as_ref());
        let environment =
            if self.params { environment.with_variable("params", Type::Dyn) } else { environment };
        if self.authorizer { environment.with_authorizer() } else { environment }
    }
}

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
