//! From an authorized request to a response: one path for all kinds, branches only where kinds differ.

pub(crate) mod bootstrap;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
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
pub(crate) mod unenforced;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod websocket;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_api::{Kind, syntax};

use crate::body::{self, Body, Response};
use crate::core::Core;
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
    pub(crate) core: Arc<Core>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) kind: &'static Kind,
    pub(crate) target: ResourceInfo,
    pub(crate) verb: &'static str,
    pub(crate) query: Query,
    pub(crate) parts: http::request::Parts,
    /// Behind a lock only so that calls can be shared between threads; nobody ever waits for it.
    pub(crate) body: std::sync::Mutex<Option<Body>>,
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
    /// Become `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

impl Call {
    /// The representation the client wants.
    pub(crate) fn representation(&self) -> Result<Representation> {
        let collection = matches!(self.verb, "list" | "watch");
        // A review is stored nowhere and has no columns.
        let is_review = self.kind.storage_prefix.is_empty();
        negotiate::choose(&self.parts.headers, self.query.get("pretty"), collection, |encoding, shape| {
            shape == Shape::Object || (encoding != Encoding::Protobuf && !is_review)
        })
    }

    /// The whole body.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes> {
        let body = self.body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match body {
            Some(body) => {
                let read = tokio::time::timeout(self.core.limits.body, read_body(body, BODY_LIMIT));
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
    check_route(&call)?;
    check_verb(&call)?;
    if call.kind.is("", "Endpoints") {
        call.warnings
            .push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into());
    }
    let answer = choose(&mut call);
    match answer.await {
        Ok(response) => Ok(call.warn(response)),
        Err(error) => Err(error.with_warnings(std::mem::take(&mut call.warnings))),
    }
}

/// The handler of a subresource and verb.
fn choose(call: &mut Call) -> BoxFuture<'_, Result<Response>> {
    match call.target.subresource.as_str() {
        "" if call.kind.storage_prefix.is_empty() => Box::pin(review::answer(call)),
        "" | "status" | "ephemeralcontainers" | "resize" | "approval" | "finalize" => object(call),
        "scale" => Box::pin(scale::answer(call)),
        "binding" => Box::pin(pods::bind(call)),
        "eviction" => Box::pin(pods::evict(call)),
        "token" => Box::pin(tokens::request(call)),
        "log" | "exec" | "attach" | "portforward" => Box::pin(proxy::answer(call)),
        _ => Box::pin(async { Ok(root::page_not_found()) }),
    }
}

/// The handler of an object or of a part of it.
fn object(call: &mut Call) -> BoxFuture<'_, Result<Response>> {
    match call.verb {
        "get" => Box::pin(list::get(call)),
        "list" => Box::pin(list::list(call)),
        "watch" => Box::pin(watch::watch(call)),
        "create" => Box::pin(create::create(call)),
        "update" => Box::pin(update::update(call)),
        "patch" => Box::pin(patch::patch(call)),
        "delete" => Box::pin(delete::delete(call)),
        "deletecollection" => Box::pin(delete::delete_collection(call)),
        _ => Box::pin(async { Err(ApiError::method_not_allowed()) }),
    }
}

/// Refuses what upstream has no route for: only what is at the place that was authorized is acted on.
fn check_route(call: &Call) -> Result<()> {
    let (target, kind) = (&call.target, call.kind);
    let tail = !target.tail.is_empty() && target.subresource != "proxy";
    if target.route.nowhere || tail || (target.route.in_namespace && !kind.namespaced) {
        return Err(ApiError::no_such_resource());
    }
    if kind.namespaced && !target.route.in_namespace {
        // All namespaces together can be read, and nothing else.
        return match call.verb {
            "list" | "watch" if !target.route.named => Ok(()),
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

fn check_verb(call: &Call) -> Result<()> {
    let verbs = match call.target.subresource.as_str() {
        "" => call.kind.verbs,
        name => match call.kind.subresource(name) {
            Some(subresource) => subresource.verbs,
            None => return Err(ApiError::no_such_resource()),
        },
    };
    let (named, part) = (call.target.route.named, !call.target.subresource.is_empty());
    let fits = match call.verb {
        // An object is created in its collection, a part of one where the object is.
        "create" => named == part,
        "update" | "patch" => named,
        _ => true,
    };
    if verbs.contains(&call.verb) && fits { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}
