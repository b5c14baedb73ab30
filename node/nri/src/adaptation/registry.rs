//! Who is connected, and which events are under way: so that a plugin that comes misses nothing.
//!
//! A plugin enters the list first and is synchronized then. Events that began before it entered are waited for
//! (their outcome is in the snapshot); events that began afterwards wait for the plugin. Nothing else waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::log::{Entry, Log};
use super::plugin::{Plugin, PluginInfo, Stage};
use super::stats::Book;
use super::{Config, Host};

/// Plugins and events under way.
pub(super) struct Registry {
    pub(super) config: Config,
    pub(super) host: Arc<dyn Host>,
    pub(super) log: Log,
    pub(super) book: Book,
    state: Mutex<State>,
    /// Moves when a plugin becomes ready or goes.
    changed: watch::Sender<u64>,
    drained: Notify,
}

#[derive(Default)]
struct State {
    plugins: Vec<Arc<Plugin>>,
    /// Grows with every plugin that enters.
    epoch: u64,
    /// How many events began in each epoch and have not ended.
    under_way: BTreeMap<u64, usize>,
    /// Pods and containers whose creation plugins are being told of.
    being_made: HashSet<String>,
    /// One at a time for each pod.
    turns: HashMap<String, Arc<Semaphore>>,
}

/// An event under way; it ends when this is dropped.
pub(super) struct UnderWay {
    registry: Arc<Registry>,
    epoch: u64,
    pod: String,
    making: Option<String>,
    turn: Option<OwnedSemaphorePermit>,
    /// The plugins to tell, in order.
    pub(super) plugins: Vec<Arc<Plugin>>,
}

impl Registry {
    /// Nobody is connected.
    pub(super) fn new(config: Config, host: Arc<dyn Host>) -> Self {
        let (changed, _) = watch::channel(0);
        let (log, book, state) = (Log::default(), Book::default(), Mutex::default());
        Self { config, host, log, book, state, changed, drained: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All plugins, in order.
    pub(super) fn plugins(&self) -> Vec<Arc<Plugin>> {
        self.state().plugins.clone()
    }

    /// Everybody there is, was, or should be: connected plugins in order, then the others.
    pub(super) fn overview(&self) -> Vec<PluginInfo> {
        let mut all: Vec<PluginInfo> = self.plugins().iter().map(|plugin| plugin.info()).collect();
        for (label, page) in self.book.pages() {
            let (index, name) = label.split_once('-').unwrap_or(("", &label));
            if !all.iter().any(|one| one.index == index && one.name == name) {
                let info =
                    PluginInfo { name: name.to_owned(), index: index.to_owned(), ..PluginInfo::default() };
                all.push(info.with_figures(&page));
            }
        }
        for name in &self.config.required {
            let mut known = all.iter_mut().filter(|one| one.name == *name).peekable();
            if known.peek().is_some() {
                known.for_each(|one| one.required = true);
            } else {
                all.push(PluginInfo { name: name.clone(), required: true, ..PluginInfo::default() });
            }
        }
        all
    }

    /// Notes what became of a plugin.
    pub(super) fn note(&self, plugin: &str, event: &str, detail: &str) {
        let (plugin, event, detail) = (plugin.to_owned(), event.to_owned(), detail.to_owned());
        self.log.note(Entry { plugin, event, detail, ..Entry::default() });
    }

    /// Whether nobody is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.state().plugins.is_empty()
    }

    /// Moves whenever a plugin becomes ready or goes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Begins an event of a pod, after those of the same pod that began earlier. `making` names what comes into
    /// being by it.
    pub(super) async fn begin(self: &Arc<Self>, pod: &str, making: Option<&str>) -> UnderWay {
        let turns =
            self.state().turns.entry(pod.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone();
        let turn = turns.acquire_owned().await.ok();
        let mut state = self.state();
        let epoch = state.epoch;
        *state.under_way.entry(epoch).or_default() += 1;
        if let Some(id) = making {
            state.being_made.insert(id.to_owned());
        }
        // One that is gone, though its session has not ended yet, has no part in what begins now: were it asked for
        // its verdict, it would fail a container that it knows nothing of.
        let plugins = state.plugins.iter().filter(|plugin| plugin.stage() != Stage::Gone).cloned().collect();
        drop(state);
        UnderWay {
            registry: self.clone(),
            epoch,
            pod: pod.to_owned(),
            making: making.map(str::to_owned),
            turn,
            plugins,
        }
    }

    /// Lets a plugin in and waits for the events that did not know it yet.
    pub(super) async fn enter(&self, plugin: &Arc<Plugin>) {
        let before = {
            let mut state = self.state();
            state.plugins.push(plugin.clone());
            state.plugins.sort_by(|a, b| (&a.index, &a.name).cmp(&(&b.index, &b.name)));
            state.epoch += 1;
            state.epoch
        };
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            if self.state().under_way.range(..before).next().is_none() {
                return;
            }
            drained.await;
        }
    }

    /// What comes into being by events under way; their plugins hear of it by the event itself.
    pub(super) fn being_made(&self) -> HashSet<String> {
        self.state().being_made.clone()
    }

    /// Says how far a plugin has come.
    pub(super) fn set_stage(&self, plugin: &Arc<Plugin>, stage: Stage) {
        if stage == Stage::Gone {
            self.state().plugins.retain(|other| !Arc::ptr_eq(other, plugin));
        }
        plugin.stage.send_replace(stage);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Ends all connections.
    pub(super) fn close_all(&self) {
        self.plugins().iter().for_each(|plugin| plugin.link.close());
    }
}

impl UnderWay {
    /// Where it is under way.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        if let Some(count) = state.under_way.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.epoch);
            }
        }
        if let Some(id) = &self.making {
            state.being_made.remove(id);
        }
        self.turn.take();
        // The last one out forgets the pod's queue.
        if state.turns.get(&self.pod).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            state.turns.remove(&self.pod);
        }
        drop(state);
        self.registry.drained.notify_waiters();
    }
}
