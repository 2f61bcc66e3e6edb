//! The upkeep of the slots that one layer or limiter holds: what is held comes in, settlements of its store go out.
//!
//! A release is sent by the thread that releases: the next request of the same client comes after it. Renewals are sent
//! by one task at each heartbeat, and what has to wait, because too many settlements are in flight, as results come.
//!
//! There is a task in each runtime whose requests take slots, which ends when nothing is held. Each of them renews all that
//! is due, as a runtime may stand still or end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::held::{HeldSlots, HoldId, PendingSettlement, Settled};
use crate::core::algorithm::HEARTBEAT;
use crate::core::in_drop;
use crate::store::{Answer, Receipt, Settlement, Settling};
use crate::telemetry::Telemetry;

/// Passes a settlement to the store that made the decision.
type Settle = Box<dyn Fn(Receipt, &[Settlement]) -> Settling + Send + Sync>;

/// Renews and releases the slots that are held of one store.
pub(in crate::store) struct SlotRenewer {
    state: Mutex<RenewerState>,
    settle: Settle,
    telemetry: Telemetry,
}

#[derive(Default)]
struct RenewerState {
    held: HeldSlots,
    /// The tasks that renew what is held: one for each runtime, as others may stand still.
    tasks: SmallVec<[(Runtime, JoinHandle<()>); 1]>,
}

/// The slots that one decision took. They are released when it is dropped.
pub(crate) struct SlotHold {
    renewer: Arc<SlotRenewer>,
    holds: SmallVec<[HoldId; 1]>,
}

impl SlotRenewer {
    /// A renewer that holds nothing, and settles by `settle`.
    pub(in crate::store) fn new(
        settle: impl Fn(Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), settle: Box::new(settle), telemetry: Telemetry::default() })
    }

    /// Holds the slots that a decision took; `None` if it took none.
    ///
    /// Called once for each receipt: what it returns is what releases them.
    pub(in crate::store) fn hold(self: &Arc<Self>, receipt: &Receipt) -> Option<SlotHold> {
        let slots = || receipt.taken().iter().filter(|taken| taken.holds_slots());
        slots().next()?;
        let (now, mut state) = (Instant::now(), self.state());
        let holds = slots().map(|taken| state.held.hold(receipt.store(), taken, now)).collect();
        self.start_task(&mut state);
        drop(state);
        self.telemetry.slots_taken(slots().map(|taken| taken.units).sum());
        Some(SlotHold { renewer: Arc::clone(self), holds })
    }

    /// Starts the task on the runtime of the caller, unless it runs or nothing is held.
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
        // The caller may block its thread next, which keeps the task that was spawned last: others take the first.
        drop(runtime.spawn(async {}));
        state.tasks.push((runtime, task));
    }

    /// Sends what is due at each heartbeat, until nothing is held.
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
                tracing::debug!(slots = overdue, "slots were released, as requests held them for as long as they may");
            }
            self.flush();
        }
    }

    /// Sends what waits, and follows the results in tasks.
    fn flush(self: &Arc<Self>) {
        // Each time without the lock, because stores are called here.
        let next = || self.state().held.next(Instant::now());
        while let Some(settlement) = next() {
            let (receipt, changes) = settlement.settlement();
            let mut sent = InFlight { renewer: Arc::clone(self), settlement, result: None };
            match in_drop(|| (self.settle)(receipt, &changes)) {
                None => {}
                Some(Answer::Ready(result)) => sent.result = Some(result),
                Some(Answer::Pending(result)) => {
                    // On a thread without a runtime, because what it sends may be refused, or be a renewal.
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

/// A settlement in flight. Dropped without a result, it is perhaps made: the runtime ended, or there is none.
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
