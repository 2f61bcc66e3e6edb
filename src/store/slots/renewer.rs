//! The keeper of slots of one layer or limiter: what is held comes in, settlements of its store go out.
//!
//! A release is sent at once, by the thread that releases: the next request of the same client comes after it. What has
//! to wait, because too many settlements are in flight, and renewals, are sent by [`SlotRenewer::pump`], which runs after
//! each result and at each heartbeat. Results are followed in tasks.
//!
//! Without any runtime that has taken slots, results are not followed: there are renewals only for a store that makes
//! them at once, and only when slots are taken or released. Slots that are not renewed live as long as their quota says.

use std::cell::Cell;
use std::fmt;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::{Handle as Runtime, Id};
use tokio::time::Instant;

use super::held::{HeldSlots, HoldId, PendingSettlement, SendResult};
use super::timer::{self, Beat};
use crate::core::Error;
use crate::core::algorithm::HEARTBEAT;
use crate::store::{Answer, Applied, Receipt, Settlement, Settling};
use crate::telemetry::Telemetry;

/// Passes a settlement to the store that made the decision.
type Settle = Box<dyn Fn(Receipt, &[Settlement]) -> Settling + Send + Sync>;

/// Keeps the slots that are held of one store.
pub(in crate::store) struct SlotRenewer {
    book: Mutex<Book>,
    settle: Settle,
    telemetry: Telemetry,
}

/// What is held, and who calls the keeper.
#[derive(Default)]
struct Book {
    lots: HeldSlots,
    /// The timers that call the keeper.
    timers: SmallVec<[Timer; 1]>,
    /// When the last heartbeat was.
    beaten: Option<Instant>,
}

/// How long the timer of a runtime may be late before the runtime counts as standing still.
const LATE: Duration = Duration::from_secs(2 * HEARTBEAT.as_secs());

/// A timer that calls the keeper.
struct Timer {
    runtime: Runtime,
    /// When it last did.
    beaten: Instant,
    /// Whether the runtime stands still, as far as the timers of others know.
    is_still: bool,
}

impl Book {
    /// Adds the timer of a runtime; returns whether it was new.
    fn add_timer(&mut self, runtime: &Runtime, now: Instant) -> bool {
        let is_new = self.timers.iter().all(|timer| timer.runtime.id() != runtime.id());
        if is_new {
            self.timers.push(Timer { runtime: runtime.clone(), beaten: now, is_still: false });
        }
        is_new
    }

    /// Returns a runtime with a timer, one that does not stand still if there is any.
    fn any_runtime(&self) -> Option<Runtime> {
        self.timers.iter().min_by_key(|timer| timer.is_still).map(|timer| timer.runtime.clone())
    }

    fn remove_timer(&mut self, runtime: Id) {
        self.timers.retain(|timer| timer.runtime.id() != runtime);
    }

    /// Notes that the timer of a runtime beats, and that others are late: nobody reads the results of what was sent in
    /// their runtimes, and others must not wait for it.
    fn note_beat(&mut self, runtime: Id, now: Instant) {
        let mut has_stopped = false;
        for timer in &mut self.timers {
            if timer.runtime.id() == runtime {
                (timer.beaten, timer.is_still) = (now, false);
            } else if timer.beaten + LATE < now {
                has_stopped |= !mem::replace(&mut timer.is_still, true);
            }
        }
        if has_stopped {
            self.lots.give_up(now);
        }
        if self.timers.iter().any(|timer| timer.is_still) {
            self.lots.forget_flight();
        }
    }
}

/// The slots that one decision took. They are released when it is dropped.
pub(crate) struct SlotHold {
    keeper: Arc<SlotRenewer>,
    tickets: SmallVec<[HoldId; 1]>,
}

impl SlotRenewer {
    /// A keeper that holds nothing, and settles by `settle`.
    pub(in crate::store) fn new(
        settle: impl Fn(Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { book: Mutex::default(), settle: Box::new(settle), telemetry: Telemetry::default() })
    }

    /// Holds the slots that a decision took; `None` if it took none.
    ///
    /// Called once for each receipt: what it returns is what releases them.
    pub(in crate::store) fn hold(self: &Arc<Self>, receipt: &Receipt) -> Option<SlotHold> {
        let mut slots = receipt.taken().iter().filter(|taken| taken.holds_slots()).peekable();
        slots.peek()?;
        let (now, mut book) = (Instant::now(), self.book());
        let before = book.lots.held();
        let tickets = slots.map(|taken| book.lots.hold(receipt.store(), taken, now)).collect();
        let taken = book.lots.held() - before;
        self.tick(book, now);
        self.telemetry.slots_taken(taken);
        Some(SlotHold { keeper: Arc::clone(self), tickets })
    }

    /// Releases the slots of tickets that are left.
    fn release(self: &Arc<Self>, tickets: &[HoldId]) {
        for ticket in tickets {
            let (sent, released) = self.book().lots.release(*ticket);
            self.telemetry.slots_released(released);
            sent.into_iter().for_each(|sent| self.send(sent));
        }
        let book = self.book();
        if book.lots.is_needed() {
            self.tick(book, Instant::now());
        }
    }

    /// Has the keeper be called by a timer of this runtime. Outside of a runtime it is called from here, if no timer
    /// calls it and a heartbeat is due.
    fn tick(self: &Arc<Self>, mut book: MutexGuard<'_, Book>, now: Instant) {
        if let Ok(runtime) = Runtime::try_current() {
            if book.add_timer(&runtime, now) {
                drop(book);
                timer::wind(&runtime, Arc::clone(self) as Arc<dyn Beat>);
            }
        } else if book.timers.is_empty() {
            self.beat_once(book, now);
        }
    }

    /// Makes what is due at a heartbeat, unless the last one was just now.
    fn beat_once(self: &Arc<Self>, mut book: MutexGuard<'_, Book>, now: Instant) {
        // Timers of several runtimes may call it.
        if book.beaten.is_some_and(|last| now < last + HEARTBEAT / 2) {
            return;
        }
        book.beaten = Some(now);
        let overdue = book.lots.beat(now);
        drop(book);
        self.telemetry.slots_released(overdue);
        if overdue > 0 {
            tracing::debug!(slots = overdue, "slots were released, as requests held them for as long as they may");
        }
        self.pump();
    }

    /// Sends what had to wait.
    fn pump(self: &Arc<Self>) {
        // A result that is ready at once leads here again.
        let Some(_pumping) = Pumping::begin() else { return };
        while let Some(sent) = self.next() {
            self.send(sent);
        }
    }

    fn next(&self) -> Option<PendingSettlement> {
        self.book().lots.next(Instant::now())
    }

    /// Sends a settlement, and follows its result.
    fn send(self: &Arc<Self>, sent: PendingSettlement) {
        let (receipt, changes) = sent.settlement();
        let following = Following { keeper: Arc::clone(self), sent: Some(sent), known: SendResult::Lost };
        // A store that panics must not end the timer of others, nor a thread that is panicking already.
        match panic::catch_unwind(AssertUnwindSafe(|| (self.settle)(receipt, &changes))) {
            Err(_) => drop(following),
            Ok(Answer::Ready(result)) => following.finish(result),
            Ok(Answer::Pending(result)) => {
                // A thread of no runtime leaves it to one with a timer.
                let runtime = Runtime::try_current().ok().or_else(|| self.book().any_runtime());
                if let Some(runtime) = runtime {
                    // A runtime that has ended drops it here.
                    runtime.spawn(async move { following.finish(result.await) });
                }
            }
        }
    }

    /// Locks the book. Nothing panics while it is locked.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Beat for SlotRenewer {
    fn beat(self: Arc<Self>, runtime: Id) -> bool {
        let (now, mut book) = (Instant::now(), self.book());
        book.note_beat(runtime, now);
        self.beat_once(book, now);
        let mut book = self.book();
        let is_needed = book.lots.is_needed();
        if !is_needed {
            book.remove_timer(runtime);
        }
        is_needed
    }

    fn lost(&self, runtime: Id) {
        self.book().remove_timer(runtime);
    }
}

/// The wait for the result of a settlement. When it is dropped, the book receives the result, or that it is lost: the
/// runtime ended, or the store panicked.
struct Following {
    keeper: Arc<SlotRenewer>,
    sent: Option<PendingSettlement>,
    known: SendResult,
}

impl Following {
    fn finish(mut self, result: Result<Vec<Applied>, Error>) {
        self.known = known(result);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take() {
            let (now, mut book) = (Instant::now(), self.keeper.book());
            let lost = book.lots.done(sent, &self.known, now);
            if book.lots.is_needed() {
                self.keeper.tick(book, now);
            } else {
                drop(book);
            }
            self.keeper.telemetry.slots_lost(lost);
            self.keeper.pump();
        }
    }
}

/// Returns what a result says of the only change of a settlement.
fn known(result: Result<Vec<Applied>, Error>) -> SendResult {
    match result {
        Ok(applied) => SendResult::Made(applied.into_iter().next()),
        Err(error) if error.is_unsent() => SendResult::Unsent,
        Err(_) => SendResult::Lost,
    }
}

/// That this thread sends what had to wait.
struct Pumping;

thread_local! {
    static PUMPING: Cell<bool> = const { Cell::new(false) };
}

impl Pumping {
    /// Returns `None` if it does so already.
    fn begin() -> Option<Self> {
        // Not `then_some`: a value that is made and dropped would end the other one's time.
        (!PUMPING.replace(true)).then(|| Self)
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        PUMPING.set(false);
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        self.keeper.release(&self.tickets);
    }
}

impl fmt::Debug for SlotHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotHold").finish_non_exhaustive()
    }
}

impl fmt::Debug for SlotRenewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRenewer").field("held", &self.book().lots.held()).finish_non_exhaustive()
    }
}
