//! One check: what is answered, until when, and with what.

use std::time::Duration;

use tollgate::store::{Ask, Change, Counter, MaybeFuture, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, Source};
use tollgate_test::StoreFn;

use super::rig::{EACH, MS, Rig, S};
use crate::support::checks::check;
use crate::support::doubles::unavailable;
use crate::support::time::at;

const HOURLY: Quota = Quota::token_bucket(4, Duration::from_secs(3_600));

#[test]
fn a_refusal_is_answered_to_its_last_microsecond_and_then_the_store_is_asked() {
    for quota in EACH {
        let rig = Rig::new();
        rig.refuse("ada", quota);
        let wait = rig.plain(&[check("ada", quota, 1)]).retry_after().expect("a wait helps");
        let wait = u64::try_from(wait.as_micros()).expect("it is short");
        for passed in [0, 1, wait / 2, wait - 1] {
            rig.clock.set(at(passed));
            let told = rig.remembers(&[check("ada", quota, 1)]);
            assert_eq!(told.retry_after(), Some(Duration::from_micros(wait - passed)), "{quota}");
            assert_eq!(told.outcomes()[0], rig.plain(&[check("ada", quota, 1)]).outcomes()[0], "{quota}");
        }
        rig.clock.set(at(wait));
        assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed(), "{quota}: waiting so long is enough");
    }
}

#[test]
fn a_refusal_in_the_middle_of_a_tick_is_over_with_the_tick_it_fits_in() {
    let (rig, quota) = (Rig::new(), Quota::token_bucket(6_100, Duration::from_secs(61)).burst(1));
    rig.clock.set(at(900));
    rig.refuse("ada", quota);
    rig.clock.set(at(9 * MS + 900));
    let _ = rig.remembers(&[check("ada", quota, 1)]);
    rig.clock.set(at(10 * MS));
    assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed());
}

#[test]
fn a_refusal_of_slots_is_not_remembered_as_one_may_be_free_at_any_moment() {
    let (rig, slots) = (Rig::new(), Quota::concurrency(2));
    let taken = rig.decided(&[check("ada", slots, 2)]);
    for cost in [1, 1, 2, 3, 0, 3] {
        assert_eq!(rig.asks(&[check("ada", slots, cost)]).is_allowed(), cost == 0);
    }
    drop(rig.store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(2))]));
    assert!(rig.asks(&[check("ada", slots, 1)]).is_allowed());
}

#[test]
fn a_much_larger_cost_is_not_refused_for_too_short() {
    let (trillion, year) = (1_000_000_000_000, Duration::from_secs(366 * 86_400));
    for quota in [Quota::token_bucket(trillion, year), Quota::token_bucket(trillion, Duration::from_secs(60))] {
        let rig = Rig::new();
        assert!(rig.decide(&[check("ada", quota, trillion)], Ask::default()).is_allowed());
        let _ = rig.asks(&[check("ada", quota, 1)]);
        for cost in [2, 1_000, trillion / 3, trillion - 1, trillion] {
            let request = [check("ada", quota, cost)];
            let (told, real) = (rig.remembers(&request).retry_after(), rig.plain(&request).retry_after());
            let (told, real) = (told.expect("a wait helps"), real.expect("a wait helps"));
            let tick = if quota.window() == year { Duration::from_millis(1) } else { Duration::from_micros(1) };
            assert!(told >= real && told <= real + tick, "{quota}, cost {cost}: {told:?} for {real:?}");
        }
    }
}

#[test]
fn what_can_never_fit_is_remembered_for_the_cap_and_tells_no_wait() {
    for quota in EACH {
        let rig = Rig::new();
        let (never, longer) = ([check("ada", quota, 5)], [check("ada", quota, u64::MAX)]);
        let _ = rig.asks(&never);
        assert_eq!(rig.remembers(&never).retry_after(), None, "{quota}");
        assert_eq!(rig.remembers(&longer).retry_after(), None, "{quota}");
        assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed(), "{quota}");
        rig.clock.set(at(S));
        let _ = rig.asks(&never);
    }
}

#[test]
fn a_changed_quota_is_asked_of_the_store() {
    for quota in EACH {
        let rig = Rig::new();
        rig.refuse("ada", quota);
        let other = |limit| Quota::try_new(quota.algorithm(), limit, quota.window()).unwrap();
        assert!(!rig.asks(&[check("ada", other(1), 1)]).is_allowed(), "{quota}");
        let _ = rig.remembers(&[check("ada", quota, 1)]);
        let more = other(1_000_000 / 500);
        assert_eq!(rig.asks(&[check("ada", more, 1)]).outcomes()[0].quota(), &more);
    }
}

#[test]
fn other_keys_and_other_policies_are_asked_of_the_store() {
    let rig = Rig::new();
    rig.refuse("ada", HOURLY);
    assert!(rig.asks(&[check("bob", HOURLY, 1)]).is_allowed());
    let mut other = check("ada", HOURLY, 1);
    other.counter =
        Counter::new("other".try_into().expect("a valid name"), other.counter.key().clone(), *other.counter.quota());
    assert!(rig.asks(&[other]).is_allowed());
}

#[test]
fn a_clock_that_steps_back_ends_what_was_known_later() {
    let rig = Rig::new();
    rig.clock.set(at(10 * S));
    rig.refuse("ada", HOURLY);
    rig.clock.set(at(9 * S));
    let _ = rig.asks(&[check("ada", HOURLY, 1)]);
}

#[test]
fn it_counts_what_it_answers() {
    let rig = Rig::new();
    rig.refuse("ada", HOURLY);
    assert_eq!((rig.store.denied_from_cache(), rig.store.len()), (0, 1));
    for _ in 0..7 {
        let _ = rig.remembers(&[check("ada", HOURLY, 1)]);
    }
    assert_eq!((rig.store.denied_from_cache(), rig.store.len()), (7, 1));
}

#[test]
fn only_what_the_store_itself_refused_is_remembered() {
    for (source, calls) in [(Source::Store, 1), (Source::Fallback, 3), (Source::Lease, 3), (Source::DenyCache, 3)] {
        let rig = Rig::around(ManualClock::new(), StoreFn::new(|_| false).source(source), |settings| settings);
        for _ in 0..3 {
            let _ = rig.decide(&[check("ada", HOURLY, 1)], Ask::default());
        }
        assert_eq!(rig.calls(), calls, "{source:?}");
    }
}

#[test]
fn an_error_is_not_remembered() {
    let rig = Rig::around(ManualClock::new(), unavailable(), |settings| settings);
    for calls in 1..4 {
        let MaybeFuture::Ready(failed) = rig.store.decide(&[check("ada", HOURLY, 2)], Ask::default()) else {
            panic!("it answers at once")
        };
        assert!(failed.is_err());
        assert_eq!((rig.calls(), rig.store.len()), (calls, 0));
    }
}
