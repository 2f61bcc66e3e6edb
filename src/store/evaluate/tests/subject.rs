//! The arithmetic, and a clock: what both stores do with it, but for keeping states.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) use super::checks::check;
use super::checks::counter;
pub(crate) use super::clock::EPOCH_US;
use super::clock::ManualClock;
use crate::core::Quota;
use crate::core::algorithm::{Adjusted, State};
use crate::store::evaluate::{adjustment, applied, decided, evaluate, look_again, of_any};
use crate::store::{Applied, Change, Check, Counter, Deadline, Decided, Settlement, StoreId, Taken};

/// The key of tests that need but one.
pub(crate) const KEY: &str = "ada";

pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) clock: ManualClock,
    id: StoreId,
    states: Mutex<Vec<(Counter, State)>>,
}

/// Runs a test on the arithmetic: there is no store.
pub(crate) async fn on_each_store(test: impl AsyncFn(&Subject)) {
    test(&Subject::by_clock_alone()).await;
}

impl Subject {
    pub(crate) fn by_clock_alone() -> Self {
        Self { name: "arithmetic", clock: ManualClock::new(), id: StoreId::new(), states: Mutex::default() }
    }

    fn now(&self, quota: &Quota) -> u64 {
        quota.tick().of(EPOCH_US + self.clock.now())
    }

    fn state(&self, of: &Counter) -> Option<State> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.iter().find(|(counter, _)| counter.shares_state(of)).map(|(_, state)| state.clone())
    }

    fn keep(&self, of: &Counter, state: Option<State>) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|(counter, _)| !counter.shares_state(of));
        states.extend(state.map(|state| (of.clone(), state)));
    }

    #[allow(clippy::unused_async, reason = "a store may be waited for")]
    pub(crate) async fn decide(&self, checks: &[Check], _: Deadline) -> Decided {
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let kept = if state.is_none() { self.state(counter) } else { None };
            counter.quota.decide(state.or(kept.as_ref()), self.now(&counter.quota), cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, step);
        if refused {
            look_again(&mut steps, step);
        } else {
            for (check, step) in checks.iter().zip(&steps).filter(|(check, step)| step.fits && check.cost > 0) {
                self.keep(&check.counter, step.state.clone());
            }
        }
        decided(self.id, checks, &steps, refused)
    }

    pub(crate) async fn take(&self, now: u64, quota: Quota, cost: u64) -> Decided {
        self.clock.set(now);
        let decided = self.decide(&[check(KEY, quota, cost)], Deadline::none()).await;
        assert!(decided.decision.is_allowed(), "{}: {decided:?}", self.name);
        decided
    }

    #[allow(clippy::unused_async, reason = "a store may be waited for")]
    pub(crate) async fn settle_at(&self, now: u64, decided: Decided, change: Change) {
        self.clock.set(now);
        let changes = [Settlement::new(0, change)];
        Settlement::each(&changes, &decided.receipt, |before, taken, change| self.change(before, taken, change));
    }

    #[allow(clippy::unused_async, reason = "a store may be waited for")]
    pub(crate) async fn adjust_at(&self, now: u64, quota: Quota, change: Change) {
        self.clock.set(now);
        self.change(&[], &of_any(&counter(KEY, quota)), change);
    }

    fn change(&self, before: &[Taken], taken: &Taken, change: Change) -> Applied {
        let Taken { counter, floor, .. } = taken;
        let (quota, now, kept) = (&counter.quota, self.now(&counter.quota), self.state(counter));
        let Adjusted { units, state } = quota.adjust(kept.as_ref(), now, adjustment(before, taken, change));
        let after = state.map(|(state, _)| state).or(kept);
        let step = quota.decide(after.as_ref(), now, 0, *floor);
        self.keep(counter, after);
        applied(taken, change, units, &step)
    }

    #[allow(clippy::unused_async, reason = "a store may be waited for")]
    pub(crate) async fn reset(&self, quota: Quota) {
        self.keep(&counter(KEY, quota), None);
    }

    /// Nothing is kept elsewhere, where others could write.
    #[allow(clippy::unused_self, reason = "a store may have a server")]
    pub(crate) fn overwrite(&self, _: &[&[&str]]) -> bool {
        false
    }

    /// What must not change by a refusal or a look.
    pub(crate) fn kept(&self) -> Vec<(Counter, State)> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nothing expires.
    #[allow(clippy::unused_self, reason = "a store may have a server")]
    pub(crate) fn assert_lives(&self, _: Duration, _: Duration) {}
}
