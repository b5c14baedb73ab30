//! The gRPC health check, with the two messages it takes written out.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

use super::check::{Answer, AnyError, dial};

const SERVING: i32 = 1;
/// An answer has seven bytes; a server that goes on talking is not listened to.
const ANSWER_LIMIT: usize = 16 * 1024;

/// The answer: `HealthCheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Asks `grpc.health.v1.Health/Check` for `service`.
pub(super) async fn health(host: &str, port: u16, service: &str, timeout: Duration) -> Answer {
    match tokio::time::timeout(timeout, ask(host, port, service)).await {
        Err(_) => {
            Answer::Failure(format!("timeout: health rpc did not complete within {}s", timeout.as_secs()))
        }
        Ok(Err(error)) => Answer::Failure(format!("error: health rpc probe failed: {error}")),
        Ok(Ok(SERVING)) => Answer::Success("service healthy".to_owned()),
        Ok(Ok(status)) => {
            let name = match status {
                0 => "UNKNOWN",
                2 => "NOT_SERVING",
                _ => "SERVICE_UNKNOWN",
            };
            Answer::Failure(format!("service unhealthy (responded with \"{name}\")"))
        }
    }
}

async fn ask(host: &str, port: u16, service: &str) -> Result<i32, AnyError> {
    let stream = dial(host, port).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let request = http::Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(frame(service)))?;
    let talk = async {
        let response = sender.send_request(request).await?;
        let head = response.headers().get("grpc-status").cloned();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await?;
        let trailer = body.trailers().and_then(|t| t.get("grpc-status").cloned()).or(head);
        if trailer.is_some_and(|status| status != "0") {
            return Err("the server did not answer the question".into());
        }
        read(&body.to_bytes()).ok_or_else(|| "the server's answer is no health check's".into())
    };
    tokio::select! {
        answer = talk => answer,
        ended = connection => {
            ended?;
            Err("connection closed".into())
        }
    }
}

/// A length-prefixed HealthCheckRequest: field 1 is the service's name.
fn frame(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or_default());
    framed.put(message);
    framed.freeze()
}

#[allow(clippy::cast_possible_truncation)] // Seven bits at a time.
fn varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value as u8) | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The status in any bytes, for `hostile`.
pub(crate) fn status(body: &[u8]) -> i32 {
    read(body).unwrap_or_default()
}

/// The status in the one frame of an answer, which is not compressed as nobody asked for that.
fn read(body: &[u8]) -> Option<i32> {
    let ([compressed, length @ ..], message) = body.split_first_chunk::<5>()?;
    let is_whole = usize::try_from(u32::from_be_bytes(*length)).is_ok_and(|length| length == message.len());
    if *compressed != 0 || !is_whole {
        return None;
    }
    Some(Response::decode(message).ok()?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one connection whose answer has `size` bytes of data, and counts how many were taken.
    async fn serve(listener: tokio::net::TcpListener, size: usize) -> usize {
        use std::sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        };
        let taken: Arc<AtomicUsize> = Arc::default();
        let counted = taken.clone();
        let service = hyper::service::service_fn(move |_: http::Request<hyper::body::Incoming>| {
            let counted = counted.clone();
            let frames = futures::stream::unfold(0, move |sent| {
                let counted = counted.clone();
                let piece = size.saturating_sub(sent).min(1024);
                async move {
                    (piece > 0).then(|| {
                        counted.fetch_add(piece, Ordering::Relaxed);
                        let frame = hyper::body::Frame::data(Bytes::from(vec![0; piece]));
                        (Ok::<_, std::convert::Infallible>(frame), sent + piece)
                    })
                }
            });
            let body = http_body_util::StreamBody::new(frames);
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        let (socket, _) = listener.accept().await.unwrap();
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // Ignored: the client goes when it has had enough.
        server.serve_connection(TokioIo::new(socket), service).await.ok();
        taken.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_answer_without_end_is_a_failure_and_not_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_secs(60);
        let (taken, got) = tokio::join!(serve(listener, 1 << 30), health("127.0.0.1", port, "", limit));
        assert!(matches!(&got, Answer::Failure(text) if text.starts_with("error: health rpc")), "{got:?}");
        assert!(taken < 16 << 20, "{taken} bytes were asked for");
    }

    #[test]
    fn the_health_messages_are_framed_as_grpc_says() {
        assert_eq!(&frame("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&frame("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(read(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(read(&[0, 0, 0, 0, 0]), Some(0));
    }

    #[test]
    fn only_a_whole_answer_is_believed_whatever_else_is_in_it() {
        // A field that a later version may add, in front; the same number in more bytes; the last of two.
        for message in [&[0x12, 1, b'a', 8, 1][..], &[8, 0x81, 0], &[8, 2, 8, 1]] {
            let length = u8::try_from(message.len()).unwrap();
            assert_eq!(read(&[&[0, 0, 0, 0, length], message].concat()), Some(1), "{message:?}");
        }
        for body in [&[0, 0, 0, 0, 0, 8, 1][..], &[1, 0, 0, 0, 2, 8, 1], &[0, 0, 0, 0, 9, 8, 1], &[]] {
            assert_eq!(read(body), None, "{body:?}");
        }
    }
}
