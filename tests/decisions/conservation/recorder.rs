//! A store around a store that writes down what it took, in the order in which it did.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::Error;
use tollgate::policy::Algorithm;
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, ReceiptItem, Settlement, Settling, Store,
    StoreDecision,
};

use crate::support::clock::ManualClock;
use crate::support::doubles::passes_on;

/// Units that the store took at once.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) at: u64,
    /// Whether they went past the limit, as a charge does.
    pub(crate) is_charge: bool,
    /// Units that were not given back.
    pub(crate) units: u64,
    stamp: u64,
    /// Whether the store has said how many.
    is_known: bool,
}

/// What was taken from one counter, in order.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    pub(crate) counter: Counter,
    pub(crate) parts: Vec<Part>,
    /// Time passed between taking and giving back, or others had come in between.
    pub(crate) is_late: bool,
}

/// Writes down what the inner store takes and is given back.
pub(crate) struct Recorder<S> {
    pub(crate) inner: S,
    clock: ManualClock,
    books: Arc<Mutex<HashMap<String, Book>>>,
    in_flight: Arc<AtomicUsize>,
    /// Charges so far; of every so many, 0 for none, the answer is lost.
    charges: AtomicU64,
    loses_each: AtomicU64,
}

impl<S: Store> Recorder<S> {
    pub(crate) fn new(inner: S, clock: ManualClock) -> Self {
        let (charges, loses_each) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inner, clock, books: Arc::default(), in_flight: Arc::default(), charges, loses_each }
    }

    /// Loses the answer to every n-th charge, or to none for 0.
    pub(crate) fn lose_each(&self, charge: u64) {
        self.loses_each.store(charge, Ordering::SeqCst);
    }

    fn loses(&self, made: &[Made]) -> bool {
        let is_charge = made.iter().any(|made| matches!(made.change, Change::Charge(_)));
        let number = self.charges.fetch_add(u64::from(is_charge), Ordering::SeqCst);
        is_charge && number.checked_rem(self.loses_each.load(Ordering::SeqCst)) == Some(0)
    }

    /// Questions whose answers are not there yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// What was written down since it was last asked.
    pub(crate) fn take_books(&self) -> Vec<Book> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, book)| book).collect()
    }

    fn notes(&self) -> Notes {
        Notes { clock: self.clock.clone(), books: Arc::clone(&self.books), in_flight: Arc::clone(&self.in_flight) }
    }
}

/// What a question on its way needs to be written down.
struct Notes {
    clock: ManualClock,
    books: Arc<Mutex<HashMap<String, Book>>>,
    in_flight: Arc<AtomicUsize>,
}

impl Notes {
    fn book<R>(&self, counter: &Counter, write: impl FnOnce(&mut Book) -> R) -> R {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Book { counter: counter.clone(), parts: Vec::new(), is_late: false };
        write(books.entry(format!("{:?}", counter.key())).or_insert_with(new))
    }

    /// Reserves a place for what the store may take now.
    fn begin(&self, counter: &Counter, is_charge: bool) -> usize {
        let at = self.clock.now();
        self.book(counter, |book| {
            book.parts.push(Part { at, is_charge, units: 0, stamp: 0, is_known: false });
            book.parts.len() - 1
        })
    }

    fn took(&self, counter: &Counter, place: usize, units: u64, stamp: u64) {
        self.book(counter, |book| {
            let part = &mut book.parts[place];
            (part.units, part.stamp, part.is_known) = (units, stamp, true);
        });
    }

    fn decided(&self, check: &Check, place: usize, decided: &Result<StoreDecision, Error>) {
        let taken = decided.as_ref().ok().and_then(|decided| decided.receipt.items().first());
        let (units, stamp) = taken.map_or((0, 0), |taken| (taken.units, taken.stamp));
        self.took(&check.counter, place, units, stamp);
    }

    /// Writes down that units of a stamp are given back; returns the place of the first of them.
    fn returns(&self, counter: &Counter, stamp: u64, units: u64) -> Option<usize> {
        let (now, mut rest, mut place) = (self.clock.now(), units, None);
        self.book(counter, |book| {
            for index in (0..book.parts.len()).rev() {
                let part = &mut book.parts[index];
                if rest == 0 || part.stamp != stamp || part.units == 0 {
                    continue;
                }
                let back = rest.min(part.units);
                (part.units, rest, place) = (part.units - back, rest - back, Some(index));
                let is_passed = |part: &Part| part.units > 0 || !part.is_known;
                let is_in_line = counter.quota().algorithm() == Algorithm::LeakyBucket;
                book.is_late |= book.parts[index].at != now;
                book.is_late |= is_in_line && book.parts[index + 1..].iter().any(is_passed);
            }
        });
        place.filter(|_| rest == 0)
    }

    /// Writes down that a change is made to what was taken.
    fn makes(&self, taken: &ReceiptItem, change: Change) -> Made {
        let place = match change {
            Change::Refund(units) => {
                assert!(units <= taken.units, "{units} units of {taken:?} are given back");
                let place = self.returns(&taken.counter, taken.stamp, units);
                place.unwrap_or_else(|| panic!("{units} units are given back that were not taken: {taken:?}"))
            }
            _ => self.begin(&taken.counter, true),
        };
        Made { change, place }
    }

    fn applied(&self, counter: &Counter, made: &[Made], applied: &Result<Vec<ChangeResult>, Error>) {
        for (made, applied) in made.iter().zip(applied.as_ref().map(Vec::as_slice).unwrap_or_default()) {
            match made.change {
                Change::Charge(_) => self.took(counter, made.place, applied.units, applied.stamp),
                _ => self.book(counter, |book| book.parts[made.place].stamp = applied.stamp),
            }
        }
    }
}

/// A change that is made, and the place of the part it is about.
struct Made {
    change: Change,
    place: usize,
}

fn lost() -> Error {
    Error::store("nobody answers", std::io::Error::other("gone"))
}

impl<S: Store> Store for Recorder<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let ([check], notes) = (checks, self.notes()) else { panic!("one policy each") };
        let check = check.clone();
        match self.inner.decide(checks, ask) {
            MaybeFuture::Ready(decided) => {
                notes.decided(&check, notes.begin(&check.counter, false), &decided);
                MaybeFuture::Ready(decided)
            }
            MaybeFuture::Pending(pending) => MaybeFuture::pending(async move {
                notes.in_flight.fetch_add(1, Ordering::SeqCst);
                // It goes on if its caller goes away: what it took stays taken.
                let deciding = tokio::spawn(async move {
                    // It joins the others when it is polled for the first time.
                    let place = notes.begin(&check.counter, false);
                    let decided = pending.await;
                    notes.decided(&check, place, &decided);
                    notes.in_flight.fetch_sub(1, Ordering::SeqCst);
                    decided
                });
                deciding.await.expect("it ends")
            }),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let Some(counter) = receipt.items().first().map(|taken| taken.counter.clone()) else {
            return self.inner.settle(receipt, changes);
        };
        let notes = self.notes();
        let each = changes.iter().map(|settlement| notes.makes(&receipt.items()[settlement.check], settlement.change));
        let made: Vec<Made> = each.collect();
        let loses = self.loses(&made);
        match self.inner.settle(receipt, changes) {
            MaybeFuture::Ready(applied) => {
                notes.applied(&counter, &made, &applied);
                MaybeFuture::Ready(if loses { Err(lost()) } else { applied })
            }
            MaybeFuture::Pending(pending) => {
                notes.in_flight.fetch_add(1, Ordering::SeqCst);
                let settling = tokio::spawn(async move {
                    let applied = pending.await;
                    notes.applied(&counter, &made, &applied);
                    notes.in_flight.fetch_sub(1, Ordering::SeqCst);
                    if loses { Err(lost()) } else { applied }
                });
                MaybeFuture::pending(async move { settling.await.expect("it ends") })
            }
        }
    }

    passes_on!(inner: adjust);
}
