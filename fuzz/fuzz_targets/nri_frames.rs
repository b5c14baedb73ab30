//! Any bytes as ttrpc frames in any portions, and as the messages in them: no panic, the same frames however they are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_wire::nri;
use podwire_wire::ttrpc::{Decoder, Frame, Request, Response};
use prost::Message;

fn frames(portions: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    let mut all = Vec::new();
    for portion in portions {
        decoder.push(portion);
        while let Ok(Some(frame)) = decoder.next_frame() {
            all.push(frame);
        }
    }
    all
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, data) = input;
    let (head, tail) = data.split_at(usize::from(cut).min(data.len()));
    let whole = frames(&[data]);
    let parts = frames(&[head, tail]);
    assert!(parts.starts_with(&whole), "a cut must not lose frames");
    for frame in whole {
        if let Ok(request) = Request::decode(frame.data.clone()) {
            drop(nri::ConfigureRequest::decode(request.payload.clone()));
            drop(nri::CreateContainerRequest::decode(request.payload));
        }
        if let Ok(response) = Response::decode(frame.data) {
            drop(nri::CreateContainerResponse::decode(response.payload.clone()));
            drop(nri::UpdateContainersRequest::decode(response.payload));
        }
    }
});
