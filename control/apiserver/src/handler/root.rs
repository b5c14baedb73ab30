//! Everything that is no resource: health, version, discovery, OpenAPI, the token issuer's keys.

use std::io::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use podwire_api::{Registry, discovery, openapi};
use serde_json::{Value, json};

use crate::body::{self, Response, respond};
use crate::context::Context;
use crate::kinds::{Document, Served};
use crate::status::{ApiError, Result};

/// Upstream's version that this server behaves like.
const MINOR: &str = "36";
const GIT_VERSION: &str = concat!("v1.36.4+podwire-", env!("CARGO_PKG_VERSION"));

/// What upstream's router says about a path nobody serves.
pub(crate) fn page_not_found() -> Response {
    let mut response = respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n");
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// What is said about a resource or version nobody serves: more, if the group is a built-in one.
pub(crate) fn unknown(group: &str) -> Result<Response> {
    if Registry::builtin().groups().iter().any(|(known, _)| *known == group) {
        return Err(ApiError::no_such_resource());
    }
    Ok(page_not_found())
}

/// Answers a path that names no resource.
pub(crate) async fn answer(context: &Context, parts: &http::request::Parts, path: &str) -> Result<Response> {
    let headers = &parts.headers;
    let pieces: Vec<&str> = path.trim_matches('/').split('/').collect();
    match pieces.as_slice() {
        ["healthz" | "livez" | "readyz", rest @ ..] => return health(context, parts, pieces[0], rest).await,
        _ if !matches!(parts.method, http::Method::GET | http::Method::HEAD) => {
            return Err(ApiError::method_not_allowed());
        }
        _ => {}
    }
    let served = context.kinds.now();
    let kinds = &served.registry;
    let optional = |group: &str, value: Option<Value>| match value {
        Some(value) => Ok(body::json(StatusCode::OK, &value)),
        None => unknown(group),
    };
    Ok(match pieces.as_slice() {
        ["version"] => body::json(StatusCode::OK, &version()),
        [""] => body::json(StatusCode::OK, &paths(kinds)),
        ["api"] => {
            let legacy = || discovery::api_versions(&context.advertised);
            discovered(headers, legacy, || discovery::aggregated_core(kinds))
        }
        ["apis"] => {
            let legacy = || discovery::api_group_list(kinds);
            discovered(headers, legacy, || discovery::aggregated_groups(kinds))
        }
        ["api", version] => optional("", discovery::api_resource_list(kinds, "", version))?,
        ["apis", group] => optional(group, discovery::api_group(kinds, group))?,
        ["apis", group, version] => optional(group, discovery::api_resource_list(kinds, group, version))?,
        ["openapi", "v3"] => {
            cached(&served, headers, path, "application/json", || body::to_bytes(&openapi::v3_index(kinds)))
        }
        ["openapi", "v3", "api", version] => schema(&served, headers, path, "", version),
        ["openapi", "v3", "apis", group, version] => schema(&served, headers, path, group, version),
        ["openapi", "v2"] => v2(&served, headers, path)?,
        [".well-known", "openid-configuration"] => body::json(StatusCode::OK, &openid(context)),
        ["openid", "v1", "jwks"] => {
            respond(StatusCode::OK, "application/jwk-set+json", context.tokens.jwks().to_string())
        }
        _ => page_not_found(),
    })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "emulationMajor": "1", "emulationMinor": MINOR,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": GIT_VERSION, "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "rust",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn paths(kinds: &Registry) -> Value {
    let mut paths: Vec<String> = vec!["/api".into(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in kinds.groups().into_iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    let others =
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"];
    paths.extend(others.map(String::from));
    json!({"paths": paths})
}

fn openid(context: &Context) -> Value {
    let issuer = context.tokens.issuer();
    json!({
        "issuer": issuer, "jwks_uri": format!("https://{}/openid/v1/jwks", context.advertised),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

async fn health(
    context: &Context,
    parts: &http::request::Parts,
    which: &str,
    rest: &[&str],
) -> Result<Response> {
    let store = context.store.health().await.map_err(|error| crate::error_chain(&error));
    let checks: [(&str, std::result::Result<(), String>); 3] = [
        ("ping", Ok(())),
        ("etcd", store),
        (
            "shutdown",
            if context.shutdown.is_cancelled() { Err("process is shutting down".into()) } else { Ok(()) },
        ),
    ];
    let checks = checks.iter().filter(|(name, _)| *name != "shutdown" || which == "readyz");
    if let [name] = rest {
        return Ok(match checks.clone().find(|(known, _)| known == name) {
            Some((_, Ok(()))) => respond(StatusCode::OK, "text/plain; charset=utf-8", "ok"),
            Some((_, Err(why))) => respond(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                format!("internal server error: {why}"),
            ),
            None => page_not_found(),
        });
    }
    let query = crate::query::Query::parse(parts.uri.query().unwrap_or_default());
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut text = String::new();
    let mut failed = false;
    for (name, result) in checks {
        match result {
            _ if excluded.contains(name) => text.push_str(&format!("[+]{name} excluded: ok\n")),
            Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
            Err(_) => {
                failed = true;
                text.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    let media = "text/plain; charset=utf-8";
    Ok(if failed {
        respond(StatusCode::INTERNAL_SERVER_ERROR, media, format!("{text}{which} check failed\n"))
    } else if query.get("verbose").is_some() {
        respond(StatusCode::OK, media, format!("{text}{which} check passed\n"))
    } else {
        respond(StatusCode::OK, media, "ok")
    })
}

fn accepts(headers: &HeaderMap, what: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|text| text.contains(what))
}

/// Discovery in the aggregated form, if asked for, or in the older one.
fn discovered(headers: &HeaderMap, legacy: impl Fn() -> Value, aggregated: impl Fn() -> Value) -> Response {
    let mut response = if accepts(headers, "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList") {
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        tagged(headers, media, body::to_bytes(&aggregated()).into(), None)
    } else {
        body::json(StatusCode::OK, &legacy())
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn schema(served: &Served, headers: &HeaderMap, path: &str, group: &str, version: &str) -> Response {
    if served.registry.of_group_version(group, version).next().is_none() {
        return page_not_found();
    }
    cached(served, headers, path, "application/json", || {
        body::to_bytes(&openapi::v3(&served.registry, group, version).unwrap_or_else(|| json!({})))
    })
}

fn v2(served: &Served, headers: &HeaderMap, path: &str) -> Result<Response> {
    // Asked for with an @ by older clients, with a dot by newer ones; always answered with the dot.
    if accepts(headers, "application/com.github.proto-openapi.spec.v2") {
        let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        let make = || openapi::v2_protobuf(&served.registry);
        return Ok(cached(served, headers, "/openapi/v2 in protobuf", media, make));
    }
    let json = headers.get(header::ACCEPT).is_none() || accepts(headers, "json") || accepts(headers, "*/*");
    if !json {
        return Err(ApiError::not_acceptable("application/json"));
    }
    Ok(cached(served, headers, path, "application/json", || body::to_bytes(&openapi::v2(&served.registry))))
}

/// Serves a large document, made at its first use.
fn cached(
    served: &Served,
    headers: &HeaderMap,
    path: &str,
    media: &'static str,
    make: impl FnOnce() -> Vec<u8>,
) -> Response {
    let document = served.document(path, || {
        let plain = make();
        Document { gzip: compress(&plain), plain: plain.into() }
    });
    tagged(headers, media, document.plain.clone(), Some(document.gzip.clone()))
}

fn compress(plain: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("memory can be written to").into()
}

/// Answers with an entity tag, and with nothing when the client has the document already.
fn tagged(headers: &HeaderMap, media: &'static str, plain: Bytes, gzip: Option<Bytes>) -> Response {
    let digest = ring::digest::digest(&ring::digest::SHA256, &plain);
    let tag: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02X}")).collect();
    let tag = format!("\"{tag}\"");
    let same = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(&tag);
    let zipped = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.contains("gzip"));
    let mut response = match (same, gzip.filter(|_| zipped)) {
        (true, _) => respond(StatusCode::NOT_MODIFIED, media, ""),
        (false, Some(gzip)) => {
            let mut response = respond(StatusCode::OK, media, gzip);
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        (false, None) => respond(StatusCode::OK, media, plain),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
