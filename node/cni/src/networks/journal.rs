//! What was begun for each attachment, written before it is done.
//!
//! One file per attachment, lines of JSON: first a header with magic, version, boot id, the namespace's identity, the
//! attachment and its configuration; then a line per step about to run with the result so far; then `attached` with the
//! result, or `deleting` with the steps that are left. Lines are appended and never synced: they survive the death of the
//! process, and after a reboot the boot id says that they are stale. A torn last line is as if it had not been written, and
//! one that a full disk cut short is taken back before another follows. Not a boot journal: each file has one subject and
//! one writer at a time, several programs read it, and it is gone with the attachment, so that nothing is ever rewritten.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use podwire_linux::boot_journal::Appender;
use podwire_linux::netns::{Identity, Netns};
use serde_json::{Map, Value, json};

use super::conflist::Conflist;
use super::{Attachment, Error, Pending};
use crate::ipam::boot::boot_id;
use crate::names::sha512_hex;
use crate::spec::request::{check_container_id, check_ifname};
use crate::spec::result::CniResult;
use crate::spec::version::Version;

const MAGIC: &str = "podwire-cni-attachment";
const VERSION: u64 = 1;

/// How far an attachment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// ADD was begun.
    Adding,
    /// ADD succeeded.
    Attached,
    /// DEL was begun and is not through.
    Deleting,
}

/// What the journal knows of an attachment.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) phase: Phase,
    pub(crate) attachment: Attachment,
    pub(crate) conflist: Conflist,
    boot: String,
    netns: Identity,
    /// Steps that were begun.
    begun: usize,
    /// Steps whose DEL failed.
    left: Option<Vec<usize>>,
    reason: String,
    pub(crate) partial: Option<CniResult>,
    pub(crate) result: Option<CniResult>,
}

impl Entry {
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id()
    }

    /// Whether the path still leads to the namespace that was attached.
    pub(crate) fn netns_is(&self, path: &Path) -> bool {
        Netns::open(path).and_then(|netns| netns.identity()).is_ok_and(|identity| identity == self.netns)
    }

    /// The steps that DEL must still run for.
    pub(crate) fn outstanding(&self) -> Vec<usize> {
        match (&self.left, self.phase) {
            (Some(left), _) => left.clone(),
            (None, Phase::Adding) => (0..self.begun).collect(),
            (None, _) => (0..self.conflist.plugins.len()).collect(),
        }
    }

    /// Why it needs cleaning, if it does.
    pub(crate) fn pending(&self) -> Option<Pending> {
        let reason = if !self.is_of_this_boot() {
            "it is of an earlier boot".to_owned()
        } else {
            match self.phase {
                Phase::Adding => "its ADD was begun and not finished".to_owned(),
                Phase::Deleting => format!("its DEL was begun and not finished: {}", self.reason),
                Phase::Attached => return None,
            }
        };
        Some(Pending {
            container_id: self.attachment.container_id.clone(),
            ifname: self.attachment.ifname.clone(),
            network: self.conflist.name.clone(),
            reason,
        })
    }
}

/// The folder of journals.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::State { attempt, path, source }
}

impl Journal {
    pub(crate) fn open(state_dir: &Path) -> Result<Journal, Error> {
        let dir = state_dir.join("attachments");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(failed("create", &dir))?;
        Ok(Journal { dir })
    }

    fn path_of(&self, container: &str, ifname: &str) -> PathBuf {
        let name = format!("{container}@{ifname}");
        if name.len() <= 200 {
            return self.dir.join(name);
        }
        let start: String = container.chars().take(100).collect();
        self.dir.join(format!("{start}@{}", &sha512_hex(&name)[..64]))
    }

    /// Writes the intent.
    pub(crate) fn begin(
        &self,
        conflist: &Conflist,
        attachment: &Attachment,
        netns: Identity,
    ) -> Result<Writer, Error> {
        let path = self.path_of(&attachment.container_id, &attachment.ifname);
        // Whatever is there never got a whole header, or its attachment was removed.
        remove(&path)?;
        let mut options = OpenOptions::new();
        let file = options.create_new(true).append(true).mode(0o600).open(&path);
        let mut writer =
            Writer { out: Appender::new(file.map_err(failed("create", &path))?, 0), path: path.clone() };
        let args: Vec<Value> = attachment.args.iter().map(|(key, value)| json!([key, value])).collect();
        let written = writer.line(&json!({
            "magic": MAGIC,
            "version": VERSION,
            "boot": boot_id(),
            "containerId": attachment.container_id,
            "ifName": attachment.ifname,
            "netns": attachment.netns.display().to_string(),
            "netnsDev": netns.dev,
            "netnsIno": netns.ino,
            "args": args,
            "capabilityArgs": attachment.capability_args,
            "traceparent": attachment.traceparent,
            "cniVersion": conflist.version.to_string(),
            "plugins": conflist.plugins,
            "config": String::from_utf8_lossy(&conflist.bytes),
        }));
        match written {
            Ok(()) => Ok(writer),
            Err(error) => {
                // Ignored: a file without a header is removed by whoever reads it next.
                remove(&path).ok();
                Err(error)
            }
        }
    }

    /// What is known of an attachment; a file that never got a whole header is removed.
    pub(crate) fn read(&self, container: &str, ifname: &str) -> Result<Option<Entry>, Error> {
        self.read_path(&self.path_of(container, ifname))
    }

    fn read_path(&self, path: &Path) -> Result<Option<Entry>, Error> {
        let text = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", path)(error)),
        };
        let entry = parse(&String::from_utf8_lossy(&text));
        if entry.is_none() {
            // The header is written before anything is done: without it there is nothing to undo.
            tracing::warn!(file = %path.display(), "removed a journal without a whole header");
            remove(path)?;
        }
        Ok(entry)
    }

    /// The attachments, container and interface, whose file never got a whole header.
    pub(crate) fn torn(&self) -> Result<Vec<(String, String)>, Error> {
        let mut found = Vec::new();
        for item in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.filter_map(Result::ok) {
            let is_torn = std::fs::read(item.path())
                .is_ok_and(|bytes| parse(&String::from_utf8_lossy(&bytes)).is_none());
            let name = item.file_name().to_string_lossy().into_owned();
            if let (true, Some((container, ifname))) = (is_torn, name.rsplit_once('@')) {
                found.push((container.to_owned(), ifname.to_owned()));
            }
        }
        Ok(found)
    }

    /// Everything known.
    pub(crate) fn all(&self) -> Result<Vec<Entry>, Error> {
        let mut found = Vec::new();
        for item in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))? {
            let path = item.map_err(failed("list", &self.dir))?.path();
            found.extend(self.read_path(&path)?);
        }
        Ok(found)
    }

    /// Notes which steps of a DEL are left.
    pub(crate) fn keep_deleting(
        &self,
        attachment: &Attachment,
        left: &[usize],
        reason: &str,
    ) -> Result<(), Error> {
        let path = self.path_of(&attachment.container_id, &attachment.ifname);
        let file = OpenOptions::new().append(true).open(&path).map_err(failed("open", &path))?;
        let bytes = std::fs::read(&path).map_err(failed("read", &path))?;
        // What a killed writer left of its last line would take the next one with it.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
        if whole < bytes.len() as u64 {
            file.set_len(whole).map_err(failed("mend", &path))?;
        }
        Writer { out: Appender::new(file, whole), path }.line(&json!({ "deleting": left, "reason": reason }))
    }

    /// Forgets an attachment.
    pub(crate) fn forget(&self, container: &str, ifname: &str) -> Result<(), Error> {
        remove(&self.path_of(container, ifname))
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Appends to one attachment's journal.
pub(crate) struct Writer {
    out: Appender,
    path: PathBuf,
}

impl Writer {
    fn line(&mut self, value: &Value) -> Result<(), Error> {
        let mut text = value.to_string();
        text.push('\n');
        self.out.append(text.as_bytes()).map_err(failed("append to", &self.path))
    }

    /// A step is about to run.
    pub(crate) fn step(&mut self, step: usize, result: Option<&CniResult>) -> Result<(), Error> {
        let partial = result.and_then(|result| result.to_value(Version::V1_1).ok());
        self.line(&json!({ "step": step, "partial": partial }))
    }

    /// All steps have run.
    pub(crate) fn attached(&mut self, result: &CniResult) -> Result<(), Error> {
        self.line(&json!({ "attached": result.to_value(Version::V1_1).ok() }))
    }
}

/// Reads the text of a journal; damage after the header only loses what follows it.
pub(crate) fn parse(text: &str) -> Option<Entry> {
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let header: Value = serde_json::from_str(lines.next()?).ok()?;
    if header["magic"] != MAGIC || header["version"] != VERSION {
        return None;
    }
    let mut entry = parse_header(&header)?;
    let steps = entry.conflist.plugins.len();
    for line in lines {
        let Ok(value) = serde_json::from_str::<Value>(line) else { break };
        let result =
            |name: &str| value.get(name).and_then(|value| CniResult::parse(value, Version::V1_1).ok());
        if let Some(step) = value.get("step").and_then(Value::as_u64) {
            entry.begun = usize::try_from(step).unwrap_or(usize::MAX).saturating_add(1).min(steps);
            entry.partial = result("partial").or(entry.partial);
        } else if value.get("attached").is_some() {
            entry.phase = Phase::Attached;
            entry.result = result("attached");
        } else if let Some(left) = value.get("deleting").and_then(Value::as_array) {
            entry.phase = Phase::Deleting;
            let left = left.iter().filter_map(Value::as_u64).filter_map(|step| usize::try_from(step).ok());
            entry.left = Some(left.filter(|step| *step < steps).collect());
            value["reason"].as_str().unwrap_or_default().clone_into(&mut entry.reason);
        }
    }
    Some(entry)
}

fn parse_header(header: &Value) -> Option<Entry> {
    let text = |name: &str| header[name].as_str().map(str::to_owned);
    let pairs = header["args"].as_array()?.iter();
    let config = text("config")?;
    let mut conflist = Conflist::parse(config.as_bytes(), None).ok()?;
    // Plugins of the network's folder were merged in when ADD began.
    let plugins = header["plugins"].as_array()?.iter().filter_map(Value::as_object).cloned();
    conflist.plugins = plugins.collect::<Vec<Map<String, Value>>>();
    conflist.version = Version::parse(header["cniVersion"].as_str()?).ok()?;
    check_container_id(header["containerId"].as_str()?).ok()?;
    check_ifname(header["ifName"].as_str()?).ok()?;
    Some(Entry {
        phase: Phase::Adding,
        attachment: Attachment {
            container_id: text("containerId")?,
            netns: PathBuf::from(text("netns")?),
            ifname: text("ifName")?,
            args: pairs
                .filter_map(|pair| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned())))
                .collect(),
            capability_args: header["capabilityArgs"].as_object().cloned().unwrap_or_default(),
            traceparent: text("traceparent"),
        },
        conflist,
        boot: text("boot")?,
        netns: Identity { dev: header["netnsDev"].as_u64()?, ino: header["netnsIno"].as_u64()? },
        begun: 0,
        left: None,
        reason: String::new(),
        partial: None,
        result: None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file system of eight pages.
    struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        fn new() -> SmallDisk {
            let dir = tempfile::tempdir().unwrap();
            podwire_linux::mount::tmpfs(dir.path(), 8 * 4096, 0o755).unwrap();
            SmallDisk(dir)
        }

        fn fill(&self) {
            std::fs::write(self.0.path().join("filler"), vec![0; 1 << 20]).unwrap_err();
        }

        fn empty(&self) {
            std::fs::remove_file(self.0.path().join("filler")).unwrap();
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            podwire_linux::mount::detach_all_under(self.0.path()).ok();
        }
    }

    #[test]
    fn a_line_that_was_cut_short_takes_no_other_with_it() {
        let disk = SmallDisk::new();
        let journal = Journal::open(disk.0.path()).unwrap();
        let text = br#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"a"},{"type":"b"}]}"#;
        let conflist = Conflist::parse(text, None).unwrap();
        let attachment = |id: &str| Attachment {
            container_id: id.to_owned(),
            ifname: "eth0".to_owned(),
            netns: "/nowhere".into(),
            ..Attachment::default()
        };
        let (known, identity) = (attachment("known"), || Identity { dev: 1, ino: 2 });
        let mut writer = journal.begin(&conflist, &known, identity()).unwrap();
        writer.step(0, None).unwrap();
        disk.fill();
        let long = "x".repeat(3000);
        while writer.line(&json!({ "step": 1, "padding": long })).is_ok() {}
        assert!(journal.begin(&conflist, &attachment("new"), identity()).is_err());
        assert!(journal.torn().unwrap().is_empty(), "a refused intent leaves no file");
        disk.empty();
        journal.keep_deleting(&known, &[1], "first").unwrap();
        let left = || journal.read("known", "eth0").unwrap().unwrap().outstanding();
        assert_eq!(left(), [1]);
        // Half a line of a process that was killed.
        let mut file = OpenOptions::new().append(true).open(journal.path_of("known", "eth0")).unwrap();
        file.write_all(b"{\"deleting\":[0,").unwrap();
        journal.keep_deleting(&known, &[0], "second").unwrap();
        assert_eq!(left(), [0]);
        // It may be begun anew over what is left of an older one.
        journal.begin(&conflist, &known, identity()).unwrap();
        assert_eq!(left(), Vec::<usize>::new());
    }
}
