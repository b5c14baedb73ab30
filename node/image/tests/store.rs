//! The store as its users see it: import, find, snapshot, remove, reopen.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use podwire_image::build::{Built, Compression, ImageBuilder, LayerBuilder, header};
use podwire_image::tar::{Header, Kind, Mtime};
use podwire_image::{Error, ExportFormat, ImageStore, StoreConfig};

fn open(root: &Path) -> ImageStore {
    StoreConfig { root: root.to_owned(), ..StoreConfig::default() }.open().unwrap()
}

fn hello() -> ImageBuilder {
    let layer = LayerBuilder::new()
        .dir("bin", 0o755)
        .file("bin/hello", "#!/bin/sh\n", 0o755)
        .hard_link("bin/again", "bin/hello")
        .symlink("bin/soft", "/bin/hello");
    ImageBuilder::new()
        .layer(&layer)
        .entrypoint(&["/bin/hello"])
        .cmd(&["a"])
        .env(&["A=b"])
        .stop_signal("SIGINT")
}

fn archive(dir: &Path, built: &Built, name: &str) -> PathBuf {
    let path = dir.join("image.tar");
    built.write_oci_archive(&path, name).unwrap();
    path
}

#[tokio::test]
async fn an_oci_archive_is_imported_found_and_ready_to_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let built = hello().build();
    let images = store.import(&archive(dir.path(), &built, "demo/hello:v1"), None).await.unwrap();
    assert_eq!(images.len(), 1);
    let image = store.find("demo/hello:v1").unwrap();
    assert_eq!(image, images[0]);
    assert_eq!(image.id, built.id());
    assert_eq!(image.repo_tags, ["docker.io/demo/hello:v1"]);
    assert_eq!(image.repo_digests, [format!("docker.io/demo/hello@{}", built.digest())]);
    assert_eq!(image.config.config().as_ref().unwrap().stop_signal().as_deref(), Some("SIGINT"));
    assert!(store.find("demo/hello").is_none(), "another tag is another image");
    assert!(store.find(&image.id[7..20]).is_some());

    let root = &image.layers[0];
    let hello = fs::metadata(root.join("bin/hello")).unwrap();
    assert_eq!(hello.permissions().mode() & 0o7777, 0o755);
    assert_eq!(hello.ino(), fs::metadata(root.join("bin/again")).unwrap().ino());
    assert_eq!(fs::read_link(root.join("bin/soft")).unwrap(), Path::new("/bin/hello"));
    assert!(store.usage().unwrap().bytes > 10);
}

#[tokio::test]
async fn folders_docker_archives_gzip_and_zstd_give_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let layer = LayerBuilder::new().file("f", vec![7; 100_000], 0o600);
    let id = ImageBuilder::new().layer(&layer).build().id();
    let zstd = Compression::Zstd(|tar| zstd::encode_all(tar, 1).unwrap());
    for (at, compression) in [Compression::None, Compression::Gzip, zstd].into_iter().enumerate() {
        let built = ImageBuilder::new().compression(compression).layer(&layer).build();
        assert_eq!(built.id(), id);
        let store = open(&dir.path().join(format!("store{at}")));
        let folder = dir.path().join(format!("folder{at}"));
        built.write_oci_layout(&folder, "").unwrap();
        assert!(matches!(store.import(&folder, None).await, Err(Error::Archive { .. })), "it has no name");
        let image = store.import(&folder, Some("x:1")).await.unwrap().remove(0);
        assert_eq!(image.id, id);
        assert_eq!(fs::read(image.layers[0].join("f")).unwrap(), vec![7; 100_000]);
    }
    let built = ImageBuilder::new().layer(&layer).build();
    let docker = built.docker_archive(Vec::new(), &["x:1", "y:2"]).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &docker).unwrap();
    let path = dir.path().join("docker.tar.gz");
    fs::write(&path, gzip.finish().unwrap()).unwrap();
    let store = open(&dir.path().join("store"));
    let image = store.import(&path, None).await.unwrap().remove(0);
    assert_eq!(image.id, id);
    assert_eq!(image.repo_tags, ["docker.io/library/x:1", "docker.io/library/y:2"]);
}

#[tokio::test]
async fn removals_become_overlay_whiteouts_and_parents_lend_their_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let base = LayerBuilder::new()
        .dir("etc", 0o750)
        .entry(Header { mode: 0o700, uid: 7, gid: 8, ..header("etc/private", Kind::Directory) }, vec![])
        .file("etc/private/old", "old", 0o644)
        .file("etc/gone", "x", 0o644)
        .dir("cache", 0o755)
        .file("cache/a", "a", 0o644);
    let top = LayerBuilder::new()
        .file("etc/private/new", "new", 0o644)
        .file("etc/.wh.gone", "", 0o644)
        .dir("cache", 0o711)
        .file("cache/.wh..wh..opq", "", 0o644)
        .hard_link("etc/linked", "etc/private/old");
    let built = ImageBuilder::new().layer(&base).layer(&top).build();
    let store = open(&dir.path().join("store"));
    let image = store.import(&archive(dir.path(), &built, "x"), None).await.unwrap().remove(0);
    let root = &image.layers[0];
    let gone = fs::symlink_metadata(root.join("etc/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let mut value = [0u8; 8];
    let length = rustix::fs::getxattr(root.join("cache"), "trusted.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y");
    assert_eq!(fs::metadata(root.join("cache")).unwrap().mode() & 0o777, 0o711);
    let private = fs::metadata(root.join("etc/private")).unwrap();
    assert_eq!((private.uid(), private.gid(), private.mode() & 0o777), (7, 8, 0o700));
    assert_eq!(fs::metadata(root.join("etc")).unwrap().mode() & 0o777, 0o750);
    assert_eq!(fs::read_to_string(root.join("etc/linked")).unwrap(), "old");
    assert_eq!(image.layers.len(), 2);
}

#[tokio::test]
async fn owners_times_attributes_and_nodes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    let layer = LayerBuilder::new()
        .entry(
            Header {
                mode: 0o4755,
                uid: 1234,
                gid: 70_000,
                mtime: Mtime { seconds: 1_000_000_000, nanos: 0 },
                xattrs: vec![
                    (b"user.color".to_vec(), b"red".to_vec()),
                    (b"trusted.overlay.redirect".to_vec(), b"/etc".to_vec()),
                ],
                ..header(&long, Kind::File)
            },
            b"data".to_vec(),
        )
        .entry(Header { mode: 0o666, device: (1, 3), ..header("null", Kind::CharDevice) }, vec![])
        .entry(header("pipe", Kind::Fifo), vec![]);
    let built = ImageBuilder::new().layer(&layer).build();
    let store = open(&dir.path().join("store"));
    let image = store.import(&archive(dir.path(), &built, "x"), None).await.unwrap().remove(0);
    let file = image.layers[0].join(&long);
    let meta = fs::metadata(&file).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777, meta.mtime()),
        (1234, 70_000, 0o4755, 1_000_000_000)
    );
    let mut value = [0u8; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.color", &mut value).unwrap(), 3);
    assert!(rustix::fs::getxattr(&file, "trusted.overlay.redirect", &mut value).is_err());
    let null = fs::metadata(image.layers[0].join("null")).unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
    assert!(fs::metadata(image.layers[0].join("pipe")).unwrap().file_type().is_fifo());
}

#[tokio::test]
async fn a_snapshot_keeps_the_layers_of_a_removed_image_until_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = open(&root);
    let built = hello().build();
    let image = store.import(&archive(dir.path(), &built, "x"), None).await.unwrap().remove(0);
    let snapshot = store.prepare("c1", &image).unwrap();
    assert!(snapshot.upper.is_dir() && snapshot.work.is_dir());
    assert_eq!(snapshot.lower, image.layers);
    assert!(matches!(store.prepare("c1", &image), Err(Error::SnapshotExists { .. })));
    assert!(matches!(store.prepare("../c1", &image), Err(Error::InvalidSnapshotId { .. })));
    fs::write(snapshot.upper.join("f"), "x").unwrap();
    assert_eq!(store.snapshot_usage("c1").unwrap().1, 1);

    store.remove("x").unwrap();
    assert!(store.list().is_empty());
    assert!(image.layers[0].is_dir(), "the container still runs on it");
    drop(store);
    let store = open(&root);
    assert_eq!(store.snapshots(), ["c1"]);
    assert_eq!(store.snapshot("c1").unwrap(), snapshot);
    assert!(image.layers[0].is_dir(), "also after a restart");
    store.discard("c1").unwrap();
    store.discard("c1").unwrap();
    assert!(!image.layers[0].exists());
    assert_eq!(fs::read_dir(root.join("blobs")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.join("layers")).unwrap().count(), 0);
    store.remove("x").unwrap();
}

#[tokio::test]
async fn a_reopened_store_has_its_images_and_no_litter() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = open(&root);
    let built = hello().build();
    let image = store.import(&archive(dir.path(), &built, "x"), None).await.unwrap().remove(0);
    store.pin("x", true).unwrap();
    drop(store);
    // What a process killed in the middle leaves: a session, a layer and a blob without a record.
    fs::create_dir_all(root.join("tmp/dead/0/fs/etc")).unwrap();
    fs::create_dir_all(root.join("layers/halfway/fs")).unwrap();
    fs::write(root.join("blobs/halfway"), "x").unwrap();
    let store = open(&root);
    let again = store.find("x").unwrap();
    assert!(again.pinned);
    assert_eq!(podwire_image::Image { pinned: false, ..again }, image);
    assert!(!root.join("tmp/dead").exists());
    assert!(!root.join("layers/halfway").exists());
    assert!(!root.join("blobs/halfway").exists());
}

#[tokio::test]
async fn another_process_sees_an_import_and_its_work_is_not_swept() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let (daemon, verb) = (open(&root), open(&root));
    let built = hello().build();
    verb.import(&archive(dir.path(), &built, "x"), None).await.unwrap();
    assert!(daemon.find("x").is_some());
    drop(verb);
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 1, "only the daemon's own session is left");
    daemon.remove("x").unwrap();
    assert!(open(&root).list().is_empty());
}

#[tokio::test]
async fn a_tag_moves_to_the_newer_image_and_a_shared_layer_survives() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let (old, new) = (hello().build(), hello().cmd(&["b"]).build());
    store.import(&archive(dir.path(), &old, "x"), None).await.unwrap();
    store.tag("x", "keep:me").unwrap();
    store.import(&archive(dir.path(), &new, "x"), None).await.unwrap();
    assert_eq!(store.find("x").unwrap().id, new.id());
    assert_eq!(store.find("keep:me").unwrap().id, old.id());
    store.remove("keep:me").unwrap();
    let image = store.find("x").unwrap();
    assert!(image.layers[0].join("bin/hello").exists());
    assert_eq!(store.list().len(), 1);
    store.tag("x", "y").unwrap();
    store.untag("x").unwrap();
    assert!(store.find("x").is_none());
    assert!(store.find("y").is_some());
}

#[tokio::test]
async fn damaged_archives_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = open(&root);
    let built = hello().build();
    let mut wrong = built.clone();
    wrong.layers[0].0[700] ^= 1;
    let folder = dir.path().join("wrong");
    wrong.write_oci_layout(&folder, "x:1").unwrap();
    // The blob lies under its promised name but has other bytes.
    let blobs = folder.join("blobs/sha256");
    let name = |bytes: &[u8]| podwire_image::Digest::of(bytes).hex();
    fs::rename(blobs.join(name(&wrong.layers[0].0)), blobs.join(name(&built.layers[0].0))).unwrap();
    let error = store.import(&folder, None).await.unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { .. } | Error::Unpack { .. }), "{error:?}");
    let path = archive(dir.path(), &built, "x");
    let bytes = fs::read(&path).unwrap();
    for cut in [0, 100, 512, 1024, 3000, bytes.len() / 2, bytes.len() - 1500] {
        fs::write(&path, &bytes[..cut]).unwrap();
        store.import(&path, None).await.unwrap_err();
    }
    assert!(store.list().is_empty());
    drop(store);
    drop(open(&root));
    for folder in ["layers", "blobs", "tmp", "images"] {
        assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[tokio::test]
async fn a_store_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("format"), "podwire-image-store 9\n").unwrap();
    let config = StoreConfig { root: dir.path().to_owned(), ..StoreConfig::default() };
    assert!(matches!(config.open().err().unwrap(), Error::Format { .. }));
}

#[tokio::test]
async fn an_export_imports_elsewhere_under_the_same_digests() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let built =
        hello().compression(Compression::Gzip).layer(&LayerBuilder::new().file("g", "g", 0o644)).build();
    let image = store.import(&archive(dir.path(), &built, "x:1"), None).await.unwrap().remove(0);
    let out = dir.path().join("out.tar");
    store.export(&["x:1"], &out, ExportFormat::Both).await.unwrap();
    let other = open(&dir.path().join("other"));
    let copy = other.import(&out, None).await.unwrap().remove(0);
    assert_eq!((copy.id, copy.repo_digests, copy.repo_tags), (image.id, image.repo_digests, image.repo_tags));
    assert!(store.export(&["nothing"], &out, ExportFormat::Both).await.is_err());
}
