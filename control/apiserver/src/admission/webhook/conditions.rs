//! Match conditions: expressions in CEL that choose what a webhook or a policy is asked about.
//!
//! Pure but for what expressions ask the authorizer.

use std::sync::LazyLock;

use podwire_api::path::Path;
use podwire_api::validate::{Cause, FieldError};
use podwire_cel::{Composition, Environment, Program, Scope, Type, Value as Cel, limits};
use serde_json::Value;

use super::super::expression::{self, Sight, Subject};
use super::super::rights::Rights;

/// The conditions of webhooks see no parameters.
const SIGHT: Sight = Sight { params: false, authorizer: true };

static NONE: LazyLock<Composition> = LazyLock::new(Composition::default);

/// What is wrong with the expressions of a configuration that is right otherwise.
pub(crate) fn complaints(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (webhooks, environment) = (Path::root("webhooks"), SIGHT.environment());
    for (at, hook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let path = webhooks.index(at);
        complain(&hook["matchConditions"], &environment, &path.child("matchConditions"), &mut errors);
    }
    errors
}

/// What is wrong with the expressions of conditions.
pub(in crate::admission) fn complain(
    conditions: &Value,
    environment: &Environment,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (at, condition) in conditions.as_array().into_iter().flatten().enumerate() {
        let text = condition["expression"].as_str().unwrap_or_default().trim();
        if let Err(words) = expression::compile(environment, text, &[Type::Bool]) {
            let (item, shown) = (path.index(at), Value::from(text).to_string());
            let path = item.child("expression").to_string();
            errors.push(FieldError::new(Cause::Invalid, path, Some(shown), &words));
        }
    }
}

/// The conditions of a webhook or a policy; none of them is one that always holds.
#[derive(Default)]
pub(in crate::admission) struct Conditions(Vec<Condition>);

struct Condition {
    text: String,
    program: Result<Program, String>,
}

impl Conditions {
    /// Those of a webhook.
    pub(super) fn of_webhook(hook: &Value) -> Conditions {
        match hook["matchConditions"].as_array() {
            Some(listed) if !listed.is_empty() => {
                Conditions::read(&hook["matchConditions"], &SIGHT.environment())
            }
            _ => Conditions::default(),
        }
    }

    /// Those of a list.
    pub(in crate::admission) fn read(listed: &Value, environment: &Environment) -> Conditions {
        let listed = listed.as_array().into_iter().flatten();
        let texts = listed.map(|condition| condition["expression"].as_str().unwrap_or_default());
        let compiled = texts.map(|text| Condition {
            text: text.to_owned(),
            program: expression::compile(environment, text, &[Type::Bool]),
        });
        Conditions(compiled.collect())
    }

    pub(in crate::admission) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of a webhook hold.
    pub(super) fn hold(
        &self,
        object: &Value,
        old: &Value,
        request: &Value,
        rights: &Rights<'_>,
    ) -> Result<bool, String> {
        let subject = Subject { object, old, request, namespace: &Value::Null, params: &Value::Null };
        let bindings = expression::with_authorizer(subject.bindings(), rights, rights.request_resource());
        self.hold_in(&Scope::new(&NONE, bindings, limits::MATCH_CONDITIONS))
    }

    /// Whether all hold. One that says no decides, whatever failed beside it; else what failed is the error.
    pub(in crate::admission) fn hold_in<'a>(&'a self, scope: &Scope<'a>) -> Result<bool, String> {
        let (mut holds, mut failed) = (true, Vec::new());
        for condition in &self.0 {
            let program = match &condition.program {
                Ok(program) => program,
                Err(why) => {
                    failed.push(format!("compilation error: {why}"));
                    continue;
                }
            };
            match scope.evaluate(program).map_err(|error| error.to_string())? {
                Ok(Cel::Bool(value)) => holds &= value,
                Ok(_) => failed.push(expression::failed(&condition.text, "must evaluate to bool")),
                Err(error) => failed.push(expression::failed(&condition.text, &error.to_string())),
            }
        }
        match (holds, failed.as_slice()) {
            (false, _) => Ok(false),
            (true, []) => Ok(true),
            (true, [one]) => Err(one.clone()),
            (true, all) => Err(format!("[{}]", all.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hold(conditions: &[&str]) -> Result<bool, String> {
        let listed: Vec<Value> =
            conditions.iter().map(|text| json!({"name": "c", "expression": text})).collect();
        let request = json!({"operation": "UPDATE", "userInfo": {"username": "me", "groups": ["a"]}, "dryRun": false,
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "options": {"fieldManager": "m"}});
        let object = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 3}});
        let conditions = Conditions::of_webhook(&json!({"matchConditions": listed}));
        let (object, request) = (&object, &request);
        let subject =
            Subject { object, old: &Value::Null, request, namespace: &Value::Null, params: &Value::Null };
        conditions.hold_in(&Scope::new(&NONE, subject.bindings(), limits::MATCH_CONDITIONS))
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
        assert!(of("authorizer.path('/x').check('get').allowed()").is_empty());
        assert!(of("params.x == 1")[0].contains("undeclared reference to 'params'"));
        assert_eq!(of("null"), ["Invalid value: \"null\": must evaluate to bool but got null_type"]);
    }
}
