//! Any bytes as a layer: unpacking must end, without a panic and inside its directory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_image::unpack::unpack;
use podwire_image::{Limits, UnpackOptions};

fuzz_target!(|data: &[u8]| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("layer");
    std::fs::create_dir(&root).expect("a layer directory");
    let limits = Limits { layer_bytes: 1 << 20, entries: 1000, ratio: 100, ratio_grace: 1 << 16 };
    let options = UnpackOptions { limits, ..UnpackOptions::default() };
    // Ignored: most inputs are no layers; only panics and escapes count.
    drop(unpack(data, None, &root, &options));
    let beside = std::fs::read_dir(dir.path()).expect("the directory is still there").count();
    assert_eq!(beside, 1, "something was made beside the layer");
});
