//! Any bytes as a conversation with the supervisor: decoding must end without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_container::hostile::decode;

fuzz_target!(|data: &[u8]| {
    decode(data);
});
