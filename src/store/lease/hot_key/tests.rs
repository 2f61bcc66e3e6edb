use super::*;
use crate::core::Key;
use crate::{
    MemoryStore,
    store::{Ask, Check, MaybeFuture, Store},
};

const QUOTA: Quota = Quota::token_bucket(600, Duration::from_secs(60));

/// A lease of 50 units, requested at 1 s and granted at 1.4 s.
fn lot(store: &MemoryStore, quota: Quota) -> Lot {
    let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), quota);
    let MaybeFuture::Ready(decided) = store.decide(&[Check::new(counter, 50)], Ask::default()) else {
        panic!("memory decides at once")
    };
    Lot::new(decided.expect("memory decides"), 1_000_000, None, 1_400_000).0
}

#[test]
fn a_lease_lives_from_when_it_was_asked_for() {
    let lot = lot(&MemoryStore::new(), QUOTA);
    assert!(lot.covers(50, 1_999_999) && !lot.covers(51, 1_999_999));
    assert!(!lot.covers(1, 2_000_000), "a second after it was requested, not after it was granted");
}

#[test]
fn a_bucket_gets_back_what_it_did_not_refill_meanwhile_and_a_log_gets_all() {
    let store = MemoryStore::new();
    // Ten units a second: over half a second, and again the 0.4 s until the refund will have arrived.
    assert_eq!(lot(&store, QUOTA).refund(600, 1_500_000), 50 - 9);
    let log = Quota::sliding_log(600, Duration::from_secs(60));
    assert_eq!(lot(&store, log).refund(600, 1_500_000), 50);
}
