//! What is answered, until when, and with what.

use std::time::Duration;

use http::Request;
use tollgate::store::{Ask, AskMode, Change, Check, Counter, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitLayer, Source};
use tollgate_test::{StoreFn, send};

use super::rig::{EACH, MS, Rig, S};
use crate::support::checks::{check, counter};
use crate::support::doubles::unavailable;
use crate::support::time::at;

const HOURLY: Quota = Quota::token_bucket(2, Duration::from_secs(3_600));
const WIDE: Quota = Quota::fixed_window(100, Duration::from_secs(3_600));

#[tokio::test]
async fn a_flood_costs_the_store_one_call() {
    let wide = |name| Policy::new(name, WIDE);
    for others in [vec![], vec![wide("wide"), wide("wider")]] {
        let rig = Rig::new();
        let policies = others.into_iter().chain([Policy::new("policy", HOURLY)]);
        let layer = RateLimitLayer::composite(rig.store.clone()).policies(policies);
        let sent = send(&layer, 8, |_| Request::new(String::new())).await;
        let refused = sent.iter().filter(|response| response.status() == 429).count();
        assert_eq!((refused, rig.calls()), (6, 3));
    }
}

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
fn only_the_very_counter_is_refused_by_the_very_quota() {
    for quota in EACH {
        let rig = Rig::new();
        rig.refuse("ada", quota);
        let other = |limit| Quota::try_new(quota.algorithm(), limit, quota.window()).expect("within the bounds");
        assert!(!rig.asks(&[check("ada", other(1), 1)]).is_allowed(), "{quota}");
        let _ = rig.remembers(&[check("ada", quota, 1)]);
        assert_eq!(rig.asks(&[check("ada", other(2_000), 1)]).outcomes()[0].quota(), &other(2_000));
        assert!(rig.asks(&[check("bob", quota, 1)]).is_allowed());
        let of_policy = Counter::new("other".try_into().expect("a name"), counter("ada", quota).key().clone(), quota);
        assert!(rig.asks(&[Check::new(of_policy, 1)]).is_allowed());
    }
}

#[test]
fn only_what_the_store_itself_refused_is_remembered_and_no_error() {
    for (source, calls) in [(Source::Store, 1), (Source::Fallback, 3), (Source::Lease, 3), (Source::DenyCache, 3)] {
        let rig = Rig::around(StoreFn::new(|_| false).source(source), ManualClock::new(), |settings| settings);
        for _ in 0..3 {
            let _ = rig.decide(&[check("ada", HOURLY, 1)]);
        }
        assert_eq!((rig.calls(), rig.store.len()), (calls, usize::from(calls == 1)), "{source:?}");
    }
    let rig = Rig::around(unavailable(), ManualClock::new(), |settings| settings);
    drop(rig.store.decide(&[check("ada", HOURLY, 2)], Ask::default()));
    assert_eq!(rig.store.len(), 0);
}

#[test]
fn a_probe_asks_the_store_whatever_is_remembered_and_is_learnt_from() {
    let (rig, request) = (Rig::new(), [check("ada", HOURLY, 1)]);
    rig.refuse("ada", HOURLY);
    rig.clock.set(at(900 * MS));
    let _ = rig.remembers(&request);
    assert!(!rig.asks_by(&request, AskMode::Probe).is_allowed());
    rig.clock.set(at(1_800 * MS));
    let _ = rig.remembers(&request);
}

#[test]
fn keys_and_costs_that_are_made_up_push_out_no_refusal_until_it_is_over() {
    let rig = Rig::around(StoreFn::new(|_| false), ManualClock::new(), |settings| settings.capacity(100));
    let sliding = Quota::sliding_window(1_000_000, Duration::from_secs(60));
    let _ = rig.asks(&[check("ada", HOURLY, 1)]);
    for number in 1..2_000 {
        let _ = rig.decide(&[check("bob", sliding, number)]);
        let _ = rig.decide(&[check(&number.to_string(), HOURLY, 1)]);
    }
    assert!(rig.store.len() <= 100);
    rig.clock.set(at(S - 1));
    let _ = rig.remembers(&[check("ada", HOURLY, 1)]);
    rig.clock.set(at(S + 130 * MS));
    let _ = rig.asks(&[check("eve", HOURLY, 1)]);
    let _ = rig.remembers(&[check("eve", HOURLY, 1)]);
}

fn violated(decision: &Decision) -> usize {
    decision.outcomes().iter().filter(|outcome| !outcome.is_allowed()).count()
}

#[test]
fn one_check_known_to_be_refused_refuses_any_request_that_has_it() {
    let rig = Rig::new();
    let mut request: Vec<Check> = (0..127).map(|number| check(&number.to_string(), WIDE, 1)).collect();
    // Before, as units that are taken end refusals of keys that share a place with theirs.
    let _ = rig.asks(&request);
    rig.refuse("user", HOURLY);
    request.push(check("user", HOURLY, 1));
    let told = rig.remembers(&request);
    assert!(!told.outcomes()[127].is_allowed() && violated(&told) == 1, "only what is known to refuse is violated");
    assert_eq!(told.outcomes()[0].remaining(), 0, "of the others nothing is known");
}

#[cfg(feature = "calendar")]
#[test]
fn a_refusal_tells_of_the_calendar_s_window_it_is_in() {
    // The end of January 2024, which has 31 days, in microseconds since the clock's first; February has 29.
    const END: u64 = 14 * 86_400 * S;
    let monthly = tollgate::policy::Calendar::monthly("UTC").expect("it is always there");
    let monthly = check("bob", Quota::calendar_window(5, monthly), 1);
    // No wait ends the first; the second is refused by another policy.
    for request in [vec![monthly.clone().cost(6)], vec![monthly, check("ada", HOURLY, 1)]] {
        let rig = Rig::new();
        rig.clock.set(at(END - 100 * MS));
        rig.exhaust("ada", HOURLY);
        let days = |decision: &Decision| decision.outcomes()[0].window().as_secs() / 86_400;
        assert_eq!(days(&rig.asks(&request)), 31);
        rig.clock.set(at(END - 1));
        assert_eq!(days(&rig.remembers(&request)), 31);
        rig.clock.set(at(END));
        let decision = rig.asks(&request);
        assert_eq!((days(&decision), decision.outcomes()[0].remaining()), (29, 5));
    }
}
