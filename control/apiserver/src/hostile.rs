//! The parsers of a request line and of its headers fed with any text, for fuzzing and for tests.

use http::{HeaderMap, HeaderValue, Method};

use crate::handler::page;
use crate::negotiate;
use crate::query::Query;
use crate::request::RequestInfo;

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
