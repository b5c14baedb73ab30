//! The parsers of a request line, of its headers and of tokens fed with any text, for fuzzing and for tests.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;

use crate::authn;
use crate::handler::{page, websocket};
use crate::negotiate;
use crate::query::Query;
use crate::request::RequestInfo;
use crate::token::Tokens;

/// Reads a method, a path with its query and the value of `Accept` and `Content-Type` as the server does; whether they
/// name a resource. Must never panic.
pub fn request(method: &str, target: &str, media: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    let info = RequestInfo::parse(&method, path, &query);
    for key in ["continue", "resourceVersion"] {
        let Some(text) = query.text(key) else { continue };
        // Ignored: most tokens and versions are none; only panics count.
        drop((page::decode_token(text), page::resource_version(Some(text))));
    }
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(media) {
        headers.insert(http::header::ACCEPT, value.clone());
        headers.insert(http::header::CONTENT_TYPE, value);
    }
    drop((
        negotiate::choose(&headers, query.get("pretty"), info.verb == "list", |_, _| true),
        negotiate::body_encoding(&headers),
    ));
    info.resource.is_some()
}

/// Who signs tokens, and checks them.
pub struct Signer(Tokens);

impl Signer {
    /// Signs with a key of its own.
    pub fn fresh() -> Signer {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
            .expect("the system gives randomness");
        Signer(Tokens::new(&key.serialize_pem(), "https://fuzz".to_owned(), None).expect("a fresh key"))
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.0.sign(claims)
    }

    /// The claims of a token that is believed at `now`. Must never panic.
    pub fn verify(&self, token: &str, now: i64) -> Option<Value> {
        self.0.verify(token, now).ok()
    }
}

/// The user and the groups in a client's certificate. Must never panic.
pub fn certificate(der: &[u8]) -> Option<(String, Vec<String>)> {
    let identity = authn::from_certificate(der)?;
    Some((identity.user, identity.groups))
}

/// Agrees on a WebSocket with a client that sends these headers; the answer's headers, and `data` as one message of it.
/// Must never panic.
pub fn log_socket(headers: &HeaderMap, data: &[u8]) -> Option<(HeaderMap, Bytes)> {
    if !websocket::is_asked(headers) {
        return None;
    }
    let agreed = websocket::agree(headers)?;
    Some((agreed.response.headers().clone(), agreed.message(data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_request_line_is_read_without_a_panic() {
        assert!(request("GET", "/api/v1/namespaces/a/pods/b?pretty=1", "application/json"));
        for target in
            ["", "?", "/", "//", "/api//", "/apis/%ff/%", "/api/v1/watch/", "/api/v1/x?continue=%%%"]
        {
            request("BREW", target, "application/json;;;=;as=Table");
        }
    }
}
