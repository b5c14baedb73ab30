//! Any bytes from a client of a WebSocket, in any portions: channels, terminal sizes, tunnels and the agreement on one.
//!
//! What is heard does not depend on the portions and is never more than was sent.

#![no_main]

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use podwire_runtime::stream::hostile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client that sends these bytes, so many at a time, and hears nothing.
struct Client {
    bytes: Vec<u8>,
    at: usize,
    portion: usize,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let end = self.bytes.len().min(self.at + self.portion.min(buffer.remaining()));
        buffer.put_slice(&self.bytes[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A masked frame, as clients send it.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ ..126 => vec![0x80 | u8::try_from(short).expect("short")],
        long => [&[0xfe][..], &u16::try_from(long).expect("a short message").to_be_bytes()].concat(),
    };
    // Masked with nothing, so that the mutator sees the payload.
    [&[0x80 | opcode][..], &length, &[0; 4], payload].concat()
}

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Any bytes.
    Bytes { portion: u8, bytes: &'a [u8] },
    /// Sound frames with any payloads.
    Messages { portion: u8, messages: Vec<&'a [u8]> },
    /// Terminal sizes, written out and cut.
    Sizes { sizes: Vec<(u16, u16)>, cuts: Vec<u16> },
    /// Any bytes as the channel of sizes.
    Resize(Vec<&'a [u8]>),
    /// The headers of a client that asks the API server for a WebSocket.
    Ask { headers: Vec<(u8, &'a str)>, data: &'a [u8] },
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));

const HEADERS: [HeaderName; 4] = [
    http::header::UPGRADE,
    http::header::CONNECTION,
    http::header::SEC_WEBSOCKET_KEY,
    http::header::SEC_WEBSOCKET_PROTOCOL,
];

/// The payload of a server's frame.
fn payload(frame: &[u8]) -> &[u8] {
    match frame[1] {
        short @ ..126 => {
            assert_eq!(frame.len(), 2 + usize::from(short));
            &frame[2..]
        }
        126 => {
            assert_eq!(frame.len(), 4 + usize::from(u16::from_be_bytes([frame[2], frame[3]])));
            &frame[4..]
        }
        other => panic!("a length of {other} for {} bytes", frame.len()),
    }
}

fn heard(bytes: &[u8], portion: u8) {
    let client = |portion: usize| Client { bytes: bytes.to_vec(), at: 0, portion };
    let portion = usize::from(portion).max(1);
    RUNTIME.block_on(async {
        let whole = hostile::session(client(usize::MAX / 2)).await;
        assert!(whole.stdin.len() + whole.ends + 4 * whole.sizes.len() <= bytes.len(), "more than was sent");
        assert_eq!(hostile::session(client(portion)).await, whole, "portions do not matter");
        let whole = hostile::tunnel(client(usize::MAX / 2)).await;
        assert!(whole.len() <= bytes.len(), "more than was sent");
        assert_eq!(hostile::tunnel(client(portion)).await, whole, "portions do not matter");
    });
}

fuzz_target!(init: {
    let session = [
        frame(2, b"\0hello"),
        frame(1, b"\x04{\"Width\":80,\"Height\":24}"),
        frame(9, b"ping"),
        frame(2, b"\xff\0"),
        frame(8, b"\x03\xe8"),
    ];
    let nested = [&b"\x04"[..], &b"{\"Width\":[".repeat(200)].concat();
    let begins = [&podwire_fuzz::variant(0, 5)[..], &[7]].concat();
    podwire_fuzz::seeds(&[session.concat(), frame(2, &nested)].map(|bytes| [&begins[..], &bytes].concat()));
}, |input: Input<'_>| {
    match input {
        Input::Bytes { portion, bytes } => heard(bytes, portion),
        Input::Messages { portion, messages } => {
            heard(&messages.iter().map(|message| frame(2, message)).collect::<Vec<_>>().concat(), portion);
            for message in messages {
                let sent = hostile::channel_message(1, message).expect("a message with data");
                assert_eq!((sent[0], &sent[1..]), (1, message));
            }
        }
        Input::Sizes { sizes, cuts } => {
            let text: String =
                sizes.iter().map(|(width, height)| format!("{{\"Width\":{width},\"Height\":{height}}}\n")).collect();
            let mut rest = text.as_bytes();
            let mut messages = Vec::new();
            for cut in cuts {
                let (head, tail) = rest.split_at(usize::from(cut).min(rest.len()));
                messages.push(head);
                rest = tail;
            }
            messages.push(rest);
            assert_eq!(hostile::sizes(&messages), sizes, "sizes are read however they are cut");
        }
        Input::Resize(messages) => drop(hostile::sizes(&messages)),
        Input::Ask { headers, data } => {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let Ok(value) = HeaderValue::from_str(value) else { continue };
                map.append(&HEADERS[usize::from(name) % HEADERS.len()], value);
            }
            let Some((answer, message)) = podwire_apiserver::hostile::log_socket(&map, data) else { return };
            assert_eq!(answer["sec-websocket-accept"].len(), 28, "a hash of 20 bytes");
            match answer.get("sec-websocket-protocol").map(HeaderValue::as_bytes) {
                None | Some(b"binary.k8s.io") => assert_eq!(payload(&message), data),
                Some(b"base64.binary.k8s.io") => {
                    assert_eq!(payload(&message).len(), data.len().div_ceil(3) * 4);
                }
                Some(other) => panic!("agreed on {other:?}"),
            }
        }
    }
});
