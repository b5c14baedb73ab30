//! The hostile suite: a table of images, pods, requests, calls, volumes, registries, plugins and disks that mean harm,
//! each with what must happen.
//!
//! Black box: it drives the programs in `PODWIRE_BIN_DIR`, so the same table can be run against another build. A class
//! is a file and a test; a row is a name, what must happen in words, and a function that tries it and says what
//! happened. After every row the daemon must be the same process, ready, and within its memory; after every class
//! something plain must still work and nothing may be left behind.
//!
//! - `PODWIRE_HOSTILE_REPORT=file` writes the table as Markdown.
//! - `PODWIRE_HOSTILE_ROWS=words` runs the rows whose names contain these words.
//! - `PODWIRE_HOSTILE_EXPECT=old` passes exactly when every row that stands for something mended fails: run against
//!   the program of commit 29628e7 it shows that the rows can fail.
//!
//! Rows are safe for the machine: they look whether a way out is open and never take it, everything that fills up is a
//! small disk in memory, and the daemon is held to a limit of memory by the kernel.
#![allow(clippy::print_stdout, reason = "the table is what a run of this suite is for")]
#![allow(clippy::unwrap_used, unreachable_pub)] // A test; `pub` says what other files of it may use.

mod api;
mod cri;
mod disks;
mod http;
mod images;
mod liar;
mod on_node;
mod on_runtime;
mod plugins;
mod pods;
mod processes;
mod registries;
mod row;
mod small_disk;
mod volumes;

#[test]
fn images() -> anyhow::Result<()> {
    row::run("images", images::ROWS)
}

#[test]
fn pods() -> anyhow::Result<()> {
    row::run("pod specs", pods::ROWS)
}

#[test]
fn api() -> anyhow::Result<()> {
    row::run("API requests", api::ROWS)
}

#[test]
fn volumes() -> anyhow::Result<()> {
    row::run("volumes", volumes::ROWS)
}

#[test]
fn cri() -> anyhow::Result<()> {
    row::run("CRI calls", cri::ROWS)
}

#[test]
fn registries() -> anyhow::Result<()> {
    row::run("registries", registries::ROWS)
}

#[test]
fn plugins() -> anyhow::Result<()> {
    row::run("plugins", plugins::ROWS)
}

#[test]
fn disks() -> anyhow::Result<()> {
    row::run("disks", disks::ROWS)
}

/// The ways out of a container alone, which in the machine of `make vm` meet cgroup v2 and AppArmor; the whole suite
/// would take an hour there.
#[cfg(feature = "vm")]
#[test]
fn ways_out() -> anyhow::Result<()> {
    row::run_part("images", images::ROWS, &["/proc is", "/sys is", "/dev/"])?;
    let pods =
        ["working directory", "exec after the working directory", "hostUsers", "procMount", "control groups"];
    row::run_part("pod specs", pods::ROWS, &pods)
}

/// Every row that `docs/security.md` names, as `hostile CLASS "row", "row"; ...` in the last cell of a line.
#[test]
fn the_rows_that_the_table_of_vulnerabilities_names_exist() -> anyhow::Result<()> {
    fn names<W>(rows: &[row::Row<W>]) -> Vec<&'static str> {
        rows.iter().map(row::Row::name).collect()
    }
    let classes = [
        ("images", names(images::ROWS)),
        ("pods", names(pods::ROWS)),
        ("api", names(api::ROWS)),
        ("volumes", names(volumes::ROWS)),
        ("cri", names(cri::ROWS)),
        ("registries", names(registries::ROWS)),
        ("plugins", names(plugins::ROWS)),
    ];
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md"))?;
    let cells = text.lines().filter_map(|line| line.trim_end_matches('|').rsplit('|').next());
    let mut known = 0;
    for part in cells.flat_map(|cell| cell.split(';')).filter_map(|part| part.trim().strip_prefix("hostile "))
    {
        let (class, quoted) = part.split_once(' ').ok_or_else(|| anyhow::anyhow!("{part:?} names no row"))?;
        let rows = classes.iter().find(|(name, _)| *name == class).map(|(_, rows)| rows);
        let rows = rows.ok_or_else(|| anyhow::anyhow!("there is no class {class:?}"))?;
        for name in quoted.split('"').skip(1).step_by(2) {
            anyhow::ensure!(rows.contains(&name), "class {class} has no row {name:?}");
            known += 1;
        }
    }
    anyhow::ensure!(known > 40, "only {known} rows were found in the table");
    Ok(())
}
