//! kill -9 of a process that imports and removes images: the store is whole afterwards.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use podwire_image::build::{Compression, ImageBuilder, LayerBuilder};
use podwire_image::{ImageStore, StoreConfig};

const JOB: &str = "import-forever";

/// What the killed process does: nothing unless it is started in a folder with a job in it.
#[tokio::test]
async fn child_imports_until_it_is_killed() {
    if !Path::new(JOB).exists() {
        return;
    }
    let store = StoreConfig::at("store").open().unwrap();
    fs::write("started", "").unwrap();
    loop {
        for at in 0..3 {
            let images = store.import(Path::new(&format!("image{at}.tar")), None).await.unwrap();
            // Ignored: the other round may have it already.
            store.prepare(&format!("c{at}"), &images[0]).ok();
        }
        for at in 0..3 {
            store.remove(&format!("image{at}")).unwrap();
            store.discard(&format!("c{at}")).unwrap();
        }
    }
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_imports_until_it_is_killed"])
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Every image is complete, and nothing lies around that no image or snapshot uses.
fn check(store: &ImageStore, root: &Path) {
    for image in store.list() {
        for layer in &image.layers {
            assert!(layer.join("f").is_file(), "{layer:?} is incomplete");
        }
    }
    for id in store.snapshots() {
        let snapshot = store.snapshot(&id).unwrap();
        assert!(snapshot.upper.is_dir() && snapshot.lower.iter().all(|layer| layer.is_dir()));
        store.discard(&id).unwrap();
    }
    for image in store.list() {
        store.remove(&image.id).unwrap();
    }
    for folder in ["layers", "blobs", "images", "snapshots"] {
        let left: Vec<_> =
            fs::read_dir(root.join(folder)).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 1, "only this process's own session");
}

#[test]
fn a_store_survives_kill_9_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(JOB), "").unwrap();
    for at in 0..3 {
        let shared = LayerBuilder::new().file("f", vec![1; 50_000], 0o644);
        let own = LayerBuilder::new().file("f", format!("own {at}"), 0o644).file("sub/loose", "x", 0o600);
        let built = ImageBuilder::new().compression(Compression::Gzip).layer(&shared).layer(&own).build();
        built.write_oci_archive(&dir.path().join(format!("image{at}.tar")), &format!("image{at}")).unwrap();
    }
    let root = dir.path().join("store");
    let mut interrupted = 0;
    for round in 0..12u64 {
        let mut child = start(dir.path());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dir.path().join("started").exists() {
            assert!(Instant::now() < deadline, "the child never started");
            std::thread::sleep(Duration::from_millis(2));
        }
        // Other moments each round, within one turn of the child's loop.
        std::thread::sleep(Duration::from_millis(3 + round * 7));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_file(dir.path().join("started")).unwrap();
        interrupted += usize::from(fs::read_dir(root.join("tmp")).unwrap().count() > 0);
        let store = StoreConfig::at(&root).open().unwrap();
        check(&store, &root);
    }
    assert!(interrupted > 0, "no kill hit the child at work: the test proves nothing");
}
