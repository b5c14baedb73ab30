//! The runtime's side: which network, in which order its plugins run, what they answered, and how all of it is undone.
//!
//! Beyond the specification: every step is written to a journal before it runs, [`Networks::ensure`] may be called again
//! and again, and [`Networks::detach`] goes on past a failing plugin and remembers what is left to do. Concurrent calls
//! for different attachments run in parallel, calls for the same one in turn.

pub mod cache;
pub mod chain;
pub mod conflist;
pub mod default;
pub mod journal;
pub mod locks;

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use podwire_linux::netns::Netns;
use serde_json::{Map, Value};

use self::chain::Chain;
use self::conflist::Conflist;
use self::journal::{Entry, Journal, Phase};
use crate::ipam::store::EXHAUSTED;
use crate::spec::error::{CniError, code};
use crate::spec::request::Command;
use crate::spec::result::CniResult;
use crate::spec::version::Version;

/// Why a network operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no network configuration.
    #[error("cni plugin not initialized: no network config found in {}", dir.display())]
    NoNetwork {
        /// The folder that was looked into.
        dir: PathBuf,
    },
    /// A configuration file is wrong.
    #[error("network config {}: {error}", path.display())]
    BadConflist {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: CniError,
    },
    /// A plugin said no.
    #[error("plugin {plugin} failed {command}: {error}")]
    Plugin {
        /// The plugin.
        plugin: String,
        /// The verb.
        command: &'static str,
        /// Its answer.
        error: CniError,
    },
    /// The attachment itself is wrong.
    #[error("attachment of {container}: {error}")]
    BadAttachment {
        /// The container.
        container: String,
        /// What is wrong.
        error: CniError,
    },
    /// A file of ours could not be used.
    #[error("{attempt} {}", path.display())]
    State {
        /// What was attempted.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// The plugin's code, when a plugin said no.
    pub fn code(&self) -> Option<u32> {
        match self {
            Error::Plugin { error, .. }
            | Error::BadConflist { error, .. }
            | Error::BadAttachment { error, .. } => Some(error.code),
            Error::NoNetwork { .. } | Error::State { .. } => None,
        }
    }

    /// Whether STATUS only says that all addresses are in use: the network works, and the next pod that goes makes room.
    pub fn is_exhaustion(&self) -> bool {
        matches!(self, Error::Plugin { command: "STATUS", error, .. }
            if error.code == code::UNAVAILABLE && error.msg.contains(EXHAUSTED))
    }
}

/// Where everything is.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Network configurations.
    pub conf_dir: PathBuf,
    /// Where plugins are looked for.
    pub bin_dirs: Vec<PathBuf>,
    /// Results, in libcni's format: `results/` is made below it.
    pub cache_dir: PathBuf,
    /// Our journal.
    pub state_dir: PathBuf,
    /// Run our own plugins in process when no foreign binary shadows them.
    pub builtin: bool,
    /// How long one executed plugin may take.
    pub timeout: Duration,
}

/// One interface of one container.
#[derive(Debug, Clone, Default)]
pub struct Attachment {
    /// The container, or sandbox.
    pub container_id: String,
    /// Its network namespace.
    pub netns: PathBuf,
    /// The interface in it.
    pub ifname: String,
    /// `CNI_ARGS`, as (key, value).
    pub args: Vec<(String, String)>,
    /// What plugins may ask for by capability.
    pub capability_args: Map<String, Value>,
    /// The trace the operation belongs to.
    pub traceparent: Option<String>,
}

/// What an attachment got.
#[derive(Debug, Clone)]
pub struct AddResult {
    /// The addresses of the interface.
    pub ips: Vec<IpNet>,
    /// The result, in the newest shape.
    pub raw: Value,
    /// The same, read.
    pub result: CniResult,
    /// The network it is attached to.
    pub network: String,
}

/// An attachment that still needs cleaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The container.
    pub container_id: String,
    /// The interface.
    pub ifname: String,
    /// The network.
    pub network: String,
    /// Why it is still there.
    pub reason: String,
}

impl RuntimeConfig {
    /// Makes the folders and recovers the journal.
    pub fn open(self) -> Result<Networks, Error> {
        let journal = Journal::open(&self.state_dir)?;
        let cache = cache::Cache::open(&self.cache_dir)?;
        let locks = locks::Locks::new(&self.state_dir);
        Ok(Networks { config: self, journal, cache, locks })
    }
}

/// The networks of this node.
pub struct Networks {
    pub(crate) config: RuntimeConfig,
    journal: Journal,
    cache: cache::Cache,
    locks: locks::Locks,
}

impl Networks {
    /// The configuration in force: the first of its folder, read anew each time it is asked for.
    pub fn current(&self) -> Result<Conflist, Error> {
        conflist::load_first(&self.config.conf_dir)
    }

    /// Whether pods can be attached; the error says why not. That no address is left is said last: see
    /// [`Error::is_exhaustion`].
    pub fn status(&self) -> Result<(), Error> {
        let conflist = self.current()?;
        if conflist.version < Version::V1_1 {
            return Ok(());
        }
        Chain::new(&self.config, &conflist, &Attachment::default()).status()
    }

    /// Attaches, once: an intact attachment is returned as recorded, a damaged or half-made one is made anew.
    pub fn ensure(&self, attachment: &Attachment) -> Result<AddResult, Error> {
        check_attachment(attachment)?;
        let _turn = self.locks.attachment(&attachment.container_id, &attachment.ifname);
        if let Some(entry) = self.journal.read(&attachment.container_id, &attachment.ifname)? {
            match self.intact(&entry, attachment) {
                Some(result) => return add_result(&entry.conflist.name, result),
                None => self.remove(&entry)?,
            }
        }
        let conflist = self.current()?;
        self.add(&conflist, attachment)
    }

    /// The same on a network of the caller's choice.
    pub fn ensure_in(&self, conflist: &Conflist, attachment: &Attachment) -> Result<AddResult, Error> {
        check_attachment(attachment)?;
        let _turn = self.locks.attachment(&attachment.container_id, &attachment.ifname);
        if let Some(entry) = self.journal.read(&attachment.container_id, &attachment.ifname)? {
            let same = entry.conflist.name == conflist.name;
            match self.intact(&entry, attachment).filter(|_| same) {
                Some(result) => return add_result(&entry.conflist.name, result),
                None => self.remove(&entry)?,
            }
        }
        self.add(conflist, attachment)
    }

    fn intact(&self, entry: &Entry, attachment: &Attachment) -> Option<CniResult> {
        let result =
            entry.result.clone().filter(|_| entry.phase == Phase::Attached && entry.is_of_this_boot())?;
        if entry.attachment.netns != attachment.netns || !entry.netns_is(&attachment.netns) {
            return None;
        }
        let chain = Chain::new(&self.config, &entry.conflist, &entry.attachment);
        match chain.check(&result) {
            Ok(()) => Some(result),
            Err(error) => {
                tracing::info!(container = attachment.container_id, %error, "the attachment has drifted and is made anew");
                None
            }
        }
    }

    fn add(&self, conflist: &Conflist, attachment: &Attachment) -> Result<AddResult, Error> {
        let bad =
            |error: CniError| Error::BadAttachment { container: attachment.container_id.clone(), error };
        let opened = Netns::open(&attachment.netns).map_err(|error| bad(error.into()))?;
        let netns = opened.identity().map_err(|error| bad(error.into()))?;
        // The loopback network of every pod, as other runtimes do it beside the configured one.
        opened
            .run(|| crate::plugins::loopback::set(true))
            .map_err(CniError::from)
            .flatten()
            .map_err(|error| bad(error.context("bring lo up")))?;
        crate::traced::configuration(conflist, attachment);
        let chain = Chain::new(&self.config, conflist, attachment);
        let mut writer = self.journal.begin(conflist, attachment, netns)?;
        let added = chain.add(|step, result| writer.step(step, result)).and_then(|result| {
            writer.attached(&result)?;
            self.cache.write(conflist, attachment, &result)?;
            Ok(result)
        });
        match added {
            Ok(result) => add_result(&conflist.name, result),
            Err(error) => {
                drop(writer);
                if let Some(entry) = self.journal.read(&attachment.container_id, &attachment.ifname)?
                    && let Err(undo) = self.remove(&entry)
                {
                    tracing::warn!(container = attachment.container_id, error = %undo, "a failed attachment is not yet undone");
                }
                Err(error)
            }
        }
    }

    /// Detaches. Everything that can be cleaned is, whatever is missing; the first error is returned and what is left
    /// stays in the journal for [`Self::retry_pending`].
    pub fn detach(&self, attachment: &Attachment) -> Result<(), Error> {
        self.detach_how(attachment, false)
    }

    /// Detaches a pod whose namespace the caller removes right after: its links are left to die with it, which saves the
    /// some twenty milliseconds the kernel takes to remove one.
    pub fn detach_dying(&self, attachment: &Attachment) -> Result<(), Error> {
        self.detach_how(attachment, true)
    }

    fn detach_how(&self, attachment: &Attachment, dying: bool) -> Result<(), Error> {
        check_attachment(attachment)?;
        let _turn = self.locks.attachment(&attachment.container_id, &attachment.ifname);
        match self.journal.read(&attachment.container_id, &attachment.ifname)? {
            Some(entry) => self.remove_how(&entry, dying),
            None => self.detach_unknown(attachment),
        }
    }

    /// An attachment the journal does not know: made by another runtime, or never. Its cached result tells which.
    fn detach_unknown(&self, attachment: &Attachment) -> Result<(), Error> {
        let cached = self.cache.find(&attachment.container_id, &attachment.ifname);
        let (conflist, result) = match cached {
            Some(cached) => (cached.conflist, cached.result),
            None => match self.current() {
                Ok(conflist) => (conflist, None),
                // Neither journal nor cache knows it, so nothing was made for it under a configuration that is gone by now.
                Err(Error::NoNetwork { .. }) => return Ok(()),
                Err(error) => {
                    let container = &attachment.container_id;
                    tracing::warn!(%container, %error, "an unknown attachment counts as removed");
                    return Ok(());
                }
            },
        };
        let chain = Chain::new(&self.config, &conflist, attachment);
        let outcome = chain.del(chain.len(), result.as_ref(), &attachment.netns.display().to_string());
        if let Some((_, error)) = outcome.failed.into_iter().next() {
            return Err(error);
        }
        self.cache.remove(&conflist.name, &attachment.container_id, &attachment.ifname)
    }

    /// Undoes what the journal says was begun.
    fn remove(&self, entry: &Entry) -> Result<(), Error> {
        self.remove_how(entry, false)
    }

    fn remove_how(&self, entry: &Entry, dying: bool) -> Result<(), Error> {
        let attachment = &entry.attachment;
        // A namespace that is another one by now must not be touched.
        let same = entry.is_of_this_boot() && entry.netns_is(&attachment.netns);
        let netns = if same { attachment.netns.display().to_string() } else { String::new() };
        let chain = Chain::new(&self.config, &entry.conflist, attachment).dying(dying);
        let outcome =
            chain.del_steps(&entry.outstanding(), entry.result.as_ref().or(entry.partial.as_ref()), &netns);
        if outcome.failed.is_empty() {
            self.cache.remove(&entry.conflist.name, &attachment.container_id, &attachment.ifname)?;
            return self.journal.forget(&attachment.container_id, &attachment.ifname);
        }
        let left: Vec<usize> = outcome.failed.iter().map(|(step, _)| *step).collect();
        let mut failed = outcome.failed.into_iter();
        let (_, first) = failed.next().expect("a failed step was counted");
        self.journal.keep_deleting(attachment, &left, &first.to_string())?;
        Err(first)
    }

    /// Compares an attachment with what was recorded.
    pub fn check(&self, attachment: &Attachment) -> Result<(), Error> {
        let _turn = self.locks.attachment(&attachment.container_id, &attachment.ifname);
        let bad = |text: &str| Error::BadAttachment {
            container: attachment.container_id.clone(),
            error: CniError::internal(text),
        };
        let (conflist, of, result) = match self.journal.read(&attachment.container_id, &attachment.ifname)? {
            Some(entry) if entry.phase == Phase::Attached => {
                let result = entry.result.clone().ok_or_else(|| bad("its record has no result"))?;
                (entry.conflist, entry.attachment, result)
            }
            Some(_) => return Err(bad("it is not attached")),
            None => {
                let cached = self.cache.find(&attachment.container_id, &attachment.ifname);
                let cached = cached.ok_or_else(|| bad("it is unknown"))?;
                (
                    cached.conflist,
                    attachment.clone(),
                    cached.result.ok_or_else(|| bad("its record has no result"))?,
                )
            }
        };
        Chain::new(&self.config, &conflist, &of).check(&result)
    }

    /// Detaches everything that is not in `keep`, then lets every plugin sweep. Goes on past errors; the first is returned.
    pub fn gc(&self, keep: &[Attachment]) -> Result<(), Error> {
        self.gc_with(|| Ok(keep.to_vec()))
    }

    /// The same; what to keep is asked for once nobody can attach or detach any more.
    pub(crate) fn gc_with(&self, keep: impl FnOnce() -> Result<Vec<Attachment>, Error>) -> Result<(), Error> {
        let _alone = self.locks.everything();
        let keep = &keep()?;
        let kept = |id: &str, ifname: &str| keep.iter().any(|a| a.container_id == id && a.ifname == ifname);
        let mut first = None;
        let torn = self.journal.torn()?;
        for entry in self.journal.all()? {
            if !kept(&entry.attachment.container_id, &entry.attachment.ifname)
                && let Err(error) = self.remove(&entry)
            {
                first.get_or_insert(error);
            }
        }
        // Attachments of other runtimes, which only the cache knows.
        for cached in self.cache.all()? {
            if !kept(&cached.container_id, &cached.ifname)
                && let Err(error) = self.detach_unknown(&cached)
            {
                first.get_or_insert(error);
            }
        }
        if let Err(error) = self.cache.sweep_torn(&torn) {
            first.get_or_insert(error);
        }
        match self.current() {
            Ok(conflist) if conflist.version >= Version::V1_1 && !conflist.disable_gc => {
                if let Err(error) = Chain::new(&self.config, &conflist, &Attachment::default()).gc(keep) {
                    first.get_or_insert(error);
                }
            }
            Ok(_) | Err(Error::NoNetwork { .. }) => {}
            Err(error) => {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// What still needs cleaning: begun and not finished, or of an earlier boot.
    pub fn pending(&self) -> Result<Vec<Pending>, Error> {
        let entries = self.journal.all()?.into_iter();
        Ok(entries.filter_map(|entry| entry.pending()).collect())
    }

    /// Tries again to clean what is pending; returns what is left.
    pub fn retry_pending(&self) -> Result<Vec<Pending>, Error> {
        for entry in self.journal.all()? {
            let Some(pending) = entry.pending() else { continue };
            let _turn = self.locks.attachment(&pending.container_id, &pending.ifname);
            // It may have changed while we waited for our turn.
            let Some(entry) = self.journal.read(&pending.container_id, &pending.ifname)? else { continue };
            if entry.pending().is_some()
                && let Err(error) = self.remove(&entry)
            {
                tracing::warn!(container = pending.container_id, %error, "an attachment still needs cleaning");
            }
        }
        self.pending()
    }

    /// The attachments in the cache of results, whoever made them.
    pub fn cached(&self) -> Result<Vec<Attachment>, Error> {
        self.cache.all()
    }

    /// Removes cached results of attachments that are not in `keep`.
    pub fn forget_dead_results(&self, keep: &[Attachment]) -> Result<(), Error> {
        for cached in self.cache.all()? {
            if !keep.iter().any(|a| a.container_id == cached.container_id && a.ifname == cached.ifname) {
                self.cache.forget(&cached.container_id, &cached.ifname)?;
            }
        }
        Ok(())
    }

    /// The attachments that exist.
    pub fn attachments(&self) -> Result<Vec<(Attachment, AddResult)>, Error> {
        let mut found = Vec::new();
        for entry in self.journal.all()? {
            if let (Phase::Attached, Some(result)) = (entry.phase, entry.result) {
                found.push((entry.attachment, add_result(&entry.conflist.name, result)?));
            }
        }
        Ok(found)
    }
}

fn add_result(network: &str, result: CniResult) -> Result<AddResult, Error> {
    let raw = result.to_value(Version::V1_1).map_err(|error| Error::Plugin {
        plugin: network.to_owned(),
        command: Command::Add.as_str(),
        error,
    })?;
    let in_sandbox =
        |index: usize| result.interfaces.get(index).is_none_or(|interface| !interface.sandbox.is_empty());
    let ips =
        result.ips.iter().filter(|ip| ip.interface.is_none_or(in_sandbox)).map(|ip| ip.address).collect();
    Ok(AddResult { ips, raw, network: network.to_owned(), result })
}

fn check_attachment(attachment: &Attachment) -> Result<(), Error> {
    use crate::spec::request::{check_container_id, check_ifname};
    check_container_id(&attachment.container_id)
        .and_then(|()| check_ifname(&attachment.ifname))
        .map_err(|error| Error::BadAttachment { container: attachment.container_id.clone(), error })
}
