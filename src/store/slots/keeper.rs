//! The keeper of slots of one layer or limiter: what is held comes in, settlements of its store go out.
//!
//! A release is sent at once, by the thread that releases: the next request of the same client comes after it. What has
//! to wait, because too many settlements are in flight, and renewals, are sent by [`SlotKeeper::pump`], which runs after
//! each result and at each heartbeat. Results are followed in tasks.
//!
//! Without any runtime that has taken slots, results are not followed: there are renewals only for a store that makes
//! them at once, and only when slots are taken or released. Slots that are not renewed live as long as their quota says.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::{Handle as Runtime, Id};
use tokio::time::Instant;

use super::lots::{Known, Lots, Sent, TicketId};
use super::timer::{self, Beat};
use crate::core::Error;
use crate::core::algorithm::HEARTBEAT;
use crate::core::observer::SlotObserver;
use crate::metrics;
use crate::store::{Answer, Applied, Receipt, Settlement, Settling, Taken};

/// Passes a settlement to the store that made the decision.
type Settle = Box<dyn Fn(Receipt, &[Settlement]) -> Settling + Send + Sync>;

/// Keeps the slots that are held of one store.
pub(in crate::store) struct SlotKeeper {
    book: Mutex<Book>,
    settle: Settle,
    observer: SlotObserver,
}

/// What is held, and who calls the keeper.
#[derive(Default)]
struct Book {
    lots: Lots,
    /// The runtimes whose timers call the keeper.
    timers: SmallVec<[Runtime; 1]>,
    /// When the last heartbeat was.
    beaten: Option<Instant>,
}

/// The slots that one decision took. They are released when it is dropped.
pub(crate) struct Held {
    keeper: Arc<SlotKeeper>,
    tickets: SmallVec<[TicketId; 1]>,
}

impl SlotKeeper {
    /// A keeper that holds nothing, and settles by `settle`.
    pub(in crate::store) fn new(
        settle: impl Fn(Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { book: Mutex::default(), settle: Box::new(settle), observer: metrics::of_slots() })
    }

    /// Holds the slots that a decision took; `None` if it took none.
    ///
    /// Called once for each receipt: what it returns is what releases them.
    pub(in crate::store) fn hold(self: &Arc<Self>, receipt: &Receipt) -> Option<Held> {
        let are_slots = |taken: &&Taken| taken.units > 0 && taken.counter.quota.facts().held;
        let mut slots = receipt.taken().iter().filter(are_slots).peekable();
        slots.peek()?;
        let (now, mut book) = (Instant::now(), self.book());
        let before = book.lots.held();
        let tickets = slots.map(|taken| book.lots.hold(receipt.store(), taken, now)).collect();
        let taken = book.lots.held() - before;
        self.tick(book, now);
        self.observer.taken(taken);
        Some(Held { keeper: Arc::clone(self), tickets })
    }

    /// Releases the slots of tickets that are left.
    fn release(self: &Arc<Self>, tickets: &[TicketId]) {
        for ticket in tickets {
            let (sent, released) = self.book().lots.release(*ticket);
            self.observer.released(released);
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
            if !book.timers.iter().any(|timer| timer.id() == runtime.id()) {
                book.timers.push(runtime.clone());
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
        self.observer.released(overdue);
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

    fn next(&self) -> Option<Sent> {
        self.book().lots.next(Instant::now())
    }

    /// Sends a settlement, and follows its result.
    fn send(self: &Arc<Self>, sent: Sent) {
        let (receipt, changes) = sent.settlement();
        let following = Following { keeper: Arc::clone(self), sent: Some(sent), known: Known::Lost };
        match (self.settle)(receipt, &changes) {
            Answer::Ready(result) => following.finish(result),
            Answer::Pending(result) => {
                // A thread of no runtime leaves it to one with a timer.
                let runtime = Runtime::try_current().ok().or_else(|| self.book().timers.first().cloned());
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

impl Book {
    /// Forgets the timer of a runtime.
    fn leave(&mut self, runtime: Id) {
        self.timers.retain(|timer| timer.id() != runtime);
    }
}

impl Beat for SlotKeeper {
    fn beat(self: Arc<Self>, runtime: Id) -> bool {
        self.beat_once(self.book(), Instant::now());
        let mut book = self.book();
        let is_needed = book.lots.is_needed();
        if !is_needed {
            book.leave(runtime);
        }
        is_needed
    }

    fn lost(&self, runtime: Id) {
        self.book().leave(runtime);
    }
}

/// The wait for the result of a settlement. When it is dropped, the book receives the result, or that it is lost: the
/// runtime ended, or the store panicked.
struct Following {
    keeper: Arc<SlotKeeper>,
    sent: Option<Sent>,
    known: Known,
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
            self.keeper.observer.lost(lost);
            self.keeper.pump();
        }
    }
}

/// Returns what a result says of the only change of a settlement.
fn known(result: Result<Vec<Applied>, Error>) -> Known {
    match result {
        Ok(applied) => Known::Made(applied.into_iter().next()),
        Err(error) if error.is_unsent() => Known::Unsent,
        Err(_) => Known::Lost,
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

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.release(&self.tickets);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl fmt::Debug for SlotKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotKeeper").field("held", &self.book().lots.held()).finish_non_exhaustive()
    }
}
