//! How an index keeps up with a cache: it stands somewhere in the changes of a resource and goes on when it is asked.
//!
//! Nothing runs in the background. An index that is asked reads what it has not heard yet, so it is never older than
//! the cache that also tells the one who asks.

use std::sync::Arc;

use podwire_api::Text;

use crate::cache::{Entry, ResourceCache, Scope, Told};

/// One resource that an index follows.
pub(crate) struct Followed {
    cache: Arc<ResourceCache>,
    /// Behind the last change that was taken; `None` before the first reading.
    cursor: Option<u64>,
}

/// What an index has not heard yet.
pub(crate) enum News {
    /// It has to forget all it knows of the resource: these are the objects now.
    All(Vec<Arc<Entry>>),
    /// What changed since.
    Changes(Vec<Arc<Told>>),
}

impl Followed {
    /// Follows a cache from its present state on.
    pub(crate) fn new(cache: Arc<ResourceCache>) -> Self {
        Self { cache, cursor: None }
    }

    /// What the keys of this resource begin with.
    pub(crate) fn prefix(&self) -> Text {
        self.cache.kind().storage_prefix.clone()
    }

    /// Whether nothing has happened since the last [`Self::news`].
    pub(crate) fn is_current(&self) -> bool {
        self.cursor == Some(self.cache.end())
    }

    /// What happened; to be asked until [`Self::is_current`].
    pub(crate) fn news(&mut self) -> News {
        if let Some(cursor) = self.cursor
            && let Ok(changes) = self.cache.changes(cursor, usize::MAX)
        {
            self.cursor = Some(cursor + changes.len() as u64);
            return News::Changes(changes);
        }
        let prefix = self.cache.kind().storage_prefix.to_string();
        let snapshot = self.cache.snapshot(&Scope { prefix, node: None, key: None });
        self.cursor = Some(snapshot.cursor);
        News::All(snapshot.entries)
    }

    /// Reads an entry of this resource.
    pub(crate) fn decode(&self, entry: &Entry) -> serde_json::Value {
        entry.decode(self.cache.kind())
    }
}
