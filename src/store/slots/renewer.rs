//! Renewal and release of the slots of one layer or limiter.
//!
//! The thread that releases sends the release, because the same client's next request should find the slot free. A task
//! sends renewals at each heartbeat. Settlements that wait, because too many are in flight, are sent as results arrive.
//!
//! Each runtime whose requests take slots has a task, which ends when nothing is held. Each task renews all that is
//! due, because other runtimes may be blocked or end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::held::{HeldSlots, HoldId, PendingSettlement, Settled};
use crate::core::algorithm::HEARTBEAT;
use crate::core::error::Kind;
use crate::core::{Error, in_drop};
use crate::store::{MaybeFuture, Receipt, Settlement, Settling, StoreDecision};
use crate::telemetry::Telemetry;

type Settle = Box<dyn Fn(Receipt, &[Settlement]) -> Settling + Send + Sync>;

pub(in crate::store) struct SlotRenewer {
    state: Mutex<RenewerState>,
    settle: Settle,
    telemetry: Telemetry,
}

#[derive(Default)]
struct RenewerState {
    held: HeldSlots,
    /// One for each runtime, because other runtimes may be blocked.
    tasks: SmallVec<[(Runtime, JoinHandle<()>); 1]>,
}

pub(crate) struct SlotHold {
    renewer: Arc<SlotRenewer>,
    holds: SmallVec<[HoldId; 1]>,
}

impl SlotRenewer {
    pub(in crate::store) fn new(
        settle: impl Fn(Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), settle: Box::new(settle), telemetry: Telemetry::default() })
    }

    /// Call it once for each receipt, because its result releases the slots.
    pub(in crate::store) fn hold(self: &Arc<Self>, receipt: &Receipt) -> Option<SlotHold> {
        let slots = || receipt.items().iter().filter(|taken| taken.holds_slots());
        slots().next()?;
        let (now, mut state) = (Instant::now(), self.state());
        let holds = slots().map(|taken| state.held.hold(receipt.store(), taken, now)).collect();
        self.start_task(&mut state);
        drop(state);
        self.telemetry.slots_taken(slots().map(|taken| taken.units).sum());
        Some(SlotHold { renewer: Arc::clone(self), holds })
    }

    fn start_task(self: &Arc<Self>, state: &mut RenewerState) {
        if state.held.is_empty() {
            return;
        }
        let Ok(runtime) = Runtime::try_current() else { return };
        if state.tasks.iter().any(|(of, task)| of.id() == runtime.id() && !task.is_finished()) {
            return;
        }
        state.tasks.retain(|(_, task)| !task.is_finished());
        let task = runtime.spawn(Arc::clone(self).run());
        // The caller may block this thread, which runs the last spawned task next. Other threads take the earlier one.
        drop(runtime.spawn(async {}));
        state.tasks.push((runtime, task));
    }

    async fn run(self: Arc<Self>) {
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats.tick().await;
        loop {
            beats.tick().await;
            let mut state = self.state();
            let overdue = state.held.beat(Instant::now());
            if state.held.is_empty() {
                let own = Runtime::current().id();
                state.tasks.retain(|(runtime, _)| runtime.id() != own);
                return;
            }
            drop(state);
            self.telemetry.slots_released(overdue);
            if overdue > 0 {
                tracing::debug!(slots = overdue, "slots released after max_hold");
            }
            self.flush();
        }
    }

    fn flush(self: &Arc<Self>) {
        // Locks each time, because stores are called in between.
        let next = || self.state().held.next(Instant::now());
        while let Some(settlement) = next() {
            let (receipt, changes) = settlement.settlement();
            let mut sent = InFlight { renewer: Arc::clone(self), settlement, result: None };
            match in_drop(|| (self.settle)(receipt, &changes)) {
                None => {}
                Some(MaybeFuture::Ready(result)) => sent.result = Some(result),
                Some(MaybeFuture::Pending(result)) => {
                    // This thread may have no runtime, but the settlement may be refused, or be a renewal.
                    let of_task = || self.state().tasks.last().map(|(runtime, _)| runtime.clone());
                    let Some(runtime) = Runtime::try_current().ok().or_else(of_task) else { continue };
                    runtime.spawn(async move {
                        sent.result = Some(result.await);
                        let renewer = Arc::clone(&sent.renewer);
                        drop(sent);
                        renewer.flush();
                    });
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, RenewerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        let (now, mut state) = (Instant::now(), self.renewer.state());
        let released = self.holds.iter().map(|hold| state.held.release(*hold, now)).sum();
        self.renewer.start_task(&mut state);
        drop(state);
        self.renewer.telemetry.slots_released(released);
        self.renewer.flush();
    }
}

/// A settlement in flight. If dropped without a result, it may have been made: the runtime ended, or there is none.
struct InFlight {
    renewer: Arc<SlotRenewer>,
    settlement: PendingSettlement,
    result: Settled,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.renewer.state();
        let lost = state.held.done(&self.settlement, self.result.take(), Instant::now());
        self.renewer.start_task(&mut state);
        drop(state);
        self.renewer.telemetry.slots_lost(lost);
    }
}

pub(crate) type WeakSlots = SmallVec<[Weak<SlotHold>; 1]>;

/// Holds slots of a [`Quota::concurrency`](crate::Quota::concurrency) until it and all its clones are dropped.
///
/// [`RateLimitHandle::slots`](crate::RateLimitHandle::slots) returns the guard of a request. For other work,
/// [`Limiter::acquire`](crate::Limiter::acquire) and [`until_ready`](crate::Limiter::until_ready) return one. It holds
/// slots for at most [`max_hold`](crate::Quota::max_hold): then they are released, and it holds nothing. The default
/// guard holds nothing.
///
/// A release is sent to the store in the background. A program that ends at once may lose it: keep the runtime for the
/// store's timeout after the last guard, or the slots are free after their [`slot_ttl`](crate::Quota::slot_ttl).
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("exports", Quota::concurrency(1))]);
/// let ada = Key::new("user", "ada");
///
/// let (decision, slots) = limiter.acquire(&ada).await?;
/// assert!(decision.is_allowed());
/// let (refused, _) = limiter.acquire(&ada).await?;
/// assert!(!refused.is_allowed());
///
/// drop(slots);
/// let (decision, _slots) = limiter.acquire(&ada).await?;
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "slots are released when their guard is dropped"]
pub struct SlotGuard {
    held: SmallVec<[Arc<SlotHold>; 1]>,
}

impl SlotGuard {
    /// Returns `true` if it has never held slots: none were taken, or the request ended before the guard was created.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn new(held: Option<SlotHold>) -> Self {
        Self { held: held.map(Arc::new).into_iter().collect() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.held.extend(other.held);
    }

    pub(crate) fn downgrade(&self) -> WeakSlots {
        self.held.iter().map(Arc::downgrade).collect()
    }

    pub(crate) fn upgrade(slots: &WeakSlots) -> Self {
        Self { held: slots.iter().filter_map(Weak::upgrade).collect() }
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").field("is_empty", &self.is_empty()).finish()
    }
}

/// A decision that its caller has not polled yet. On drop, its slots are released, because the caller has left.
pub(in crate::store) struct Unclaimed {
    renewer: Arc<SlotRenewer>,
    decided: Option<Result<StoreDecision, Error>>,
    /// The end of the slots' safe time, because nothing renews them before the claim.
    until: Option<Instant>,
}

impl Unclaimed {
    pub(in crate::store) fn new(renewer: Arc<SlotRenewer>, decided: Result<StoreDecision, Error>) -> Self {
        let slots = decided.iter().flat_map(|decided| decided.receipt.items()).filter(|taken| taken.holds_slots());
        let until = slots.map(|taken| taken.counter.quota().window() / 3).min().map(|time| Instant::now() + time);
        Self { renewer, decided: Some(decided), until }
    }

    /// A timeout if the slots may have expired because the caller did not poll. Then they are released.
    pub(in crate::store) fn claim(mut self) -> Result<StoreDecision, Error> {
        if self.until.is_some_and(|until| until < Instant::now()) {
            return Err(Error::new(Kind::Timeout, "the caller did not poll its decision for a third of a slot life"));
        }
        self.decided.take().expect("it is there until it is claimed or dropped")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(Ok(decided)) = &self.decided {
            drop(self.renewer.hold(&decided.receipt));
        }
    }
}
