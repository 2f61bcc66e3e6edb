//! The breaker's state machine, shared by threads. In `models`, loom tries every order of concurrent calls.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use super::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// Maximum duration of a probe, even if the timeout is longer. It bounds the number of concurrent probes.
pub(crate) const MAX_PROBE: Duration = Duration::from_secs(15);

/// Wait before the first probe. Each further wait, from the start of the last probe, doubles.
pub(crate) const FIRST_WAIT_MS: u64 = 50;
const MAX_WAIT_MS: u64 = 500;

pub(super) const MAX_IN_ROW: u64 = 5;

/// Number of failures in a window that open the breaker, if they are at least half of the calls in the window. With 10%
/// random failures, this opens the breaker in 7 of a million windows.
pub(super) const MAX_IN_WINDOW: u64 = 10;

/// Length of a window, which starts with its first failure. With fewer than 20 calls a second, only failures in a row
/// open the breaker.
pub(super) const WINDOW_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPermit {
    round: u64,
}

impl CallPermit {
    pub(crate) fn is_probe(self) -> bool {
        is_open(self.round)
    }
}

/// The state of the circuit breaker of a store, or of one of its servers.
///
/// [`OnFailure`](crate::OnFailure) documents what counts as a failure, and the times.
///
/// # Examples
///
/// ```
/// use tollgate::store::BreakerState;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
/// assert_eq!(layer.breaker_state(), BreakerState::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is called: it replies, or has not failed often enough.
    Closed,
    /// The store is not called, because it failed a moment ago.
    Open,
    /// Only a probe calls the store. Other requests do not wait for its outcome.
    HalfOpen,
}

impl BreakerState {
    /// Returns the name: `"closed"`, `"open"` or `"half_open"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for BreakerState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Rounds alternate between closed and open.
fn is_open(round: u64) -> bool {
    round % 2 == 1
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// Number of times it opened or closed. Only changed under the lock.
    round: AtomicU64,
    /// Whether a closed breaker's window has failures. Only changed under the lock.
    has_failures: AtomicBool,
    state: Mutex<BreakerCounts>,
}

#[derive(Debug, Default)]
struct BreakerCounts {
    recent: Recent,
    /// Probes started since it opened, without those that were given up. Determines the next wait.
    probes: u32,
    in_flight: u32,
    /// Time of the next probe, even if earlier probes have no outcome by then.
    probe_at: u64,
    /// Start of the last failures in a row.
    failing_since: u64,
    closed: Option<(u64, u32)>,
}

/// Successful calls write no shared memory, because nothing is recorded while there are no failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// Failures since the last reply, however long ago.
    pub(super) in_row: u64,
    /// Failures in the window. 0 if there is no window. Then replies change nothing.
    pub(super) failed: u64,
    pub(super) succeeded: u64,
    start: u64,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            round: AtomicU64::new(0),
            has_failures: AtomicBool::new(false),
            state: Mutex::new(BreakerCounts::default()),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        if !is_open(self.round()) {
            return BreakerState::Closed;
        }
        let state = self.lock();
        match (is_open(self.round()), state.in_flight) {
            (false, _) => BreakerState::Closed,
            (true, 0) => BreakerState::Open,
            (true, _) => BreakerState::HalfOpen,
        }
    }

    /// If a probe is due, one of several concurrent callers receives the permit. `now` is not called while closed.
    pub(crate) fn acquire(&self, now: impl FnOnce() -> u64) -> Option<CallPermit> {
        let round = self.round();
        if !is_open(round) {
            return Some(CallPermit { round });
        }
        let (now, mut state) = (now(), self.lock());
        let round = self.round();
        if !is_open(round) {
            return Some(CallPermit { round });
        }
        state.probe(now).then_some(CallPermit { round })
    }

    /// Returns `true` if a reply changes nothing, so that callers need not report it.
    pub(crate) fn is_calm(&self) -> bool {
        !is_open(self.round()) && !self.has_failures.load(Ordering::Acquire)
    }

    /// Returns `true`, to one caller, if the reply closed the breaker. `now` is called only after a failure.
    pub(crate) fn succeeded(&self, permit: CallPermit, now: impl FnOnce() -> u64) -> bool {
        if self.is_calm() {
            return false;
        }
        let now = now();
        let Some(mut state) = self.lock_for(permit) else { return false };
        if permit.is_probe() {
            state.closed = state.closed.max(Some((now, state.probes)));
            self.next_round(&mut state);
        } else {
            state.recent.succeeded(now);
            self.note(&state);
        }
        permit.is_probe()
    }

    /// Returns the previous state if the breaker is open now: `Some(Closed)` if this failure opened it.
    pub(crate) fn failed(&self, permit: CallPermit, now: u64) -> Option<BreakerState> {
        let mut state = self.lock_for(permit)?;
        if permit.is_probe() {
            state.in_flight = state.in_flight.saturating_sub(1);
            return Some(BreakerState::HalfOpen);
        }
        if state.recent.in_row == 0 {
            // A delayed thread may report an older time than others.
            state.failing_since = state.failing_since.max(now);
        }
        state.recent.failed(now);
        let opens = state.recent.opens();
        if opens {
            self.next_round(&mut state);
            state.open(now);
        } else {
            self.note(&state);
        }
        opens.then_some(BreakerState::Closed)
    }

    pub(crate) fn gave_up(&self, permit: CallPermit, probe_at: impl FnOnce() -> u64) {
        if !permit.is_probe() {
            return;
        }
        let probe_at = probe_at();
        if let Some(mut state) = self.lock_for(permit) {
            state.in_flight = state.in_flight.saturating_sub(1);
            // A probe that was given up does not lengthen the wait.
            state.probes = state.probes.saturating_sub(1);
            state.probe_at = state.probe_at.min(probe_at);
        }
    }

    pub(crate) fn next_probe(&self, now: u64) -> Duration {
        let state = self.lock();
        let wait = if is_open(self.round()) { state.probe_at.saturating_sub(now) } else { 0 };
        Duration::from_millis(wait)
    }

    /// In milliseconds. `None` if the store has replied since.
    pub(crate) fn failing_since(&self) -> Option<u64> {
        let state = self.lock();
        (is_open(self.round()) || state.recent.in_row > 0).then_some(state.failing_since)
    }

    pub(crate) fn first_failure(&self) -> u64 {
        self.lock().failing_since
    }

    #[cfg(test)]
    pub(super) fn recent(&self) -> Recent {
        self.lock().recent
    }

    fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, BreakerCounts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_for(&self, permit: CallPermit) -> Option<MutexGuard<'_, BreakerCounts>> {
        let state = self.lock();
        (self.round() == permit.round).then_some(state)
    }

    fn next_round(&self, state: &mut BreakerCounts) {
        (state.recent, state.in_flight) = (Recent::default(), 0);
        self.note(state);
        self.round.store(self.round() + 1, Ordering::Release);
    }

    /// Publishes `has_failures`, which is read without the lock.
    fn note(&self, state: &BreakerCounts) {
        self.has_failures.store(state.recent.failed > 0, Ordering::Release);
    }
}

impl BreakerCounts {
    fn probe(&mut self, now: u64) -> bool {
        let is_due = now >= self.probe_at;
        if is_due {
            (self.probes, self.in_flight) = (self.probes + 1, self.in_flight + 1);
            self.probe_at = now.saturating_add(wait(self.probes));
        }
        is_due
    }

    /// Keeps the longer waits if the breaker closed less than a second ago, because then the store failed again right
    /// after a probe.
    fn open(&mut self, now: u64) {
        let again = self.closed.filter(|(at, _)| now.saturating_sub(*at) < WINDOW_MS);
        self.probes = again.map_or(0, |(_, probes)| probes);
        self.probe_at = now.saturating_add(wait(self.probes));
    }
}

impl Recent {
    fn failed(&mut self, now: u64) {
        if !self.is_live(now) {
            (self.failed, self.succeeded, self.start) = (0, 0, now);
        }
        (self.in_row, self.failed) = (self.in_row + 1, self.failed + 1);
    }

    fn succeeded(&mut self, now: u64) {
        if !self.is_live(now) {
            *self = Self::default();
            return;
        }
        (self.in_row, self.succeeded) = (0, self.succeeded + 1);
    }

    /// `in_row >= 5`, or `failed >= 10` and `failed >= succeeded`.
    fn opens(self) -> bool {
        self.in_row >= MAX_IN_ROW || self.failed >= MAX_IN_WINDOW && self.failed >= self.succeeded
    }

    /// Also `true` before the window, because concurrent callers report times out of order.
    fn is_live(self, now: u64) -> bool {
        self.failed > 0 && now < self.start.saturating_add(WINDOW_MS)
    }
}

/// In milliseconds: `min(50 * 2^probes, 500)`.
fn wait(probes: u32) -> u64 {
    (FIRST_WAIT_MS << probes.min(8)).min(MAX_WAIT_MS)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
