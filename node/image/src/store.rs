//! The image store: what is there, how images come in and go out.
//!
//! Several processes may have one store open (a daemon and a command-line verb): records are
//! re-read when their folder changes, writers of records exclude each other, and sweeping waits
//! until nothing is being added.
//!
//! Tasks: a pull runs in the store's own tracker, so that it outlives a caller that gives up; an
//! identical pull joins it.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_util::task::TaskTracker;

use crate::digest::Digest;
use crate::durable::{When, make_durable};
use crate::error::{Error, IoContext};
use crate::index::{Entry, Index};
use crate::layer::Flights;
use crate::layout::{Layout, encode_record, read_record};
use crate::manifest::{Config, parse_config};
use crate::pull::{PullFlights, RegistryConfig};
use crate::record::{IMAGE_MAGIC, Image, ImageRecord, LAYER_MAGIC, LayerMeta, LayerRef};
use crate::unpack::UnpackOptions;
use podwire_trace::chain;

/// Where and how a store keeps its images.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// The store's folder; made if missing.
    pub root: PathBuf,
    /// Registries: mirrors, TLS, insecure hosts.
    pub registries: RegistryConfig,
    /// How layers are unpacked.
    pub unpack: UnpackOptions,
}

impl StoreConfig {
    /// A store at `root` with the usual settings.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), ..Self::default() }
    }

    /// Opens the store and sweeps what a crash left behind.
    pub fn open(self) -> Result<ImageStore, Error> {
        let layout = Layout::open(&self.root)?;
        let inner = Inner {
            layout,
            unpack: self.unpack,
            registries: self.registries,
            index: RwLock::new(Loaded { index: Index::default(), seen: None }),
            flights: Flights::default(),
            pulls: PullFlights::default(),
            sweep_wanted: AtomicBool::new(true),
            records: Mutex::new(()),
            tracker: TaskTracker::new(),
        };
        let store = ImageStore { inner: Arc::new(inner) };
        let unsynced = store.drop_lost()?;
        store.refresh(true)?;
        store.sweep();
        if unsynced {
            let late = store.clone();
            let thread = std::thread::Builder::new().name("image-sync".to_owned());
            thread.spawn(move || late.settle_pending_or_warn()).at("start a thread for", &self.root)?;
        }
        Ok(store)
    }
}

/// A store of images; clones share it.
#[derive(Clone)]
pub struct ImageStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) unpack: UnpackOptions,
    pub(crate) registries: RegistryConfig,
    index: RwLock<Loaded>,
    pub(crate) flights: Flights,
    pub(crate) pulls: PullFlights,
    /// Something may have become unused since the last sweep.
    pub(crate) sweep_wanted: AtomicBool,
    records: Mutex<()>,
    pub(crate) tracker: TaskTracker,
}

struct Loaded {
    index: Index,
    /// When the records' folder had changed last as it was read.
    seen: Option<SystemTime>,
}

/// An image whose parts are all in the store, ready to be recorded.
pub(crate) struct NewImage {
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Option<Vec<u8>>,
    /// Bottom first.
    pub(crate) layers: Vec<LayerRef>,
    pub(crate) tags: Vec<String>,
    pub(crate) digests: Vec<String>,
}

/// How much the store takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The store's folder.
    pub root: PathBuf,
    /// Bytes of unpacked layers and blobs.
    pub bytes: u64,
    /// Inodes of unpacked layers and blobs.
    pub inodes: u64,
}

impl ImageStore {
    /// All images, in the order of their ids.
    pub fn list(&self) -> Vec<Image> {
        self.refresh_or_warn();
        self.read(|index| index.entries().map(|entry| (*entry.image).clone()).collect())
    }

    /// The image with this name, digest, id or unambiguous start of an id.
    pub fn find(&self, reference_or_id: &str) -> Option<Image> {
        self.find_entry(reference_or_id).map(|entry| (*entry.image).clone())
    }

    pub(crate) fn find_entry(&self, reference_or_id: &str) -> Option<Entry> {
        self.refresh_or_warn();
        self.read(|index| index.find(reference_or_id).cloned())
    }

    /// Removes an image with all its names; its layers stay while a snapshot or another image uses
    /// them. An image that is not there is fine.
    pub fn remove(&self, reference_or_id: &str) -> Result<(), Error> {
        let Some(entry) = self.find_entry(reference_or_id) else { return Ok(()) };
        {
            let _records = self.lock_records()?;
            self.inner.layout.discard(&self.record_path(&entry.record.config))?;
            self.refresh(true)?;
        }
        self.inner.sweep_wanted.store(true, Ordering::Relaxed);
        self.sweep();
        Ok(())
    }

    /// Takes one name away from its image; the image goes with its last name.
    pub fn untag(&self, name: &str) -> Result<(), Error> {
        let reference: crate::reference::Reference = name.parse()?;
        let not_found = || Error::NotFound { reference: name.to_owned() };
        let entry = self.find_entry(name).ok_or_else(not_found)?;
        let text = match reference.digest() {
            Some(digest) => reference.at_digest(digest),
            None => reference.to_string(),
        };
        let mut record = (*entry.record).clone();
        record.tags.retain(|tag| *tag != text);
        record.digests.retain(|digest| *digest != text);
        if record.tags.is_empty() && (record.digests.is_empty() || entry.record.tags.is_empty()) {
            return self.remove(&entry.image.id);
        }
        let _records = self.lock_records()?;
        self.write_record(&record)?;
        self.refresh(true)
    }

    /// Gives an image a further name; an image that had it loses it.
    pub fn tag(&self, reference_or_id: &str, name: &str) -> Result<(), Error> {
        let reference: crate::reference::Reference = name.parse()?;
        let _hold = self.inner.layout.hold()?;
        let entry = self
            .find_entry(reference_or_id)
            .ok_or_else(|| Error::NotFound { reference: reference_or_id.to_owned() })?;
        let mut record = (*entry.record).clone();
        record.tags.push(reference.to_string());
        self.save(record)
    }

    /// Marks an image as not to be removed by a garbage collector, or as removable again.
    pub fn pin(&self, reference_or_id: &str, pinned: bool) -> Result<(), Error> {
        let entry = self
            .find_entry(reference_or_id)
            .ok_or_else(|| Error::NotFound { reference: reference_or_id.to_owned() })?;
        let _records = self.lock_records()?;
        self.write_record(&ImageRecord { pinned, ..(*entry.record).clone() })?;
        self.refresh(true)
    }

    /// How much the store takes on disk, from its own books.
    pub fn usage(&self) -> Result<Usage, Error> {
        let layout = &self.inner.layout;
        let (mut bytes, mut inodes) = (0, 0);
        let blobs = layout.root().join("blobs");
        for entry in fs::read_dir(&blobs).at("list", &blobs)? {
            // A blob that was just swept takes no room.
            if let Ok(meta) = entry.at("list", &blobs)?.metadata() {
                bytes += meta.len();
                inodes += 1;
            }
        }
        let layers = layout.root().join("layers");
        for entry in fs::read_dir(&layers).at("list", &layers)? {
            let path = entry.at("list", &layers)?.path().join("meta");
            if let Ok(meta) = read_record::<LayerMeta>(LAYER_MAGIC, &path) {
                bytes += meta.size;
                inodes += meta.inodes;
            }
        }
        Ok(Usage { root: layout.root().to_owned(), bytes, inodes })
    }

    /// Records an image; the caller holds the store. What it names is made durable first, or marked.
    pub(crate) fn commit(&self, new: NewImage, when: When) -> Result<Image, Error> {
        let layout = &self.inner.layout;
        let config = Digest::of(&new.config);
        let manifest = new.manifest.as_deref().map(Digest::of);
        let mut blobs = vec![layout.blob(&config)];
        layout.put(&blobs[0], &new.config, false)?;
        if let (Some(bytes), Some(digest)) = (&new.manifest, &manifest) {
            blobs.push(layout.blob(digest));
            layout.put(&blobs[1], bytes, false)?;
        }
        let durable = make_durable(layout, &new.layers, &blobs, when)?;
        let documents = new.config.len() + new.manifest.as_ref().map_or(0, Vec::len);
        let record = ImageRecord {
            config,
            manifest,
            size: documents as u64 + new.layers.iter().map(|layer| layer.blob_size).sum::<u64>(),
            layers: new.layers,
            tags: new.tags,
            digests: new.digests,
            pinned: false,
            pending: (!durable).then(|| layout.boot().to_owned()),
            stamp: 0,
        };
        self.save(record)?;
        if !durable {
            let store = self.clone();
            self.inner.tracker.spawn_blocking(move || store.settle_pending_or_warn());
        }
        let id = config.to_string();
        self.read(|index| index.by_id(&id).map(|entry| (*entry.image).clone()))
            .ok_or(Error::NotFound { reference: id })
    }

    /// Merges `record` with what is known of its image and moves its tags to it.
    fn save(&self, mut record: ImageRecord) -> Result<(), Error> {
        let _records = self.lock_records()?;
        self.refresh(true)?;
        let (known, others) = self.read(|index| {
            let known = index.by_id(&record.config.to_string()).map(|entry| Arc::clone(&entry.record));
            let claims = |other: &Entry| {
                other.record.config != record.config
                    && other.record.tags.iter().any(|tag| record.tags.contains(tag))
            };
            let others: Vec<Arc<ImageRecord>> = index
                .entries()
                .filter(|entry| claims(entry))
                .map(|entry| Arc::clone(&entry.record))
                .collect();
            (known, others)
        });
        if let Some(known) = known {
            record.tags.extend(known.tags.iter().cloned());
            record.digests.extend(known.digests.iter().cloned());
            record.pinned |= known.pinned;
            if known.pending.is_none() && known.layers == record.layers {
                record.pending = None;
            }
            record.manifest = record.manifest.or(known.manifest);
        }
        for names in [&mut record.tags, &mut record.digests] {
            names.sort();
            names.dedup();
        }
        self.write_record(&record)?;
        for other in others {
            let mut other = (*other).clone();
            other.tags.retain(|tag| !record.tags.contains(tag));
            if other.tags.is_empty() && other.digests.is_empty() {
                self.inner.layout.discard(&self.record_path(&other.config))?;
                self.inner.sweep_wanted.store(true, Ordering::Relaxed);
            } else {
                self.write_record(&other)?;
            }
        }
        self.refresh(true)
    }

    fn write_record(&self, record: &ImageRecord) -> Result<(), Error> {
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX);
        let record = ImageRecord { stamp, ..record.clone() };
        // Syncing a record whose layers are not on disk would wait for them all the same.
        let sync = record.pending.is_none();
        self.inner.layout.put(&self.record_path(&record.config), &encode_record(IMAGE_MAGIC, &record), sync)
    }

    /// Marks images as durable after a sync, unless they were written anew since.
    pub(crate) fn clear_pending(&self, synced: &[(Digest, u64)]) -> Result<(), Error> {
        let _records = self.lock_records()?;
        self.refresh(true)?;
        for (config, stamp) in synced {
            let record =
                self.read(|index| index.by_id(&config.to_string()).map(|entry| Arc::clone(&entry.record)));
            if let Some(record) = record.filter(|record| record.stamp == *stamp) {
                self.write_record(&ImageRecord { pending: None, ..(*record).clone() })?;
            }
        }
        self.refresh(true)
    }

    fn settle_pending_or_warn(&self) {
        if let Err(error) = self.settle_pending() {
            tracing::warn!(error = %chain(&error), "images not synced to disk; the next open tries again");
        }
    }

    fn record_path(&self, config: &Digest) -> PathBuf {
        self.inner.layout.images().join(config.hex())
    }

    fn lock_records(&self) -> Result<Both<'_>, Error> {
        let guard = self.inner.records.lock().unwrap_or_else(PoisonError::into_inner);
        let hold = self.inner.layout.records_lock()?;
        Ok(Both { _hold: hold, _guard: guard })
    }

    pub(crate) fn read<T>(&self, f: impl FnOnce(&Index) -> T) -> T {
        f(&self.inner.index.read().unwrap_or_else(PoisonError::into_inner).index)
    }

    fn refresh_or_warn(&self) {
        if let Err(error) = self.refresh(false) {
            tracing::warn!(error = %chain(&error), "image records not re-read; the last known ones are used");
        }
    }

    /// Re-reads the records if their folder has changed, or in any case if `force`.
    pub(crate) fn refresh(&self, force: bool) -> Result<(), Error> {
        let dir = self.inner.layout.images();
        let changed = fs::metadata(&dir).and_then(|meta| meta.modified()).at("look at", &dir)?;
        {
            let loaded = self.inner.index.read().unwrap_or_else(PoisonError::into_inner);
            if !force && loaded.seen == Some(changed) {
                return Ok(());
            }
        }
        let mut entries = Vec::new();
        for file in fs::read_dir(&dir).at("list", &dir)? {
            let path = file.at("list", &dir)?.path();
            match self.load(&path) {
                Ok(entry) => entries.push(entry),
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), error = %chain(&error), "image record unreadable; image left out");
                }
            }
        }
        let mut loaded = self.inner.index.write().unwrap_or_else(PoisonError::into_inner);
        *loaded = Loaded { index: Index::new(entries), seen: Some(changed) };
        Ok(())
    }

    fn load(&self, path: &std::path::Path) -> Result<Entry, Error> {
        let layout = &self.inner.layout;
        let record: ImageRecord = read_record(IMAGE_MAGIC, path)?;
        let blob = layout.blob(&record.config);
        let bytes = fs::read(&blob).at("read", &blob)?;
        let Config { parsed, .. } = parse_config(&bytes, "image configuration")?;
        let mut layers = Vec::with_capacity(record.layers.len());
        for layer in record.layers.iter().rev() {
            let dir = layout.layer(&layer.dir);
            let meta: LayerMeta = read_record(LAYER_MAGIC, &dir.join("meta"))?;
            layers.push(dir.join("fs"));
            if meta.root_opaque {
                break;
            }
        }
        if layers.is_empty() {
            layers.push(layout.empty());
        }
        let image = Image {
            id: record.config.to_string(),
            repo_tags: record.tags.clone(),
            repo_digests: record.digests.clone(),
            size: record.size,
            config: parsed,
            layers,
            pinned: record.pinned,
        };
        Ok(Entry { image: Arc::new(image), record: Arc::new(record) })
    }
}

/// The in-process and the cross-process lock of the records together.
struct Both<'a> {
    _hold: crate::layout::Hold,
    _guard: std::sync::MutexGuard<'a, ()>,
}
