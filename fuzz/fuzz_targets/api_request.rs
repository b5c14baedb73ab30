//! Any text as request line and media type: path, query, continue token and negotiation must not panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_apiserver::hostile;

fuzz_target!(|input: (&str, &str, &str)| {
    let (method, target, media) = input;
    hostile::request(method, target, media);
});
