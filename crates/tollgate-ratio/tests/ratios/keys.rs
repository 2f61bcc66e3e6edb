//! Many keys: which are reported, and what becomes of the others.

use std::collections::HashSet;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate::store::Check;
use tollgate_ratio::{CounterId, RatioStore};

use super::{Fleet, LIMIT, Switch, TICK, admits, all, counter, offered};

fn of_key(key: &str, limit: u64) -> Check {
    Check::new(counter("key", key, Quota::per_second(limit)), 1)
}

#[tokio::test]
async fn a_new_process_knows_hot_keys_before_its_first_request() {
    let fleet = Fleet::new(2);
    fleet.load(1_000, 5).await;
    let new = fleet.tally.store(9).build();
    sleep(TICK / 50).await;
    assert_eq!(new.live(), Some(2));
    let admitted: u64 = (0..200).map(|_| admits(&new, &[Check::new(all(), 1)])).sum();
    assert!((30..=50).contains(&admitted), "{admitted} of 200 at a ratio of 0.8");
}

/// Offers each key 500 units a second, in two processes; returns what is admitted in ten seconds.
async fn of_each_key<const N: usize>(stores: &[RatioStore; 2], keys: &[Check; N]) -> [u64; N] {
    let five = |key: &Check, store| (0..5).map(|_| admits(store, std::slice::from_ref(key))).sum::<u64>();
    offered(5..15, |_| keys.each_ref().map(|key| stores.iter().map(|store| five(key, store)).sum())).await
}

#[tokio::test]
async fn keys_that_no_report_has_room_for_are_limited_by_shares_and_shards_divide_keys_and_not_limits() {
    let tally = Switch::new();
    let stores = [1, 2].map(|seed| tally.store(seed).report(1).build());
    let admitted = of_each_key(&stores, &["a", "b", "c"].map(|key| of_key(key, 100))).await;
    assert!(tally.reports().iter().all(|report| report.counters.len() <= 1));
    assert!(admitted.iter().all(|units| units.abs_diff(1_000) <= 200), "10 s of 100 each: {admitted:?}");

    let tally = Switch::new();
    let stores = [1, 2].map(|seed| tally.store(seed).shards(4).build());
    let keys = ["0", "1", "2", "3", "4", "5", "6", "7"].map(|key| of_key(key, 100));
    let admitted = of_each_key(&stores, &keys).await;
    let shards: HashSet<u8> = keys.iter().map(|key| CounterId::new(&key.counter).shard(4)).collect();
    assert!(shards.len() > 1 && admitted.iter().all(|units| units.abs_diff(1_000) <= 100), "{shards:?}: {admitted:?}");
}

#[tokio::test]
async fn made_up_keys_take_neither_memory_nor_reports() {
    let tally = Switch::new();
    let instances = 5.try_into().expect("not 0");
    let store = tally.store(1).capacity(1_000).instances(instances).build();
    for key in 0..50_000 {
        assert_eq!(admits(&store, &[of_key(&key.to_string(), 10)]), 1);
        if key % 5_000 == 0 {
            sleep(TICK / 2).await;
        }
    }
    // One that had a place would be admitted up to the whole limit.
    let admitted: u64 = (0..10).map(|_| admits(&store, &[of_key("new", 10)])).sum();
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
            let check = of_key(&format!("{round}-{place}"), 1_000);
            ids.insert(CounterId::new(&check.counter));
            assert_eq!(admits(store, &[check]), 1);
        }
        sleep(TICK).await;
    }
    // From the third round on; one unit is a tenth of the threshold of 1,000 / (2 × 50).
    let late = tally.reports().into_iter().skip(200).flat_map(|report| report.counters);
    let sent: HashSet<_> = late.map(|offered| offered.id).collect();
    assert!(sent.len() * 4 < ids.len(), "{} of {}", sent.len(), ids.len());
}

#[tokio::test]
async fn made_up_keys_keep_no_hot_key_out_of_a_small_store() {
    for (capacity, processes) in [(4, 2), (64, 2), (64, 4)] {
        let tally = Switch::new();
        let stores: Vec<_> = (0..processes).map(|seed| tally.store(seed).capacity(capacity).build()).collect();
        let (hot, mut made_up) = (Check::new(all(), 1), 0);
        let [admitted] = offered(10..20, |step| {
            let mut admitted = 0;
            for request in 0..20 {
                for (process, store) in stores.iter().enumerate() {
                    // The first one has a place for the hot key in any case.
                    if process > 0 {
                        made_up = (made_up + 1) % 500;
                        admits(store, &[of_key(&made_up.to_string(), 100)]);
                    }
                    // It comes when no place is free.
                    if step >= 50 && request < 16 {
                        admitted += admits(store, std::slice::from_ref(&hot));
                    }
                }
            }
            [admitted]
        })
        .await;
        let is_right = admitted.abs_diff(10 * LIMIT) <= LIMIT / 2;
        assert!(is_right, "{admitted} in 10 s: {capacity} places, {processes} processes");
    }
}
