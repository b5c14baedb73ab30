//! Turns stored definitions into kinds that are served.
//!
//! One task ([`Definer::run`]) follows the definitions in the watch cache: it settles their status, serves their kinds,
//! and sees to it that a definition that goes takes its objects along. Who has written a definition waits for it
//! ([`Definitions::settle`]), so that what is defined can be used when the answer is there. Whether and what is decided
//! by [`podwire_api::definition`].

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use podwire_api::definition::conditions::{self, Taken};
use podwire_api::definition::{self, CLEANUP_FINALIZER, Rules, Source};
use podwire_api::{Kind, Part, builtin};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::cache::{Entry, Scope};
use crate::context::{self, Context};
use crate::handler::create::now;
use crate::handler::delete::Deletion;
use crate::handler::options::{DeleteOptions, FieldValidation, WriteOptions};
use crate::handler::update::{Change, Extent};
use crate::identity::{Identity, MASTERS};
use crate::rules::Lazy;
use crate::status::{ApiError, Result};

/// Writers wait no longer than this for what they have defined.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether the objects of a definition that goes are gone.
const CLEANUP_PAUSE: Duration = Duration::from_millis(500);
/// How often definitions are looked at again because some were written, before others get their turn.
const MOST_ROUNDS: usize = 64;
/// How many of them are deleted side by side.
const AT_A_TIME: usize = 64;
/// Who writes the status of definitions.
const MANAGER: &str = "kube-apiserver";

/// Asks the task to look at the definitions.
pub(crate) struct Definitions {
    ask: mpsc::Sender<oneshot::Sender<()>>,
}

/// What the task is asked for.
pub(crate) type Wishes = mpsc::Receiver<oneshot::Sender<()>>;

impl Definitions {
    pub(crate) fn new() -> (Self, Wishes) {
        let (ask, asked) = mpsc::channel(16);
        (Self { ask }, asked)
    }

    /// Waits until all that is stored is served. Cancel safe.
    pub(crate) async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        let ask = async {
            if self.ask.send(done).await.is_ok() {
                // Ignored: a task that ends answers nobody, and nothing is served any more.
                settled.await.ok();
            }
        };
        if tokio::time::timeout(SETTLES_WITHIN, ask).await.is_err() {
            tracing::warn!("a definition is not served yet; it will be");
        }
    }
}

/// What is served of a definition.
struct Known {
    /// Revision of the definition that was looked at last.
    revision: u64,
    group: String,
    taken: Taken,
    /// Whether it has all the names it wants.
    contented: bool,
    /// What its kinds were made from: when this is the same, so are they.
    made_from: Option<MadeFrom>,
    kinds: Vec<Arc<Kind>>,
}

#[derive(PartialEq, Eq)]
struct MadeFrom {
    uid: String,
    generation: Option<i64>,
    names: String,
    terminating: bool,
}

/// The task.
pub(crate) struct Definer {
    context: Arc<Context>,
    known: BTreeMap<String, Known>,
    /// Definitions whose objects are being removed.
    leaving: HashSet<String>,
    cleanups: FuturesUnordered<BoxFuture<'static, String>>,
    /// Whether something has to be tried again.
    failed: bool,
}

/// A definition in the watch cache.
#[derive(Debug)]
struct Stored {
    context: Weak<Context>,
    key: String,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Context")
    }
}

impl Source for Stored {
    fn definition(&self) -> Option<Value> {
        let context = self.context.upgrade()?;
        let kind = builtin::custom_resource_definitions();
        Some(context.caches.of(kind).get(&self.key)?.decode(kind))
    }

    fn rules(self: Arc<Self>, version: &str) -> Option<Arc<dyn Rules>> {
        Some(Arc::new(Lazy::new(self, version)))
    }
}

impl Definer {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            known: BTreeMap::new(),
            leaving: HashSet::new(),
            cleanups: FuturesUnordered::new(),
            failed: false,
        }
    }

    /// Looks at the definitions whenever they change or somebody asks, until `shutdown`.
    pub(crate) async fn run(mut self, mut asked: Wishes, shutdown: CancellationToken) {
        let mut news = self.context.caches.of(builtin::custom_resource_definitions()).news();
        loop {
            let done = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(done) = asked.recv() => Some(done),
                Some(name) = self.cleanups.next(), if !self.cleanups.is_empty() => {
                    self.leaving.remove(&name);
                    None
                }
                changed = news.changed() => match changed {
                    Ok(()) => None,
                    Err(_) => return,
                },
                () = tokio::time::sleep(CLEANUP_PAUSE), if self.failed => None,
            };
            if let Err(error) = self.catch_up().await {
                tracing::error!(error = error.message, "definitions could not be served; trying again");
                self.failed = true;
            }
            if let Some(done) = done {
                // Ignored: who asked may have gone away since.
                done.send(()).ok();
            }
        }
    }

    /// Serves what is stored now.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        for _ in 0..MOST_ROUNDS {
            let stored = self.context.store.revision().await?;
            self.context.caches.wait_for(stored).await?;
            if !self.round().await {
                break;
            }
        }
        Ok(())
    }

    /// Looks at every definition that is not as it was; whether some were written, so that it has to be done again.
    async fn round(&mut self) -> bool {
        self.failed = false;
        let entries = self.entries();
        let names: HashSet<&str> = entries.iter().map(|entry| name_of(entry)).collect();
        let gone: Vec<String> =
            self.known.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
        let mut retired: Vec<Arc<Kind>> = Vec::new();
        for name in &gone {
            let Some(known) = self.known.remove(name) else { continue };
            retired.extend(known.kinds);
            // The names that are free now are given to who wants them.
            self.known.values_mut().filter(|other| other.group == known.group && !other.contented).for_each(
                |other| {
                    other.revision = 0;
                },
            );
        }
        self.context.withdraw_kinds(&retired);
        let (mut old, mut new, mut written) = (Vec::new(), Vec::new(), false);
        for entry in &entries {
            let name = name_of(entry);
            if self.known.get(name).is_some_and(|known| known.revision == entry.revision) {
                continue;
            }
            match self.look(name, entry).await {
                Ok(Some((before, after))) => {
                    old.extend(before);
                    new.extend(after);
                }
                Ok(None) => written = true,
                // The others are served all the same.
                Err(error) => {
                    tracing::error!(
                        name,
                        error = error.message,
                        "a definition could not be served; trying again"
                    );
                    self.failed = true;
                }
            }
        }
        if !old.is_empty() || !new.is_empty() {
            old.retain(|kind: &Arc<Kind>| {
                !new.iter().any(|other: &Arc<Kind>| {
                    other.storage_prefix == kind.storage_prefix && other.version == kind.version
                })
            });
            self.context.kinds.change(&old, &new);
            self.context.withdraw_kinds(&old);
        }
        written
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        let kind = builtin::custom_resource_definitions();
        let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
        self.context.caches.of(kind).snapshot(&scope).entries
    }

    /// Looks at one definition: the kinds that it had and has, or none when its status was written first.
    async fn look(&mut self, name: &str, entry: &Entry) -> Result<Option<(Vec<Arc<Kind>>, Vec<Arc<Kind>>)>> {
        let definition = entry.decode(builtin::custom_resource_definitions());
        let terminating = definition::is_terminating(&definition);
        let others = self.taken_beside(name, definition::group(&definition));
        if !terminating && settle(&self.context, name, &definition, &others).await? {
            return Ok(None);
        }
        let made_from = MadeFrom {
            uid: definition["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            generation: definition["metadata"]["generation"].as_i64(),
            names: definition["status"]["acceptedNames"].to_string(),
            terminating,
        };
        let before = self.known.get(name);
        let mut change = (Vec::new(), Vec::new());
        let mut kinds = before.map(|known| known.kinds.clone()).unwrap_or_default();
        let former = before.and_then(|known| known.made_from.as_ref());
        let source = self.source(entry);
        if former != Some(&made_from) {
            // What only goes away keeps its watches; what is defined anew ends them.
            let defined = |from: &MadeFrom| (from.uid.clone(), from.generation, from.names.clone());
            let anew = former.is_some_and(|former| defined(former) != defined(&made_from));
            let served = conditions::is_served(&definition);
            let new = if served { make(&definition, &source) } else { Vec::new() };
            if let (Some(stored), false) = (definition::stored_kind(&definition, &source), new.is_empty()) {
                self.context.caches.add(&stored, anew).await?;
            }
            change = (std::mem::replace(&mut kinds, new.clone()), new);
        }
        let known = Known {
            revision: entry.revision,
            group: definition::group(&definition).to_owned(),
            taken: Taken::by(&definition),
            contented: conditions::is_true(&definition, "NamesAccepted"),
            made_from: Some(made_from),
            kinds,
        };
        self.known.insert(name.to_owned(), known);
        if terminating && self.leaving.insert(name.to_owned()) {
            let established = conditions::is_true(&definition, "Established");
            let kind = definition::stored_kind(&definition, &source).filter(|_| established);
            let uid = definition["metadata"]["uid"].clone();
            self.cleanups.push(Box::pin(clean_up(self.context.clone(), name.to_owned(), uid, kind)));
        }
        Ok(Some(change))
    }

    fn source(&self, entry: &Entry) -> Arc<dyn Source> {
        Arc::new(Stored { context: Arc::downgrade(&self.context), key: entry.key.to_string() })
    }

    /// The names that the other definitions of a group hold.
    fn taken_beside(&self, name: &str, group: &str) -> Vec<Taken> {
        let others = self.known.iter().filter(|(other, known)| *other != name && known.group == group);
        others.map(|(_, known)| known.taken.clone()).collect()
    }
}

/// The kinds of a definition that can be served.
fn make(definition: &Value, source: &Arc<dyn Source>) -> Vec<Arc<Kind>> {
    let mut kinds = definition::kinds(definition, source);
    kinds.retain(|kind| {
        let builtin = context::is_builtin(kind);
        if builtin {
            let resource = kind.qualified_resource();
            tracing::warn!(resource, "a definition takes no place of a built-in kind");
        }
        !builtin
    });
    kinds
}

/// Writes the status that a definition ought to have; whether it had another.
async fn settle(context: &Context, name: &str, definition: &Value, others: &[Taken]) -> Result<bool> {
    if conditions::settled(definition, others, &now()).is_none() {
        return Ok(false);
    }
    let written = write_status(context, name, |old| {
        let mut new = old.clone();
        if let Some(status) = conditions::settled(old, others, &now()) {
            new["status"] = status;
        }
        new
    });
    match written.await {
        Err(error) if error.code != http::StatusCode::NOT_FOUND => Err(error),
        _ => Ok(true),
    }
}

fn name_of(entry: &Entry) -> &str {
    entry.field("metadata.name").unwrap_or_default()
}

fn server() -> Identity {
    Identity::new("system:apiserver", &[MASTERS])
}

/// Changes a definition through its status.
async fn write_status(context: &Context, name: &str, mut make: impl FnMut(&Value) -> Value) -> Result<()> {
    let options = WriteOptions {
        dry_run: false,
        validation: FieldValidation::Ignore,
        manager: MANAGER.to_owned(),
        manager_given: true,
        told: Arc::default(),
        by_server: true,
    };
    let change = Change {
        context,
        identity: &server(),
        kind: builtin::custom_resource_definitions(),
        namespace: "",
        name,
        verb: "update",
        extent: Extent::Part(Part::Status),
        options: &options,
        retry: true,
        untracked: false,
        check_uid: false,
    };
    change.run(|old| Ok(make(old))).await.map(|_| ())
}

/// Removes the objects of a definition that goes and then lets it go; tries until it is done.
async fn clean_up(context: Arc<Context>, name: String, uid: Value, kind: Option<Arc<Kind>>) -> String {
    let is_same =
        |definition: &Value| definition["metadata"]["uid"] == uid && definition::is_terminating(definition);
    let condition = |holds: bool, reason: &'static str, words: &'static str| {
        let (context, name, is_same) = (&context, &name, &is_same);
        async move {
            write_status(context, name, |old| {
                let mut new = old.clone();
                if !is_same(old) {
                    return new;
                }
                conditions::set(&mut new["status"], "Terminating", holds, reason, words, &now());
                if !holds && let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
                    finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
                }
                new
            })
            .await
        }
    };
    let mut told = false;
    loop {
        // Another of that name is none of ours.
        match context.object(builtin::custom_resource_definitions(), "", &name).await {
            Ok(definition) if is_same(&definition) => {}
            Ok(_) => return name,
            Err(error) if error.code == http::StatusCode::NOT_FOUND => return name,
            Err(_) => {
                tokio::time::sleep(CLEANUP_PAUSE).await;
                continue;
            }
        }
        let left = match &kind {
            Some(kind) => delete_all(&context, kind).await,
            None => Ok(0),
        };
        let finished = match left {
            Ok(0) if kind.is_none() => {
                condition(false, "NeverEstablished", "resource was never established").await
            }
            Ok(0) => condition(false, "InstanceDeletionCompleted", "removed all instances").await,
            Ok(_) if !told => {
                told = true;
                let words = "CustomResource deletion is in progress";
                condition(true, "InstanceDeletionInProgress", words).await.and(Err(ApiError::timed_out()))
            }
            Ok(_) => Err(ApiError::timed_out()),
            Err(error) => Err(error),
        };
        match finished {
            Ok(()) => return name,
            Err(error) if error.code == http::StatusCode::NOT_FOUND => return name,
            Err(_) => tokio::time::sleep(CLEANUP_PAUSE).await,
        }
    }
}

/// Deletes all objects of a kind, whatever webhooks would say; how many are left that something holds.
async fn delete_all(context: &Arc<Context>, kind: &Arc<Kind>) -> Result<usize> {
    let listing = context.store.list(&kind.storage_prefix, None, None, None).await?;
    let keys = listing.items.iter().map(|kv| {
        let rest = kv.key.strip_prefix(kind.storage_prefix.as_ref()).unwrap_or_default().to_owned();
        rest.split_once('/')
            .map_or((String::new(), rest.clone()), |(namespace, name)| (namespace.into(), name.into()))
    });
    let deletions = keys.collect::<Vec<(String, String)>>().into_iter().map(|(namespace, name)| {
        let (context, kind) = (context.clone(), kind.clone());
        async move {
            let deletion = Deletion {
                context: &context,
                identity: &server(),
                kind: &kind,
                namespace: &namespace,
                name: &name,
            };
            deletion.run(&DeleteOptions { by_server: true, ..DeleteOptions::default() }).await.map(|_| ())
        }
    });
    let mut results = futures::stream::iter(deletions).buffer_unordered(AT_A_TIME);
    while let Some(result) = results.next().await {
        match result {
            Err(error) if error.code != http::StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    Ok(context.store.list(&kind.storage_prefix, None, Some(1), None).await?.items.len())
}
