//! The kinds that are served now: a registry behind an atomic pointer, and what is made from it.
//!
//! A request takes its kind once and keeps it to its end, whatever comes or goes meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use podwire_api::{Kind, Registry};

/// The kinds of a server.
pub(crate) struct Kinds(ArcSwap<Served>);

/// One registry with the large documents that are made from it.
pub(crate) struct Served {
    /// The kinds.
    pub(crate) registry: Arc<Registry>,
    documents: Mutex<HashMap<String, Arc<Document>>>,
}

/// A large document, plain and compressed.
pub(crate) struct Document {
    pub(crate) plain: Bytes,
    pub(crate) gzip: Bytes,
}

impl Served {
    fn new(registry: Arc<Registry>) -> Arc<Self> {
        Arc::new(Self { registry, documents: Mutex::default() })
    }

    /// A document that changes only with the kinds, made when it is first asked for.
    pub(crate) fn document(&self, path: &str, make: impl FnOnce() -> Document) -> Arc<Document> {
        let known = self.documents.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        known.unwrap_or_else(|| {
            let document = Arc::new(make());
            let mut documents = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
            documents.insert(path.to_owned(), document.clone());
            document
        })
    }
}

impl Kinds {
    /// A server of these kinds.
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self(ArcSwap::new(Served::new(registry)))
    }

    /// What is served now.
    pub(crate) fn now(&self) -> Guard<Arc<Served>> {
        self.0.load()
    }

    /// The kind served under this group, version and resource.
    pub(crate) fn at(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        self.0.load().registry.by_resource(group, version, resource).cloned()
    }

    /// Serves some kinds no more and others from now on, in one step; one of the same name is replaced.
    pub(crate) fn change(&self, gone: &[Arc<Kind>], new: &[Arc<Kind>]) {
        self.0.rcu(|served| Served::new(Arc::new(served.registry.changed(gone, new))));
    }
}
