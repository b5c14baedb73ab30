//! Selectors of classes and requests, compiled once for each text.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use podwire_cel::device::{Selector, SelectorError};

/// A selector with its text.
pub struct Compiled {
    /// What was written.
    pub text: Arc<str>,
    /// What it means, or why it means nothing.
    pub selector: Result<Selector, Arc<SelectorError>>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(out)
    }
}

/// The selectors that were compiled last. Shared between threads.
#[derive(Debug)]
pub struct Selectors {
    most: usize,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    by_text: HashMap<Arc<str>, Arc<Compiled>>,
    /// The texts, oldest first.
    order: VecDeque<Arc<str>>,
}

impl Selectors {
    /// Keeps at most so many.
    pub fn new(most: usize) -> Selectors {
        Selectors { most: most.max(1), cache: Mutex::default() }
    }

    /// The selector of a text.
    pub fn get(&self, text: &str) -> Arc<Compiled> {
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().by_text.get(text) {
            return Arc::clone(found);
        }
        // Not under the lock: compiling takes long, and doing it twice does no harm.
        let text: Arc<str> = text.into();
        let selector = Selector::compile(&text).map_err(Arc::new);
        let made = Arc::new(Compiled { text: Arc::clone(&text), selector });
        let mut cache = lock();
        if cache.by_text.insert(Arc::clone(&text), Arc::clone(&made)).is_none() {
            cache.order.push_back(text);
        }
        while cache.order.len() > self.most {
            if let Some(oldest) = cache.order.pop_front() {
                cache.by_text.remove(&oldest);
            }
        }
        made
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).by_text.len()
    }
}
