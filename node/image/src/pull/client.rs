//! Requests to one endpoint: authentication, redirects, retries.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RANGE, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE,
};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;

use super::auth::{Auth, Challenge, Credentials, parse_challenges};
use super::connect::Connector;
use super::hosts::Endpoint;
use super::{PullError, RegistryConfig};

const AGENT: &str = concat!("podwire/", env!("CARGO_PKG_VERSION"));
const MOST_REDIRECTS: usize = 5;
/// The most that is read of an error's or a token's body.
const SMALL_BODY: usize = 256 * 1024;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// One endpoint with what it has learned about authentication.
pub(super) struct Client {
    endpoint: Endpoint,
    http: Http<Connector, Full<Bytes>>,
    credentials: Credentials,
    /// The value of the Authorization header that worked last.
    authorization: Mutex<Option<HeaderValue>>,
    scope: String,
    attempts: u32,
    backoff: Duration,
    patience: Duration,
}

/// What to ask for.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    /// Below the endpoint's prefix: `/library/nginx/manifests/latest`.
    pub(super) path: String,
    pub(super) accept: &'a [&'a str],
    /// The first byte wanted.
    pub(super) from: u64,
    /// For errors.
    pub(super) what: &'a str,
}

/// One try's failure.
enum Failure {
    /// Another try may help, after this pause if the server names one.
    Transient(PullError, Option<Duration>),
    Final(PullError),
}

impl Client {
    pub(super) fn new(
        endpoint: Endpoint,
        config: &RegistryConfig,
        auth: &Auth,
        repository: &str,
        attempts: u32,
    ) -> Result<Self, PullError> {
        let connector = Connector::new(&endpoint, config)?;
        let http = Http::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .build(connector);
        let auth = auth.or_docker(config.docker_config.as_deref(), endpoint.authority.as_str());
        let credentials = match endpoint.namespace {
            // A mirror is another registry: it gets credentials only if they were given for it by name.
            Some(_) if auth.server_address.is_empty() => Credentials::Anonymous,
            _ => auth.for_host(endpoint.authority.as_str())?,
        };
        let authorization = match &credentials {
            Credentials::Bearer(token) => Some(bearer(token)?),
            _ => None,
        };
        Ok(Self {
            endpoint,
            http,
            credentials,
            authorization: Mutex::new(authorization),
            scope: format!("repository:{repository}:pull"),
            attempts: attempts.max(1),
            backoff: config.backoff,
            patience: config.stall_timeout,
        })
    }

    pub(super) fn resolves(&self) -> bool {
        self.endpoint.resolves
    }

    /// Gets what `ask` wants, trying again where that may help.
    pub(super) async fn get(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, PullError> {
        let mut pause = self.backoff;
        let mut attempt = 1;
        loop {
            match self.get_once(ask).await {
                Ok(response) => return Ok(response),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Transient(error, _)) if attempt >= self.attempts => return Err(error),
                Err(Failure::Transient(error, wanted)) => {
                    tracing::debug!(%error, attempt, "registry request failed; will try again");
                    tokio::time::sleep(wanted.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    pause *= 2;
                    attempt += 1;
                }
            }
        }
    }

    async fn get_once(&self, ask: &Ask<'_>) -> Result<Response<Incoming>, Failure> {
        let uri = self.uri(&ask.path)?;
        let mut asked_for_token = false;
        loop {
            let (response, answered_by) = self.follow(&uri, ask).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return self.judge(response, ask, &uri).await;
            }
            let challenges: Vec<Challenge> = response
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(parse_challenges)
                .collect();
            let reason = reason(response).await;
            // Only the registry itself may ask who we are, not the host that it redirected us to.
            if asked_for_token || !same_origin(&answered_by, &uri) {
                return Err(Failure::Final(PullError::Denied { what: ask.what.to_owned(), reason }));
            }
            self.authorize(&challenges, ask.what, reason).await?;
            asked_for_token = true;
        }
    }

    fn uri(&self, path: &str) -> Result<Uri, Failure> {
        let mut text =
            format!("{}://{}{}{path}", self.endpoint.scheme, self.endpoint.authority, self.endpoint.prefix);
        if let Some(namespace) = &self.endpoint.namespace {
            text.push_str("?ns=");
            text.push_str(&escape(namespace));
        }
        text.parse()
            .map_err(|_| Failure::Final(PullError::Unexpected { url: text, reason: "not a URL".to_owned() }))
    }

    /// Sends the request and follows redirects; credentials stay with the first host. Also says who answered at last.
    async fn follow(&self, start: &Uri, ask: &Ask<'_>) -> Result<(Response<Incoming>, Uri), Failure> {
        let mut uri = start.clone();
        for _ in 0..MOST_REDIRECTS {
            let mut request = Request::builder().method(Method::GET).uri(&uri).header(USER_AGENT, AGENT);
            for accept in ask.accept {
                request = request.header(ACCEPT, *accept);
            }
            if ask.from > 0 {
                request = request.header(RANGE, format!("bytes={}-", ask.from));
            }
            if same_origin(&uri, start) {
                for (name, value) in &self.endpoint.headers {
                    request = request.header(name, value);
                }
                let authorization = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(authorization) = authorization {
                    request = request.header(AUTHORIZATION, authorization);
                }
            }
            let response = self.send(request, &uri, Bytes::new()).await?;
            if !response.status().is_redirection() {
                return Ok((response, uri));
            }
            uri = redirected(&uri, &response)?;
        }
        Err(Failure::Final(PullError::Unexpected {
            url: start.to_string(),
            reason: "too many redirects".to_owned(),
        }))
    }

    async fn send(
        &self,
        request: http::request::Builder,
        uri: &Uri,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let url = uri.to_string();
        let request = request.body(Full::new(body)).map_err(|error| {
            Failure::Final(PullError::Unexpected { url: url.clone(), reason: error.to_string() })
        })?;
        match tokio::time::timeout(self.patience, self.http.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let reason = podwire_trace::chain(&error);
                Err(Failure::Transient(PullError::Unavailable { url, reason }, None))
            }
            Err(_) => {
                let reason = format!("no answer for {} s", self.patience.as_secs());
                Err(Failure::Transient(PullError::Unavailable { url, reason }, None))
            }
        }
    }

    async fn judge(
        &self,
        response: Response<Incoming>,
        ask: &Ask<'_>,
        uri: &Uri,
    ) -> Result<Response<Incoming>, Failure> {
        let status = response.status();
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(response);
        }
        let what = ask.what.to_owned();
        let wanted = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wanted = wanted.map(Duration::from_secs);
        let reason = reason(response).await;
        Err(match status {
            StatusCode::NOT_FOUND => Failure::Final(PullError::NotFound { what }),
            StatusCode::FORBIDDEN => Failure::Final(PullError::Denied { what, reason }),
            StatusCode::TOO_MANY_REQUESTS => {
                Failure::Transient(PullError::TooManyRequests { what, reason }, wanted)
            }
            StatusCode::REQUEST_TIMEOUT => Failure::Transient(unavailable(uri, status, &reason), wanted),
            status if status.is_server_error() => {
                Failure::Transient(unavailable(uri, status, &reason), wanted)
            }
            status => Failure::Final(PullError::Unexpected {
                url: uri.to_string(),
                reason: format!("{status}: {reason}"),
            }),
        })
    }

    /// Answers a challenge and keeps the answer for further requests.
    async fn authorize(&self, challenges: &[Challenge], what: &str, reason: String) -> Result<(), Failure> {
        let denied = |reason: String| Failure::Final(PullError::Denied { what: what.to_owned(), reason });
        let by_token = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service, scope, .. } => Some((realm, service, scope)),
            Challenge::Basic => None,
        });
        let value = match (by_token, &self.credentials) {
            (Some((realm, service, scope)), _) => {
                let scope = scope.as_deref().unwrap_or(&self.scope);
                bearer(&self.token(realm, service.as_deref(), scope, what).await?).map_err(Failure::Final)?
            }
            (None, Credentials::Basic(pair)) if challenges.contains(&Challenge::Basic) => {
                HeaderValue::try_from(format!("Basic {pair}"))
                    .map_err(|_| denied("credentials are unusable".into()))?
            }
            (None, _) => return Err(denied(reason)),
        };
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(())
    }

    /// Gets a bearer token from `realm`.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
        what: &str,
    ) -> Result<String, Failure> {
        let mut fields = vec![("scope", scope)];
        fields.extend(service.map(|service| ("service", service)));
        let joined = |fields: &[(&str, &str)]| {
            let pairs: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
            pairs.join("&")
        };
        let bad = |reason: &str| {
            Failure::Final(PullError::Unexpected { url: realm.to_owned(), reason: reason.to_owned() })
        };
        if self.credentials != Credentials::Anonymous && !may_see_credentials(realm, &self.endpoint) {
            let reason =
                format!("the registry asks for credentials at {realm:?}, where others could read them");
            return Err(Failure::Final(PullError::Denied { what: what.to_owned(), reason }));
        }
        let (request, uri, body) = if let Credentials::Identity(token) = &self.credentials {
            fields.extend([
                ("grant_type", "refresh_token"),
                ("client_id", "podwire"),
                ("refresh_token", token),
            ]);
            let uri: Uri = realm.parse().map_err(|_| bad("the realm is no URL"))?;
            let request = Request::builder()
                .method(Method::POST)
                .uri(&uri)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            (request, uri, Bytes::from(joined(&fields)))
        } else {
            let glue = if realm.contains('?') { '&' } else { '?' };
            let uri: Uri = format!("{realm}{glue}{}", joined(&fields))
                .parse()
                .map_err(|_| bad("the realm is no URL"))?;
            let mut request = Request::builder().method(Method::GET).uri(&uri);
            if let Credentials::Basic(pair) = &self.credentials {
                request = request.header(AUTHORIZATION, format!("Basic {pair}"));
            }
            (request, uri, Bytes::new())
        };
        let response = self.send(request.header(USER_AGENT, AGENT), &uri, body).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                let reason = reason(response).await;
                return Err(Failure::Final(PullError::Denied { what: what.to_owned(), reason }));
            }
            status => {
                let reason = reason(response).await;
                return Err(Failure::Transient(unavailable(&uri, status, &reason), None));
            }
        }
        let body = small_body(response).await.ok_or_else(|| bad("the token's answer broke off"))?;
        let answer: TokenAnswer =
            serde_json::from_slice(&body).map_err(|_| bad("the token's answer is not understood"))?;
        answer
            .token
            .or(answer.access_token)
            .filter(|token| !token.is_empty())
            .ok_or_else(|| bad("no token in the answer"))
    }
}

fn same_origin(one: &Uri, other: &Uri) -> bool {
    one.authority() == other.authority() && one.scheme() == other.scheme()
}

/// A realm may be anywhere (docker.io's is at auth.docker.io), as the registry is trusted with the credentials anyhow; but
/// what was sealed on the way to the registry must be sealed on the way to the realm. A registry that is spoken to in the
/// clear, because the user said so, may name a realm in the clear at its own address and nowhere else.
fn may_see_credentials(realm: &str, endpoint: &Endpoint) -> bool {
    let Ok(realm) = realm.parse::<Uri>() else { return false };
    match realm.scheme_str() {
        Some("https") => true,
        Some("http") => {
            endpoint.scheme == http::uri::Scheme::HTTP && realm.authority() == Some(&endpoint.authority)
        }
        _ => false,
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

fn bearer(token: &str) -> Result<HeaderValue, PullError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| PullError::Settings {
        host: String::new(),
        reason: "the token is not a header value".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn unavailable(uri: &Uri, status: StatusCode, reason: &str) -> PullError {
    PullError::Unavailable { url: uri.to_string(), reason: format!("{status}: {reason}") }
}

fn redirected(from: &Uri, response: &Response<Incoming>) -> Result<Uri, Failure> {
    let bad = |reason: &str| {
        Failure::Final(PullError::Unexpected { url: from.to_string(), reason: reason.to_owned() })
    };
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| bad("a redirect without a location"))?;
    let full = match (location.starts_with('/'), from.scheme_str(), from.authority()) {
        (true, Some(scheme), Some(authority)) if !location.starts_with("//") => {
            format!("{scheme}://{authority}{location}")
        }
        _ => location.to_owned(),
    };
    let uri: Uri = full.parse().map_err(|_| bad("a redirect to no URL"))?;
    match (from.scheme_str(), uri.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) => Ok(uri),
        _ => Err(bad("a redirect from https to something else")),
    }
}

async fn small_body(response: Response<Incoming>) -> Option<Bytes> {
    let body = Limited::new(response.into_body(), SMALL_BODY);
    Some(tokio::time::timeout(Duration::from_secs(10), body.collect()).await.ok()?.ok()?.to_bytes())
}

/// The registry's own words: its error list, or the status.
async fn reason(response: Response<Incoming>) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<OneError>,
    }
    #[derive(Deserialize)]
    struct OneError {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let status = response.status();
    let body = small_body(response).await.unwrap_or_default();
    match serde_json::from_slice::<Errors>(&body) {
        Ok(errors) if !errors.errors.is_empty() => {
            let words: Vec<String> = errors
                .errors
                .iter()
                .take(3)
                .map(|e| format!("{}: {}", e.code.to_lowercase(), e.message))
                .collect();
            words.join("; ")
        }
        _ => status.to_string(),
    }
}

/// Percent-encodes a query value.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
