//! Any bytes as a manifest, an index, a reference or a challenge: parsing must not panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_image::Reference;
use podwire_image::manifest::{Document, Platform, choose};
use podwire_image::pull::parse_challenges;

fuzz_target!(|data: &[u8]| {
    if let Ok(Document::Index(index)) = Document::parse(data, "fuzz") {
        // Ignored: an index without this platform is fine.
        drop(choose(&index, &Platform::host(), "fuzz"));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        drop(parse_challenges(text));
        if let Ok(reference) = text.parse::<Reference>() {
            let again: Reference = reference.to_string().parse().expect("the normal form is a reference");
            assert_eq!(again, reference);
        }
    }
});
