//! Settlements to a primary that does not answer.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::{Ask, Change, Receipt, Settlement, Store};
use tollgate::{Quota, RedisStore};
use tracing::Level;

use super::rig::{Cluster, FIFTY, PATIENCE, check_of, quota, remaining, take};
use crate::support::log::Log;

const AMPLE: Quota = quota(100_000);
/// More than are on their way to a server at most.
const SETTLEMENTS: usize = 4_200;
const SOON: Duration = Duration::from_secs(3);

async fn take_ample(store: &RedisStore, key: &str) -> Receipt {
    store.decide(&[check_of("many", key, AMPLE)], Ask::default()).wait().await.expect("the Cluster is whole").receipt
}

fn give_back(store: &RedisStore, receipt: Receipt) {
    drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]));
}

#[tokio::test]
async fn settlements_that_one_primary_holds_up_take_no_room_of_those_to_another_one() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let (own, other) = (cluster.key_on(1), cluster.key_on(0));
    let receipts = join_all((0..SETTLEMENTS).map(|_| take_ample(&store, &own))).await;
    let taken = take(&store, &other, 1).await.expect("the Cluster is whole").receipt;
    cluster.nodes[1].pause();
    for receipt in receipts.into_iter().chain([taken]) {
        give_back(&store, receipt);
    }
    let start = Instant::now();
    while remaining(&store, &other).await < FIFTY.capacity() && start.elapsed() < SOON {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(remaining(&store, &other).await, FIFTY.capacity());
    cluster.nodes[1].resume();
    let lines = log.lines("too many are on their way");
    assert!((1..=3).contains(&lines.len()), "one a second at most: {lines:?}");
}
