//! Builds of the product for tests, demo and machine: which binaries, in which profile, how linked.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The program in the demo's and the tests' images; static, so that an image needs nothing else.
const APP: &str = "pod-app";

/// Builds every binary under test in the dev profile; the folder they are in.
pub fn debug(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--package", "podwire", "--package", "podwire-cni"])?;
    app(root, &[])?;
    Ok(target(root).join("debug"))
}

/// The same, and every test with them. Chosen from the whole workspace the binaries are made of the very crates that the
/// tests are made of; alone they would want other features of some, and half of the workspace would be compiled twice.
pub fn beside_tests(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--workspace", "--bin", "podwire", "--bin", "podwire-cni", "--tests"])?;
    app(root, &[])?;
    Ok(target(root).join("debug"))
}

/// Builds the example of an NRI plugin in the dev profile; it lies in `examples` beside the binaries.
pub fn plugin_example(root: &Path) -> Result<()> {
    cargo(root, &["build", "--workspace", "--example", "logger", "--example", "nri-plugin"])
}

/// Builds every binary in the release profile, the plugins as they are shipped; the folder they are in.
pub fn release(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--release", "--package", "podwire"])?;
    plugins(root, &target(root).join("release"))?;
    app(root, &["--release"])?;
    Ok(target(root).join("release"))
}

/// Builds what the demo runs, with cargo's own progress: on a new machine it takes minutes. The plugins are in the node's
/// program, so those of their own are not made; the pods' program is of the crates that this one is made of. A demo has no
/// bursts whose memory should go back, and an allocator in C takes a minute to build. The folder the binaries are in.
pub fn demo(root: &Path) -> Result<PathBuf> {
    cargo_shown(root, &["build", "--profile", "demo", "--package", "podwire", "--no-default-features"])?;
    let place = target(root).join("demo");
    app(root, &[])?;
    replace(&target(root).join("debug").join(APP), &place.join(APP))?;
    Ok(place)
}

/// Builds what is shipped; the folder it is in.
pub fn dist(root: &Path) -> Result<PathBuf> {
    let words = ["rustc", "--profile", "dist", "--package", "podwire", "--bin", "podwire"];
    // Functions that came out the same are kept once: rustc makes one for each type that a generic is used with, and promises
    // nothing about their addresses. LLVM's linker can do it, which rustc brings and uses on this architecture alone.
    let linking: &[&str] =
        if cfg!(target_arch = "x86_64") { &["--", "-C", "link-arg=-Wl,--icf=all"] } else { &[] };
    cargo_shown(root, &[&words[..], linking].concat())?;
    let place = target(root).join("dist");
    plugins(root, &place)?;
    Ok(place)
}

/// Builds the binaries without any shared library, for a machine that has none; `profile` is `--release` or nothing.
pub fn statically(root: &Path, profile: &[&str]) -> Result<Vec<PathBuf>> {
    let built = target(root).join(if profile.is_empty() { "debug" } else { "release" });
    app(root, profile)?;
    let folder = built.join("static");
    std::fs::create_dir_all(&folder)?;
    for name in ["podwire", "podwire-cni"] {
        let mut words = vec!["rustc", "--package", name, "--bin", name];
        words.extend(profile);
        words.extend(["--", "-C", "target-feature=+crt-static"]);
        cargo(root, &words)?;
        std::fs::copy(built.join(name), folder.join(name))?;
    }
    // Leaves the folder of the dynamic build as it was.
    let mut words = vec!["build", "--package", "podwire", "--package", "podwire-cni"];
    words.extend(profile);
    cargo(root, &words)?;
    std::fs::copy(built.join(APP), folder.join(APP))?;
    Ok(["podwire", "podwire-cni", APP].iter().map(|name| folder.join(name)).collect())
}

/// Builds one whole-binary test; the program.
pub fn test_binary(root: &Path, name: &str, profile: &[&str]) -> Result<PathBuf> {
    let mut words = vec![
        "test",
        "--package",
        "podwire-tests",
        "--features",
        "vm",
        "--test",
        name,
        "--no-run",
        "--message-format=json",
    ];
    words.extend(profile);
    let done = command().args(&words).current_dir(root).output().context("run cargo")?;
    if !done.status.success() {
        bail!("cargo {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if message["target"]["name"] == name
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(path.into());
        }
    }
    bail!("cargo named no program for the test {name}")
}

/// The plugins need no shared library and lie at a fixed place: half of what a short-lived program costs is to find the
/// one and to settle at the other.
fn plugins(root: &Path, place: &Path) -> Result<()> {
    short_lived(root, &["--package", "podwire-cni", "--bin", "podwire-cni"], "podwire-cni", place)
}

/// Builds the program that does the least a plugin can, which the benchmark puts beside the plugins.
pub fn attach_floor(root: &Path) -> Result<()> {
    let place = target(root).join("release");
    short_lived(
        root,
        &["--package", "podwire-linux", "--example", "attach_floor"],
        "examples/attach_floor",
        &place,
    )
}

/// Builds a program as plugins are shipped and puts it among the other binaries in `place`.
fn short_lived(root: &Path, which: &[&str], built: &str, place: &Path) -> Result<()> {
    let linking = ["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    let musl = musl()?;
    let (target_words, folder) = match &musl {
        Some(triple) => (vec!["--target", triple.as_str()], target(root).join(triple)),
        None => (Vec::new(), target(root)),
    };
    cargo(root, &[&["rustc", "--profile", "plugins"], &target_words[..], which, &linking].concat())?;
    let built = folder.join("plugins").join(built);
    replace(&built, &place.join(built.file_name().context("a program has a name")?))
}

/// Puts a copy of a program at its place. One that runs cannot be written to, only replaced.
fn replace(built: &Path, place: &Path) -> Result<()> {
    let aside = place.with_extension("new");
    std::fs::copy(built, &aside).with_context(|| format!("copy {}", built.display()))?;
    std::fs::rename(&aside, place).with_context(|| format!("replace {}", place.display()))
}

/// The target with musl as its C library, when it is installed: glibc asks the processor for its features some forty times
/// before `main`, each of which leaves a virtual machine, and that is a fifth of an ADD.
fn musl() -> Result<Option<String>> {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let words = ["--print", "target-libdir", "--target", &triple];
    let done = Command::new("rustc").args(words).output().context("run rustc")?;
    let folder = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok(Path::new(folder.trim()).is_dir().then_some(triple))
}

fn app(root: &Path, profile: &[&str]) -> Result<()> {
    let which = ["rustc", "--package", "podwire-testkit", "--bin", APP];
    cargo(root, &[&which[..], profile, &["--", "-C", "target-feature=+crt-static"]].concat())
}

/// Runs cargo quietly; its complaints reach the terminal.
pub fn cargo(root: &Path, words: &[&str]) -> Result<()> {
    let (verb, rest) = words.split_first().context("no cargo verb")?;
    cargo_shown(root, &[&[*verb, "--quiet"], rest].concat())
}

/// Cargo as a person would call it. This program is run by cargo, which tells it of its own package; ring's build script takes
/// that for its own, and ring with all that stands on it would be compiled again whenever cargo is called by hand and by us in turn.
pub fn command() -> Command {
    let mut cargo = Command::new("cargo");
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        cargo.env_remove(name);
    }
    cargo
}

/// Runs cargo with its own progress.
fn cargo_shown(root: &Path, words: &[&str]) -> Result<()> {
    let status = command().args(words).current_dir(root).status().context("run cargo")?;
    if !status.success() {
        bail!("cargo {} failed", words.join(" "));
    }
    Ok(())
}

/// Cargo's target folder.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
