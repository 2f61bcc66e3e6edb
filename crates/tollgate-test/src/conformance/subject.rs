//! A store under test: calls it, compares results, and records differences.

use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate::policy::{Algorithm, PolicyName};
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, Receipt, Requirement, Settlement, Settles, Store, StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Error, Key, MemoryStore, Quota};

pub(super) type Checked = Result<(), Stop>;

#[derive(Debug)]
pub(super) enum Stop {
    LeftOut(String),
    Failed(String),
    Differs(String),
    /// A state may expire by real time.
    Forgets,
}

impl Stop {
    pub(super) fn failed(call: &str, error: &Error) -> Self {
        Self::Failed(format!("{call} failed: {error}"))
    }
}

const SLOW: Duration = Duration::from_secs(5);

pub(super) struct Subject {
    pub(super) store: Arc<dyn Store>,
    /// `None` if the store has its own clock.
    pub(super) clock: Option<ManualClock>,
    /// Whether states may expire by real time, while the clock stands still.
    pub(super) forgets: bool,
    /// Allowed difference of times, in addition to the duration of the case on the store's own clock.
    pub(super) tolerance: Duration,
    pub(super) since: Instant,
    pub(super) found: Mutex<Found>,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) compared: usize,
    pub(super) differences: Vec<String>,
    start: Option<u64>,
}

impl Subject {
    pub(super) fn at(&self, now: u64) -> Checked {
        match &self.clock {
            Some(clock) => clock.set(ManualClock::EPOCH + Duration::from_micros(now)),
            None if *self.found().start.get_or_insert(now) != now => return Err(own_clock()),
            None => {}
        }
        Ok(())
    }

    pub(super) fn model(&self) -> MemoryStore {
        match &self.clock {
            Some(clock) => MemoryStore::builder().clock(clock.clone()).build(),
            None => MemoryStore::new(),
        }
    }

    /// 0 by a manual clock.
    pub(super) fn tolerance(&self) -> Duration {
        if self.clock.is_some() { Duration::ZERO } else { self.tolerance + self.since.elapsed() }
    }

    pub(super) fn is_slow(&self, quota: Quota) -> bool {
        let units = u32::try_from(quota.limit()).unwrap_or(u32::MAX);
        let is_aligned = matches!(quota.algorithm(), Algorithm::FixedWindow | Algorithm::SlidingWindow);
        self.clock.is_some() || !is_aligned && quota.window() / units >= SLOW
    }

    fn supports<'a>(&self, checks: impl Iterator<Item = (&'a Counter, bool, bool)>, settles: Settles) -> Checked {
        let of = |(counter, reserves, bans): (&'a Counter, bool, bool)| {
            let mut requirement = Requirement::new(counter.policy(), counter.quota()).settles(settles);
            (requirement.reserves, requirement.bans) = (reserves, bans);
            requirement
        };
        let all: Vec<_> = checks.map(of).collect();
        self.store.capabilities(&all).map(drop).map_err(|error| Stop::LeftOut(error.to_string()))
    }

    pub(super) async fn decide(&self, checks: &[Check]) -> Result<StoreDecision, Stop> {
        let each = checks.iter().map(|check| (&check.counter, check.floor > 0, check.ban.is_some()));
        self.supports(each, checks.first().map_or_else(Settles::default, |check| check.settles))?;
        decide(&*self.store, checks).await
    }

    pub(super) async fn settle(
        &self,
        decided: StoreDecision,
        changes: &[Settlement],
    ) -> Result<Vec<ChangeResult>, Stop> {
        let bans = changes.iter().any(|settlement| is_of_ban(settlement.change));
        let taken = decided.receipt.items().iter().map(|taken| (&taken.counter, taken.floor > 0, bans));
        self.supports(taken, Settles::ByOutcome)?;
        let applied = self.store.settle(decided.receipt, changes).wait().await;
        applied.map_err(|error| Stop::failed("a settlement", &error))
    }

    pub(super) async fn adjust(&self, counter: &Counter, change: Change) -> Result<ChangeResult, Stop> {
        // Each store resets counters.
        if change != Change::Reset {
            self.supports([(counter, false, is_of_ban(change))].into_iter(), Settles::ByOutcome)?;
        }
        self.store.adjust(counter, change).wait().await.map_err(|error| Stop::failed("an adjustment", &error))
    }

    pub(super) fn equal<T: Debug + PartialEq, M: Display>(&self, found: T, expected: T, what: impl FnOnce() -> M) {
        self.holds(found == expected, move || format!("{}: expected {expected:?}, found {found:?}", what()));
    }

    pub(super) fn holds<M: Display>(&self, condition: bool, what: impl FnOnce() -> M) {
        let mut found = self.found();
        found.compared += 1;
        if !condition {
            found.differences.push(what().to_string());
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn decide(store: &dyn Store, checks: &[Check]) -> Result<StoreDecision, Stop> {
    store.decide(checks, Ask::default()).wait().await.map_err(|error| Stop::failed("a decision", &error))
}

pub(super) fn own_clock() -> Stop {
    Stop::LeftOut("what follows needs a clock that is set".to_owned())
}

fn is_of_ban(change: Change) -> bool {
    matches!(change, Change::Strike(_) | Change::Lift)
}

pub(super) fn again(decided: &StoreDecision, changed: Option<(Change, &ChangeResult)>) -> StoreDecision {
    let taken = decided.receipt.items().iter().cloned().map(|taken| match changed {
        Some((Change::Refund(_), applied)) => {
            let units = taken.units.saturating_sub(applied.units);
            taken.units(units).stamp(applied.stamp)
        }
        Some((_, applied)) => taken.stamp(applied.stamp),
        None => taken,
    });
    StoreDecision::new(decided.decision.clone(), Receipt::new(decided.receipt.store(), taken))
}

pub(super) fn counter(policy: &str, key: &str, quota: Quota) -> Counter {
    Counter::new(PolicyName::try_from(policy).expect("a valid name"), Key::new("key", key), quota)
}

pub(super) fn describe_checks(checks: &[Check]) -> String {
    let each = checks.iter().map(|Check { counter, cost, floor, mode, ban, .. }| {
        let ban = ban.as_ref().map_or(String::new(), |ban| format!(", {ban:?}"));
        format!("{cost} of {}, floor {floor}, {mode:?}{ban}", counter.quota())
    });
    each.collect::<Vec<_>>().join(" and ")
}
