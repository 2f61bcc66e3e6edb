//! A tally whose shards are on several primaries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;
use tollgate::RedisStore;
use tollgate_ratio::{CounterId, Offered, Report, Tally, Totals};

use super::moves::set_slot;
use super::rig::{Cluster, id};
use crate::stores::PATIENCE;

const TICK: Duration = Duration::from_secs(1);
/// Into a tick, after which reports belong to it.
const LATER: Duration = Duration::from_millis(5);
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

/// Has two processes report in one tick, and checks what is read in the next one; again, if the machine was busy. All but
/// the first six counters are hot, as they were offered 15 units or more; what was reported before may be hot, too.
async fn assert_both_counted(tally: &RedisStore) {
    let expected: Vec<_> = (0..20).map(|first| Some([2 * (first + 1), 2])).collect();
    let mut read = None;
    for _ in 0..30 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
        let begin = now.as_secs() + 1;
        sleep((Duration::from_secs(begin) + LATER).saturating_sub(now)).await;
        let both = [in_time(tally, report(begin)).await, in_time(tally, report(begin)).await];
        sleep(TICK).await;
        read = in_time(tally, report(0).live(false)).await.filter(|_| both.iter().all(Option::is_some));
        if read.as_ref().is_some_and(|read| (read.live, &read.counters) == (2, &expected) && read.hot.len() >= 14) {
            return;
        }
    }
    panic!("{read:?}");
}

#[tokio::test]
async fn shards_on_several_primaries_are_one_tally_and_one_that_moved_is_found_again() {
    let cluster = Cluster::start();
    let tally = cluster.store(PATIENCE).await;
    assert_both_counted(&tally).await;
    let places = cluster.primaries().iter().filter(|primary| !primary.keys().is_empty()).count();
    assert!(places > 1, "all shards are on one primary");
    cluster.primaries().iter().for_each(|primary| primary.assert_every_key_expires());
    let key = "tollgate:{ratio-1000000-4-0}:0";
    let slot: u16 = cluster.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]);
    let from = usize::from(slot) * 3 / 16_384;
    let to = (from + 1) % 3;
    // Its hashes expire.
    sleep(TICK * 5).await;
    for node in [to, from] {
        set_slot(&cluster.nodes[node], &slot.to_string(), &["NODE", &id(&cluster.nodes[to])]);
    }
    drop(tally.report(report(0)).await.expect("it is redirected"));
    assert_both_counted(&tally).await;
}
