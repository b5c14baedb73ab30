//! The one body type that every response has, whoever asks: a socket or a client in this process.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;

/// An error of a body that could not be carried to its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A response or request body with its type erased.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A response of the API server.
pub(crate) type Response = http::Response<Body>;

/// Warnings of more characters than this in all are cut,
const WARNINGS: usize = 4096;
/// each to this length.
const WARNING: usize = 256;

/// Adds warnings to a response: each once, and cut short when they are too many, as upstream does.
pub(crate) fn warn(response: &mut Response, warnings: &[String]) {
    let mut seen = std::collections::HashSet::new();
    let warnings: Vec<&String> = warnings.iter().filter(|warning| seen.insert(*warning)).collect();
    let total: usize = warnings.iter().map(|warning| warning.chars().count()).sum();
    let mut written = 0;
    for warning in warnings {
        let most = if total > WARNINGS { WARNING } else { usize::MAX };
        let text: String = warning.chars().take(most).collect();
        written += text.chars().count();
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = http::HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(http::header::WARNING, value);
        }
        if written >= WARNINGS {
            break;
        }
    }
}

/// A body that is there already.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body without a byte in it.
pub(crate) fn empty() -> Body {
    full(Bytes::new())
}

/// Builds a response of known status and media type.
pub(crate) fn respond(code: http::StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(full(body));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    response
}

/// Builds a response whose body is made piece by piece; one that is a single piece is sent with its length.
pub(crate) fn respond_pieces(
    code: http::StatusCode,
    media: &'static str,
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> Response {
    let mut pieces = pieces.peekable();
    let first = pieces.next().unwrap_or_default();
    if pieces.peek().is_none() {
        return respond(code, media, first);
    }
    let frames = std::iter::once(first).chain(pieces).map(|piece| Ok(Frame::data(piece)));
    let mut response = respond(code, media, Bytes::new());
    *response.body_mut() = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
    response
}

/// Builds a JSON response from a value.
pub(crate) fn json(code: http::StatusCode, value: &serde_json::Value) -> Response {
    respond(code, "application/json", to_bytes(value))
}

/// Serializes a value; a `serde_json::Value` always can be.
pub(crate) fn to_bytes(value: &serde_json::Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can be written as JSON")
}
