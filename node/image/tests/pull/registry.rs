//! A loopback registry that can misbehave in the ways real ones do.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use podwire_image::Digest;
use podwire_image::build::Built;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

type Body = BoxBody<Bytes, std::io::Error>;

/// How the registry wants to be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    #[default]
    Open,
    /// `Basic` with this pair in base64.
    Basic(&'static str),
    /// A token from `/token`, which itself wants this pair in base64, or nothing.
    Token(Option<&'static str>),
    /// A token traded for this refresh token.
    Refresh(&'static str),
    /// This very bearer token.
    Bearer(&'static str),
    /// A token from somebody else's address.
    Realm(SocketAddr),
}

/// What goes wrong, by path ending: how often and how.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This status, with a Retry-After of zero seconds.
    Status(u16),
    /// The body ends after so many bytes although more were announced.
    Truncate(usize),
    /// The body stops coming after so many bytes.
    Stall(usize),
    /// One byte is another.
    Corrupt,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) door: Door,
    manifests: HashMap<String, (Vec<u8>, String)>,
    blobs: HashMap<String, Vec<u8>>,
    faults: Vec<(String, u32, Fault)>,
    /// Method, path with query, authorization, range of each request.
    pub(crate) seen: Vec<(String, String, Option<String>, Option<String>)>,
    pub(crate) ignore_ranges: bool,
    /// Blobs are redirected here.
    pub(crate) elsewhere: Option<SocketAddr>,
    pub(crate) delay: Duration,
}

pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl Registry {
    pub(crate) async fn start() -> Self {
        Self::serve(None).await
    }

    pub(crate) async fn start_tls(config: rustls::ServerConfig) -> Self {
        Self::serve(Some(tokio_rustls::TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let state = Arc::clone(&state);
                        async move { Ok::<_, Infallible>(answer(request, &state, address).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // Clients may go away at any time.
                    match tls {
                        None => drop(http.serve_connection(TokioIo::new(socket), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(socket).await {
                                drop(http.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, _tasks: tasks }
    }

    /// The reference of an image here.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// Offers an image under `repository:tag` and its digest.
    pub(crate) fn offer(&self, repository: &str, tag: &str, built: &Built) {
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        self.put_manifest(repository, tag, &built.manifest, media_type);
        let layers = built.layers.iter().map(|(bytes, _)| bytes);
        for blob in layers.chain([&built.config]) {
            self.put_blob(blob);
        }
    }

    pub(crate) fn put_manifest(&self, repository: &str, tag: &str, bytes: &[u8], media_type: &str) {
        let mut state = self.state.lock().unwrap();
        for target in [tag.to_owned(), Digest::of(bytes).to_string()] {
            state
                .manifests
                .insert(format!("{repository}/manifests/{target}"), (bytes.to_vec(), media_type.to_owned()));
        }
    }

    pub(crate) fn put_blob(&self, bytes: &[u8]) {
        self.state.lock().unwrap().blobs.insert(Digest::of(bytes).to_string(), bytes.to_vec());
    }

    /// The next `times` requests whose path contains `part` go wrong.
    pub(crate) fn fault(&self, part: &str, times: u32, fault: Fault) {
        self.state.lock().unwrap().faults.push((part.to_owned(), times, fault));
    }

    pub(crate) fn seen(&self, part: &str) -> usize {
        self.state.lock().unwrap().seen.iter().filter(|(_, path, ..)| path.contains(part)).count()
    }
}

fn full(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes.into()).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

async fn answer(request: Request<Incoming>, state: &Mutex<State>, own: SocketAddr) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let path = parts.uri.path().to_owned();
    let delay = {
        let mut state = state.lock().unwrap();
        let whole = parts.uri.path_and_query().unwrap().to_string();
        state.seen.push((parts.method.to_string(), whole, header("authorization"), header("range")));
        state.delay
    };
    tokio::time::sleep(delay).await;
    if path == "/token" {
        let body = body.collect().await.unwrap().to_bytes();
        return token(&parts.method, &parts.headers, &body, &state.lock().unwrap().door);
    }
    let mut state = state.lock().unwrap();
    if let Some(refusal) = refuse(&state.door, header("authorization").as_deref(), own) {
        return refusal;
    }
    let fault = state.faults.iter_mut().find(|(part, times, _)| *times > 0 && path.contains(part.as_str()));
    let fault = fault.map(|(_, times, fault)| {
        *times -= 1;
        fault.clone()
    });
    if let Some(Fault::Status(code)) = fault {
        let mut response = full(
            StatusCode::from_u16(code).unwrap(),
            r#"{"errors":[{"code":"FAULT","message":"on purpose"}]}"#,
        );
        response.headers_mut().insert("retry-after", "0".parse().unwrap());
        return response;
    }
    let Some(rest) = path.strip_prefix("/v2/") else { return full(StatusCode::NOT_FOUND, "") };
    if let Some((bytes, media_type)) = state.manifests.get(rest) {
        let mut response = send(bytes.clone(), None, fault);
        response.headers_mut().insert("content-type", media_type.parse().unwrap());
        return response;
    }
    let digest = rest.rsplit('/').next().unwrap();
    if let Some(elsewhere) = state.elsewhere {
        let mut response = full(StatusCode::TEMPORARY_REDIRECT, "");
        response.headers_mut().insert("location", format!("http://{elsewhere}{path}").parse().unwrap());
        return response;
    }
    match state.blobs.get(digest) {
        Some(bytes) => {
            let range = header("range").filter(|_| !state.ignore_ranges);
            let from =
                range.map(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
            send(bytes.clone(), from, fault)
        }
        None => full(StatusCode::NOT_FOUND, r#"{"errors":[{"code":"BLOB_UNKNOWN","message":"no"}]}"#),
    }
}

fn send(mut bytes: Vec<u8>, from: Option<usize>, fault: Option<Fault>) -> Response<Body> {
    let status = if from.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    bytes.drain(..from.unwrap_or(0));
    let length = bytes.len();
    let tail = match fault {
        Some(Fault::Corrupt) => {
            bytes[length / 2] ^= 1;
            None
        }
        Some(Fault::Truncate(keep)) => {
            bytes.truncate(keep);
            Some(false)
        }
        Some(Fault::Stall(keep)) => {
            bytes.truncate(keep);
            Some(true)
        }
        _ => None,
    };
    let chunks: Vec<_> =
        bytes.chunks(16 * 1024).map(|part| Ok(Frame::data(Bytes::copy_from_slice(part)))).collect();
    let chunks = futures::stream::iter(chunks);
    let end = futures::stream::once(async move {
        if tail == Some(true) {
            std::future::pending::<()>().await;
        }
        // What was sent so far must be on its way before the connection breaks.
        tokio::time::sleep(Duration::from_millis(30)).await;
        Err(std::io::Error::other("cut on purpose"))
    });
    let body: Body = match tail {
        None => BodyExt::boxed(StreamBody::new(chunks)),
        Some(_) => BodyExt::boxed(StreamBody::new(chunks.chain(end))),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("content-length", length.to_string().parse().unwrap());
    response
}

/// The 401 of a request that did not bring what the door wants.
fn refuse(door: &Door, authorization: Option<&str>, own: SocketAddr) -> Option<Response<Body>> {
    let bearer = format!(r#"Bearer realm="http://{own}/token",service="test",scope="repository:app:pull""#);
    let (wanted, challenge) = match door {
        Door::Open => return None,
        Door::Basic(pair) => (format!("Basic {pair}"), r#"Basic realm="test""#.to_owned()),
        Door::Token(_) | Door::Refresh(_) => ("Bearer good".to_owned(), bearer),
        Door::Bearer(token) => (format!("Bearer {token}"), bearer),
        Door::Realm(other) => {
            ("Bearer good".to_owned(), format!(r#"Bearer realm="http://{other}/token",service="test""#))
        }
    };
    if authorization == Some(&wanted) {
        return None;
    }
    let words = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    let mut response = full(StatusCode::UNAUTHORIZED, words);
    response.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
    Some(response)
}

fn token(method: &Method, headers: &HeaderMap, body: &[u8], door: &Door) -> Response<Body> {
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap());
    let good = match door {
        Door::Token(None) => authorization.is_none(),
        Door::Token(Some(pair)) => authorization == Some(&format!("Basic {pair}")),
        Door::Refresh(token) => {
            let body = String::from_utf8_lossy(body);
            method == Method::POST
                && body.contains("grant_type=refresh_token")
                && body.contains(&format!("refresh_token={token}"))
        }
        _ => false,
    };
    if good {
        full(StatusCode::OK, r#"{"access_token":"good","expires_in":300}"#)
    } else {
        full(StatusCode::UNAUTHORIZED, r#"{"errors":[{"code":"DENIED","message":"wrong credentials"}]}"#)
    }
}
