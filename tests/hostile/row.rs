//! A row of the table: a hostile input, what must happen, and whether the program before this suite got it wrong.
//!
//! `run` takes a class through its rows on one world and prints the table. A row may not take the others with it: after
//! a row that failed the world is tried with something plain and made anew when that does not work either.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use anyhow::{Result, anyhow, bail, ensure};

/// What a row did: what happened in a few words, or what happened instead of what must.
pub type Outcome = Result<String>;

/// One hostile input.
pub struct Row<W> {
    name: &'static str,
    must: &'static str,
    broken_before: bool,
    check: fn(&W) -> Outcome,
}

/// A row; `must` says in words what `check` insists on.
pub const fn row<W>(name: &'static str, must: &'static str, check: fn(&W) -> Outcome) -> Row<W> {
    Row { name, must, broken_before: false, check }
}

impl<W> Row<W> {
    /// What it is called.
    #[allow(dead_code, reason = "the interop lane shares this file and does not ask")]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The row stands for something that commit 29628e7 got wrong: there it must fail.
    pub const fn broken_before(mut self) -> Row<W> {
        self.broken_before = true;
        self
    }
}

/// What the rows of a class act on: a node or a runtime of their own.
pub trait World: Sized {
    /// Makes it anew.
    fn make() -> Result<Self>;
    /// Cheap, after every row: it lives, is the same process, and took no more memory than it may.
    fn well(&self) -> Result<()>;
    /// Something plain still works from its beginning to its end.
    fn sound(&self) -> Result<()>;
    /// Takes it away and fails if anything of it is left.
    fn end(self) -> Result<()>;
    /// Takes away what does not work any more.
    fn destroy(self);
}

/// How a row ended.
pub struct Verdict {
    name: &'static str,
    must: &'static str,
    broken_before: bool,
    passed: bool,
    happened: String,
}

/// Runs a class on worlds that `W::make` makes and fails with every row that failed; with `PODWIRE_HOSTILE_EXPECT=old`
/// it fails with every row that stands for something mended and did not fail. `PODWIRE_HOSTILE_ROWS` picks rows by a
/// part of their name.
pub fn run<W: World>(class: &'static str, rows: &[Row<W>]) -> Result<()> {
    ensure!(rows.len() >= 10, "class {class} has {} rows, at least 10 are promised", rows.len());
    let (verdicts, end) = verdicts(class, rows, W::make)?;
    report(class, &table(&verdicts))?;
    settle(class, &verdicts, end)
}

/// Runs the rows of a class whose names begin with one of `names`.
#[cfg(feature = "vm")]
pub fn run_part<W: World>(class: &'static str, rows: &'static [Row<W>], names: &[&str]) -> Result<()> {
    let of_part = |row: &&Row<W>| names.iter().any(|name| row.name.starts_with(name));
    let (verdicts, end) = verdicts(class, rows.iter().filter(of_part), W::make)?;
    ensure!(!verdicts.is_empty(), "class {class} has no row that begins with {names:?}");
    settle(class, &verdicts, end)
}

/// Takes every row through worlds that `make` makes; how each ended, and whether anything was left of the last world.
pub fn verdicts<'a, W: World + 'a>(
    class: &str,
    rows: impl IntoIterator<Item = &'a Row<W>>,
    make: impl Fn() -> Result<W>,
) -> Result<(Vec<Verdict>, Result<()>)> {
    let only = std::env::var_os("PODWIRE_HOSTILE_ROWS").map(|part| part.to_string_lossy().into_owned());
    let mut world = make()?;
    let mut verdicts = Vec::new();
    for row in rows.into_iter().filter(|row| only.as_deref().is_none_or(|part| row.name.contains(part))) {
        let begun = Instant::now();
        let verdict = judge(row, &world);
        println!(
            "{class} | {} | {} | {} | {} ({:.1} s)",
            row.name,
            row.must,
            word(verdict.passed),
            verdict.happened,
            begun.elapsed().as_secs_f64()
        );
        if !verdict.passed && world.sound().and_then(|()| world.well()).is_err() {
            world.destroy();
            world = make()?;
        }
        verdicts.push(verdict);
    }
    let end = world.sound().and_then(|()| world.well()).and_then(|()| world.end());
    Ok((verdicts, end))
}

fn judge<W: World>(row: &Row<W>, world: &W) -> Verdict {
    let done = catch_unwind(AssertUnwindSafe(|| (row.check)(world)))
        .unwrap_or_else(|_| Err(anyhow!("the row itself panicked")));
    let done = done.and_then(|happened| match world.well() {
        Ok(()) => Ok(happened),
        Err(error) => Err(error.context("afterwards")),
    });
    let (passed, happened) = match done {
        Ok(happened) => (true, happened),
        Err(error) => (false, format!("{error:#}")),
    };
    let happened = happened.replace(['\n', '\r', '\0'], " ").replace('|', "\\|");
    let happened: String = happened.chars().take(300).collect();
    Verdict { name: row.name, must: row.must, broken_before: row.broken_before, passed, happened }
}

fn word(passed: bool) -> &'static str {
    if passed { "pass" } else { "FAIL" }
}

/// The class as a whole: what was expected of each row, and that nothing is left of it.
pub fn settle(class: &str, verdicts: &[Verdict], end: Result<()>) -> Result<()> {
    let mut wrong = Vec::new();
    if std::env::var_os("PODWIRE_HOSTILE_EXPECT").is_some_and(|word| word == "old") {
        for verdict in verdicts.iter().filter(|verdict| verdict.broken_before && verdict.passed) {
            wrong.push(format!("{} passes on the old program: {}", verdict.name, verdict.happened));
        }
    } else {
        for verdict in verdicts.iter().filter(|verdict| !verdict.passed) {
            wrong.push(format!("{}: must: {}; but: {}", verdict.name, verdict.must, verdict.happened));
        }
        if let Err(error) = end {
            wrong.push(format!("after the rows: {error:#}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{class}: {} of {} rows are wrong:\n{}", wrong.len(), verdicts.len(), wrong.join("\n"));
    }
    Ok(())
}

/// The rows as a table in Markdown.
fn table(verdicts: &[Verdict]) -> String {
    let mut text = "| row | what must happen | stands for something mended | result | what happened |\n|---|---|---|---|---|\n".to_owned();
    for verdict in verdicts {
        let mended = if verdict.broken_before { "yes" } else { "" };
        let result = word(verdict.passed);
        text += &format!(
            "| {} | {} | {mended} | {result} | {} |\n",
            verdict.name, verdict.must, verdict.happened
        );
    }
    text
}

/// Two runtimes beside each other, as a table in Markdown.
#[allow(dead_code, reason = "the interop lane's, which shares this file")]
pub fn compared(names: [&str; 2], ours: &[Verdict], theirs: &[Verdict]) -> String {
    let [one, other] = names;
    let mut text = format!(
        "| row | what must happen | {one} | {other} | what happened on {other} |\n|---|---|---|---|---|\n"
    );
    for (mine, its) in ours.iter().zip(theirs) {
        let results = [word(mine.passed), word(its.passed)];
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            mine.name, mine.must, results[0], results[1], its.happened
        );
    }
    text
}

/// Adds a class to what `PODWIRE_HOSTILE_REPORT` names; the classes run side by side, so it is written anew.
pub fn report(class: &'static str, table: &str) -> Result<()> {
    static WRITTEN: Mutex<BTreeMap<&'static str, String>> = Mutex::new(BTreeMap::new());
    let Some(path) = std::env::var_os("PODWIRE_HOSTILE_REPORT") else { return Ok(()) };
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    written.insert(class, format!("\n## {class}\n\n{table}"));
    Ok(std::fs::write(path, written.values().map(String::as_str).collect::<String>().trim_start())?)
}
