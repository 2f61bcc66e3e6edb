//! What would be left if only that had been taken which is still owed.

use std::time::Duration;

use tollgate::MemoryStore;
use tollgate::store::{Ask, Change, Check, Counter, MaybeFuture, Store, StoreDecision};

use super::recorder::Book;
use crate::support::clock::ManualClock;

/// Units that are left, and how long until all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    pub(crate) reset: Duration,
}

impl Left {
    pub(crate) fn of(decided: &StoreDecision) -> Self {
        let outcome = &decided.decision.outcomes()[0];
        Self { remaining: outcome.remaining(), reset: outcome.reset_after() }
    }
}

/// Takes what is owed once more, alone, and looks at what is left.
pub(crate) fn replay(book: &Book, now: u64) -> Left {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().capacity(1).clock(clock.reader()).build();
    for part in book.parts.iter().filter(|part| part.units > 0) {
        clock.set(part.at);
        if part.is_charge {
            let MaybeFuture::Ready(Ok(applied)) = store.adjust(&book.counter, Change::Charge(part.units)) else {
                panic!("memory answers")
            };
            assert_eq!(applied.units, part.units, "less is owed, so no charge is cut: {book:?}");
        } else {
            let taken = decide(&store, &book.counter, part.units);
            assert!(taken.decision.is_allowed(), "less is owed, so all is admitted: {book:?}");
        }
    }
    clock.set(now);
    Left::of(&decide(&store, &book.counter, 0))
}

fn decide(store: &MemoryStore, counter: &Counter, cost: u64) -> StoreDecision {
    let MaybeFuture::Ready(Ok(decided)) = store.decide(&[Check::new(counter.clone(), cost)], Ask::default()) else {
        panic!("memory answers")
    };
    decided
}
