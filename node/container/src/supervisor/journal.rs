//! What a new supervisor must know when this one dies without a word.
//!
//! A boot journal whose rows are JSON objects. What could not be written is not lost as long as we live: the next chance
//! is taken to write everything anew, and nothing is created or started before that. The version before wrote lines of
//! JSON behind a line of magic, version and boot id; such a file is taken over.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use podwire_linux::boot_journal::{BootJournal, Frame, Kind};
use serde::{Deserialize, Serialize};

use super::container::{Container, Exited, Phase};
use super::oci_runtime::OciRuntimePlan;
use crate::plan::LaunchPlan;

const KIND: Kind = Kind { magic: b"PODWSUPJ", version: 2 };
/// How a file of the version before begins; its boot id follows.
const LINES: &str = "PODWSUPJ 1 ";
/// Rewritten when it is larger than this and mostly history.
const LARGE: u64 = 4 << 20;
/// How soon a journal that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);

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
    #[serde(rename = "foreign", default, skip_serializing_if = "Option::is_none")]
    pub(super) oci_runtime: Option<OciRuntimePlan>,
    #[serde(default)]
    pub(super) started_at: Option<u64>,
    #[serde(default)]
    pub(super) start_failed: bool,
    #[serde(default)]
    pub(super) exited: Option<Exited>,
}

/// One row.
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
    file: BootJournal,
    /// Its size when it was last rewritten: about what of it is live.
    live: u64,
    /// No rewrite below this size: the last one failed.
    rewrite_above: u64,
    /// Since when something is missing in the file, and why.
    behind: Option<Behind>,
}

#[derive(Debug)]
struct Behind {
    reason: String,
    next_try: Instant,
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
            oci_runtime: container.oci_runtime.as_ref().map(|oci_runtime| oci_runtime.plan.clone()),
            started_at: container.started_at,
            start_failed: container.start_failed,
            exited: match &container.phase {
                Phase::Exited(exited) => Some(*exited),
                _ => None,
            },
        }
    }
}

fn apply(records: &mut BTreeMap<String, Record>, line: Line) {
    match line {
        Line::Put(record) => {
            records.insert(record.id.clone(), *record);
        }
        Line::Started { id, at } => {
            if let Some(record) = records.get_mut(&id) {
                record.started_at = Some(at);
            }
        }
        Line::Exited { id, exited } => {
            if let Some(record) = records.get_mut(&id) {
                record.exited = Some(exited);
            }
        }
        Line::Drop { id } => {
            records.remove(&id);
        }
    }
}

/// The containers in rows.
fn replay(rows: &[Vec<u8>]) -> BTreeMap<String, Record> {
    let mut records = BTreeMap::new();
    for row in rows {
        match serde_json::from_slice(row) {
            Ok(line) => apply(&mut records, line),
            Err(error) => super::note(&format!("journal row not understood, skipped: {error}")),
        }
    }
    records
}

/// The containers in the text of a journal of the version before, as of its last whole line.
fn replay_lines(text: &str) -> BTreeMap<String, Record> {
    let mut records = BTreeMap::new();
    // A last line that was cut short by the end of its writer never happened.
    for line in text.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n')) {
        match whole_line(line) {
            Some(line) => apply(&mut records, line),
            None => super::note("journal line not understood, skipped"),
        }
    }
    records
}

/// A line, or the whole one behind what a full disk left of the one before. Within JSON's strings a quote is never bare,
/// so that nothing in them looks like one.
fn whole_line(line: &str) -> Option<Line> {
    let mut starts = line.match_indices("{\"").map(|(at, _)| at);
    starts.find_map(|at| serde_json::from_str(&line[at..]).ok())
}

/// The records in a file of the version before; of another boot there are none.
fn old_records(path: &Path, boot: &str) -> io::Result<Option<Vec<Record>>> {
    let bytes = match fs::read(path) {
        Ok(bytes) if bytes.starts_with(LINES.as_bytes()) => bytes,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(None),
    };
    let text = String::from_utf8_lossy(&bytes);
    let is_ours = text.lines().next().and_then(|heading| heading.strip_prefix(LINES)) == Some(boot);
    Ok(Some(if is_ours { replay_lines(&text).into_values().collect() } else { Vec::new() }))
}

/// The ids in the journal of `state_dir`, for `hostile`.
pub(crate) fn ids(state_dir: &Path, boot: &str) -> io::Result<Vec<String>> {
    Ok(Journal::open_of(state_dir, boot)?.1.into_iter().map(|record| record.id).collect())
}

fn frame(line: &Line) -> io::Result<Frame> {
    Frame::of(&serde_json::to_vec(line)?)
}

fn puts(records: impl Iterator<Item = Record>) -> io::Result<Vec<Frame>> {
    records.map(|record| frame(&Line::Put(Box::new(record)))).collect()
}

impl Journal {
    /// Opens the journal of `state_dir` and returns what the last supervisor of this boot left.
    pub(super) fn open(state_dir: &Path) -> io::Result<(Journal, Vec<Record>)> {
        Self::open_of(state_dir, &podwire_linux::boot::id()?)
    }

    fn open_of(state_dir: &Path, boot: &str) -> io::Result<(Journal, Vec<Record>)> {
        let path = state_dir.join("journal");
        let (file, records) = match old_records(&path, boot)? {
            Some(records) => {
                let frames = puts(records.iter().cloned())?;
                (BootJournal::create(&path, KIND, boot, &frames)?, records)
            }
            None => {
                let (file, found) = BootJournal::open(&path, KIND, boot)?;
                let rows = if found.stale { Vec::new() } else { found.rows };
                (file, replay(&rows).into_values().collect())
            }
        };
        Ok((Journal { live: file.size(), file, rewrite_above: 0, behind: None }, records))
    }

    fn rewrite(&mut self, containers: &BTreeMap<String, Container>) -> io::Result<()> {
        self.file.rewrite(&puts(containers.values().map(Record::of))?)?;
        self.live = self.file.size();
        self.behind = None;
        Ok(())
    }

    fn append(&mut self, line: &Line) {
        let written = frame(line).and_then(|row| self.file.append(&row));
        if let Err(error) = written {
            if self.behind.is_none() {
                super::note(&format!("journal not written: {error}; nothing is started until it is"));
            }
            self.behind = Some(Behind { reason: error.to_string(), next_try: Instant::now() });
        }
    }

    /// Writes what is missing, if it is time to try. Says when to try again.
    pub(super) fn mend(&mut self, containers: &BTreeMap<String, Container>) -> Option<Duration> {
        let behind = self.behind.as_ref()?;
        let wait = behind.next_try.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Some(wait);
        }
        match self.rewrite(containers) {
            Ok(()) => {
                super::note("journal written again");
                None
            }
            Err(error) => {
                self.behind = Some(Behind { reason: error.to_string(), next_try: Instant::now() + RETRY });
                Some(RETRY)
            }
        }
    }

    /// Why nothing new may run: a successor would not know of it.
    pub(super) fn failure(&mut self, containers: &BTreeMap<String, Container>) -> Option<String> {
        if let Some(behind) = &mut self.behind {
            behind.next_try = Instant::now();
        }
        self.mend(containers)?;
        self.behind
            .as_ref()
            .map(|behind| format!("the supervisor's journal cannot be written: {}", behind.reason))
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
        let size = self.file.size();
        if size > LARGE.max(4 * self.live).max(self.rewrite_above) {
            self.rewrite_above = match self.rewrite(left) {
                Ok(()) => 0,
                Err(error) => {
                    super::note(&format!("journal not rewritten: {error}"));
                    size + LARGE
                }
            };
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
            oci_runtime: None,
            started_at: None,
            start_failed: false,
            exited: None,
        }
    }

    /// As the version before wrote it: `a` with a log, `b` that began and ended, `c` that was dropped.
    const OLD: &str = concat!(
        "PODWSUPJ 1 this-boot\n",
        "{\"put\":{\"id\":\"a\",\"pid\":1,\"birth\":2,\"plan\":{\"clone_flags\":0,\"join\":[],\"unshare_cgrou",
        "p\":false,\"uid_maps\":[],\"gid_maps\":[],\"cgroup\":null,\"rootfs\":null,\"mounts\":[],\"devices\":",
        "[],\"dev_links\":false,\"masked\":[],\"readonly\":[],\"propagation\":0,\"sysctls\":[],\"hostname\":n",
        "ull,\"domainname\":null,\"mount_label\":null,\"process\":{\"reaper\":false,\"argv\":[],\"env\":[],\"",
        "cwd\":\"\",\"uid\":0,\"gid\":0,\"groups\":[],\"umask\":null,\"caps\":null,\"rlimits\":[],\"no_new_pr",
        "ivs\":false,\"oom_score_adj\":null,\"io_priority\":null,\"scheduler\":null,\"memory_policy\":null,\"",
        "apparmor\":null,\"selinux\":null,\"seccomp\":null}},\"log_path\":\"/var/log/pods/a/0.log\",\"oom_wat",
        "ch\":false,\"started_at\":null,\"start_failed\":false,\"exited\":null}}\n",
        "{\"put\":{\"id\":\"b\",\"pid\":1,\"birth\":2,\"plan\":{\"clone_flags\":0,\"join\":[],\"unshare_cgrou",
        "p\":false,\"uid_maps\":[],\"gid_maps\":[],\"cgroup\":null,\"rootfs\":null,\"mounts\":[],\"devices\":",
        "[],\"dev_links\":false,\"masked\":[],\"readonly\":[],\"propagation\":0,\"sysctls\":[],\"hostname\":n",
        "ull,\"domainname\":null,\"mount_label\":null,\"process\":{\"reaper\":false,\"argv\":[],\"env\":[],\"",
        "cwd\":\"\",\"uid\":0,\"gid\":0,\"groups\":[],\"umask\":null,\"caps\":null,\"rlimits\":[],\"no_new_pr",
        "ivs\":false,\"oom_score_adj\":null,\"io_priority\":null,\"scheduler\":null,\"memory_policy\":null,\"",
        "apparmor\":null,\"selinux\":null,\"seccomp\":null}},\"log_path\":null,\"oom_watch\":false,\"started_",
        "at\":null,\"start_failed\":false,\"exited\":null}}\n",
        "{\"started\":{\"id\":\"b\",\"at\":5}}\n",
        "{\"put\":{\"id\":\"c\",\"pid\":1,\"birth\":2,\"plan\":{\"clone_flags\":0,\"join\":[],\"unshare_cgrou",
        "p\":false,\"uid_maps\":[],\"gid_maps\":[],\"cgroup\":null,\"rootfs\":null,\"mounts\":[],\"devices\":",
        "[],\"dev_links\":false,\"masked\":[],\"readonly\":[],\"propagation\":0,\"sysctls\":[],\"hostname\":n",
        "ull,\"domainname\":null,\"mount_label\":null,\"process\":{\"reaper\":false,\"argv\":[],\"env\":[],\"",
        "cwd\":\"\",\"uid\":0,\"gid\":0,\"groups\":[],\"umask\":null,\"caps\":null,\"rlimits\":[],\"no_new_pr",
        "ivs\":false,\"oom_score_adj\":null,\"io_priority\":null,\"scheduler\":null,\"memory_policy\":null,\"",
        "apparmor\":null,\"selinux\":null,\"seccomp\":null}},\"log_path\":null,\"oom_watch\":false,\"started_",
        "at\":null,\"start_failed\":false,\"exited\":null}}\n",
        "{\"drop\":{\"id\":\"c\"}}\n",
        "{\"exited\":{\"id\":\"b\",\"exited\":{\"code\":3,\"signal\":null,\"oom\":false,\"at\":9}}}\n",
    );

    fn write(text: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("journal"), text).unwrap();
        dir
    }

    #[test]
    fn the_journal_of_the_version_before_is_taken_over() {
        let dir = write(OLD);
        for _ in 0..2 {
            let (_, records) = Journal::open_of(dir.path(), "this-boot").unwrap();
            let ids: Vec<_> = records.iter().map(|record| record.id.as_str()).collect();
            assert_eq!(ids, ["a", "b"]);
            assert_eq!(records[0].log_path.as_deref(), Some(Path::new("/var/log/pods/a/0.log")));
            assert_eq!((records[1].started_at, records[1].exited.map(|e| e.code)), (Some(5), Some(3)));
        }
        let dir = write(OLD);
        assert!(Journal::open_of(dir.path(), "another-boot").unwrap().1.is_empty());
        for cut in 0..OLD.len() {
            let dir = write(&OLD[..cut]);
            let (mut journal, before) = Journal::open_of(dir.path(), "this-boot").unwrap();
            journal.append(&Line::Put(Box::new(record("z"))));
            let (_, after) = Journal::open_of(dir.path(), "this-boot").unwrap();
            assert_eq!(after.len(), before.len() + 1, "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_a_full_disk_tore_takes_no_other_with_it() {
        let lines: Vec<&str> = OLD.split_inclusive('\n').collect();
        for cut in 1..lines[1].len() - 1 {
            let torn = format!("{}{}{}", lines[0], &lines[1][..cut], lines[2..].concat());
            let dir = write(&torn);
            let (_, records) = Journal::open_of(dir.path(), "this-boot").unwrap();
            assert_eq!(records.len(), 1, "cut at {cut}");
            assert_eq!((records[0].id.as_str(), records[0].started_at), ("b", Some(5)), "cut at {cut}");
        }
        // What a pod writes into its own settings is not a line.
        let mut forging = record("a");
        forging.plan.hostname = Some("{\"drop\":{\"id\":\"b\"}}".to_owned());
        let put = serde_json::to_string(&Line::Put(Box::new(forging))).unwrap();
        assert!(whole_line(&put[..put.len() - 1]).is_none());
    }

    #[test]
    fn a_journal_gives_what_was_not_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, records) = Journal::open_of(dir.path(), "boot").unwrap();
        assert!(records.is_empty());
        for id in ["a", "b"] {
            journal.append(&Line::Put(Box::new(record(id))));
        }
        journal.started("b", 5);
        journal.dropped("a", &BTreeMap::new());
        journal.exited("b", Exited { code: 3, signal: None, oom: false, at: 9 });
        let (_, records) = Journal::open_of(dir.path(), "boot").unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].started_at, records[0].exited.map(|e| e.code)), (Some(5), Some(3)));
    }

    #[test]
    fn a_journal_on_a_full_disk_says_so_until_everything_is_written() {
        let disk = podwire_testkit::SmallDisk::new(64 << 10).unwrap();
        let (mut journal, _) = Journal::open_of(disk.path(), "boot").unwrap();
        let none = BTreeMap::new();
        assert_eq!(journal.failure(&none), None);
        disk.fill().unwrap();
        let mut large = record("large");
        large.plan.hostname = Some("x".repeat(10_000));
        journal.append(&Line::Put(Box::new(large)));
        let failure = journal.failure(&none).unwrap();
        assert!(failure.contains("No space left on device"), "{failure}");
        assert!(journal.mend(&none).is_some_and(|wait| wait <= RETRY));
        disk.empty().unwrap();
        assert_eq!(journal.failure(&none), None);
        assert_eq!(journal.mend(&none), None);
    }
}
