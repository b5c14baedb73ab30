//! A stream of bytes told over a WebSocket, as upstream tells logs to clients that ask for one.
//!
//! Only ever sends: what the client says is read and forgotten, and its end ends the stream. Messages are as large as
//! the pieces the bytes come in. <https://datatracker.ietf.org/doc/html/rfc6455>

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::body::{self, Body, Response};

/// What a key is joined with before it is hashed.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
/// A close frame that says that all is well.
const CLOSE: &[u8] = &[0x88, 2, 0x03, 0xe8];

/// Whether a client asks for a WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade")
}

/// How the bytes are put into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Binary,
    Base64,
}

/// An agreed WebSocket.
pub(crate) struct Agreed {
    form: Form,
    /// The answer that turns the connection into one.
    pub(crate) response: Response,
}

/// Agrees on a protocol; none if the client asks only for those we do not have, or asks wrongly.
pub(crate) fn agree(headers: &HeaderMap) -> Option<Agreed> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    let asked =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut asked = asked.flat_map(|text| text.split(',')).map(str::trim).peekable();
    let (form, protocol) = match asked.peek() {
        None => (Form::Binary, None),
        Some(_) => asked.find_map(|name| match name {
            "binary.k8s.io" => Some((Form::Binary, Some("binary.k8s.io"))),
            "base64.binary.k8s.io" => Some((Form::Base64, Some("base64.binary.k8s.io"))),
            _ => None,
        })?,
    };
    let mut response = http::Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept(key)).ok()?);
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Some(Agreed { form, response })
}

fn accept(key: &str) -> String {
    let text = format!("{key}{GUID}");
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

impl Agreed {
    /// One message with these bytes.
    pub(crate) fn message(&self, data: &[u8]) -> Bytes {
        frame(self.form, data)
    }

    /// Carries `source` to the client until either ends.
    pub(super) fn carry<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        client: S,
        source: Body,
    ) -> impl Future<Output = std::io::Result<()>> + Send + use<S> {
        carry(self.form, client, source)
    }
}

async fn carry<S: AsyncRead + AsyncWrite + Send + Unpin>(
    form: Form,
    client: S,
    mut source: Body,
) -> std::io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let told = async {
        // Upstream begins with a message of nothing, so that the client knows that it is connected.
        writer.write_all(&frame(form, &[])).await?;
        while let Some(Ok(next)) = source.frame().await {
            let Ok(data) = next.into_data() else { continue };
            if !data.is_empty() {
                writer.write_all(&frame(form, &data)).await?;
            }
        }
        writer.write_all(CLOSE).await?;
        writer.shutdown().await
    };
    let gone = async {
        let mut forgotten = [0; 1024];
        while let Ok(1..) = reader.read(&mut forgotten).await {
            // A client that closes says so in the first byte of what may be its only message.
            if forgotten[0] == CLOSE[0] {
                break;
            }
        }
    };
    tokio::select! {
        result = told => result,
        () = gone => Ok(()),
    }
}

/// One message in one frame; a server does not mask.
fn frame(form: Form, data: &[u8]) -> Bytes {
    let encoded = if form == Form::Base64 { STANDARD.encode(data).into_bytes() } else { Vec::new() };
    let (opcode, payload) = match form {
        Form::Binary => (BINARY, data),
        Form::Base64 => (TEXT, encoded.as_slice()),
    };
    let mut out = BytesMut::with_capacity(payload.len() + 10);
    out.put_u8(opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..126), _) => out.put_u8(length),
        (_, Ok(length)) => {
            out.put_u8(126);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(payload.len() as u64);
        }
    }
    out.put_slice(payload);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(protocol: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, "WebSocket".parse().unwrap());
        headers.insert(header::CONNECTION, "keep-alive, Upgrade".parse().unwrap());
        headers.insert(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==".parse().unwrap());
        if !protocol.is_empty() {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_protocol_is_agreed_on() {
        assert!(is_asked(&headers("")) && !is_asked(&HeaderMap::new()));
        let agreed = agree(&headers("")).unwrap();
        // The example of RFC 6455, section 1.3.
        assert_eq!(agreed.response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!agreed.response.headers().contains_key("sec-websocket-protocol"));
        let agreed = agree(&headers("v5.channel.k8s.io, base64.binary.k8s.io")).unwrap();
        assert_eq!(agreed.form, Form::Base64);
        assert_eq!(agreed.response.headers()["sec-websocket-protocol"], "base64.binary.k8s.io");
        assert!(agree(&headers("chat")).is_none());
    }

    #[test]
    fn messages_of_every_length_are_framed() {
        assert_eq!(&frame(Form::Binary, b"ab")[..], b"\x82\x02ab");
        assert_eq!(&frame(Form::Base64, b"ab")[..], b"\x81\x04YWI=");
        assert_eq!(&frame(Form::Binary, &[7; 126])[..5], b"\x82\x7e\x00\x7e\x07");
        assert_eq!(&frame(Form::Binary, &[7; 70_000])[..10], b"\x82\x7f\x00\x00\x00\x00\x00\x01\x11\x70");
    }
}
