//! A tally whose shards are on several primaries.

use std::time::Duration;

use tollgate::RedisStore;
use tollgate_ratio::{CounterId, Offered, Report, Tally, Totals};

use super::moves::set_slot;
use super::rig::{Cluster, id};
use crate::stores::PATIENCE;

const TICK: Duration = Duration::from_secs(1);
const SHARDS: u8 = 4;

fn counter(first: u8) -> CounterId {
    CounterId::from_bytes([first; CounterId::LENGTH])
}

fn report(target: u64) -> Report {
    let counters = (0..20).map(|first| Offered::new(counter(first), u64::from(first) + 1, 1, 30));
    Report::new(TICK, target).shards(SHARDS).counters(counters)
}

/// Reports; `None` if a busy machine had no reply in a quarter of a tick.
async fn in_time(tally: &RedisStore, report: Report) -> Option<Totals> {
    match tally.report(report).await {
        Err(error) if error.is_timeout() => None,
        totals => Some(totals.expect("the Cluster is there")),
    }
}

/// Two processes report in one tick; returns what is read in the next, or `None` if the machine was too busy.
async fn counted(tally: &RedisStore) -> Option<(u64, Vec<Option<[u64; 2]>>, usize)> {
    let look = async || Some(in_time(tally, report(0).live(false).counters([])).await?.now);
    let wait = async || {
        let into = look().await?.subsec_micros();
        tokio::time::sleep(Duration::from_micros(1_005_000 - u64::from(into))).await;
        Some(())
    };
    wait().await?;
    let begin = look().await?.as_secs();
    for _ in 0..2 {
        drop(in_time(tally, report(begin)).await?);
    }
    let end = look().await?.as_secs();
    wait().await?;
    let totals = in_time(tally, report(0).live(false)).await?;
    (begin == end && totals.now.as_secs() == begin + 1).then_some((totals.live, totals.counters, totals.hot.len()))
}

async fn first_counted(tally: &RedisStore) -> (u64, Vec<Option<[u64; 2]>>, usize) {
    for _ in 0..30 {
        if let Some(counted) = counted(tally).await {
            return counted;
        }
    }
    panic!("the machine is too busy");
}

/// All but the first six are hot, as they were offered 15 units or more; what was reported before may be hot, too.
fn assert_both_counted((live, counters, hot): (u64, Vec<Option<[u64; 2]>>, usize)) {
    let expected: Vec<_> = (0..20).map(|first| Some([2 * (first + 1), 2])).collect();
    assert_eq!((live, counters), (2, expected));
    assert!(hot >= 14, "{hot}");
}

#[tokio::test]
async fn shards_on_several_primaries_are_one_tally_and_one_that_moved_is_found_again() {
    let cluster = Cluster::start();
    let tally = cluster.store(PATIENCE).await;
    assert_both_counted(first_counted(&tally).await);
    let places = cluster.primaries().iter().filter(|primary| !primary.keys().is_empty()).count();
    assert!(places > 1, "all shards are on one primary");
    cluster.primaries().iter().for_each(|primary| primary.assert_every_key_expires());
    let key = "tollgate:{ratio-1000000-4-0}:0";
    let slot: u16 = cluster.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]);
    let from = usize::from(slot) * 3 / 16_384;
    let to = (from + 1) % 3;
    // Its hashes expire.
    tokio::time::sleep(TICK * 5).await;
    for node in [to, from] {
        set_slot(&cluster.nodes[node], &slot.to_string(), &["NODE", &id(&cluster.nodes[to])]);
    }
    drop(tally.report(report(0)).await.expect("it is redirected"));
    assert_both_counted(first_counted(&tally).await);
}
