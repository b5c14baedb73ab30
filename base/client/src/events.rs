//! Answers that go on: lines as they come, and the events of a watch in them.

use std::borrow::Cow;
use std::io;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::{Body, BoxError};
use crate::client::{Error, Result};

/// The longest line that is taken: many times what an API server stores in one object.
const LONGEST: usize = 64 << 20;

/// The lines of an answer.
pub struct Lines {
    body: Body,
    read: BytesMut,
    /// So much of what was read has no end of line in it.
    searched: usize,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(body: Body) -> Lines {
        Lines { body, read: BytesMut::new(), searched: 0, ended: false }
    }

    /// The next line without its end; the last one may have none. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.read[self.searched..]) {
                let mut line = self.read.split_to(self.searched + at + 1);
                self.searched = 0;
                let end = if line.ends_with(b"\r\n") { 2 } else { 1 };
                line.truncate(line.len() - end);
                return words(line.freeze()).map(Some);
            }
            self.searched = self.read.len();
            if self.ended {
                self.searched = 0;
                let rest = self.read.split().freeze();
                return if rest.is_empty() { Ok(None) } else { words(rest).map(Some) };
            }
            if self.read.len() > LONGEST {
                return Err(Error::Read("a line without end".into()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                // The server or what stands between closed it without a word; whoever watches goes on from where it was.
                Some(Err(error)) if is_cut(&*error) => self.ended = true,
                Some(Err(error)) => return Err(Error::Read(error)),
                None => self.ended = true,
            }
        }
    }
}

fn words(line: Bytes) -> Result<String> {
    String::from_utf8(line.into()).map_err(|error| Error::Read(BoxError::from(error)))
}

/// Whether an answer ended where more was announced.
fn is_cut(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    for _ in 0..16 {
        let Some(error) = cause else { return false };
        let cut = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        if error.downcast_ref::<io::Error>().is_some_and(cut) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What a line of a watch says; objects are not read yet.
#[derive(Debug)]
pub(crate) enum Line {
    Added(Box<RawValue>),
    Modified(Box<RawValue>),
    Deleted(Box<RawValue>),
    /// Nothing but that all is told up to this resource version.
    Bookmark(String),
    Error(Box<Status>),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    object: Box<RawValue>,
}

#[derive(Deserialize)]
struct Marked {
    metadata: Mark,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    resource_version: String,
}

/// The events of a watch.
pub(crate) struct Events(Lines);

impl Events {
    pub(crate) fn new(lines: Lines) -> Events {
        Events(lines)
    }

    /// The next event; `None` when the watch is over. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Line>> {
        loop {
            match self.0.next().await {
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => match parse(&line) {
                    // The last line of a watch that was cut.
                    Err(Error::Decode(error)) if error.is_eof() => {}
                    parsed => return Some(parsed),
                },
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn parse(line: &str) -> Result<Line> {
    let envelope: Envelope<'_> = match serde_json::from_str(line) {
        Ok(envelope) => envelope,
        Err(error) if error.is_eof() => return Err(Error::Decode(error)),
        Err(error) => {
            // A refusal that came too late for a status line of its own.
            let status = serde_json::from_str::<Status>(line).ok().filter(|status| status.code != 0);
            return Err(status.map_or(Error::Decode(error), |status| Error::Api(Box::new(status))));
        }
    };
    let object = envelope.object;
    Ok(match &*envelope.kind {
        "ADDED" => Line::Added(object),
        "MODIFIED" => Line::Modified(object),
        "DELETED" => Line::Deleted(object),
        "BOOKMARK" => {
            let marked: Marked = serde_json::from_str(object.get()).map_err(Error::Decode)?;
            Line::Bookmark(marked.metadata.resource_version)
        }
        "ERROR" => Line::Error(Box::new(serde_json::from_str(object.get()).map_err(Error::Decode)?)),
        _ => return Err(Error::Lacks("a known type of event")),
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn lines(chunks: Vec<io::Result<&'static str>>) -> Lines {
        let frames = chunks.into_iter().map(|chunk| chunk.map(|text| Frame::data(Bytes::from(text))));
        Lines::new(Body::wrap(StreamBody::new(stream::iter(frames.collect::<Vec<_>>()))))
    }

    #[tokio::test]
    async fn lines_are_put_together_from_pieces() {
        let mut lines = lines(vec![Ok("on"), Ok("e\ntw"), Ok("o\r\n\nlast")]);
        for wanted in [Some("one"), Some("two"), Some(""), Some("last"), None] {
            assert_eq!(lines.next().await.unwrap().as_deref(), wanted);
        }
    }

    #[tokio::test]
    async fn a_watch_that_is_cut_ends_and_one_that_fails_says_so() {
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut events = Events::new(lines(vec![Ok("{\"type\":\"ADDED\",\"obj"), Err(cut)]));
        assert!(events.next().await.is_none());
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let mut events = Events::new(lines(vec![Err(reset)]));
        assert!(matches!(events.next().await, Some(Err(Error::Read(_)))));
    }

    #[test]
    fn an_event_is_read_whatever_comes_first_in_it() {
        for line in [r#"{"type":"MODIFIED","object":{"a":1}}"#, r#"{"object":{"a":1},"type":"MODIFIED"}"#] {
            let Ok(Line::Modified(object)) = parse(line) else { panic!("{line}") };
            assert_eq!(object.get(), r#"{"a":1}"#);
        }
        let mark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#;
        assert!(matches!(parse(mark), Ok(Line::Bookmark(version)) if version == "7"));
        let gone =
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}"#;
        assert!(matches!(parse(gone), Ok(Line::Error(status)) if status.code == 410));
        assert!(matches!(parse(r#"{"type":"RENAMED","object":{}}"#), Err(Error::Lacks(_))));
    }

    #[test]
    fn a_status_in_place_of_an_event_is_a_refusal() {
        let line = r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"no"}"#;
        assert!(matches!(parse(line), Err(Error::Api(status)) if status.code == 403));
        assert!(matches!(parse("[]"), Err(Error::Decode(_))));
    }
}
