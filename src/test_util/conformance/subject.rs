//! A store in a case: it is called, its results are compared, and what differs is kept.

use std::fmt::{Debug, Display};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::ManualClock;
use crate::core::{Error, Key, Outcome, PolicyName, Quota, Requirement, Settles};
use crate::store::{Applied, Ask, Change, Check, Counter, Decided, MemoryStore, Receipt, Settlement, Store};
use fastrand::Rng;

/// Whether a case ran to its end.
pub(super) type Checked = Result<(), Stop>;

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The store does not support what comes next.
    Unsupported(String),
    /// The store has a clock of its own, and what comes next needs another time.
    OwnClock,
    /// The store returned an error.
    Failed(String),
    /// A call differs, and what follows would because of it.
    Differs(String),
    /// A state may be forgotten by real time.
    Forgets,
}

/// The least time in which units return, for requests on a clock that is not set.
const SLOW: Duration = Duration::from_secs(5);

impl Stop {
    /// The store returned an error when it was called for this.
    pub(super) fn failed(call: &str, error: &Error) -> Self {
        Self::Failed(format!("{call} failed: {error}"))
    }
}

/// The time of a store.
pub(super) enum Time {
    Manual {
        clock: ManualClock,
        /// Whether states expire by it alone.
        expires: bool,
    },
    Own {
        tolerance: Duration,
        /// The time of the first request, as cases count it.
        start: Mutex<Option<u64>>,
    },
}

impl Time {
    pub(super) fn own(tolerance: Duration) -> Self {
        Self::Own { tolerance, start: Mutex::default() }
    }
}

/// A store, its time, and what was compared.
pub(super) struct Subject {
    store: Arc<dyn Store>,
    time: Time,
    seed: u64,
    since: Instant,
    keys: AtomicU64,
    compared: AtomicUsize,
    differences: Mutex<Vec<String>>,
}

impl Subject {
    pub(super) fn new(store: Arc<dyn Store>, time: Time, seed: u64) -> Self {
        let (keys, compared, differences) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::default());
        Self { store, time, seed, since: Instant::now(), keys, compared, differences }
    }

    /// Returns how many results were compared, and what differed.
    pub(super) fn into_found(self) -> (usize, Vec<String>) {
        let differences = self.differences.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.compared.into_inner(), differences)
    }

    /// Numbers that repeat with the seed of the run.
    pub(super) fn random(&self) -> Rng {
        Rng::with_seed(self.seed)
    }

    /// Sets the clock to a time in microseconds, of which 0 is where all clocks of the suite start.
    pub(super) fn at(&self, now: u64) -> Checked {
        match &self.time {
            Time::Manual { clock, .. } => clock.set(ManualClock::EPOCH + Duration::from_micros(now)),
            Time::Own { start, .. } => {
                let mut start = start.lock().unwrap_or_else(PoisonError::into_inner);
                if *start.get_or_insert(now) != now {
                    return Err(Stop::OwnClock);
                }
            }
        }
        Ok(())
    }

    /// A new store to compare with, at the same time.
    pub(super) fn model(&self) -> MemoryStore {
        match &self.time {
            Time::Manual { clock, .. } => MemoryStore::builder().with_clock(clock.clone()).build(),
            Time::Own { .. } => MemoryStore::new(),
        }
    }

    /// How far times may be from the exact ones: 0 by a manual clock.
    pub(super) fn tolerance(&self) -> Duration {
        match self.time {
            Time::Manual { .. } => Duration::ZERO,
            Time::Own { tolerance, .. } => tolerance + self.since.elapsed(),
        }
    }

    /// Whether states may be forgotten by real time, while the clock stands still.
    pub(super) fn forgets(&self) -> bool {
        matches!(self.time, Time::Manual { expires: false, .. })
    }

    /// Whether no unit of a quota returns within the time that a case takes on a clock that is not set.
    pub(super) fn is_slow(&self, quota: Quota) -> bool {
        let units = u32::try_from(quota.limit()).unwrap_or(u32::MAX);
        self.is_set() || quota.facts().windows == 0 && quota.window() / units >= SLOW
    }

    /// Whether the clock is the suite's.
    pub(super) fn is_set(&self) -> bool {
        matches!(self.time, Time::Manual { .. })
    }

    /// From here on [`check`](Self::check) is about a key that was not used before.
    pub(super) fn next_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counter(&self, quota: Quota) -> Counter {
        counter(&format!("ada {}", self.keys.load(Ordering::Relaxed)), quota)
    }

    /// A check of the present key.
    pub(super) fn check(&self, quota: Quota, cost: u64) -> Check {
        Check::new(self.counter(quota), cost)
    }

    /// Returns an error unless the store supports checks whose units may be refunded, or not.
    fn supports<'a>(&self, checks: impl Iterator<Item = (&'a Counter, bool, bool)>, settles: Settles) -> Checked {
        let of = |(counter, reserves, bans): (&'a Counter, bool, bool)| {
            let requirement = Requirement::new(counter.policy(), counter.quota()).settles(settles);
            Requirement { reserves, bans, ..requirement }
        };
        let all: Vec<_> = checks.map(of).collect();
        self.store.capabilities(&all).map(drop).map_err(|error| Stop::Unsupported(error.to_string()))
    }

    pub(super) async fn decide(&self, checks: &[Check]) -> Result<Decided, Stop> {
        let each = checks.iter().map(|check| (&check.counter, check.floor > 0, check.ban.is_some()));
        self.supports(each, checks.first().map_or_else(Settles::default, |check| check.settles))?;
        let decided = self.store.decide(checks, Ask::default()).wait().await;
        decided.map_err(|error| Stop::failed("a decision", &error))
    }

    /// Compares what remains.
    pub(super) async fn remaining(&self, check: Check, expected: u64) -> Checked {
        let quota = *check.counter.quota();
        let looked = self.decide(&[check.cost(0)]).await?;
        let found = looked.decision.outcomes().first().map(Outcome::remaining);
        self.equal(found, Some(expected), || format!("remaining of {quota}"));
        Ok(())
    }

    pub(super) async fn settle_all(&self, decided: Decided, changes: &[Settlement]) -> Result<Vec<Applied>, Stop> {
        let bans = changes.iter().any(|settlement| matches!(settlement.change, Change::Strike(_) | Change::Lift));
        let taken = decided.receipt.taken().iter().map(|taken| (&taken.counter, taken.floor > 0, bans));
        self.supports(taken, Settles::ByOutcome)?;
        let applied = self.store.settle(decided.receipt, changes).wait().await;
        applied.map_err(|error| Stop::failed("a settlement", &error))
    }

    pub(super) async fn adjust(&self, counter: &Counter, change: Change) -> Result<Applied, Stop> {
        let bans = matches!(change, Change::Strike(_) | Change::Lift);
        self.supports([(counter, false, bans)].into_iter(), Settles::ByOutcome)?;
        self.store.adjust(counter, change).wait().await.map_err(|error| Stop::failed("an adjustment", &error))
    }

    /// Adjusts the counter of the present key, at a time.
    pub(super) async fn adjust_at(&self, now: u64, quota: Quota, change: Change) -> Checked {
        self.at(now)?;
        self.adjust(&self.counter(quota), change).await.map(drop)
    }

    /// Resets the counter of the present key; returns whether there was one.
    pub(super) async fn reset(&self, quota: Quota) -> Result<bool, Stop> {
        let reset = self.store.adjust(&self.counter(quota), Change::Reset).wait().await;
        reset.map(|applied| applied.units > 0).map_err(|error| Stop::failed("a reset", &error))
    }

    /// The store, for a task of its own.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Compares two values.
    pub(super) fn equal<T: Debug + PartialEq, M: Display>(&self, found: T, expected: T, what: impl FnOnce() -> M) {
        self.holds(found == expected, move || format!("{}: expected {expected:?}, found {found:?}", what()));
    }

    /// Compares a condition with the truth.
    pub(super) fn holds<M: Display>(&self, condition: bool, what: impl FnOnce() -> M) {
        self.compared.fetch_add(1, Ordering::Relaxed);
        if !condition {
            let mut differences = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
            differences.push(what().to_string());
        }
    }
}

/// The same request; after a refund or a renewal, with the units that are left and their stamp.
pub(super) fn again(decided: &Decided, changed: Option<(Change, &Applied)>) -> Decided {
    let taken = decided.receipt.taken().iter().cloned().map(|taken| match changed {
        Some((Change::Refund(_), applied)) => {
            let units = taken.units.saturating_sub(applied.units);
            taken.units(units).stamp(applied.stamp)
        }
        Some((_, applied)) => taken.stamp(applied.stamp),
        None => taken,
    });
    Decided::new(decided.decision.clone(), Receipt::new(decided.receipt.store(), taken))
}

/// A counter of the policy that most cases use.
pub(super) fn counter(key: &str, quota: Quota) -> Counter {
    counter_of("policy", key, quota)
}

pub(super) fn counter_of(policy: &str, key: &str, quota: Quota) -> Counter {
    Counter::new(PolicyName::try_from(policy).expect("a valid name"), Key::new("key", key), quota)
}

pub(super) fn check(key: &str, quota: Quota, cost: u64) -> Check {
    Check::new(counter(key, quota), cost)
}

/// Checks, in short.
pub(super) fn of_checks(checks: &[Check]) -> String {
    let each = checks.iter().map(|Check { counter, cost, floor, mode, ban, .. }| {
        let ban = ban.as_ref().map_or(String::new(), |ban| format!(", {ban:?}"));
        format!("{cost} of {}, floor {floor}, {mode:?}{ban}", counter.quota())
    });
    each.collect::<Vec<_>>().join(" and ")
}
