//! Many keys: which are reported, and what becomes of the others.

use std::collections::HashSet;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate::store::Check;
use tollgate_ratio::CounterId;

use super::{LIMIT, Steps, Switch, TICK, all, counter, decide, load};

#[tokio::test]
async fn a_new_process_knows_hot_keys_before_its_first_request() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    load(&stores, &Check::new(all(), 1), 1_000, 5).await;
    let new = tally.store(9).build();
    sleep(TICK / 50).await;
    assert_eq!(new.live(), Some(2));
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += u32::from(decide(&new, &[Check::new(all(), 1)]).is_allowed());
    }
    assert!((30..=50).contains(&admitted), "{admitted} of 200 at a ratio of 0.8");
}

#[tokio::test]
async fn keys_that_no_report_has_room_for_are_limited_by_shares() {
    let tally = Switch::new();
    let build = |seed| tally.store(seed).report(1).build();
    let stores = [build(1), build(2)];
    let keys = ["a", "b", "c"].map(|key| Check::new(counter("key", key, Quota::per_second(100)), 1));
    let mut admitted = [0_u64; 3];
    let mut steps = Steps::new();
    for step in 0..15 * 50 {
        for store in &stores {
            for (key, admitted) in keys.iter().zip(&mut admitted) {
                for _ in 0..5 {
                    let is_allowed = decide(store, std::slice::from_ref(key)).is_allowed();
                    *admitted += u64::from(is_allowed && step >= 5 * 50);
                }
            }
        }
        steps.next().await;
    }
    assert!(tally.reports().iter().all(|report| report.counters.len() <= 1));
    assert!(admitted.iter().all(|units| units.abs_diff(1_000) <= 200), "10 s of 100 each: {admitted:?}");
}

#[tokio::test]
async fn made_up_keys_take_neither_memory_nor_reports() {
    let tally = Switch::new();
    let instances = 5.try_into().expect("not 0");
    let store = tally.store(1).capacity(1_000).instances(instances).build();
    for key in 0..50_000 {
        let check = Check::new(counter("key", &key.to_string(), Quota::per_second(10)), 1);
        assert!(decide(&store, &[check]).is_allowed());
        if key % 5_000 == 0 {
            sleep(TICK / 2).await;
        }
    }
    // One that had a place would be admitted up to the whole limit.
    let check = Check::new(counter("key", "new", Quota::per_second(10)), 1);
    let admitted = (0..10).filter(|_| decide(&store, std::slice::from_ref(&check)).is_allowed()).count();
    assert_eq!((store.live(), admitted), (Some(1), 2), "there is no place left: its share");
    sleep(3 * TICK).await;
    assert!(tally.reports().iter().all(|report| report.counters.len() <= 256));
    assert!(tally.reports().iter().any(|report| report.counters.len() == 256));
}

#[tokio::test]
async fn most_keys_of_a_large_fleet_are_never_reported() {
    let tally = Switch::new();
    let stores = tally.stores(50);
    let mut ids = HashSet::new();
    for round in 0..8_u64 {
        for (place, store) in stores.iter().enumerate() {
            let key = format!("{round}-{place}");
            let check = Check::new(counter("key", &key, Quota::per_second(1_000)), 1);
            ids.insert(CounterId::new(&check.counter));
            assert!(decide(store, &[check]).is_allowed());
        }
        sleep(TICK).await;
    }
    // From the third round on; one unit is a tenth of the threshold of 1,000 / (2 × 50).
    let late = tally.reports().into_iter().skip(200).flat_map(|report| report.counters);
    let sent: HashSet<_> = late.map(|offered| offered.id).collect();
    assert!(sent.len() * 4 < ids.len(), "{} of {}", sent.len(), ids.len());
}

#[tokio::test]
async fn shards_divide_keys_and_not_limits() {
    let tally = Switch::new();
    let stores = [1, 2].map(|seed| tally.store(seed).shards(4).build());
    let keys: Vec<_> =
        (0..8).map(|key| Check::new(counter("key", &key.to_string(), Quota::per_second(100)), 1)).collect();
    let (mut admitted, mut steps) = ([0_u64; 8], Steps::new());
    for step in 0..14 * 50 {
        for store in &stores {
            for (key, admitted) in keys.iter().zip(&mut admitted) {
                for _ in 0..5 {
                    let is_allowed = decide(store, std::slice::from_ref(key)).is_allowed();
                    *admitted += u64::from(is_allowed && step >= 4 * 50);
                }
            }
        }
        steps.next().await;
    }
    let shards: HashSet<u8> = keys.iter().map(|key| CounterId::new(&key.counter).shard(4)).collect();
    assert!(shards.len() > 1 && admitted.iter().all(|units| units.abs_diff(1_000) <= 100), "{shards:?}: {admitted:?}");
}

#[tokio::test]
async fn made_up_keys_keep_no_hot_key_out_of_a_small_store() {
    for (capacity, processes) in [(4, 2), (64, 2), (64, 4)] {
        let tally = Switch::new();
        let build = |seed| tally.store(seed).capacity(capacity).build();
        let stores: Vec<_> = (0..processes).map(build).collect();
        let (hot, mut admitted, mut made_up, mut steps) = (Check::new(all(), 1), 0, 0, Steps::new());
        for step in 0..20 * 50 {
            for request in 0..20 {
                for (process, store) in stores.iter().enumerate() {
                    // The first one has a place for the hot key in any case.
                    if process > 0 {
                        made_up = (made_up + 1) % 500;
                        let key = counter("key", &made_up.to_string(), Quota::per_second(100));
                        let _ = decide(store, &[Check::new(key, 1)]);
                    }
                    // It comes when no place is free.
                    let comes = step >= 50 && request < 16;
                    let is_allowed = comes && decide(store, std::slice::from_ref(&hot)).is_allowed();
                    admitted += u64::from(is_allowed && step >= 10 * 50);
                }
            }
            steps.next().await;
        }
        assert!(
            admitted.abs_diff(10 * LIMIT) <= LIMIT / 2,
            "{admitted} in 10 s: {capacity} places, {processes} processes"
        );
    }
}
