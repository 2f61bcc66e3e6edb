//! Units given back, and resets.

use std::time::Duration;

use tollgate::store::{Ask, Change, Check, Receipt, Settlement, Store, StoreId};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Quota};

use super::rig::{MS, Rig, now};
use crate::support::checks::{check, counter};
use crate::support::time::{at, memory};

const QUOTA: Quota = Quota::token_bucket(2, Duration::from_secs(3_600));

fn ada() -> [Check; 1] {
    [check("ada", QUOTA, 1)]
}

/// A rig whose inner store holds answers when it is told to.
fn slow() -> Rig<FailingStore<MemoryStore>> {
    let clock = ManualClock::new();
    Rig::around(FailingStore::new(memory(&clock)), clock, |settings| settings)
}

#[test]
fn a_refusal_in_flight_during_a_refund_is_not_remembered() {
    for change in [None, Some(Change::Refund(1)), Some(Change::Reset)] {
        let rig = slow();
        let taken = rig.decided(&[check("ada", QUOTA, 2)]).receipt;
        let held = rig.inner.hold();
        let in_flight = rig.store.decide(&ada(), Ask::default()).wait();
        rig.inner.work();
        match change {
            None => drop(rig.store.settle(taken, &[Settlement::new(0, Change::Refund(1))])),
            Some(change) => drop(rig.store.adjust(&counter("ada", QUOTA), change)),
        }
        held.release();
        assert!(!now(in_flight).decision.is_allowed());
        assert!(rig.asks(&ada()).is_allowed(), "{change:?}");
    }
}

#[test]
fn a_refusal_asked_for_while_a_change_is_under_way_is_not_remembered() {
    for is_awaited in [true, false] {
        let rig = slow();
        rig.exhaust("ada", QUOTA);
        let held = rig.inner.hold();
        let adjusting = rig.store.adjust(&counter("ada", QUOTA), Change::Refund(0));
        rig.inner.work();
        let _ = rig.asks(&ada());
        if is_awaited {
            rig.clock.set(at(200 * MS));
            let _ = rig.asks(&ada());
            held.release();
            now(adjusting.wait());
        } else {
            drop(adjusting);
        }
        let _ = rig.asks(&ada());
        rig.clock.set(at(300 * MS));
        let _ = rig.asks(&ada());
        let _ = rig.remembers(&ada());
    }
}

#[test]
fn a_refusal_asked_for_while_a_refund_may_be_on_its_way_is_not_remembered() {
    let rig = Rig::new();
    rig.exhaust("ada", QUOTA);
    let looked = rig.decided(&[check("ada", QUOTA, 0)]).receipt;
    let foreign = Receipt::new(StoreId::new(), looked.items().iter().cloned().map(|taken| taken.units(1)));
    drop(rig.store.settle(foreign, &[Settlement::new(0, Change::Refund(1))]));
    for time in [0, 100 * MS - 1, 100 * MS] {
        rig.clock.set(at(time));
        let _ = rig.asks(&ada());
    }
    let _ = rig.remembers(&ada());
}

#[test]
fn a_refusal_counts_from_when_the_store_was_asked_and_its_wait_from_the_answer() {
    // By the cap, and by a wait of half a second.
    for (quota, until, wait) in [(QUOTA, 1_000, 1_800_000), (Quota::token_bucket(2, Duration::from_secs(1)), 500, 500)]
    {
        let (rig, request) = (slow(), [check("ada", quota, 1)]);
        rig.exhaust("ada", quota);
        let held = rig.inner.hold();
        let in_flight = rig.store.decide(&request, Ask::default()).wait();
        rig.clock.set(at(400 * MS));
        held.release();
        drop(now(in_flight));
        rig.clock.set(at(until * MS - 1));
        let left = (wait + 400 - until) * MS + 1;
        assert_eq!(rig.remembers(&request).retry_after(), Some(Duration::from_micros(left)));
        rig.clock.set(at(until * MS));
        assert_eq!(rig.asks(&request).is_allowed(), wait == until, "{quota}");
    }
}

/// Invariant: no refusal that was decided before a refund is served after it.
#[test]
fn a_refusal_is_served_neither_before_it_was_made_nor_after_a_refund_while_the_clock_had_stepped_back() {
    for is_refunded in [false, true] {
        let rig = Rig::new();
        rig.clock.set(at(10_000 * MS));
        rig.refuse("ada", QUOTA);
        rig.clock.set(at(5_000 * MS));
        if is_refunded {
            drop(rig.store.adjust(&counter("ada", QUOTA), Change::Refund(1)));
            rig.clock.set(at(10_050 * MS));
        }
        assert_eq!(rig.asks(&ada()).is_allowed(), is_refunded);
    }
}

#[test]
fn a_refund_that_is_waited_for_takes_effect_at_once_however_long_it_takes() {
    let rig = slow();
    let taken = rig.decided(&[check("ada", QUOTA, 2)]).receipt;
    let held = rig.inner.hold();
    let settling = rig.store.settle(taken, &[Settlement::new(0, Change::Refund(2))]);
    rig.inner.work();
    rig.clock.set(at(300 * MS));
    held.release();
    assert_eq!(now(settling.wait())[0].units, 2);
    assert!(rig.asks(&ada()).is_allowed());
}
