//! What a new supervisor must know when this one dies without a word.
//!
//! A line of magic, version and boot id, then one JSON object per line, appended and never synced:
//! it must survive the process, not the machine. After another boot it is stale and begins anew.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::container::{Container, Exited, Phase};
use super::foreign::ForeignPlan;
use crate::plan::LaunchPlan;

const MAGIC: &str = "PODWSUPJ 1";
/// Rewritten when it is larger than this and mostly history.
const LARGE: u64 = 4 << 20;

/// One container, as much as a successor needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) pid: u32,
    /// Start time of the process in ticks since boot: tells it from a later one of the same number.
    pub(super) birth: u64,
    pub(super) plan: LaunchPlan,
    pub(super) log_path: Option<PathBuf>,
    pub(super) oom_watch: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) foreign: Option<ForeignPlan>,
    #[serde(default)]
    pub(super) started_at: Option<u64>,
    #[serde(default)]
    pub(super) start_failed: bool,
    #[serde(default)]
    pub(super) exited: Option<Exited>,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Put(Box<Record>),
    Started { id: String, at: u64 },
    Exited { id: String, exited: Exited },
    Drop { id: String },
}

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    heading: String,
}

/// When a process was born, in ticks since boot.
pub(super) fn birth(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, so count from its closing parenthesis.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(19)?.parse().ok()
}

impl Record {
    pub(super) fn of(container: &Container) -> Record {
        let plan = &container.plan;
        Record {
            id: container.id.clone(),
            pid: container.process.pid,
            birth: birth(container.process.pid).unwrap_or(0),
            // What only the child needed is not kept.
            plan: LaunchPlan {
                mounts: Vec::new(),
                devices: Vec::new(),
                masked: Vec::new(),
                readonly: Vec::new(),
                sysctls: Vec::new(),
                ..plan.clone()
            },
            log_path: container.log.as_ref().map(|log| log.path().to_owned()),
            oom_watch: container.oom_watch,
            foreign: container.foreign.as_ref().map(|foreign| foreign.plan.clone()),
            started_at: container.started_at,
            start_failed: container.start_failed,
            exited: match &container.phase {
                Phase::Exited(exited) => Some(*exited),
                _ => None,
            },
        }
    }
}

/// The containers in the text of a journal, as of its last whole line.
fn replay(text: &str, heading: &str) -> BTreeMap<String, Record> {
    let mut records = BTreeMap::new();
    let mut lines = text.split_inclusive('\n');
    if lines.next().map(str::trim_end) != Some(heading) {
        return records;
    }
    // A last line that was cut short by the end of its writer never happened.
    for line in lines.filter(|line| line.ends_with('\n')) {
        match serde_json::from_str(line) {
            Ok(Line::Put(record)) => {
                records.insert(record.id.clone(), *record);
            }
            Ok(Line::Started { id, at }) => {
                if let Some(record) = records.get_mut(&id) {
                    record.started_at = Some(at);
                }
            }
            Ok(Line::Exited { id, exited }) => {
                if let Some(record) = records.get_mut(&id) {
                    record.exited = Some(exited);
                }
            }
            Ok(Line::Drop { id }) => {
                records.remove(&id);
            }
            Err(error) => super::note(&format!("journal line not understood, skipped: {error}")),
        }
    }
    records
}

impl Journal {
    /// Opens the journal of `state_dir` and returns what the last supervisor of this boot left.
    pub(super) fn open(state_dir: &Path) -> io::Result<(Journal, Vec<Record>)> {
        let path = state_dir.join("journal");
        let heading = format!("{MAGIC} {}", podwire_linux::boot::id()?);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let records: Vec<_> = replay(&text, &heading).into_values().collect();
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let mut journal = Journal { path, file, bytes: 0, heading };
        journal.rewrite(records.iter().cloned())?;
        Ok((journal, records))
    }

    fn rewrite(&mut self, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let mut text = format!("{}\n", self.heading);
        for record in records {
            text.push_str(&serde_json::to_string(&Line::Put(Box::new(record)))?);
            text.push('\n');
        }
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, &text)?;
        fs::rename(&fresh, &self.path)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.bytes = text.len() as u64;
        Ok(())
    }

    fn append(&mut self, line: &Line) {
        let written = serde_json::to_string(line).map_err(io::Error::from).and_then(|mut text| {
            text.push('\n');
            self.bytes += text.len() as u64;
            self.file.write_all(text.as_bytes())
        });
        if let Err(error) = written {
            super::note(&format!("journal not written: {error}; a successor would miss this"));
        }
    }

    pub(super) fn put(&mut self, container: &Container) {
        self.append(&Line::Put(Box::new(Record::of(container))));
    }

    pub(super) fn started(&mut self, id: &str, at: u64) {
        self.append(&Line::Started { id: id.to_owned(), at });
    }

    pub(super) fn exited(&mut self, id: &str, exited: Exited) {
        self.append(&Line::Exited { id: id.to_owned(), exited });
    }

    /// Forgets a container; rewrites the file when it has become mostly history.
    pub(super) fn dropped(&mut self, id: &str, left: &BTreeMap<String, Container>) {
        self.append(&Line::Drop { id: id.to_owned() });
        if self.bytes > LARGE.max(left.len() as u64 * (64 << 10)) {
            let rewritten = self.rewrite(left.values().map(Record::of));
            if let Err(error) = rewritten {
                super::note(&format!("journal not rewritten: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str) -> Record {
        Record {
            id: id.to_owned(),
            pid: 1,
            birth: 2,
            plan: LaunchPlan::default(),
            log_path: None,
            oom_watch: false,
            foreign: None,
            started_at: None,
            start_failed: false,
            exited: None,
        }
    }

    fn text(lines: &[Line]) -> String {
        let lines: Vec<_> = lines.iter().map(|l| serde_json::to_string(l).unwrap()).collect();
        format!("h\n{}\n", lines.join("\n"))
    }

    #[test]
    fn a_journal_gives_what_was_not_dropped() {
        let exited = Exited { code: 3, signal: None, oom: false, at: 9 };
        let text = text(&[
            Line::Put(Box::new(record("a"))),
            Line::Put(Box::new(record("b"))),
            Line::Started { id: "b".to_owned(), at: 5 },
            Line::Drop { id: "a".to_owned() },
            Line::Exited { id: "b".to_owned(), exited },
        ]);
        let records = replay(&text, "h");
        assert_eq!(records.len(), 1);
        assert_eq!((records["b"].started_at, records["b"].exited.map(|e| e.code)), (Some(5), Some(3)));
    }

    #[test]
    fn a_journal_cut_at_any_byte_is_read_up_to_its_last_whole_line() {
        let text = text(&[Line::Put(Box::new(record("a"))), Line::Drop { id: "a".to_owned() }]);
        for length in 0..text.len() {
            assert!(replay(&text[..length], "h").len() <= 1);
        }
        assert!(replay(&text, "h").is_empty());
        assert!(replay(&text, "another boot").is_empty());
    }
}
