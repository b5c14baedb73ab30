//! The one thread that owns the book and touches devices.
//!
//! Every word is answered when its work is done and written down. Before a device is touched the record says where it is going
//! and what it was, so that whoever comes after a sudden end can finish or undo it; a device that could not be given back
//! stays in the record and is tried again with every word about its pod, its claim, or all of them.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use podwire_linux::netns::{self, Netns};
use podwire_trace::chain;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    book::{Attachment, Book, Claim, Given},
    cdi,
    figures::Figures,
    health::Watched,
    plan::status::{Became, told},
    record::{self, Record},
    teller::Teller,
};

mod give;
mod take;

/// Why a word was not carried out; its text reaches the kubelet or the runtime.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Held(#[from] crate::book::Held),
    #[error("give character devices of the claim")]
    Cdi(#[from] cdi::Error),
    #[error(transparent)]
    Record(#[from] record::Error),
    #[error("the pod has claims of network devices and no network namespace of its own")]
    NoNamespace,
    #[error("find the pod's network namespace")]
    Namespace(#[from] netns::Error),
    #[error("device {device}: {why}")]
    Attach { device: String, why: String },
    #[error("device {device} is not given back: {why}")]
    GiveBack { device: String, why: String },
}

pub(crate) type Answer = oneshot::Sender<Result<(), Error>>;

/// A sandbox that runs.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) pod_uid: String,
    /// Its network namespace; none for a pod on the node's.
    pub(crate) netns: Option<PathBuf>,
}

/// What the keeper is told.
pub(crate) enum Word {
    /// The kubelet wants a claim prepared.
    Prepare(Box<Claim>, Answer),
    /// Whether a claim is prepared, and how.
    Prepared(String, oneshot::Sender<Option<Claim>>),
    /// The kubelet wants nothing of a claim left.
    Unprepare(String, Answer),
    /// A sandbox is about to run: answered with what is in it of its devices, each in words.
    Run(Sandbox, oneshot::Sender<Result<Vec<String>, Error>>),
    /// A sandbox ends, by its id.
    Gone(String, Answer),
    /// These sandboxes run, and no others.
    Sandboxes(Vec<Sandbox>, Answer),
}

/// Devices that are away, as they were published.
pub(crate) type Absent = BTreeMap<String, Value>;

/// The thread's own.
pub(crate) struct Keeper {
    pub(crate) driver: String,
    pub(crate) book: Book,
    pub(crate) record: Record,
    /// The node's namespace, whatever thread this runs on.
    pub(crate) home: Netns,
    /// Where namespaces of pods are pinned.
    pub(crate) pins: PathBuf,
    /// Where the runtime finds which character devices come with a claim.
    pub(crate) cdi: cdi::Folder,
    pub(crate) absent: watch::Sender<Absent>,
    pub(crate) attached: watch::Sender<Vec<Watched>>,
    pub(crate) teller: Teller,
    pub(crate) figures: Figures,
}

impl Keeper {
    /// Works until nobody can tell anything more. Blocking.
    pub(crate) fn run(mut self, mut words: mpsc::Receiver<Word>) {
        self.absent.send_replace(self.book.absent());
        self.attached.send_replace(self.book.attached());
        self.count();
        self.sweep();
        // The folder may have gone with the last boot; what is prepared is so still.
        for claim in self.book.claims.values() {
            if let Err(error) = self.cdi.write(claim) {
                tracing::error!(
                    claim = claim.name,
                    error = &error as &dyn std::error::Error,
                    "containers of a claim cannot have its character devices"
                );
            }
        }
        while let Some(word) = words.blocking_recv() {
            self.hear(word);
        }
    }

    fn hear(&mut self, word: Word) {
        // Ignored throughout: who asked may have stopped waiting; what was done is in the book.
        match word {
            Word::Prepare(claim, answer) => drop(answer.send(self.prepare(*claim))),
            Word::Prepared(uid, answer) => drop(answer.send(self.book.claims.get(&uid).cloned())),
            Word::Unprepare(uid, answer) => drop(answer.send(self.unprepare(&uid))),
            Word::Run(sandbox, answer) => drop(answer.send(self.run_sandbox(&sandbox))),
            Word::Gone(id, answer) => {
                drop(answer.send(self.give_back(|_, one| one.sandbox == id)));
            }
            Word::Sandboxes(all, answer) => drop(answer.send(self.sandboxes(&all))),
        }
    }

    fn prepare(&mut self, claim: Claim) -> Result<(), Error> {
        self.cdi.check(&claim)?;
        let (before, uid) = (self.book.clone(), claim.uid.clone());
        self.book.take(claim)?;
        self.write().inspect_err(|_| self.book = before)?;
        // What is not written here is tried again with the claim, or goes with it.
        Ok(self.cdi.write(&self.book.claims[&uid])?)
    }

    fn unprepare(&mut self, uid: &str) -> Result<(), Error> {
        if !self.book.claims.contains_key(uid) {
            return Ok(());
        }
        self.give_back(|claim, _| claim.uid == uid)?;
        self.cdi.remove(&self.book.claims[uid])?;
        let claim = self.book.claims.remove(uid);
        self.write().inspect_err(|_| {
            self.book.claims.extend(claim.map(|claim| (uid.to_owned(), claim)));
        })
    }

    fn run_sandbox(&mut self, sandbox: &Sandbox) -> Result<Vec<String>, Error> {
        let claims = self.book.of_pod(&sandbox.pod_uid);
        if claims.iter().all(|uid| self.book.claims[uid].devices.is_empty()) {
            return Ok(Vec::new());
        }
        // An earlier sandbox of the pod has nothing any more, and what is half done is done anew.
        self.give_back(|claim, one| {
            claim.pod.uid == sandbox.pod_uid && (one.sandbox != sandbox.id || one.attached.is_none())
        })?;
        let done = match &sandbox.netns {
            Some(netns) => self.attach(&sandbox.id, netns, &claims),
            None => Err(Error::NoNamespace),
        };
        let became = match &done {
            Ok(()) => Became::Attached,
            Err(error) => Became::Failed("NetworkDeviceAttachFailed", chain(error)),
        };
        for claim in claims.iter().filter_map(|uid| self.book.claims.get(uid)) {
            self.teller.tell(told(&self.driver, claim, &became));
            if let Err(error) = &done {
                self.teller.event(&claim.pod, "NetworkDeviceAttachFailed", &chain(error));
            }
        }
        done.map(|()| {
            claims.iter().flat_map(|uid| &self.book.claims[uid].devices).filter_map(in_pod).collect()
        })
    }

    /// The runtime's word is the truth: what is in no sandbox that runs comes home, and a sandbox that was run without its
    /// devices while we were away gets them now.
    fn sandboxes(&mut self, all: &[Sandbox]) -> Result<(), Error> {
        let running: HashMap<&str, &Sandbox> =
            all.iter().filter(|one| one.netns.is_some()).map(|one| (one.id.as_str(), one)).collect();
        let back = self.give_back(|_, one| !running.contains_key(one.sandbox.as_str()));
        if let Err(error) = &back {
            tracing::error!(%error, "a device of a pod that has gone is not home yet; will try again");
        }
        for sandbox in running.values() {
            let whole = |uid: &String| {
                let devices = self.book.claims[uid].devices.iter();
                devices
                    .map(|device| &device.attachment)
                    .all(|at| at.as_ref().is_some_and(|at| at.sandbox == sandbox.id && at.attached.is_some()))
            };
            let claims = self.book.of_pod(&sandbox.pod_uid);
            if claims.iter().all(whole) {
                // Whether it was told before is not known.
                for claim in claims.iter().filter_map(|uid| self.book.claims.get(uid)) {
                    self.teller.tell(told(&self.driver, claim, &Became::Attached));
                }
                continue;
            }
            match self.run_sandbox(sandbox) {
                Ok(devices) => tracing::warn!(
                    sandbox = sandbox.id,
                    count = devices.len(),
                    "a pod was started without its devices while the driver was away; it has them now"
                ),
                Err(error) => {
                    tracing::error!(sandbox = sandbox.id, %error, "a pod runs without its devices");
                }
            }
        }
        Ok(())
    }

    fn count(&self) {
        let all = self.book.claims.values().flat_map(|claim| &claim.devices);
        let ready = |at: &Attachment| at.attached.is_some();
        let (mut prepared, mut there) = (0, 0);
        for device in all {
            prepared += 1;
            there += usize::from(device.attachment.as_ref().is_some_and(ready));
        }
        self.figures.devices(prepared, there);
    }

    /// Writes the book down, and tells what is away.
    fn write(&mut self) -> Result<(), Error> {
        self.record.write(&self.book)?;
        self.count();
        self.attached.send_replace(self.book.attached());
        let absent = self.book.absent();
        self.absent.send_if_modified(|before| {
            let changed = *before != absent;
            *before = absent;
            changed
        });
        Ok(())
    }
}

/// What a device is in its pod, in words.
fn in_pod(device: &Given) -> Option<String> {
    let inside = &device.attachment.as_ref()?.inside;
    let addresses: Vec<String> = inside.addresses.iter().map(ToString::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    Some(format!("{} is in the pod as {}: {addresses}", device.device, inside.name))
}
