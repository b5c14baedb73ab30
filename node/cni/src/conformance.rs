//! A conformance suite for CNI plugins: numbered checks, each with the place of the specification it stands on.
//!
//! It runs against any folder of plugin binaries that has `bridge` and `host-local` (and, for some checks, `loopback`,
//! `portmap` and `tuning`), in network namespaces of its own, and says of every check whether it holds, fails and why, or
//! cannot be run there. Nothing in it knows whose plugins they are.

mod attach;
mod clean;
mod envelope;
mod world;

use std::path::Path;

use podwire_linux::netns;

use world::World;

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not, and why.
    Failed(String),
    /// A plugin it needs is not in the folder.
    NotRun(String),
}

/// A check and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its number, which never changes.
    pub number: u32,
    /// What must hold.
    pub title: &'static str,
    /// Where the specification (or the reference library) says so.
    pub source: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

/// All checks of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In order of their numbers.
    pub checks: Vec<Checked>,
}

impl Report {
    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_)))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for check in &self.checks {
            let (word, why) = match &check.outcome {
                Outcome::Passed => ("ok    ", String::new()),
                Outcome::Failed(why) => ("FAILED", format!("\n        {why}")),
                Outcome::NotRun(why) => ("not run", format!("\n        {why}")),
            };
            writeln!(f, "{:>3} {word} {} [{}]{why}", check.number, check.title, check.source)?;
        }
        let count =
            |wanted: fn(&Outcome) -> bool| self.checks.iter().filter(|check| wanted(&check.outcome)).count();
        write!(
            f,
            "{} hold, {} fail, {} not run",
            count(|outcome| *outcome == Outcome::Passed),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::NotRun(_)))
        )
    }
}

/// One check: what must hold, where that is said, which plugins it needs, how it is tried.
struct Check {
    number: u32,
    title: &'static str,
    source: &'static str,
    needs: &'static [&'static str],
    run: fn(&World) -> Result<(), String>,
}

/// Runs every check against the plugins of a folder, each in a namespace of its own.
pub fn run(bin_dir: &Path) -> Report {
    let all = envelope::CHECKS.iter().chain(attach::CHECKS).chain(clean::CHECKS);
    let mut checks: Vec<Checked> = all
        .map(|check| Checked {
            number: check.number,
            title: check.title,
            source: check.source,
            outcome: run_one(check, bin_dir),
        })
        .collect();
    checks.sort_by_key(|check| check.number);
    Report { checks }
}

fn run_one(check: &Check, bin_dir: &Path) -> Outcome {
    if let Some(missing) = check.needs.iter().find(|name| !bin_dir.join(name).is_file()) {
        return Outcome::NotRun(format!("there is no {missing} in {}", bin_dir.display()));
    }
    let on_a_node = || -> Result<(), String> {
        let _own = netns::unshare().map_err(|error| format!("no namespace for the check: {error}"))?;
        let world = World::new(bin_dir, check.number)?;
        let outcome = (check.run)(&world);
        world.remove();
        outcome
    };
    let outcome = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("conformance".into()).spawn_scoped(scope, on_a_node);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the check itself panicked".into()),
            Err(error) => Err(format!("no thread for the check: {error}")),
        }
    });
    match outcome {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    }
}
