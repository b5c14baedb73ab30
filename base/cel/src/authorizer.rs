//! The authorizer of a request, which expressions may ask what the user could do.

use std::fmt;
use std::sync::Arc;

use podwire_api::syntax;

use crate::error::EvalError;
use crate::functions::{Native, Res, unfit};
use crate::value::Value;

/// Answers what a user may do. It is asked while an expression runs.
pub trait Authorizer: Sync {
    /// Whether it is allowed.
    fn authorize(&self, question: &Question) -> Decision;
}

/// Who wants to do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// A service account, namespace and name, instead of the user of the request.
    pub service_account: Option<(String, String)>,
    /// What is to be done.
    pub verb: String,
    /// To what.
    pub object: Object,
}

/// What is to be done something to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A path that is no resource's.
    Path(String),
    /// A resource.
    Resource(Resource),
}

impl Default for Object {
    fn default() -> Object {
        Object::Path(String::new())
    }
}

/// A resource, or some objects of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// A subresource, or nothing.
    pub subresource: String,
    /// A namespace, or nothing.
    pub namespace: String,
    /// A name, or nothing.
    pub name: String,
    /// A field selector as it was written, or nothing.
    pub field_selector: String,
    /// A label selector as it was written, or nothing.
    pub label_selector: String,
}

/// What the authorizer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// Why it could not say.
    pub error: Option<String>,
}

/// An authorizer, and how far a question has been put.
#[derive(Clone)]
pub struct Authorization<'a> {
    authorizer: &'a dyn Authorizer,
    state: Arc<State>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Authorizer(Option<(String, String)>),
    Path(Question),
    Group(Question),
    Resource(Question),
    Decision(Decision),
}

impl fmt::Debug for Authorization<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(out)
    }
}

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Value<'a> {
        Authorization { authorizer, state: Arc::new(State::Authorizer(None)) }.value()
    }

    /// The variable `authorizer.requestResource`: a question about what the request is about.
    pub fn request_resource(authorizer: &'a dyn Authorizer, resource: Resource) -> Value<'a> {
        let question = Question { object: Object::Resource(resource), ..Question::default() };
        Authorization { authorizer, state: Arc::new(State::Resource(question)) }.value()
    }
}

impl<'a> Authorization<'a> {
    fn value(self) -> Value<'a> {
        Value::Authorization(self)
    }

    fn then(&self, state: State) -> Value<'a> {
        Authorization { authorizer: self.authorizer, state: Arc::new(state) }.value()
    }

    pub(crate) fn kind(&self) -> &'static str {
        match &*self.state {
            State::Authorizer(_) => "kubernetes.authorization.Authorizer",
            State::Path(_) => "kubernetes.authorization.PathCheck",
            State::Group(_) => "kubernetes.authorization.GroupCheck",
            State::Resource(_) => "kubernetes.authorization.ResourceCheck",
            State::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    pub(crate) fn same(&self, other: &Authorization<'_>) -> bool {
        self.state == other.state
    }

    /// With a part of the resource changed.
    fn with(&self, change: impl FnOnce(&mut Resource)) -> Res<'a> {
        let (State::Group(question) | State::Resource(question)) = &*self.state else { return unfit() };
        let mut question = question.clone();
        if let Object::Resource(resource) = &mut question.object {
            change(resource);
        }
        Ok(self.then(State::Resource(question)))
    }
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "path" => |args| begin(args, Object::Path, State::Path),
        "group" => |args| {
            let group = |group| Object::Resource(Resource { group, ..Resource::default() });
            begin(args, group, State::Group)
        },
        "serviceAccount" => service_account,
        "resource" => |args| part(args, |resource, text| resource.resource = text),
        "subresource" => |args| part(args, |resource, text| resource.subresource = text),
        "namespace" => |args| part(args, |resource, text| resource.namespace = text),
        "name" => |args| part(args, |resource, text| resource.name = text),
        "fieldSelector" => |args| part(args, |resource, text| resource.field_selector = text),
        "labelSelector" => |args| part(args, |resource, text| resource.label_selector = text),
        "check" => check,
        "allowed" => |args| decided(args, |decision| Value::Bool(decision.allowed)),
        "reason" => |args| decided(args, |decision| Value::text(decision.reason.clone())),
        "errored" => |args| decided(args, |decision| Value::Bool(decision.error.is_some())),
        "error" => |args| decided(args, |decision| Value::text(decision.error.clone().unwrap_or_default())),
        _ => return None,
    })
}

fn begin<'a>(args: &mut [Value<'a>], object: fn(String) -> Object, state: fn(Question) -> State) -> Res<'a> {
    let [Value::Authorization(authorization), Value::String(text)] = args else { return unfit() };
    let State::Authorizer(service_account) = &*authorization.state else { return unfit() };
    let question = Question {
        service_account: service_account.clone(),
        verb: String::new(),
        object: object(text.to_string()),
    };
    Ok(authorization.then(state(question)))
}

fn part<'a>(args: &mut [Value<'a>], change: fn(&mut Resource, String)) -> Res<'a> {
    match args {
        [Value::Authorization(authorization), Value::String(text)] => {
            authorization.with(|resource| change(resource, text.to_string()))
        }
        _ => unfit(),
    }
}

fn service_account<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::Authorization(authorization), Value::String(namespace), Value::String(name)] = args else {
        return unfit();
    };
    if !syntax::dns_subdomain(name).is_empty() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if !syntax::dns_label(namespace).is_empty() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    let account = Some((namespace.to_string(), name.to_string()));
    Ok(authorization.then(State::Authorizer(account)))
}

fn check<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::Authorization(authorization), Value::String(verb)] = args else { return unfit() };
    let (State::Path(question) | State::Resource(question)) = &*authorization.state else { return unfit() };
    let question = Question { verb: verb.to_string(), ..question.clone() };
    let decision = authorization.authorizer.authorize(&question);
    Ok(authorization.then(State::Decision(decision)))
}

fn decided<'a>(args: &mut [Value<'a>], part: fn(&Decision) -> Value<'static>) -> Res<'a> {
    match args {
        [Value::Authorization(authorization)] => match &*authorization.state {
            State::Decision(decision) => Ok(part(decision)),
            _ => unfit(),
        },
        _ => unfit(),
    }
}
