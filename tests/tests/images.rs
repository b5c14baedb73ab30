//! The image verbs of the whole binary: build, import, export, pull with progress, pin, prune, rm.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{isolate, node::bin_dir};
use serde_json::Value;

const NAME: &str = "localhost/pod-app:latest";

fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bin_dir().join("podwire"));
    command.arg("image").args(words).env("PODWIRE_DATA_DIR", data).env("HOME", data);
    command
}

fn run(data: &Path, words: &[&str]) -> Result<Output> {
    Ok(command(data, words).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a verb that must work; what it said.
fn must(data: &Path, words: &[&str]) -> Result<String> {
    let done = run(data, words)?;
    ensure!(done.status.success(), "image {words:?}: {}", text(&done.stderr));
    Ok(text(&done.stdout))
}

/// A registry of one image: the layout in a folder, over plain HTTP.
fn serve(layout: &Path) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let layout = layout.to_owned();
    std::thread::Builder::new().name("registry".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // Ignored: a client that hangs up is its own affair.
            answer(&stream, &layout).ok();
        }
    })?;
    Ok(port)
}

fn answer(stream: &TcpStream, layout: &Path) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let blob = |digest: &str| layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifest = index["manifests"][0]["digest"].as_str().context("no manifest")?.to_owned();
    let asked = path.rsplit('/').next().unwrap_or_default();
    let (kind, body) = match path {
        "/v2/" => ("text/plain", Vec::new()),
        _ if path.contains("/manifests/") => {
            ("application/vnd.oci.image.manifest.v1+json", fs::read(blob(&manifest))?)
        }
        _ => ("application/octet-stream", fs::read(blob(asked))?),
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        if path.contains("/manifests/") { &manifest } else { asked },
        body.len()
    )?;
    if !first.starts_with("HEAD") {
        stream.write_all(&body)?;
    }
    Ok(())
}

/// The id of the only image in the list.
fn only_id(data: &Path) -> Result<String> {
    let list = must(data, &["list"])?;
    let line = list.lines().nth(1).context("the list is empty")?;
    ensure!(list.lines().count() == 2, "{list}");
    Ok(line.split_whitespace().nth(2).unwrap_or_default().to_owned())
}

#[test]
fn images_are_carried_from_store_to_store_and_removed() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let word = |path: &Path| path.to_string_lossy().into_owned();
    let (one, two, three) = (at("one"), at("two"), at("three"));
    let (built, exported) = (word(&at("built.tar")), word(&at("exported.tar")));
    let app = word(&bin_dir().join("pod-app"));
    must(&one, &["build", "--name", NAME, "--output", &built, &app])?;
    must(&one, &["import", &built])?;
    let id = only_id(&one)?;

    must(&one, &["export", "--output", &exported, NAME])?;
    must(&two, &["import", "--name", "localhost/other:1", &exported])?;
    assert_eq!(only_id(&two)?, id, "the same image under another name");
    fs::create_dir(at("layout"))?;
    ensure!(Command::new("tar").arg("-xf").arg(&exported).arg("-C").arg(at("layout")).status()?.success());
    ensure!(at("layout/manifest.json").exists(), "docker could not load it");

    let port = serve(&at("layout"))?;
    let host = format!("127.0.0.1:{port}");
    let settings = at("certs.d").join(&host);
    fs::create_dir_all(&settings)?;
    fs::write(settings.join("hosts.toml"), format!("server = \"http://{host}\"\n"))?;
    let (certs, reference) = (word(&at("certs.d")), format!("{host}/pod-app:latest"));
    let pull = ["pull", "--registry-config", &certs, &reference];
    let pulled = run(&three, &pull)?;
    ensure!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert!(text(&pulled.stdout).starts_with(&format!("pulled {reference} sha256:{id}")));
    assert!(text(&pulled.stderr).contains("MB, 1 of 1 layers"), "{}", text(&pulled.stderr));
    assert_eq!(only_id(&three)?, id);
    on_a_terminal_there_is_a_bar(&at("four"), &certs, &reference)?;

    must(&three, &["pin", &reference])?;
    assert!(must(&three, &["list"])?.contains("(pinned)"));
    let refused = run(&three, &["rm", &reference])?;
    assert!(!refused.status.success() && text(&refused.stderr).contains("pinned"));
    must(&three, &["prune"])?;
    assert_eq!(only_id(&three)?, id, "what is pinned stays");
    must(&three, &["pin", "--undo", &reference])?;
    assert!(must(&three, &["prune"])?.contains("removed"));
    assert_eq!(must(&three, &["list"])?.lines().count(), 1);
    for left in ["layers", "blobs"] {
        assert_eq!(fs::read_dir(three.join("images").join(left))?.count(), 0, "{left} are left");
    }
    must(&two, &["rm", "localhost/other:1"])?;
    assert_eq!(must(&two, &["list"])?.lines().count(), 1);
    let missing = run(&two, &["rm", "localhost/other:1"])?;
    assert!(!missing.status.success() && text(&missing.stderr).contains("not found"));
    Ok(())
}

fn on_a_terminal_there_is_a_bar(data: &Path, certs: &str, reference: &str) -> Result<()> {
    let podwire = bin_dir().join("podwire");
    let line = format!(
        "PODWIRE_DATA_DIR={} {} image pull --registry-config {certs} {reference}",
        data.display(),
        podwire.display()
    );
    let shown = Command::new("script").args(["-qec", &line, "/dev/null"]).output().context("run script")?;
    let shown = text(&shown.stdout);
    assert!(shown.contains("\r[") && shown.contains("[##############################]"), "{shown:?}");
    Ok(())
}
