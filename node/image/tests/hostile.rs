//! A corpus of layers and images that try to hurt: nothing may leave the layer, eat the memory or panic.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use podwire_image::build::{Built, ImageBuilder, LayerBuilder, header};
use podwire_image::tar::{Header, Kind, TarError};
use podwire_image::unpack::{UnpackError, unpack};
use podwire_image::{DevicePolicy, Error, Limits, StoreConfig, UnpackOptions};

/// A directory with a layer folder inside and a file beside it that must stay as it is.
struct Yard {
    dir: tempfile::TempDir,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("layer")).unwrap();
        fs::write(dir.path().join("victim"), "untouched").unwrap();
        Self { dir }
    }

    fn layer(&self) -> PathBuf {
        self.dir.path().join("layer")
    }

    fn unpack(&self, stream: impl Read + Send) -> Result<podwire_image::unpack::Unpacked, UnpackError> {
        unpack(stream, None, &self.layer(), &UnpackOptions::default())
    }

    fn check(&self) {
        let mut names: Vec<_> =
            fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["layer", "victim"], "something was made beside the layer");
        assert_eq!(fs::read_to_string(self.dir.path().join("victim")).unwrap(), "untouched");
        let victim = fs::metadata(self.dir.path().join("victim")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&victim), 1, "the victim was linked");
    }
}

fn refused(layer: &LayerBuilder) -> UnpackError {
    let yard = Yard::new();
    let result = yard.unpack(layer.tar().as_slice());
    yard.check();
    match result {
        Err(error) => error,
        Ok(unpacked) if !unpacked.deferred.links.is_empty() => UnpackError::Link {
            path: "loose".into(),
            target: "not in this layer".into(),
            reason: "left to the parents",
        },
        Ok(unpacked) => panic!("taken: {unpacked:?}"),
    }
}

#[test]
fn paths_that_climb_out_are_refused() {
    for path in ["../victim", "a/../../victim", "/../victim", "./../victim", "a/b/../../../victim"] {
        let error = refused(&LayerBuilder::new().file(path, "hurt", 0o644));
        assert!(matches!(error, UnpackError::Path { .. }), "{path}: {error:?}");
    }
    refused(&LayerBuilder::new().file(".wh...", "", 0o644));
    refused(&LayerBuilder::new().file(".wh..", "", 0o644));
    refused(&LayerBuilder::new().file("a/.wh.", "", 0o644));
    refused(&LayerBuilder::new().file("/", "a file as root", 0o644));
    refused(&LayerBuilder::new().file(&"x/".repeat(2100), "", 0o644));
    refused(&LayerBuilder::new().file(&"y".repeat(300), "", 0o644));
}

#[test]
fn symbolic_links_lead_nowhere_but_into_the_layer() {
    let yard = Yard::new();
    let outside = yard.dir.path().to_str().unwrap().to_owned();
    for (at, target) in [&*outside, "..", "../..", "/", "/..", "../../../../../..", "/proc/self/root", "loop"]
        .iter()
        .enumerate()
    {
        let layer = LayerBuilder::new().symlink("loop", "loop").symlink(&format!("out{at}"), target).file(
            &format!("out{at}/victim"),
            "hurt",
            0o644,
        );
        // Refused or kept inside: both are fine.
        drop(yard.unpack(layer.tar().as_slice()));
        yard.check();
        fs::remove_dir_all(yard.layer()).unwrap();
        fs::create_dir(yard.layer()).unwrap();
    }
    let chain = LayerBuilder::new()
        .symlink("a", "b")
        .symlink("b", "../..")
        .dir("a/made", 0o755)
        .file("b/victim", "hurt", 0o644)
        .symlink("victim2", "../victim")
        .file("victim2", "hurt", 0o644);
    yard.unpack(chain.tar().as_slice()).unwrap();
    yard.check();
    assert_eq!(
        fs::read_to_string(yard.layer().join("victim")).unwrap(),
        "hurt",
        "it went to the layer's own root"
    );
    assert!(
        fs::symlink_metadata(yard.layer().join("victim2")).unwrap().is_file(),
        "the link was replaced, not followed"
    );
}

#[test]
fn a_directory_swapped_for_a_link_does_not_redirect_what_follows() {
    let yard = Yard::new();
    let outside = yard.dir.path().to_str().unwrap().to_owned();
    let layer = LayerBuilder::new()
        .dir("d", 0o755)
        .file("d/one", "1", 0o644)
        .symlink("d", &outside)
        .file("d/victim", "hurt", 0o644)
        .file("d2", "f", 0o644)
        .dir("d2", 0o755)
        .file("d2/x", "x", 0o644);
    drop(yard.unpack(layer.tar().as_slice()));
    yard.check();
}

#[test]
fn hard_links_cannot_reach_outside() {
    let yard = Yard::new();
    let outside = yard.dir.path().join("victim").to_str().unwrap().to_owned();
    for target in ["../victim", "/../victim", &outside, "missing", ".wh.x", "", "/", "self"] {
        refused(&LayerBuilder::new().hard_link("self", target));
    }
    let through = LayerBuilder::new()
        .symlink("door", yard.dir.path().to_str().unwrap())
        .symlink("up", "..")
        .hard_link("stolen", "door/victim")
        .hard_link("stolen2", "up/victim");
    refused(&through);
    refused(&LayerBuilder::new().dir("d", 0o755).hard_link("l", "d"));
    refused(&LayerBuilder::new().file(".wh.gone", "", 0o644).hard_link("l", "gone"));
}

#[test]
fn device_nodes_follow_the_policy() {
    let layer = LayerBuilder::new()
        .entry(Header { device: (8, 0), ..header("disk", Kind::BlockDevice) }, vec![])
        .file("after", "x", 0o644)
        .tar();
    for (policy, made) in [(DevicePolicy::Create, true), (DevicePolicy::Skip, false)] {
        let yard = Yard::new();
        let options = UnpackOptions { devices: policy, ..UnpackOptions::default() };
        unpack(layer.as_slice(), None, &yard.layer(), &options).unwrap();
        assert_eq!(yard.layer().join("disk").exists(), made);
        assert!(yard.layer().join("after").exists());
    }
    let yard = Yard::new();
    let options = UnpackOptions { devices: DevicePolicy::Refuse, ..UnpackOptions::default() };
    let error = unpack(layer.as_slice(), None, &yard.layer(), &options).unwrap_err();
    assert!(matches!(error, UnpackError::Device { .. }));
}

#[test]
fn bombs_are_stopped_before_they_fill_the_disk() {
    let yard = Yard::new();
    let limits = Limits { layer_bytes: 1 << 20, entries: 100, ratio: 50, ratio_grace: 64 << 10 };
    let options = UnpackOptions { limits, ..UnpackOptions::default() };
    let run = |stream: &mut (dyn Read + Send)| unpack(stream, None, &yard.layer(), &options);
    let big = LayerBuilder::new().file("big", vec![0; 2 << 20], 0o644).tar();
    assert!(matches!(run(&mut big.as_slice()).unwrap_err(), UnpackError::Bomb(_)));
    let small = LayerBuilder::new().file("zeros", vec![0; 900 << 10], 0o644).tar();
    let packed = zstd::encode_all(small.as_slice(), 19).unwrap();
    assert!(matches!(run(&mut packed.as_slice()).unwrap_err(), UnpackError::Bomb(_)));
    let many = (0..101).fold(LayerBuilder::new(), |layer, n| layer.file(&format!("f{n}"), "", 0o644)).tar();
    assert!(matches!(run(&mut many.as_slice()).unwrap_err(), UnpackError::Bomb(_)));
    // Zeros after the end of the archive count too.
    let mut tail = LayerBuilder::new().file("f", "x", 0o644).tar().chain_zeros(2 << 20);
    assert!(matches!(run(&mut tail).unwrap_err(), UnpackError::Bomb(_)));
}

trait ChainZeros {
    fn chain_zeros(self, count: u64) -> Box<dyn Read + Send>;
}

impl ChainZeros for Vec<u8> {
    fn chain_zeros(self, count: u64) -> Box<dyn Read + Send> {
        Box::new(io::Cursor::new(self).chain(io::repeat(0).take(count)))
    }
}

/// A header block with a checksum, however wrong its fields are.
fn block(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = LayerBuilder::new().file("f", "", 0o644).tar()[..512].to_vec();
    change(&mut block);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

#[test]
fn headers_that_lie_about_sizes_cost_no_memory() {
    let yard = Yard::new();
    let huge = b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff";
    for typeflag in [b'x', b'L', b'K', b'g'] {
        let mut stream = block(|block| {
            block[156] = typeflag;
            block[124..136].copy_from_slice(b"77777777777\0");
        });
        stream.extend(vec![b'a'; 4096]);
        let error = yard.unpack(stream.as_slice()).unwrap_err();
        assert!(matches!(error, UnpackError::Tar(TarError::Metadata { .. })), "{error:?}");
    }
    for size in
        [huge, b"77777777777\0", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"99999999999\0"]
    {
        let stream = block(|block| block[124..136].copy_from_slice(size));
        assert!(matches!(yard.unpack(stream.as_slice()).unwrap_err(), UnpackError::Tar(_)));
    }
    let sparse = block(|block| block[156] = b'S');
    assert!(matches!(yard.unpack(sparse.as_slice()).unwrap_err(), UnpackError::Tar(TarError::Sparse)));
    let strange = block(|block| block[156] = b'Z');
    assert!(matches!(yard.unpack(strange.as_slice()).unwrap_err(), UnpackError::Tar(TarError::Type(b'Z'))));
    yard.check();
}

#[test]
fn damaged_streams_never_panic_nor_escape() {
    let seed = LayerBuilder::new()
        .dir("dir", 0o755)
        .file("dir/file", vec![7; 3000], 0o4755)
        .symlink("dir/link", "../../victim")
        .hard_link("hard", "dir/file")
        .file("dir/.wh.gone", "", 0o644)
        .entry(
            Header {
                xattrs: vec![(b"user.a".to_vec(), b"b".to_vec())],
                ..header(&"p".repeat(150), Kind::File)
            },
            b"x".to_vec(),
        )
        .tar();
    let yard = Yard::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    for _ in 0..400 {
        let mut bytes = seed.clone();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            bytes[at] = u8::try_from(next(256)).unwrap();
            // Keep the checksum of the block right half of the time, so that changes get through.
            let start = at / 512 * 512;
            if next(2) == 0 && start + 512 <= bytes.len() {
                bytes[start + 148..start + 156].fill(b' ');
                let sum: u32 = bytes[start..start + 512].iter().map(|byte| u32::from(*byte)).sum();
                bytes[start + 148..start + 155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            }
        }
        bytes.truncate(bytes.len() - next(600));
        drop(yard.unpack(bytes.as_slice()));
        yard.check();
        empty(&yard.layer());
    }
}

/// Empties a folder, whatever it holds.
fn empty(dir: &Path) {
    fs::remove_dir_all(dir).unwrap();
    fs::create_dir(dir).unwrap();
}

#[test]
fn other_programs_tars_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let long = "l".repeat(130);
    for format in ["gnu", "pax", "ustar"] {
        let tree = dir.path().join(format);
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/file"), format).unwrap();
        fs::hard_link(tree.join("sub/file"), tree.join("sub/hard")).unwrap();
        std::os::unix::fs::symlink("file", tree.join("sub/soft")).unwrap();
        if format != "ustar" {
            fs::write(tree.join(&long), "long").unwrap();
        }
        let path = dir.path().join(format!("{format}.tar"));
        let made = std::process::Command::new("tar")
            .args(["-C", tree.to_str().unwrap(), "--format", format, "-cf", path.to_str().unwrap(), "."])
            .status()
            .unwrap();
        assert!(made.success());
        let yard = Yard::new();
        let unpacked = yard.unpack(File::open(&path).unwrap()).unwrap();
        assert!(unpacked.deferred.is_empty());
        assert_eq!(fs::read_to_string(yard.layer().join("sub/soft")).unwrap(), format);
        assert_eq!(fs::read_to_string(yard.layer().join("sub/hard")).unwrap(), format);
        assert_eq!(yard.layer().join(&long).exists(), format != "ustar");
    }
}

#[tokio::test]
async fn images_whose_documents_disagree_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreConfig::at(dir.path().join("store")).open().unwrap();
    let good = ImageBuilder::new().layer(&LayerBuilder::new().file("f", "x", 0o644)).build();
    let import = async |built: &Built| {
        let folder = dir.path().join("layout");
        drop(fs::remove_dir_all(&folder));
        built.write_oci_layout(&folder, "x:1").unwrap();
        store.import(&folder, None).await
    };
    let edit = |bytes: &[u8], change: &dyn Fn(&mut serde_json::Value)| {
        let mut value: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        change(&mut value);
        value.to_string().into_bytes()
    };
    let with_config = |config: Vec<u8>| {
        let manifest = edit(&good.manifest, &|manifest| {
            manifest["config"]["digest"] = podwire_image::Digest::of(&config).to_string().into();
            manifest["config"]["size"] = config.len().into();
        });
        Built { config, manifest, ..good.clone() }
    };
    let other = podwire_image::Digest::of(b"other").to_string();
    let wrong_diff =
        with_config(edit(&good.config, &|config| config["rootfs"]["diff_ids"][0] = other.clone().into()));
    assert!(matches!(import(&wrong_diff).await.unwrap_err(), Error::DigestMismatch { .. }));
    let fewer =
        with_config(edit(&good.config, &|config| config["rootfs"]["diff_ids"] = serde_json::json!([])));
    assert!(matches!(import(&fewer).await.unwrap_err(), Error::Manifest { .. }));
    let odd = with_config(edit(&good.config, &|config| config["rootfs"]["diff_ids"][0] = "md5:abc".into()));
    assert!(matches!(import(&odd).await.unwrap_err(), Error::InvalidDigest { .. }));
    assert!(matches!(import(&with_config(b"null".to_vec())).await.unwrap_err(), Error::Manifest { .. }));
    let lying = Built {
        manifest: edit(&good.manifest, &|manifest| manifest["layers"][0]["size"] = 5.into()),
        ..good.clone()
    };
    assert!(matches!(import(&lying).await.unwrap_err(), Error::SizeMismatch { .. }));
    let climbing = Built {
        manifest: edit(&good.manifest, &|manifest| manifest["layers"][0]["digest"] = "sha256:../../x".into()),
        ..good.clone()
    };
    assert!(import(&climbing).await.is_err());
    assert!(store.list().is_empty());
    assert!(import(&good).await.is_ok());
}
