//! What earlier look-ups said, in a bounded cache.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

use super::settings::{FAILED_FOR, Settings};
use crate::{Error, Key};

/// What a look-up says: shared by all who wait for it.
pub(super) type Answered<V> = Result<V, Arc<Error>>;

/// An answer of a look-up.
pub(crate) trait Looked: Clone + Send + Sync + 'static {
    /// Whether nothing was found.
    fn is_nothing(&self) -> bool;
}

/// Answers by key, each with the time it is good for.
#[derive(Clone)]
pub(super) struct Memory<V> {
    answers: Cache<Key, (Answered<V>, Instant)>,
    settings: Settings,
}

impl<V: Looked> Memory<V> {
    pub(super) fn new(settings: Settings) -> Self {
        // The cache drops what is over; until when an answer is good is said with it.
        let longest = settings.lifetime.max(FAILED_FOR);
        let answers = Cache::builder().max_capacity(settings.capacity).time_to_live(longest).build();
        Self { answers, settings }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Answered<V>> {
        let (answered, good_until) = self.answers.get(key)?;
        (Instant::now() < good_until).then_some(answered)
    }

    pub(super) fn put(&self, key: Key, answered: Answered<V>) {
        if let Some(good_until) = Instant::now().checked_add(self.lifetime_of(&answered)) {
            self.answers.insert(key, (answered, good_until));
        }
    }

    fn lifetime_of(&self, answered: &Answered<V>) -> Duration {
        match answered {
            Ok(found) if found.is_nothing() => self.settings.nothing_for(),
            Ok(_) => self.settings.lifetime,
            Err(_) => FAILED_FOR,
        }
    }
}
