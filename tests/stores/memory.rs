//! The memory store under load: bounded, fair to the throttled, and exact between threads.

mod logged;
mod made_up;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
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

fn decide(store: &MemoryStore, checks: &[Check]) -> Decision {
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
fn a_throttled_key_is_not_evicted_while_active_ones_exist() {
    for capacity in [2, 64, 1_000, 5_000] {
        let (store, _) = store(capacity);
        throttle(&store, "throttled");
        flood(&store, "active", 3 * capacity + 100);
        assert!(!admits(&store, "throttled", TWO_A_SECOND), "forgotten in a store of {capacity}");
    }
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
fn a_throttled_key_is_not_evicted_while_idle_ones_exist() {
    let (store, clock) = store(64);
    flood(&store, "idle", 60);
    clock.set(at(MINUTE));
    for number in 0..64 {
        throttle(&store, &format!("throttled {number}"));
    }
    for number in 0..64 {
        assert!(!admits(&store, &format!("throttled {number}"), TWO_A_SECOND), "key {number} was forgotten");
    }
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

#[test]
fn threads_that_take_the_same_keys_in_opposite_order_neither_block_nor_overdraw() {
    static ADMITTED: AtomicUsize = AtomicUsize::new(0);
    let (store, _) = store(100_000);
    let (quota, (done, finished)) = (Quota::per_minute(500), mpsc::channel());
    for thread in 0..8 {
        let (store, done) = (store.clone(), done.clone());
        thread::spawn(move || {
            let mut checks = ["a", "b", "c", "d"].map(|key| check(key, quota, 1));
            if thread % 2 == 0 {
                checks.reverse();
            }
            for _ in 0..500 {
                ADMITTED.fetch_add(usize::from(decide(&store, &checks).is_allowed()), Ordering::Relaxed);
            }
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..8 {
        finished.recv_timeout(Duration::from_secs(30)).expect("every thread ends, and in time");
    }
    assert_eq!(ADMITTED.load(Ordering::Relaxed), 500);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(decide(&store, &[check(key, quota, 0)]).outcomes()[0].remaining(), 0, "{key}");
    }
}
