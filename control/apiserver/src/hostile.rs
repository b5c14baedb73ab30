//! What reads foreign text, fed with any text, for fuzzing and for tests: request lines, headers, tokens, definitions with
//! objects of theirs, and the replies of webhooks.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use podwire_api::definition::{self, Rules, Source, conditions};
use podwire_api::{Kind, builtin, defaults, strategy, strict, validate};
use serde_json::Value;

use crate::admission::webhook;
use crate::authn;
use crate::conversion;
use crate::handler::create;
use crate::handler::{page, websocket};
use crate::negotiate;
use crate::query::Query;
use crate::request::RequestInfo;
use crate::rules::Lazy;
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

/// A definition that nobody stores.
#[derive(Debug)]
struct Loose(Value);

impl Source for Loose {
    fn definition(&self) -> Option<Value> {
        Some(self.0.clone())
    }

    fn rules(self: Arc<Self>, version: &str) -> Option<Arc<dyn Rules>> {
        Some(Arc::new(Lazy::new(self, version)))
    }
}

/// A definition, with the kinds that are served of it.
pub struct Defined(Vec<Arc<Kind>>);

impl Defined {
    /// Reads, defaults and checks a definition as the server does. Nothing when it would be refused. Must never panic.
    pub fn read(bytes: &[u8]) -> Option<Defined> {
        let kind = builtin::custom_resource_definitions();
        let mut definition = shaped(kind, bytes)?;
        if !validate::create(kind, &definition).is_empty()
            || !create::expressions(kind, &definition, None).is_empty()
        {
            return None;
        }
        definition["status"] = conditions::settled(&definition, &[], "2026-01-01T00:00:00Z")?;
        let source: Arc<dyn Source> = Arc::new(Loose(definition.clone()));
        Some(Defined(definition::kinds(&definition, &source)))
    }

    /// What the server would store of an object, for each version that takes it. Must never panic, and an object that
    /// was taken is not changed by being read again.
    pub fn objects(&self, bytes: &[u8]) -> Vec<Value> {
        let taken = self.0.iter().filter_map(|kind| {
            let object = shaped(kind, bytes)?;
            // Ignored: what it complains of does not matter here; only panics do.
            drop(validate::update(kind, &object, &object));
            if !validate::create(kind, &object).is_empty() {
                return None;
            }
            let mut again = object.clone();
            kind.strategy.to_storage(&mut again);
            kind.strategy.to_served(&mut again);
            Some(object)
        });
        taken.collect()
    }

    /// The objects in the reply of a conversion webhook that was asked for these in the first version. Must never panic.
    pub fn converted(&self, reply: &[u8], uid: &str, asked: &[Value]) -> Option<Vec<Value>> {
        let kind = self.0.first()?;
        let conversion = kind.strategy.conversion()?;
        let desired = conversion.api_version(&kind.version);
        asked.iter().try_for_each(|object| conversion.check(object, &desired)).ok()?;
        conversion::read(conversion, reply, uid, asked, &desired).ok()
    }
}

/// An object of a kind as it is before it is checked.
fn shaped(kind: &Kind, bytes: &[u8]) -> Option<Value> {
    let mut object = strict::decode_json(bytes).ok()?.value;
    strict::conform(kind, &mut object).ok()?;
    defaults::apply(kind, &mut object);
    kind.strategy.complete(&mut object);
    strategy::prepare_create(kind, &mut object);
    Some(object)
}

/// What the reply of an admission webhook makes of a pod. Must never panic.
pub fn admission_reply(reply: &[u8], uid: &str, pod: &Value) -> Option<Value> {
    let kind = builtin::pods();
    let made = webhook::answered(reply, uid, kind, pod).ok()?;
    // Ignored: most of what is made is wrong; only panics count.
    drop(validate::create(kind, &made));
    Some(made)
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
