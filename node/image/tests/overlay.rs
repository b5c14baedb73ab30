//! Snapshots under the real overlayfs: what a container sees is what the image says.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::Command;

use podwire_image::build::{ImageBuilder, LayerBuilder, header};
use podwire_image::tar::{Header, Kind};
use podwire_image::{Image, ImageStore, StoreConfig};

/// Runs `script` with the snapshot mounted at the current directory, in a mount namespace of its own.
fn inside(store: &ImageStore, image: &Image, dir: &Path, script: &str) -> String {
    let snapshot = store.prepare("c", image).unwrap();
    let mount = dir.join("mount");
    std::fs::create_dir_all(&mount).unwrap();
    let lower: Vec<String> = snapshot.lower.iter().map(|path| path.display().to_string()).collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        snapshot.upper.display(),
        snapshot.work.display()
    );
    let script = format!("mount -t overlay overlay -o {options} {0} && cd {0} && {script}", mount.display());
    let output = Command::new("unshare").args(["--mount", "sh", "-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    store.discard("c").unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn import(dir: &Path, image: ImageBuilder) -> (ImageStore, Image) {
    let store = StoreConfig::at(dir.join("store")).open().unwrap();
    let archive = dir.join("image.tar");
    image.build().write_oci_archive(&archive, "x").unwrap();
    let image = store.import(&archive, None).await.unwrap().remove(0);
    (store, image)
}

#[tokio::test]
async fn removed_replaced_and_emptied_things_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let base = LayerBuilder::new()
        .dir("etc", 0o751)
        .file("etc/gone", "x", 0o644)
        .file("etc/stays", "x", 0o644)
        .dir("emptied", 0o755)
        .file("emptied/old", "x", 0o644)
        .dir("again", 0o755)
        .file("again/old", "x", 0o644)
        .dir("again2", 0o755)
        .file("again2/old", "x", 0o644)
        .file("was-file", "x", 0o644)
        .dir("was-dir", 0o755)
        .file("was-dir/in", "x", 0o644);
    let top = LayerBuilder::new()
        .file("etc/.wh.gone", "", 0o644)
        .file("etc/new", "y", 0o644)
        .dir("emptied", 0o755)
        .file("emptied/.wh..wh..opq", "", 0o644)
        .file("emptied/new", "y", 0o644)
        // Removed and made again, the whiteout before and after the directory.
        .file(".wh.again", "", 0o644)
        .dir("again", 0o755)
        .dir("again2", 0o755)
        .file(".wh.again2", "", 0o644)
        .dir("was-file", 0o755)
        .file("was-file/in", "y", 0o644)
        .file("was-dir", "y", 0o644);
    let (store, image) = import(dir.path(), ImageBuilder::new().layer(&base).layer(&top)).await;
    let seen = inside(&store, &image, dir.path(), "find . | sort; stat -c %a etc");
    let expected = [
        ".",
        "./again",
        "./again2",
        "./emptied",
        "./emptied/new",
        "./etc",
        "./etc/new",
        "./etc/stays",
        "./was-dir",
        "./was-file",
        "./was-file/in",
        "751",
    ];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn an_opaque_root_hides_all_layers_below() {
    let dir = tempfile::tempdir().unwrap();
    let base = LayerBuilder::new().file("old", "x", 0o644);
    let top = LayerBuilder::new().file(".wh..wh..opq", "", 0o644).file("new", "y", 0o644);
    let above = LayerBuilder::new().file("above", "z", 0o644);
    let (store, image) = import(dir.path(), ImageBuilder::new().layer(&base).layer(&top).layer(&above)).await;
    assert_eq!(image.layers.len(), 2);
    assert_eq!(inside(&store, &image, dir.path(), "ls"), "above\nnew\n");
}

#[tokio::test]
async fn the_root_directory_takes_after_the_image_and_writes_stay_in_the_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let root = Header { mode: 0o1777, uid: 3, gid: 4, ..header("./", Kind::Directory) };
    let layer = LayerBuilder::new().entry(root, vec![]).file("f", "image", 0o644);
    let (store, image) = import(dir.path(), ImageBuilder::new().layer(&layer)).await;
    let seen = inside(&store, &image, dir.path(), "stat -c '%a %u %g' .; echo mine > f; rm -f g; cat f");
    assert_eq!(seen, "1777 3 4\nmine\n");
    assert_eq!(inside(&store, &image, dir.path(), "cat f"), "image");
}

#[tokio::test]
async fn a_hundred_layers_are_stacked_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let image = (0..100).fold(ImageBuilder::new(), |image, n| {
        image.layer(&LayerBuilder::new().file("top", n.to_string(), 0o644).file(&format!("f{n}"), "", 0o644))
    });
    let (store, image) = import(dir.path(), image).await;
    assert_eq!(image.layers.len(), 100);
    let top: Vec<_> = image.layers[..2].iter().map(|path| path.join("top")).collect();
    assert_eq!(std::fs::read_to_string(&top[0]).unwrap(), "99");
    assert_eq!(std::fs::read_to_string(&top[1]).unwrap(), "98");
    drop(store);
}

#[tokio::test]
async fn an_image_without_layers_is_an_empty_root() {
    let dir = tempfile::tempdir().unwrap();
    let (store, image) = import(dir.path(), ImageBuilder::new()).await;
    assert_eq!(inside(&store, &image, dir.path(), "ls; touch f; ls"), "f\n");
}

#[tokio::test]
async fn files_below_a_link_of_a_lower_layer_go_where_it_leads() {
    let dir = tempfile::tempdir().unwrap();
    let base = LayerBuilder::new()
        .dir("usr", 0o755)
        .dir("usr/lib", 0o711)
        .file("usr/lib/old", "old", 0o644)
        .dir("usr/lib/sub", 0o755)
        .symlink("lib", "usr/lib")
        .symlink("lib64", "/lib");
    // As tools write that list files only: no directory is mentioned.
    let top = LayerBuilder::new()
        .file("lib/new", "new", 0o644)
        .file("lib64/new64", "new", 0o644)
        .file("lib/sub/deep", "new", 0o644)
        .hard_link("lib/hard", "lib/old")
        .file("usr/lib/sub/direct", "new", 0o644);
    let (store, image) = import(dir.path(), ImageBuilder::new().layer(&base).layer(&top)).await;
    let seen =
        inside(&store, &image, dir.path(), "find . | sort; readlink lib; cat lib/hard; stat -c %a usr/lib");
    let expected = [
        ".",
        "./lib",
        "./lib64",
        "./usr",
        "./usr/lib",
        "./usr/lib/hard",
        "./usr/lib/new",
        "./usr/lib/new64",
        "./usr/lib/old",
        "./usr/lib/sub",
        "./usr/lib/sub/deep",
        "./usr/lib/sub/direct",
        "usr/lib",
        "old711",
    ];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn links_that_lead_in_a_circle_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = LayerBuilder::new().symlink("a", "b").symlink("b", "a");
    let top = LayerBuilder::new().file("a/f", "x", 0o644);
    let built = ImageBuilder::new().layer(&base).layer(&top).build();
    let archive = dir.path().join("image.tar");
    built.write_oci_archive(&archive, "x").unwrap();
    let store = StoreConfig::at(dir.path().join("store")).open().unwrap();
    let error = store.import(&archive, None).await.unwrap_err();
    assert!(podwire_trace::chain(&error).contains("circle"), "{error:?}");
}
