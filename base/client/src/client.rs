//! One request, one answer: the way to the API server, whatever is between.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube_core::Status;
use serde_json::Value;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::body::{Body, BoxError};
use crate::events::Lines;
use crate::kubeconfig::{Config, ConfigError};
use crate::transport::Remote;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server answered with an error.
    #[error("{} ({})", .0.message, .0.code)]
    Api(Box<Status>),
    /// There was no answer.
    #[error("the API server did not answer: {}", innermost(&**.0))]
    Service(#[source] BoxError),
    /// The answer broke off.
    #[error("the answer broke off")]
    Read(#[source] BoxError),
    /// The answer is not what was asked for.
    #[error("the answer is not understood: {0}")]
    Decode(serde_json::Error),
    /// The answer lacks what it must have.
    #[error("the answer lacks {0}")]
    Lacks(&'static str),
    /// The request could not be put together.
    #[error("the request could not be made")]
    Request(#[source] BoxError),
    /// The server would not go on to another protocol.
    #[error("the server did not switch protocols: {0}")]
    Upgrade(String),
}

/// What a call comes to.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason behind the reasons: whoever meets the error wants to know that nobody listens, not that a connection failed.
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

impl From<kube_core::request::Error> for Error {
    fn from(error: kube_core::request::Error) -> Error {
        Error::Request(error.into())
    }
}

/// The way to an API server; cheap to clone.
#[derive(Clone)]
pub struct Client {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>,
    namespace: Arc<str>,
}

impl Client {
    /// A client of any service, such as the API server of this process; `namespace` is that of a bare name.
    pub fn new<S, B>(service: S, namespace: &str) -> Client
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.map_response(|answer: Response<B>| answer.map(Body::wrap)).map_err(Into::into);
        Client { service: BoxCloneSyncService::new(service), namespace: namespace.into() }
    }

    /// A client of the cluster that a kubeconfig names.
    pub async fn connect(config: Config) -> Result<Client, ConfigError> {
        let namespace = config.namespace.clone();
        Ok(Client::new(Remote::new(config).await?, &namespace))
    }

    /// The namespace of a bare name.
    pub fn default_namespace(&self) -> &str {
        &self.namespace
    }

    /// Sends a request; any answer is one. Cancel safe as far as the server is.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>> {
        self.service.clone().oneshot(request).await.map_err(Error::Service)
    }

    /// Sends a request; the answer as it comes.
    pub async fn request_stream(&self, request: Request<Vec<u8>>) -> Result<Body> {
        let answer = self.send(request.map(Body::from)).await?;
        Ok(granted(answer).await?.into_body())
    }

    /// Sends a request; the lines of the answer as they come.
    pub async fn request_lines(&self, request: Request<Vec<u8>>) -> Result<Lines> {
        self.request_stream(request).await.map(Lines::new)
    }

    /// Sends a request; the text of the answer.
    pub async fn request_text(&self, request: Request<Vec<u8>>) -> Result<String> {
        text(self.request_stream(request).await?).await
    }

    /// The JSON at a path that is none of a resource, such as a document about the server.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).header(http::header::ACCEPT, "application/json").body(Vec::new());
        self.request(request.map_err(|error| Error::Request(error.into()))?).await
    }

    /// Sends a request; the JSON of the answer.
    pub async fn request(&self, request: Request<Vec<u8>>) -> Result<Value> {
        serde_json::from_str(&self.request_text(request).await?).map_err(Error::Decode)
    }
}

async fn text(body: Body) -> Result<String> {
    let bytes = body.collect().await.map_err(Error::Read)?.to_bytes();
    String::from_utf8(bytes.into()).map_err(|error| Error::Read(error.into()))
}

/// The answer unless it is a refusal.
pub(crate) async fn granted(answer: Response<Body>) -> Result<Response<Body>> {
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(answer);
    }
    let text = text(answer.into_body()).await?;
    // What stands between may refuse in words of its own.
    let status = serde_json::from_str::<Status>(&text).unwrap_or_else(|_| {
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    Err(Error::Api(Box::new(status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(code: u16, body: &'static str) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let mut answer = Response::new(Body::from(body));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        Client::new(service, "default")
    }

    fn request() -> Request<Vec<u8>> {
        Request::get("/version").body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_read() {
        let value = answering(200, r#"{"major":"1"}"#).request(request()).await.unwrap();
        assert_eq!(value["major"], "1");
    }

    #[tokio::test]
    async fn a_refusal_carries_the_servers_status() {
        let body = r#"{"kind":"Status","status":"Failure","message":"pods \"p\" not found","reason":"NotFound","code":404}"#;
        let error = answering(404, body).request(request()).await.unwrap_err();
        let Error::Api(status) = &error else { panic!("{error:?}") };
        assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
        assert_eq!(error.to_string(), "pods \"p\" not found (404)");
    }

    #[tokio::test]
    async fn a_refusal_in_other_words_is_one_too() {
        let error = answering(502, " bad gateway\n").request(request()).await.unwrap_err();
        let Error::Api(status) = &error else { panic!("{error:?}") };
        assert_eq!((status.code, status.message.as_str()), (502, "bad gateway"));
    }

    #[tokio::test]
    async fn no_answer_is_told_by_its_innermost_reason() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            Err::<Response<Body>, _>(Error::Read(refused.into()))
        });
        let error = Client::new(service, "default").request(request()).await.unwrap_err();
        assert_eq!(error.to_string(), "the API server did not answer: connection refused");
    }
}
