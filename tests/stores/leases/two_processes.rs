//! Two processes on one Redis, in real time.

use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::store::LeaseStore;
use tollgate::{Quota, RedisStore, Source};

use super::definition::assert_admits;
use super::sim::{Admitted, close, remaining, secs, take};
use crate::support::server::RedisServer;

async fn flood(store: LeaseStore, quota: Quota, until: Instant) -> (Admitted, u64) {
    let (mut admitted, mut locally) = (Vec::new(), 0);
    while Instant::now() < until {
        for _ in 0..fastrand::u64(..10) {
            let (allowed, source) = take(&store, "hot", quota, 1).await;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
            if allowed {
                admitted.push((u64::try_from(now.as_micros()).expect("it is before 2262"), 1));
                locally += u64::from(source == Source::Lease);
            }
        }
        sleep(Duration::from_millis(fastrand::u64(1..10))).await;
    }
    (admitted, locally)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_lease_from_one_redis_hold_the_limit_together() {
    let server = RedisServer::start();
    let counted = Quota::fixed_window(1_000_000, secs(30 * 86_400));
    for quota in [counted, Quota::token_bucket(1_000, secs(2)), Quota::sliding_log(1_000, secs(2))] {
        let connect = async || RedisStore::builder().timeout(secs(10)).connect(&server.url()).await.expect("it is up");
        let (inner, other) = (connect().await, connect().await);
        let stores = [inner.clone(), other].map(LeaseStore::new);
        let until = Instant::now() + secs(3);
        let floods = [0, 1, 0, 1].map(|store: usize| flood(stores[store].clone(), quota, until));
        let (mut admitted, mut locally) = (Vec::new(), 0);
        for (more, by_lease) in floods.into_iter().collect::<JoinSet<_>>().join_all().await {
            admitted.extend(more);
            locally += by_lease;
        }
        admitted.sort_unstable();
        println!("{quota}: {} admitted, {locally} locally", admitted.len());
        assert!(locally > 300, "{locally} of {}", admitted.len());
        // What Redis admits is noted here a little later, on a busy machine: 50 ms are for that.
        assert_admits(&quota, &admitted, Duration::from_millis(250), 0);
        for store in &stores {
            close(store).await;
        }
        if quota == counted {
            let used = quota.limit() - remaining(&inner, "hot", quota).await;
            assert_eq!(used, admitted.len() as u64, "what was charged is what was admitted");
        }
    }
}
