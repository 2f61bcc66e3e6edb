//! The memory store under load: bounded, fair to the throttled, and exact between threads.

mod logged;
mod made_up;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::store::{Ask, Change, Check, Counter, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Key, MemoryStore, Quota};

use crate::support::checks::{check, counter};
use crate::support::time::at;

const TWO_A_MINUTE: Quota = Quota::token_bucket(2, Duration::from_secs(60));
/// Sooner idle than the keys of a flood: only being throttled can keep it.
const TWO_A_SECOND: Quota = Quota::token_bucket(2, Duration::from_secs(1));
const MINUTE: u64 = 60_000_000;

fn store(capacity: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::builder().capacity(capacity).clock(clock.clone()).build(), clock)
}

fn decide(store: &impl Store, checks: &[Check]) -> Decision {
    let MaybeFuture::Ready(decided) = store.decide(checks, Ask::default()) else { panic!("memory answers at once") };
    decided.expect("memory never fails").decision
}

fn admits(store: &MemoryStore, key: &str, quota: Quota) -> bool {
    decide(store, &[check(key, quota, 1)]).is_allowed()
}

/// Takes one unit of two with each of many keys, so that they are active and not throttled.
fn flood(store: &MemoryStore, name: &str, keys: usize) {
    for number in 0..keys {
        assert!(admits(store, &format!("{name} {number}"), TWO_A_MINUTE), "key {number} is new");
    }
}

fn throttle(store: &MemoryStore, key: &str) {
    assert!(admits(store, key, TWO_A_SECOND) && admits(store, key, TWO_A_SECOND), "{key} is new");
}

#[test]
fn no_number_of_keys_grows_the_store_beyond_its_capacity() {
    for capacity in [1, 2, 15, 100, 1_000, 5_000] {
        let (store, _) = store(capacity);
        for round in 0..10 {
            flood(&store, &format!("round {round}"), capacity / 3 + 10);
            (0..capacity / 3 + 10).for_each(|number| throttle(&store, &format!("throttled {round} {number}")));
            assert!(store.len() <= capacity, "{} keys in a store of {capacity}", store.len());
        }
        assert!(store.len() > capacity / 2, "only {} keys in a store of {capacity}", store.len());
    }
}

#[test]
fn a_request_of_more_keys_than_the_store_holds_is_decided_all_the_same() {
    let (store, _) = store(1);
    let checks = ["a", "b", "c"].map(|key| check(key, TWO_A_MINUTE, 1));
    assert!(decide(&store, &checks).is_allowed());
    assert_eq!(store.len(), 1);
}

#[test]
fn a_key_refused_for_its_cost_or_in_debt_is_not_evicted_while_active_ones_exist() {
    let (store, _) = store(64);
    assert!(admits(&store, "refused", TWO_A_SECOND));
    assert!(!decide(&store, &[check("refused", TWO_A_SECOND, 2)]).is_allowed());
    let charged = store.adjust(&counter("in debt", TWO_A_SECOND), Change::Charge(2));
    assert!(matches!(&charged, MaybeFuture::Ready(Ok(applied)) if applied.units == 2), "{charged:?}");
    flood(&store, "active", 500);
    assert!(!decide(&store, &[check("refused", TWO_A_SECOND, 2)]).is_allowed(), "forgotten");
    assert!(!admits(&store, "in debt", TWO_A_SECOND), "forgotten");
}

#[test]
fn idle_keys_go_as_time_passes_and_others_come() {
    let (store, clock) = store(2_000);
    for minute in 0..50 {
        clock.set(at(minute * MINUTE));
        flood(&store, &format!("minute {minute}"), 200);
        assert!(store.len() <= 1_000, "{} keys after minute {minute}", store.len());
    }
}

#[test]
fn looks_refusals_and_empty_refunds_keep_no_key() {
    let (store, _) = store(100);
    assert!(decide(&store, &[check("look", TWO_A_MINUTE, 0)]).is_allowed());
    assert!(!decide(&store, &[check("refused", TWO_A_MINUTE, 3)]).is_allowed());
    let refunded = store.adjust(&counter("refund", TWO_A_MINUTE), Change::Refund(1));
    assert!(matches!(&refunded, MaybeFuture::Ready(Ok(applied)) if applied.units == 0), "{refunded:?}");
    assert!(store.is_empty(), "{} keys", store.len());
    assert!(admits(&store, "one", TWO_A_MINUTE) && !store.is_empty());
}

#[test]
fn counters_whose_texts_join_to_the_same_do_not_count_together() {
    let (store, _) = store(100);
    let named = |policy: &str, key: &str| {
        let counter = Counter::new(policy.try_into().expect("a valid name"), Key::new("key", key), TWO_A_MINUTE);
        decide(&store, &[Check::new(counter, 2)]).is_allowed()
    };
    for (policy, key) in [("p", "ab"), ("bp", "a"), ("p", "abp"), ("pp", "ab"), ("b", "abp"), ("abp", "")] {
        assert!(named(policy, key), "{policy} of {key} is new");
        assert!(!named(policy, key), "{policy} of {key} was forgotten");
    }
}

/// Has eight threads take units of the same keys, half of them in the opposite order; returns how many requests were
/// admitted.
pub(crate) fn opposed<const KEYS: usize>(store: &impl Store, keys: [&str; KEYS], quota: Quota, times: usize) -> usize {
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (mut checks, admitted) = (keys.map(|key| check(key, quota, 1)), &admitted);
            if thread % 2 == 0 {
                checks.reverse();
            }
            scope.spawn(move || {
                for _ in 0..times {
                    admitted.fetch_add(usize::from(decide(store, &checks).is_allowed()), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn threads_that_take_the_same_keys_in_opposite_order_neither_block_nor_overdraw() {
    let ((store, _), quota, keys) = (store(100_000), Quota::per_minute(500), ["a", "b", "c", "d"]);
    assert_eq!(opposed(&store, keys, quota, 500), 500);
    for key in keys {
        assert_eq!(decide(&store, &[check(key, quota, 0)]).outcomes()[0].remaining(), 0, "{key}");
    }
}
