//! One-time tokens of streaming URLs. Pure: time and randomness are arguments.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine;

/// How long a URL may wait to be used.
const LIFE: Duration = Duration::from_secs(60);
/// How many URLs may wait at once.
const MOST: usize = 1000;

/// The tokens given out and not used yet.
pub(super) struct Tokens<T> {
    waiting: HashMap<String, (T, Instant)>,
}

impl<T> Default for Tokens<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new() }
    }
}

impl<T> Tokens<T> {
    /// Remembers what `token` stands for; false if too many are waiting.
    pub(super) fn insert(&mut self, token: String, work: T, now: Instant) -> bool {
        if self.waiting.len() >= MOST {
            self.waiting.retain(|_, (_, born)| now.duration_since(*born) < LIFE);
        }
        if self.waiting.len() >= MOST {
            return false;
        }
        self.waiting.insert(token, (work, now));
        true
    }

    /// What `token` stands for, once.
    pub(super) fn take(&mut self, token: &str, now: Instant) -> Option<T> {
        let (work, born) = self.waiting.remove(token)?;
        (now.duration_since(born) < LIFE).then_some(work)
    }
}

/// A token for a URL's path.
pub(super) fn encode(random: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_and_not_after_a_minute() {
        let start = Instant::now();
        let mut tokens = Tokens::default();
        assert!(tokens.insert("a".into(), 1, start));
        assert!(tokens.insert("b".into(), 2, start));
        assert_eq!(tokens.take("a", start), Some(1));
        assert_eq!(tokens.take("a", start), None);
        assert_eq!(tokens.take("b", start + LIFE), None);
    }

    #[test]
    fn a_thousand_may_wait_and_expired_ones_make_room() {
        let start = Instant::now();
        let mut tokens = Tokens::default();
        for n in 0..MOST {
            assert!(tokens.insert(n.to_string(), n, start));
        }
        assert!(!tokens.insert("more".into(), 0, start));
        assert!(tokens.insert("more".into(), 0, start + LIFE));
    }
}
