//! What requests and answers carry: bytes that are there, or a stream of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error, as services have them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request or an answer.
pub struct Body(Kind);

enum Kind {
    Whole(Bytes),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body(Kind::Whole(Bytes::new()))
    }

    /// The bytes of another body as they come.
    pub fn wrap<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(Kind::Stream(body.map_err(Into::into).boxed_unsync()))
    }

    /// The same body once more, when it is there as a whole.
    pub(crate) fn again(&self) -> Option<Body> {
        match &self.0 {
            Kind::Whole(bytes) => Some(Body(Kind::Whole(bytes.clone()))),
            Kind::Stream(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body(Kind::Whole(bytes.into()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}
