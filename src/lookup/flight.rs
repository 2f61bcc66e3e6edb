//! The lookups in flight: one for each key, and a fixed number of all.
//!
//! Requests with the same key join one flight, which continues if they are cancelled. A flight is started only if the
//! cache, read under the lock, has no result; and a result is cached before its flight ends. So no key is looked up
//! twice for want of a result that was just there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use tokio::sync::watch;
use tokio::time::Instant;

use super::memory::SharedResult;
use crate::core::Key;

/// How long after its timeout a flight is abandoned: its runtime is blocked, or has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Receives the result of a flight; closed without one if the flight was lost.
pub(super) type Receiver<V> = watch::Receiver<Option<SharedResult<V>>>;

/// The flights of one kind of lookup.
pub(super) struct Flights<V> {
    by_key: Mutex<Table<V>>,
    /// How many may be in flight.
    most: usize,
}

/// All flights. A flight is here from its start until its result is cached, or it is abandoned.
struct Table<V> {
    flights: HashMap<Key, Flight<V>, RandomState>,
    /// The number of the latest flight.
    last: u64,
}

/// One lookup in flight.
struct Flight<V> {
    /// Distinguishes it from a later flight of the same key.
    number: u64,
    receiver: Receiver<V>,
    /// When it counts as abandoned; `None` if that is too late for the clock.
    abandoned: Option<Instant>,
}

/// How a request gets the result of a lookup.
pub(super) enum Joined<V> {
    /// It was cached meanwhile.
    Cached(SharedResult<V>),
    /// By waiting for a flight of others.
    Waits(Receiver<V>),
    /// By starting the flight of this number, and waiting for it.
    Starts(u64, watch::Sender<Option<SharedResult<V>>>, Receiver<V>),
    /// Not at all, as too many are in flight.
    Full,
}

impl<V> Flights<V> {
    /// Creates the table for `most` flights at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { by_key: Mutex::new(Table { flights: HashMap::default(), last: 0 }), most }
    }

    /// Joins the flight of a key, or starts one with a timeout.
    ///
    /// `cached` reads the cache once more, as a flight that ended meanwhile is cached before it is removed here.
    pub(super) fn join(
        &self,
        key: &Key,
        timeout: Duration,
        cached: impl FnOnce() -> Option<SharedResult<V>>,
    ) -> Joined<V> {
        let (mut table, now) = (self.lock(), Instant::now());
        if let Some(flight) = table.flights.get(key).filter(|flight| !flight.is_abandoned(now)) {
            return Joined::Waits(flight.receiver.clone());
        }
        if let Some(result) = cached() {
            return Joined::Cached(result);
        }
        if table.flights.len() >= self.most {
            table.flights.retain(|_, flight| !flight.is_abandoned(now));
            if table.flights.len() >= self.most {
                return Joined::Full;
            }
        }
        let (sender, receiver) = watch::channel(None);
        table.last += 1;
        let (number, abandoned) = (table.last, now.checked_add(timeout.saturating_add(GRACE)));
        table.flights.insert(key.clone(), Flight { number, receiver: receiver.clone(), abandoned });
        Joined::Starts(number, sender, receiver)
    }

    /// Ends a flight, unless it was abandoned and another one has its place.
    pub(super) fn end(&self, key: &Key, number: u64) {
        let mut table = self.lock();
        if table.flights.get(key).is_some_and(|flight| flight.number == number) {
            table.flights.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table<V>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Flight<V> {
    fn is_abandoned(&self, now: Instant) -> bool {
        self.abandoned.is_some_and(|time| time <= now)
    }
}
