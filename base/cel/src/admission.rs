//! What expressions of admission see: the objects, the request, the namespace, parameters and the authorizer.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use crate::environment::{AUTHORIZER, Environment};
use crate::kind::Type;
use crate::schema::{Schema, Shape};

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
pub struct Sight {
    /// Whether there are parameters.
    pub params: bool,
    /// Whether the authorizer can be asked.
    pub authorizer: bool,
}

impl Sight {
    /// The variables of these expressions.
    pub fn environment(self) -> Environment {
        let environment = variables(None, self.params.then_some(None));
        if self.authorizer { environment.with_authorizer() } else { environment }
    }
}

/// The variables of expressions whose types are checked against schemas of the objects and the parameters; what has none
/// can be anything. As upstream has it, the authorizer of the request's own resource is not there.
pub fn typed(object: Option<&Arc<Schema>>, params: Option<Option<&Arc<Schema>>>) -> Environment {
    variables(object, params).with_variable("authorizer", Type::Library(AUTHORIZER))
}

fn variables(object: Option<&Arc<Schema>>, params: Option<Option<&Arc<Schema>>>) -> Environment {
    let with = |environment: Environment, name: &str, schema: Option<&Arc<Schema>>| match schema {
        Some(schema) => environment.with_schema(name, schema),
        None => environment.with_variable(name, Type::Dyn),
    };
    let environment = with(Environment::kubernetes(), "object", object);
    let environment = with(environment, "oldObject", object);
    let environment = with(environment, "request", REQUEST.as_ref());
    let environment = with(environment, "namespaceObject", NAMESPACE.as_ref());
    match params {
        Some(params) => with(environment, "params", params),
        None => environment,
    }
}
