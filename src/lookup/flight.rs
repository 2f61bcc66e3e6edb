//! Look-ups under way: one for each key, at most so many.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use tokio::sync::watch;
use tokio::time::Instant;

use super::memory::Answered;
use crate::Key;

/// A flight is given up this long after its time: its runtime stands still, or is gone.
const GRACE: Duration = Duration::from_secs(1);

/// Those who wait for a flight; closed without an answer if the flight was lost.
pub(super) type Arrival<V> = watch::Receiver<Option<Answered<V>>>;

/// The flights of one kind of look-up.
pub(super) struct Flights<V> {
    by_key: Mutex<Table<V>>,
    most: usize,
}

struct Table<V> {
    flights: HashMap<Key, Flight<V>, RandomState>,
    last: u64,
}

struct Flight<V> {
    number: u64,
    arrival: Arrival<V>,
    given_up: Option<Instant>,
}

/// What one who needs an answer is to do.
pub(super) enum Boarding<V> {
    /// Use what came meanwhile.
    Known(Answered<V>),
    /// Wait.
    Joined(Arrival<V>),
    /// Look up, as the flight of this number, and wait.
    Starts(u64, watch::Sender<Option<Answered<V>>>, Arrival<V>),
    /// Do without.
    Full,
}

impl<V> Flights<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { by_key: Mutex::new(Table { flights: HashMap::default(), last: 0 }), most }
    }

    /// Joins the flight of a key, or makes one that may take as long as `timeout`.
    ///
    /// `known` is asked again, as a flight that ended meanwhile is in its memory before it is gone from
    /// here.
    pub(super) fn board(
        &self,
        key: &Key,
        timeout: Duration,
        known: impl FnOnce() -> Option<Answered<V>>,
    ) -> Boarding<V> {
        let (mut table, now) = (self.lock(), Instant::now());
        if let Some(flight) = table.flights.get(key).filter(|flight| !flight.is_given_up(now)) {
            return Boarding::Joined(flight.arrival.clone());
        }
        if let Some(answered) = known() {
            return Boarding::Known(answered);
        }
        if table.flights.len() >= self.most {
            table.flights.retain(|_, flight| !flight.is_given_up(now));
            if table.flights.len() >= self.most {
                return Boarding::Full;
            }
        }
        let (sender, arrival) = watch::channel(None);
        table.last += 1;
        let (number, given_up) = (table.last, now.checked_add(timeout.saturating_add(GRACE)));
        table.flights.insert(key.clone(), Flight { number, arrival: arrival.clone(), given_up });
        Boarding::Starts(number, sender, arrival)
    }

    /// Ends a flight, unless it was given up for another one.
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
    fn is_given_up(&self, now: Instant) -> bool {
        self.given_up.is_some_and(|time| time <= now)
    }
}
