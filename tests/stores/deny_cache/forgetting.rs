//! Units given back, and resets.

use std::time::Duration;

use futures::FutureExt;
use tollgate::store::{Ask, Change, Check, MaybeFuture, Receipt, Settlement, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, MemoryStore, Quota, Source};

use super::rig::{MS, Rig};
use crate::support::checks::{check, counter};
use crate::support::time::{at, memory};

const QUOTA: Quota = Quota::token_bucket(2, Duration::from_secs(3_600));

fn done<T>(answer: MaybeFuture<Result<T, Error>>) {
    drop(answer.wait().now_or_never().expect("it is done at once").expect("memory does not fail"));
}

/// A rig whose inner store holds answers when it is told to.
type SlowRig = Rig<FailingStore<MemoryStore>>;

fn slow() -> SlowRig {
    let clock = ManualClock::new();
    let store = FailingStore::new(memory(&clock));
    Rig::around(clock, store, |settings| settings)
}

/// Asks, has it answered, and says whether it was allowed.
fn decided(rig: &SlowRig, check: Check) -> (bool, Option<Receipt>) {
    let held = rig.inner.hold();
    let deciding = rig.store.decide(&[check], Ask::default());
    held.release();
    let decided = deciding.wait().now_or_never().expect("it is released").expect("memory does not fail");
    (decided.decision.is_allowed(), Some(decided.receipt))
}

/// Whether the store is asked, which refuses or not.
#[track_caller]
fn asks(rig: &SlowRig, allowed: bool) {
    let before = rig.calls();
    assert_eq!(decided(rig, check("ada", QUOTA, 1)).0, allowed);
    assert_eq!(rig.calls(), before + 1);
}

#[test]
fn a_refusal_in_flight_during_a_refund_is_not_remembered() {
    type Refund = fn(&SlowRig, Option<Receipt>);
    let by_receipt: Refund = |rig, receipt| {
        drop(rig.store.settle(receipt.unwrap(), &[Settlement::new(0, Change::Refund(1))]));
    };
    let by_key: Refund = |rig, _| {
        let held = rig.inner.hold();
        let adjusting = rig.store.adjust(&counter("ada", QUOTA), Change::Refund(1));
        held.release();
        done(adjusting);
    };
    let reset: Refund = |rig, _| {
        let held = rig.inner.hold();
        let resetting = rig.store.adjust(&counter("ada", QUOTA), Change::Reset);
        held.release();
        done(resetting);
    };
    for refund in [by_receipt, by_key, reset] {
        let rig = slow();
        decided(&rig, check("ada", QUOTA, 1));
        let (_, receipt) = decided(&rig, check("ada", QUOTA, 1));
        let held = rig.inner.hold();
        let in_flight = rig.store.decide(&[check("ada", QUOTA, 1)], Ask::default());
        rig.inner.work();
        refund(&rig, receipt);
        held.release();
        let refused = in_flight.wait().now_or_never().expect("it is released").unwrap();
        assert!(!refused.decision.is_allowed());
        asks(&rig, true);
    }
}

#[test]
fn a_refusal_asked_for_while_a_change_is_under_way_is_not_remembered() {
    let rig = slow();
    for _ in 0..2 {
        decided(&rig, check("ada", QUOTA, 1));
    }
    let held = rig.inner.hold();
    let resetting = rig.store.adjust(&counter("other", QUOTA), Change::Reset);
    let adjusting = rig.store.adjust(&counter("ada", QUOTA), Change::Refund(0));
    asks(&rig, false);
    rig.clock.set(at(200 * MS));
    asks(&rig, false);
    held.release();
    done(resetting);
    done(adjusting);
    asks(&rig, false);
    rig.clock.set(at(300 * MS));
    asks(&rig, false);
    let before = rig.calls();
    assert!(!decided(&rig, check("ada", QUOTA, 1)).0);
    assert_eq!(rig.calls(), before, "nothing is under way any more");
}

#[test]
fn a_change_that_is_not_waited_for_forgets_too() {
    let rig = slow();
    for _ in 0..2 {
        decided(&rig, check("ada", QUOTA, 1));
    }
    let _held = rig.inner.hold();
    let adjusting = rig.store.adjust(&counter("ada", QUOTA), Change::Refund(0));
    asks(&rig, false);
    drop(adjusting);
    asks(&rig, false);
}

#[test]
fn a_refusal_asked_for_while_a_refund_may_be_on_its_way_is_not_remembered() {
    let rig = Rig::new();
    rig.exhaust("ada", QUOTA);
    let looked = rig.decided(&[check("ada", QUOTA, 0)]).receipt;
    let taken = looked.items().iter().cloned().map(|taken| taken.units(1));
    let foreign = Receipt::new(tollgate::store::StoreId::new(), taken);
    drop(rig.store.settle(foreign, &[Settlement::new(0, Change::Refund(1))]));
    let _ = rig.asks(&[check("ada", QUOTA, 1)]);
    rig.clock.set(at(100 * MS - 1));
    let _ = rig.asks(&[check("ada", QUOTA, 1)]);
    rig.clock.set(at(100 * MS));
    let _ = rig.asks(&[check("ada", QUOTA, 1)]);
    let _ = rig.remembers(&[check("ada", QUOTA, 1)]);
}

#[test]
fn a_refusal_counts_from_when_the_store_was_asked_and_its_wait_from_the_answer() {
    let rig = slow();
    for _ in 0..2 {
        decided(&rig, check("ada", QUOTA, 1));
    }
    let held = rig.inner.hold();
    let in_flight = rig.store.decide(&[check("ada", QUOTA, 1)], Ask::default());
    rig.clock.set(at(400 * MS));
    held.release();
    drop(in_flight.wait().now_or_never().expect("it is released").unwrap());
    rig.clock.set(at(1_000 * MS - 1));
    let MaybeFuture::Ready(Ok(told)) = rig.store.decide(&[check("ada", QUOTA, 1)], Ask::default()) else {
        panic!("it is remembered")
    };
    let left = (1_800_000 + 400) * MS - (1_000 * MS - 1);
    assert_eq!(told.decision.retry_after(), Some(Duration::from_micros(left)));
    rig.clock.set(at(1_000 * MS));
    asks(&rig, false);
}

#[test]
fn a_refusal_that_took_long_is_over_when_its_wait_is_counted_from_the_question() {
    const SHORT: Quota = Quota::token_bucket(2, Duration::from_secs(1));
    let rig = slow();
    for _ in 0..2 {
        decided(&rig, check("ada", SHORT, 1));
    }
    let held = rig.inner.hold();
    let in_flight = rig.store.decide(&[check("ada", SHORT, 1)], Ask::default());
    rig.clock.set(at(400 * MS));
    held.release();
    drop(in_flight.wait().now_or_never().expect("it is released").unwrap());
    rig.clock.set(at(500 * MS - 1));
    assert!(
        matches!(rig.store.decide(&[check("ada", SHORT, 1)], Ask::default()), MaybeFuture::Ready(_)),
        "it is remembered"
    );
    rig.clock.set(at(500 * MS));
    assert!(decided(&rig, check("ada", SHORT, 1)).0);
}

/// Invariant: no refusal that was decided before a refund is served after it.
#[test]
fn a_refusal_is_not_served_after_a_refund_that_was_made_while_the_clock_had_stepped_back() {
    let rig = Rig::new();
    rig.clock.set(at(10_000 * MS));
    rig.refuse("ada", QUOTA);
    rig.clock.set(at(5_000 * MS));
    done(rig.store.adjust(&counter("ada", QUOTA), Change::Refund(1)));
    rig.clock.set(at(10_050 * MS));
    assert!(rig.asks(&[check("ada", QUOTA, 1)]).is_allowed(), "the store has a unit");
}

#[test]
fn a_refund_that_is_waited_for_takes_effect_at_once_however_long_it_takes() {
    let rig = slow();
    let (_, receipt) = decided(&rig, check("ada", QUOTA, 2));
    let held = rig.inner.hold();
    let settling = rig.store.settle(receipt.expect("it was taken"), &[Settlement::new(0, Change::Refund(2))]);
    rig.inner.work();
    rig.clock.set(at(300 * MS));
    held.release();
    let applied = settling.wait().now_or_never().expect("it is released").expect("memory does not fail");
    assert_eq!(applied[0].units, 2);
    asks(&rig, true);
}

/// A receipt of a cached refusal.
#[test]
fn a_settlement_returns_the_result_of_each_change() {
    let rig = Rig::new();
    rig.refuse("ada", QUOTA);
    let refused = rig.decided(&[check("ada", QUOTA, 1)]);
    assert_eq!(refused.decision.source(), Source::DenyCache);
    let applied = rig.store.settle(refused.receipt, &[Settlement::new(0, Change::Refund(1))]);
    let applied = applied.wait().now_or_never().expect("at once").expect("memory does not fail");
    assert_eq!(applied.len(), 1, "the result of each");
}
