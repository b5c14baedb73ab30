//! Match conditions: expressions in CEL that choose what a webhook is asked about.
//!
//! Pure. They see `object`, `oldObject` and `request`; `authorizer` is refused when a configuration is written.

use std::sync::{Arc, LazyLock};

use podwire_api::path::Path;
use podwire_api::validate::{Cause, FieldError};
use podwire_cel::{Bindings, Environment, Program, Schema, Shape, Type, Value as Cel, limits};
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

fn compile(text: &str) -> Result<Program, String> {
    let environment = Environment::kubernetes()
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_authorizer();
    let environment = match REQUEST.as_ref() {
        Some(request) => environment.with_schema("request", request),
        None => environment.with_variable("request", Type::Dyn),
    };
    let program = environment.compile(text).map_err(|errors| format!("compilation failed: {errors}"))?;
    let given = program.output_type();
    if !matches!(given, Type::Bool) {
        return Err(format!("must evaluate to bool but got {given}"));
    }
    if program.mentions("authorizer") {
        return Err("this version has no authorizer in match conditions".to_owned());
    }
    Ok(program)
}

/// What is wrong with the expressions of a configuration that is right otherwise.
pub(crate) fn complaints(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let webhooks = Path::root("webhooks");
    for (at, hook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let hook_path = webhooks.index(at);
        let listed = hook_path.child("matchConditions");
        for (at, condition) in hook["matchConditions"].as_array().into_iter().flatten().enumerate() {
            let text = condition["expression"].as_str().unwrap_or_default();
            if let Err(words) = compile(text) {
                let (item, shown) = (listed.index(at), Value::from(text).to_string());
                let path = item.child("expression").to_string();
                errors.push(FieldError::new(Cause::Invalid, path, Some(shown), &words));
            }
        }
    }
    errors
}

/// The conditions of a webhook; none of them is one that always holds.
#[derive(Default)]
pub(super) struct Conditions(Vec<Condition>);

struct Condition {
    text: String,
    program: Result<Program, String>,
}

impl Conditions {
    pub(super) fn read(hook: &Value) -> Conditions {
        let listed = hook["matchConditions"].as_array().into_iter().flatten();
        let texts = listed.map(|condition| condition["expression"].as_str().unwrap_or_default());
        Conditions(texts.map(|text| Condition { text: text.to_owned(), program: compile(text) }).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all hold. One that says no decides, whatever failed beside it; else what failed is the error.
    pub(super) fn hold(&self, object: &Value, old: &Value, request: &Value) -> Result<bool, String> {
        let seen = match REQUEST.as_ref() {
            Some(schema) => Cel::typed(request, schema).map_err(|error| error.to_string())?,
            None => Cel::json(request),
        };
        let bindings = Bindings::new()
            .with("object", Cel::json(object))
            .with("oldObject", Cel::json(old))
            .with("request", seen);
        let (mut left, mut failed) = (limits::MATCH_CONDITIONS, Vec::new());
        for condition in &self.0 {
            let program = match &condition.program {
                Ok(program) => program,
                Err(why) => {
                    failed.push(why.clone());
                    continue;
                }
            };
            let outcome = program.evaluate(&bindings, limits::PER_CALL.min(left));
            left = left.saturating_sub(outcome.cost);
            match outcome.value {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => failed.push(wrong(&condition.text, "must evaluate to bool")),
                Err(error) => failed.push(wrong(&condition.text, &error.to_string())),
            }
        }
        match failed.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            all => Err(format!("[{}]", all.join(", "))),
        }
    }
}

fn wrong(expression: &str, why: &str) -> String {
    format!("expression '{expression}' resulted in error: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(conditions: &[&str]) -> Result<bool, String> {
        let listed: Vec<Value> =
            conditions.iter().map(|text| json!({"name": "c", "expression": text})).collect();
        let request = json!({"operation": "UPDATE", "userInfo": {"username": "me", "groups": ["a"]}, "dryRun": false,
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "options": {"fieldManager": "m"}});
        let object = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 3}});
        Conditions::read(&json!({"matchConditions": listed})).hold(&object, &Value::Null, &request)
    }

    #[test]
    fn conditions_see_the_object_and_the_request() {
        for text in [
            "object.spec.replicas == 3 && oldObject == null",
            "request.operation == 'UPDATE' && request.kind.kind == 'Pod' && !has(request.subResource)",
            "'a' in request.userInfo.groups && request.options.fieldManager == 'm'",
        ] {
            assert_eq!(hold(&[text]), Ok(true), "{text}");
        }
        assert_eq!(hold(&["true", "has(object.metadata.labels.b)"]), Ok(false));
    }

    #[test]
    fn what_says_no_decides_and_else_what_fails_is_told() {
        assert_eq!(hold(&["object.nothing == 1", "false"]), Ok(false));
        assert_eq!(
            hold(&["object.nothing == 1", "true"]),
            Err("expression 'object.nothing == 1' resulted in error: no such key: nothing".to_owned())
        );
        let dear = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, \
            [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))";
        assert!(hold(&[dear]).unwrap_err().ends_with("actual cost limit exceeded"));
    }

    #[test]
    fn expressions_that_cannot_be_asked_are_complained_about() {
        let of = |text: &str| {
            let hook = json!({"matchConditions": [{"name": "c", "expression": text}]});
            complaints(&json!({"webhooks": [hook]}))
                .into_iter()
                .map(|error| error.message)
                .collect::<Vec<_>>()
        };
        assert!(of("object.spec.x > 1").is_empty());
        assert_eq!(of("1"), ["Invalid value: \"1\": must evaluate to bool but got int"]);
        assert!(of("nobody")[0].contains("undeclared reference to 'nobody'"), "{:?}", of("nobody"));
        assert!(of("request.nothing == ''")[0].contains("undefined field 'nothing'"));
        assert!(of("authorizer.path('/x').check('get').allowed()")[0].contains("no authorizer"));
    }
}
