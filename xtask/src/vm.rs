//! `make vm`: the test binaries under Debian's cloud kernels in QEMU, where cgroup v2 has every controller and AppArmor is
//! on: the kernel of Debian 13, and that of Debian 12, which lacks what mount calls learnt since.
//!
//! Software emulation of one slow CPU: for truth, not for timing. Kernels are downloaded as Debian packages and unpacked
//! into the cache; the initramfs is ours: busybox, the binaries, and an init that runs them and powers off.
//!
//! A pair of tests `cut_NAME_before` and `cut_NAME_after` is a power cut: the first runs in a machine with a fresh
//! disk at `/disk` and says `vm: cut`, upon which the machine is killed; the second runs after another boot on the
//! same disk, under the first kernel only. Tests `numa_NAME` share a boot of a machine with two NUMA nodes, under the first
//! kernel only, and so do tests `sriov_NAME`, of Debian's generic kernel on a machine with a network card that has virtual
//! functions: that takes QEMU 8, from Debian's backports where an older one is installed. All other tests share one boot of each
//! kernel.

mod emulator;
mod initramfs;
mod kernel;
mod machine;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use self::{
    emulator::Emulator,
    kernel::{Flavour, LINES},
    machine::{Disk, End, Machine},
};

/// A test binary that runs inside the machine, and which of its tests do: those whose names contain one of these.
struct Suite {
    test: &'static str,
    only: &'static [&'static str],
}

const VM: Suite = Suite { test: "vm", only: &[] };

/// Attempts to get out of a container; inside the machine they meet cgroup v2 and AppArmor.
const HOSTILE: Suite = Suite { test: "hostile", only: &["ways_out"] };

/// The suites that `words` ask for: both, or the one they name.
fn suites(words: &[&str]) -> &'static [Suite] {
    let is_other = |word: &&&str| **word != "debug" && !LINES.contains(*word);
    match words.iter().find(is_other) {
        None => &[VM, HOSTILE],
        Some(word) if *word == HOSTILE.test => &[HOSTILE],
        Some(_) => &[VM],
    }
}

/// Builds, boots, and fails unless the tests inside passed. `debug` takes the dev profile, a kernel's number that kernel
/// alone, `hostile` only the attempts to get out; other words choose tests of the machine's own.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let cache = crate::peers::default_folder().parent().map(PathBuf::from).unwrap_or_default().join("vm");
    fs::create_dir_all(&cache)?;
    let profile: &[&str] = if words.contains(&"debug") { &[] } else { &["--release"] };
    let binaries = crate::build::statically(root, profile)?;
    let named: Vec<_> = LINES.iter().filter(|line| words.contains(line)).collect();
    let lines = if named.is_empty() { LINES.iter().collect() } else { named };
    for suite in suites(words) {
        let test = crate::build::test_binary(root, suite.test, profile)?;
        let names = chosen(&test, suite, words)?;
        for (at, line) in lines.iter().enumerate() {
            let kernel = kernel::get(&cache, line, Flavour::Cloud)
                .with_context(|| format!("get Debian's {line} cloud kernel"))?;
            // One folder per run: several may run at once.
            let work = cache.join(format!("run-{}", std::process::id()));
            let done = initramfs::pack(&work, &cache, &kernel, &binaries, &test)
                .context("build the initramfs")
                .and_then(|initramfs| {
                    let (kernel, emulator) = (kernel.image.clone(), Emulator::installed());
                    let machine = Machine { kernel, initramfs, nodes: 1, emulator, card: false };
                    boots(&work, &machine, &names, at == 0)
                })
                .and_then(|()| {
                    if at == 0 { with_card(&work, &cache, line, (&binaries, &test), &names) } else { Ok(()) }
                });
            fs::remove_dir_all(&work)?;
            done.with_context(|| format!("under Linux {}", kernel.release))?;
        }
    }
    Ok(())
}

/// The tests to run, by name.
fn chosen(test: &Path, suite: &Suite, words: &[&str]) -> Result<Vec<String>> {
    let listed = output(Command::new(test).args(["--list", "--format=terse"]))?;
    let other = |word: &&&str| !["debug", suite.test].contains(*word) && !LINES.contains(*word);
    let words: Vec<&&str> = words.iter().filter(other).collect();
    let wanted = |name: &str| {
        (words.is_empty() || words.iter().any(|word| name.contains(**word)))
            && (suite.only.is_empty() || suite.only.iter().any(|part| name.contains(part)))
    };
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(|name| wanted(name));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.is_empty() {
        bail!("no test of {} is called {words:?}", suite.test);
    }
    Ok(names)
}

/// Whether a test's own name begins so.
fn begins(name: &str, with: &str) -> bool {
    name.rsplit("::").next().is_some_and(|last| last.starts_with(with))
}

/// The tests that need a card with virtual functions, under the kernel that has drivers for one.
fn with_card(
    work: &Path,
    cache: &Path,
    line: &str,
    (binaries, test): (&[PathBuf], &Path),
    names: &[String],
) -> Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| begins(name, "sriov_")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let kernel = kernel::get(cache, line, Flavour::Generic).context("get Debian's generic kernel")?;
    let emulator = Emulator::with_virtual_functions(cache)?;
    let initramfs = initramfs::pack(&work.join("card"), cache, &kernel, binaries, test)?;
    let machine = Machine { kernel: kernel.image, initramfs, nodes: 1, emulator, card: true };
    machine.boot(&Disk::fresh(work)?, &names, End::Off)
}

fn boots(work: &Path, machine: &Machine, names: &[String], cuts: bool) -> Result<()> {
    let is_cut = |name: &str| begins(name, "cut_");
    let all = || names.iter().map(String::as_str);
    let plain: Vec<&str> =
        all().filter(|name| !is_cut(name) && !begins(name, "numa_") && !begins(name, "sriov_")).collect();
    if !plain.is_empty() {
        machine.boot(&Disk::fresh(work)?, &plain, End::Off)?;
    }
    let numa: Vec<&str> = all().filter(|name| cuts && begins(name, "numa_")).collect();
    if !numa.is_empty() {
        let two = Machine { nodes: 2, ..machine.clone() };
        two.boot(&Disk::fresh(work)?, &numa, End::Off)?;
    }
    for before in names.iter().filter(|name| cuts && is_cut(name) && name.ends_with("_before")) {
        let disk = Disk::fresh(work)?;
        machine.boot(&disk, &[before], End::Cut)?;
        let after = before.replace("_before", "_after");
        machine.boot(&disk, &[&after], End::Off)?;
    }
    Ok(())
}

fn first(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {folder:?}"))? {
        let entry = entry?;
        if wanted(&entry.file_name().display().to_string()) {
            return Ok(entry.path());
        }
    }
    bail!("nothing fitting in {folder:?}")
}

fn output_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.output().with_context(|| format!("run {:?}", command.get_program()))?;
    if !done.status.success() {
        bail!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(done.stdout)
}

fn output(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&output_bytes(command)?).into_owned())
}
