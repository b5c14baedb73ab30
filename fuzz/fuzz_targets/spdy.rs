//! Any bytes as SPDY frames: decoding must end without a panic and with bounded memory.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use podwire_runtime::stream::spdy::{Decoder, Frame, MAX_BLOCK};

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new();
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = decoder.decode(&mut buffer) {
        if let Frame::SynStream { headers, .. } = frame {
            let size: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(size <= MAX_BLOCK);
        }
    }
});
