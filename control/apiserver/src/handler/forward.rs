//! `proxy` of pods, services and nodes: a request is passed on to a backend in the cluster, and its answer back.
//!
//! Bodies are streamed both ways and upgraded connections tunnelled; what proves who the client is stays here. Links of
//! a page that lead to the backend are made to lead through this server, as upstream does. Redirects are not followed.

mod backend;
mod html;
mod links;
mod location;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use futures::StreamExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;

use self::links::Links;
use self::location::Location;
use super::{Call, proxy};
use crate::admission::{self, Operation};
use crate::body::{self, Body, Response};
use crate::limits::Wire;
use crate::query::unescape;
use crate::status::{ApiError, Result};

/// How long reaching a backend may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Pages of more bytes are passed on as they are.
const PAGE: usize = 4 << 20;

/// Headers that belong to one hop only.
const HOP: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers by which the client, or a proxy before this server, says who it is.
const IDENTITY: [&str; 4] = ["authorization", "x-remote-user", "x-remote-uid", "x-remote-group"];

/// Headers by which a backend would give pages of others rights at this server.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Passes the request of a call on.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    let method = &call.parts.method;
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD];
    if !known.contains(method) && method != Method::OPTIONS {
        return Err(ApiError::method_not_allowed());
    }
    if call.query.get("dryRun").is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let whole = unescape(call.parts.uri.path(), false);
    let path = admitted(call, &whole).await?;
    let location = location::find(call).await?;
    // A path that is not empty is rooted and has no way up.
    let path = if path.is_empty() { path } else { links::join("", &path) };
    if is_upgrade(&call.parts.headers) {
        return upgrade(call, &location, &path).await;
    }
    if path.is_empty() && (method == Method::GET || method == Method::HEAD) {
        return Ok(redirect(call, &whole));
    }
    pass(call, &location, &whole, &path).await
}

/// The path that the backend is asked for, when admission has seen it.
async fn admitted(call: &Call, whole: &str) -> Result<String> {
    let tail = &call.target.tail;
    let mut path = if tail.is_empty() || tail.starts_with('/') { tail.clone() } else { format!("/{tail}") };
    if whole.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    let kind = call.part.and_then(|part| call.kind.subresource(part)).map(|own| own.kind.to_string());
    let mut options = json!({"kind": kind, "apiVersion": "v1", "path": path});
    admission::admit(&admission::Request::of(call, Operation::Connect), &mut options).await?;
    Ok(options["path"].as_str().unwrap_or_default().to_owned())
}

/// 503, as upstream says that a backend does not answer.
fn unreachable(why: &str) -> ApiError {
    ApiError::unavailable(format!("error trying to reach service: {why}"))
}

/// 500 without a reason: what upstream makes of errors that have none.
fn plain(why: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    let asks =
        |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_lowercase().contains("upgrade");
    headers.get_all(header::CONNECTION).iter().any(asks)
}

/// Relative links of a page need the slash at the end of its address.
fn redirect(call: &Call, whole: &str) -> Response {
    let query = call.parts.uri.query().filter(|query| !query.is_empty());
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = http::Response::new(body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(target) = HeaderValue::from_str(&format!("{}/{query}", links::escape(whole))) {
        response.headers_mut().insert(header::LOCATION, target);
    }
    response
}

/// The host that the client asked for.
fn asked_host(call: &Call) -> Option<HeaderValue> {
    let named = call.parts.headers.get(header::HOST).cloned();
    named.or_else(|| HeaderValue::from_str(call.parts.uri.authority()?.as_str()).ok())
}

/// The headers of a request as the backend gets them, those of the hop apart.
fn forwarded(call: &Call, location: &Location) -> HeaderMap {
    let mut headers = call.parts.headers.clone();
    for name in IDENTITY {
        headers.remove(name);
    }
    let others: Vec<HeaderName> = headers.keys().filter(|name| tells_identity(name)).cloned().collect();
    for name in others {
        headers.remove(name);
    }
    let host = asked_host(call).or_else(|| HeaderValue::from_str(&location.host).ok());
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    forward_for(call, &mut headers);
    headers
}

fn tells_identity(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-remote-extra-") || name.as_str().starts_with("impersonate-")
}

/// Says for whom the request is passed on, after all that said so before.
fn forward_for(call: &Call, headers: &mut HeaderMap) {
    let Some(client) = call.parts.extensions.get::<Arc<Wire>>().and_then(|wire| wire.peer()) else { return };
    let name = HeaderName::from_static("x-forwarded-for");
    let before =
        headers.get_all(&name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let all: Vec<String> = before.chain([client.to_string()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(name, value);
    }
}

/// Takes out what belongs to one hop: what is known to, and what the message itself says does.
fn strip_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<String> =
        listed.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect();
    for name in listed.iter().filter(|name| !name.is_empty()) {
        headers.remove(name.as_str());
    }
    for name in HOP {
        headers.remove(name);
    }
}

fn request(call: &Call, headers: HeaderMap, path: &str, body: Body) -> Result<Request<Body>> {
    let path = if path.is_empty() { "/".into() } else { links::escape(path) };
    let query = call.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let request = Request::builder().method(call.parts.method.clone()).uri(format!("{path}{query}"));
    let mut request = request.body(body).map_err(|error| unreachable(&error.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// A plain request and its answer.
async fn pass(call: &mut Call, location: &Location, whole: &str, path: &str) -> Result<Response> {
    let mut headers = forwarded(call, location);
    let trailers = headers.get_all(header::TE).iter().any(|value| value.as_bytes() == b"trailers");
    strip_hop(&mut headers);
    // Whoever sends a body to this server is told to go on when the backend reads it.
    headers.remove(header::EXPECT);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let links = Links::new(whole, path, location.host.clone(), asked);
    let uri = links::escape(&links::join(&links.prefix, if path.is_empty() { "/" } else { path }));
    let uri = HeaderValue::from_str(&uri).map_err(|error| unreachable(&error.to_string()))?;
    headers.insert("x-forwarded-uri", uri);
    let body = call.body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let request = request(call, headers, path, body.unwrap_or_else(body::empty))?;
    let answer = backend::send(&call.context, location, request).await;
    let answer = answer.map_err(|failure| unreachable(&failure.words()))?;
    relay(call, answer, &links).await
}

/// The backend's answer as the client gets it.
async fn relay(call: &Call, answer: hyper::Response<Incoming>, links: &Links) -> Result<Response> {
    let (mut parts, incoming) = answer.into_parts();
    let body: Body = incoming.map_err(Into::into).boxed_unsync();
    strip_hop(&mut parts.headers);
    for name in CORS {
        parts.headers.remove(name);
    }
    let mut response = http::Response::new(body::empty());
    *response.status_mut() = parts.status;
    *response.version_mut() = Version::HTTP_11;
    *response.headers_mut() = parts.headers;
    let headers = response.headers_mut();
    let text = |name: HeaderName| {
        let value = parts_text(headers.get(name));
        if value.is_empty() { None } else { Some(value) }
    };
    let redirect = text(header::LOCATION);
    let media = text(header::CONTENT_TYPE).unwrap_or_default();
    let encoding = text(header::CONTENT_ENCODING).unwrap_or_default();
    let is_page = media.split(';').next().is_some_and(|media| media.trim() == "text/html");
    if let Some(target) = redirect {
        if let Ok(target) = HeaderValue::from_str(&links.rewrite(&target)) {
            headers.insert(header::LOCATION, target);
        }
        *response.body_mut() = body;
    } else if is_page && call.parts.method != Method::HEAD {
        let (body, changed) = page(body, &encoding, links).await?;
        if changed {
            headers.remove(header::CONTENT_LENGTH);
        }
        *response.body_mut() = body;
    } else {
        *response.body_mut() = body;
    }
    keep_uncached(&mut response);
    Ok(response)
}

fn parts_text(value: Option<&HeaderValue>) -> String {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// What this server says of caches stands before what the backend says.
fn keep_uncached(response: &mut Response) {
    let headers = response.headers_mut();
    let theirs: Vec<HeaderValue> = headers.get_all(header::CACHE_CONTROL).iter().cloned().collect();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    for value in theirs {
        headers.append(header::CACHE_CONTROL, value);
    }
}

/// A page with its links replaced, and whether it is another one now; one that is too long stays as it is.
async fn page(mut body: Body, encoding: &str, links: &Links) -> Result<(Body, bool)> {
    if !matches!(encoding, "" | "gzip" | "deflate") {
        return Ok((body, false));
    }
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreachable(&error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        pieces.push(data);
        if size > PAGE {
            return Ok((joined(pieces, body), false));
        }
    }
    let whole = pieces.concat();
    let rewrite = |page: &[u8]| html::rewrite(page, |link| links.rewrite(link));
    let changed = match unpacked(&whole, encoding)? {
        None => None,
        Some(page) if encoding.is_empty() => Some(rewrite(&page)),
        Some(page) => Some(packed(&rewrite(&page), encoding).map_err(|error| plain(error.to_string()))?),
    };
    Ok(match changed {
        Some(page) => (body::full(page), true),
        None => (body::full(whole), false),
    })
}

/// What was read, and then the rest.
fn joined(pieces: Vec<Bytes>, rest: Body) -> Body {
    let read = futures::stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece))));
    StreamBody::new(read.chain(BodyStream::new(rest))).boxed_unsync()
}

/// The text of a page, unless that is too long.
fn unpacked(page: &[u8], encoding: &str) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::new();
    let limit = PAGE as u64 + 1;
    let read = match encoding {
        "gzip" => flate2::read::MultiGzDecoder::new(page).take(limit).read_to_end(&mut out),
        "deflate" => flate2::read::DeflateDecoder::new(page).take(limit).read_to_end(&mut out),
        _ => return Ok(Some(page.to_vec())),
    };
    read.map_err(|error| plain(format!("the backend's page could not be unpacked: {error}")))?;
    Ok((out.len() <= PAGE).then_some(out))
}

fn packed(page: &[u8], encoding: &str) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => flate2::read::GzEncoder::new(page, Compression::default()).read_to_end(&mut out),
        _ => flate2::read::DeflateEncoder::new(page, Compression::best()).read_to_end(&mut out),
    }?;
    Ok(out)
}

/// Joins the client's connection with one to the backend, which decides whether it is to be.
async fn upgrade(call: &mut Call, location: &Location, path: &str) -> Result<Response> {
    let headers = forwarded(call, location);
    let request = request(call, headers, path, body::empty())?;
    let client = call.upgrade.take();
    let answer = backend::send(&call.context, location, request).await;
    let answer = answer.map_err(|failure| match failure {
        backend::Failure::Dial(why) => plain(format!("error dialing backend: {why}")),
        backend::Failure::Broken(why) => plain(why),
    })?;
    let status = answer.status();
    if status != StatusCode::SWITCHING_PROTOCOLS && status.as_u16() < 400 {
        return Err(plain(format!("invalid upgrade response: status code {}", status.as_u16())));
    }
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let mut response = answer.map(|incoming| -> Body { incoming.map_err(Into::into).boxed_unsync() });
        strip_hop(response.headers_mut());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        *response.version_mut() = Version::HTTP_11;
        return Ok(response);
    }
    let Some(client) = client else {
        return Err(plain("request connection cannot be hijacked".into()));
    };
    Ok(proxy::tunnelled(call, client, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_hop_go_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic x"),
            ("x-kept", "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-kept"]);
    }

    #[test]
    fn packed_pages_are_unpacked_within_bounds() {
        let page = vec![b'x'; 1000];
        for encoding in ["gzip", "deflate"] {
            let small = packed(&page, encoding).unwrap();
            assert_eq!(unpacked(&small, encoding).unwrap(), Some(page.clone()));
            let bomb = packed(&vec![0; PAGE + 1], encoding).unwrap();
            assert!(bomb.len() < 100_000);
            assert_eq!(unpacked(&bomb, encoding).unwrap(), None);
            assert_eq!(unpacked(b"nonsense", encoding).unwrap_err().code, 500);
        }
    }
}
