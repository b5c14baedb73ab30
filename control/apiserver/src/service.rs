//! The service: request in, response out, the same for a socket and for a client in this process.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use http_body::Body as _;
use http_body_util::BodyExt;
use podwire_api::Kind;
use tokio::time::Instant;

use crate::authn;
use crate::authz;
use crate::body::{Body, BoxError, Response};
use crate::config::Error;
use crate::context::Context;
use crate::handler::{self, Call};
use crate::identity::Identity;
use crate::impersonate;
use crate::limits::{self, Entry, Wire};
use crate::query::Query;
use crate::request::{self, RequestInfo};
use crate::status::{ApiError, Result};
use crate::traced;

/// The API server as a `tower::Service`; cheap to clone.
///
/// Hand it to `podwire_client::Client::new` to use the API without a socket.
#[derive(Clone)]
pub struct ApiService {
    context: Arc<Context>,
    identity: Option<Arc<Identity>>,
    /// The connection, for clients outside of this process.
    wire: Option<Arc<Wire>>,
}

impl ApiService {
    /// The service for clients in this process.
    pub(crate) fn new(context: Arc<Context>, identity: Option<Identity>) -> Self {
        Self { context, identity: identity.map(Arc::new), wire: None }
    }

    /// The service for the client at the other end of a connection.
    pub(crate) fn outside(context: Arc<Context>, identity: Option<Identity>, wire: Arc<Wire>) -> Self {
        Self { context, identity: identity.map(Arc::new), wire: Some(wire) }
    }

    /// The same server as another user sees it.
    pub fn with_identity(&self, identity: Identity) -> Self {
        Self::new(self.context.clone(), Some(identity))
    }

    /// Serves one kind more, or another in place of the one of the same name. Kinds come and go one after the other.
    pub async fn serve_kind(&self, kind: Arc<Kind>) -> Result<(), Error> {
        let name = kind.qualified_kind();
        let served = self.context.serve_kind(kind).await;
        served.map_err(|error| Error::Kind { kind: name, message: error.message })
    }

    /// Serves a kind no more: its watches end, and its objects stay in the store.
    pub fn withdraw_kind(&self, kind: &Arc<Kind>) {
        self.context.withdraw_kinds(std::slice::from_ref(kind));
    }

    async fn answer(self, request: Request<Body>) -> Response {
        let (mut parts, body) = request.into_parts();
        if let Some(identity) = &self.identity {
            parts.extensions.insert(identity.clone());
        }
        let head = parts.method == http::Method::HEAD;
        let path = parts.uri.path().to_owned();
        let mut response = match AssertUnwindSafe(self.pass(parts, body)).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => error.response(),
            Err(_) => {
                tracing::error!(path, "a request made the server panic");
                ApiError::internal("this request caused apiserver to panic. Look in the logs for details.")
                    .response()
            }
        };
        let headers = response.headers_mut();
        headers
            .entry(http::header::CACHE_CONTROL)
            .or_insert(http::HeaderValue::from_static("no-cache, private"));
        if head {
            *response.body_mut() = crate::body::empty();
        }
        response
    }

    /// The layers, one after the other.
    async fn pass(self, mut parts: http::request::Parts, body: Body) -> Result<Response> {
        if !request::is_well_escaped(parts.uri.path()) {
            return Err(ApiError::bad_request("the path of the request has an invalid URL escape"));
        }
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let known = parts.extensions.remove::<Arc<Identity>>();
        let identity = authn::identify(&self.context, known, &parts.headers).await?;
        let identity = impersonate::resolve(&self.context, identity, &mut parts.headers)?;
        let Some(wire) = self.wire.clone() else {
            return self.within(parts, body, query, info, identity).await.0;
        };
        let slot = match self.context.gates.enter(&identity, &info) {
            Entry::Free => None,
            Entry::Counted(slot) => Some(slot),
            Entry::Refused => return Ok(limits::too_many()),
        };
        let open = wire.begin();
        parts.extensions.insert(wire);
        let (answer, due) = self.within(parts, body, query, info, identity).await;
        answer.map(|response| limits::until_sent(response, slot, open, due))
    }

    /// Gives a request its time; also returns when that ends.
    async fn within(
        self,
        parts: http::request::Parts,
        body: Body,
        query: Query,
        info: RequestInfo,
        identity: Arc<Identity>,
    ) -> (Result<Response>, Option<Instant>) {
        if limits::is_long_running(&info) {
            return (self.serve(parts, body, query, info, identity).await, None);
        }
        let most = self.context.limits.request;
        let time = match limits::asked_time(query.text("timeout")) {
            Err(why) => return (Err(ApiError::bad_request(why)), None),
            Ok(asked) => asked.map_or(most, |asked| asked.min(most)),
        };
        let due = Instant::now() + time;
        let served = tokio::time::timeout_at(due, self.serve(parts, body, query, info, identity)).await;
        (served.unwrap_or_else(|_| Err(ApiError::timed_out())), Some(Instant::now() + most))
    }

    /// What is authorized is done.
    async fn serve(
        self,
        mut parts: http::request::Parts,
        body: Body,
        query: Query,
        info: RequestInfo,
        identity: Arc<Identity>,
    ) -> Result<Response> {
        authz::check(&self.context, &identity, &(&info).into())?;
        tracing::debug!(user = %identity.user, verb = info.verb, path = %info.path, "request");
        let upgrade = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let Some(target) = info.resource else {
            return handler::root::answer(&self.context, &parts, &info.path).await;
        };
        let Some(kind) = self.context.kinds.at(&target.group, &target.version, &target.resource) else {
            return handler::root::unknown(&target.group);
        };
        if kind.schema.is_structural() && target.route.in_namespace && !kind.namespaced {
            return Ok(handler::root::page_not_found());
        }
        let arrow = traced::Request::begin(&self.context, &identity, &kind, &target, info.verb, &parts);
        let (verb, part) = match handler::meaning(&kind, &target, info.verb) {
            Ok(meaning) => meaning,
            Err(error) => return traced::end(arrow, &self.context, Err(error)),
        };
        let call = Call {
            context: self.context.clone(),
            identity,
            kind,
            target,
            verb,
            part,
            query,
            parts,
            body: std::sync::Mutex::new(Some(body)),
            upgrade,
            warnings: Vec::new(),
            told: Arc::default(),
        };
        traced::end(arrow, &self.context, handler::dispatch(call).await)
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

/// Reads a whole body, at most `limit` bytes of it.
///
/// Boxed because the compiler cannot prove the plain future to be `Send` inside a larger one.
pub(crate) fn read_body(mut body: Body, limit: usize) -> BoxFuture<'static, Result<Bytes>> {
    Box::pin(async move {
        if body.size_hint().lower() > limit as u64 {
            return Err(ApiError::too_large(limit));
        }
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let failed =
                |error| ApiError::bad_request(format!("the request body could not be read: {error}"));
            let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
            if whole.len() + data.len() > limit {
                return Err(ApiError::too_large(limit));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    })
}
