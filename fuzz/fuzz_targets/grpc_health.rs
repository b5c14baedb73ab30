//! Any bytes as the body of a health check's answer: good only if a whole message says so.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_kubelet::hostile::health;
use prost::Message;

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Body(&'a [u8]),
    /// Any message in a sound frame.
    Framed(&'a [u8]),
    Status(i32),
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// The message in the one frame of a body.
fn message(body: &[u8]) -> Option<Response> {
    let (head, rest) = body.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || length != rest.len() {
        return None;
    }
    Response::decode(rest).ok()
}

fuzz_target!(init: {
    let bodies = [&b"\0\0\0\0\x02\x08\x01"[..], b"\0\0\0\0\0\x08\x01", b"\0\0\0\0\x05\x12\x01a\x08\x01"];
    podwire_fuzz::seeds(&bodies.map(|body| [&podwire_fuzz::variant(0, 3)[..], body].concat()));
}, |input: Input<'_>| {
    let body = match input {
        Input::Body(body) => body.to_vec(),
        Input::Framed(message) => framed(message),
        Input::Status(status) => framed(&Response { status }.encode_to_vec()),
    };
    let good = message(&body).is_some_and(|response| response.status == 1);
    assert_eq!(health(&body) == 1, good, "{:?}", message(&body));
});
