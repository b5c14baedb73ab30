//! From an authorized request to a response: one path for all kinds, branches only where kinds differ.

mod beside;
pub(crate) mod bootstrap;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod forward;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod page;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod proxy;
pub(crate) mod render;
pub(crate) mod review;
pub(crate) mod root;
pub(crate) mod scale;
pub(crate) mod tokens;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod websocket;

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_api::{Kind, Part, Verb, syntax};

use crate::admission::Told;
use crate::body::{self, Body, Response};
use crate::context::Context;
use crate::identity::Identity;
use crate::negotiate::{self, Encoding, Representation, Shape};
use crate::query::Query;
use crate::request::ResourceInfo;
use crate::service::read_body;
use crate::status::{ApiError, Result};

/// Larger bodies are refused.
pub(crate) const BODY_LIMIT: usize = 3 << 20;

/// One request about a resource, on its way through a handler.
pub(crate) struct Call {
    pub(crate) context: Arc<Context>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) kind: Arc<Kind>,
    pub(crate) target: ResourceInfo,
    pub(crate) verb: Verb,
    /// The part of the object that is asked for, if not the object itself.
    pub(crate) part: Option<Part>,
    pub(crate) query: Query,
    pub(crate) parts: http::request::Parts,
    /// Behind a lock only so that calls can be shared between threads; nobody ever waits for it.
    pub(crate) body: std::sync::Mutex<Option<Body>>,
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
    /// Become `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// So does what admission tells.
    pub(crate) told: Arc<Told>,
}

impl Call {
    /// The representation the client wants.
    pub(crate) fn representation(&self) -> Result<Representation> {
        let collection = matches!(self.verb, Verb::List | Verb::Watch);
        // A review is stored nowhere and has no columns.
        let is_review = !self.kind.is_stored();
        // A structural schema has no protobuf numbers.
        let is_structural = self.kind.schema.is_structural();
        negotiate::choose(&self.parts.headers, self.query.get("pretty"), collection, |encoding, shape| {
            let binary = encoding == Encoding::Protobuf;
            !(binary && is_structural) && (shape == Shape::Object || (!binary && !is_review))
        })
    }

    /// The whole body.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes> {
        let body = self.body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match body {
            Some(body) => {
                let read = tokio::time::timeout(self.context.limits.body, read_body(body, BODY_LIMIT));
                read.await.unwrap_or_else(|_| Err(ApiError::timed_out()))
            }
            None => Ok(Bytes::new()),
        }
    }

    /// The namespace, the empty string for kinds without one.
    pub(crate) fn namespace(&self) -> &str {
        if self.kind.namespaced { &self.target.namespace } else { "" }
    }

    /// The name in the URL.
    pub(crate) fn name(&self) -> &str {
        &self.target.name
    }

    /// Adds the collected warnings to a response.
    fn warn(&self, mut response: Response) -> Response {
        body::warn(&mut response, &self.warnings);
        response
    }
}

/// Chooses the handler of a call.
pub(crate) fn dispatch(call: Call) -> BoxFuture<'static, Result<Response>> {
    Box::pin(run(call))
}

async fn run(mut call: Call) -> Result<Response> {
    call.warnings.extend(call.kind.strategy.deprecation().map(str::to_owned));
    let answer = choose(&mut call).await;
    call.warnings.append(&mut call.told.lock().unwrap_or_else(PoisonError::into_inner));
    match answer {
        Ok(response) => {
            // What is defined can be used when the answer is there.
            if call.kind.strategy.defines_kinds()
                && matches!(call.verb, Verb::Create | Verb::Update | Verb::Patch)
            {
                call.context.definitions.settle().await;
            }
            Ok(call.warn(response))
        }
        Err(error) => Err(error.with_warnings(std::mem::take(&mut call.warnings))),
    }
}

/// The handler of a subresource and verb.
fn choose(call: &mut Call) -> BoxFuture<'_, Result<Response>> {
    match call.part {
        None if !call.kind.is_stored() => Box::pin(review::answer(call)),
        None => object(call),
        Some(part) if part.is_of_object() => object(call),
        Some(Part::Scale) => Box::pin(scale::answer(call)),
        Some(Part::Binding) => Box::pin(pods::bind(call)),
        Some(Part::Eviction) => Box::pin(pods::evict(call)),
        Some(Part::Token) => Box::pin(tokens::request(call)),
        Some(Part::Log | Part::Exec | Part::Attach | Part::PortForward) => Box::pin(proxy::answer(call)),
        Some(Part::Proxy) => Box::pin(forward::answer(call)),
        Some(_) => Box::pin(async { Ok(root::page_not_found()) }),
    }
}

/// The handler of an object or of a part of it.
fn object(call: &mut Call) -> BoxFuture<'_, Result<Response>> {
    match call.verb {
        Verb::Get => Box::pin(list::get(call)),
        Verb::List => Box::pin(list::list(call)),
        Verb::Watch => Box::pin(watch::watch(call)),
        Verb::Create => Box::pin(create::create(call)),
        Verb::Update => Box::pin(update::update(call)),
        Verb::Patch => Box::pin(patch::patch(call)),
        Verb::Delete => Box::pin(delete::delete(call)),
        Verb::DeleteCollection => Box::pin(delete::delete_collection(call)),
    }
}

/// What an authorized request means for a kind; what upstream has no route or verb for is refused.
pub(crate) fn meaning(kind: &Kind, target: &ResourceInfo, verb: &str) -> Result<(Verb, Option<Part>)> {
    check_route(kind, target, verb)?;
    let part = match target.subresource.as_str() {
        "" => None,
        name => Some(Part::parse(name).ok_or_else(|| no_such_part(kind, target))?),
    };
    let verbs = match part {
        None => kind.verbs,
        Some(part) => kind.subresource(part).ok_or_else(|| no_such_part(kind, target))?.verbs,
    };
    if part == Some(Part::Proxy) && verb.is_empty() {
        // `OPTIONS` is passed on too, and has no verb.
        return Ok((Verb::Get, part));
    }
    let verb =
        Verb::parse(verb).filter(|verb| verbs.contains(*verb)).ok_or_else(ApiError::method_not_allowed)?;
    let named = target.route.named;
    let fits = match verb {
        // An object is created in its collection, a part of one where the object is.
        Verb::Create => named == part.is_some(),
        Verb::Update | Verb::Patch => named,
        _ => true,
    };
    if fits { Ok((verb, part)) } else { Err(ApiError::method_not_allowed()) }
}

/// 404 about a part of an object, which upstream says differently of kinds that were defined at run time.
fn no_such_part(kind: &Kind, target: &ResourceInfo) -> ApiError {
    if kind.schema.is_structural() {
        return ApiError::not_found(kind, &target.name);
    }
    ApiError::no_such_resource()
}

/// Refuses what upstream has no route for: only what is at the place that was authorized is acted on.
fn check_route(kind: &Kind, target: &ResourceInfo, verb: &str) -> Result<()> {
    let tail = !target.tail.is_empty() && Part::parse(&target.subresource) != Some(Part::Proxy);
    if target.route.nowhere || tail || (target.route.in_namespace && !kind.namespaced) {
        return Err(ApiError::no_such_resource());
    }
    if kind.namespaced && !target.route.in_namespace {
        // All namespaces together can be read, and nothing else.
        return match Verb::parse(verb) {
            Some(Verb::List | Verb::Watch) if !target.route.named => Ok(()),
            _ if target.route.named => Err(ApiError::no_such_resource()),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    let complaints = if target.route.named { syntax::path_segment(&target.name) } else { Vec::new() };
    if !complaints.is_empty() {
        let name = serde_json::Value::from(target.name.as_str());
        return Err(ApiError::bad_request(format!(
            "Name parameter invalid: {name}: {}",
            complaints.join(";")
        )));
    }
    if in_namespace_segment(target) { Ok(()) } else { Err(ApiError::no_such_resource()) }
}

/// Whether the namespace can be one; no key may be built from another.
fn in_namespace_segment(target: &ResourceInfo) -> bool {
    syntax::path_segment(&target.namespace).is_empty()
}
