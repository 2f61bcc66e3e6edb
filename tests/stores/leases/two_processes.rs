//! Two processes on one Redis, in real time.

use std::time::{Duration, SystemTime};

use tollgate::store::LeaseStore;
use tollgate::{Quota, RedisStore, Source};

use super::definition::assert_admits;
use super::sim::{Admitted, secs, take};
use crate::support::server::RedisServer;

async fn flood(store: LeaseStore, quota: Quota, until: tokio::time::Instant) -> (Admitted, u64) {
    let (mut admitted, mut locally) = (Vec::new(), 0);
    while tokio::time::Instant::now() < until {
        for _ in 0..fastrand::u64(..20) {
            let (allowed, source) = take(&store, "hot", quota, 1).await;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
            if allowed {
                admitted.push((u64::try_from(now.as_micros()).expect("it is before 2262"), 1));
                locally += u64::from(source == Source::Lease);
            }
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..10))).await;
    }
    (admitted, locally)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_lease_from_one_redis_hold_the_limit_together() {
    let server = RedisServer::start();
    for quota in [Quota::token_bucket(1_000, secs(2)), Quota::sliding_log(1_000, secs(2))] {
        let until = tokio::time::Instant::now() + secs(3);
        let stores = [(); 2].map(|()| RedisStore::builder().timeout(secs(10)).connect(server.url().leak()));
        let [one, other] = stores;
        let (one, other) = (LeaseStore::new(one.await.unwrap()), LeaseStore::new(other.await.unwrap()));
        let flooding = [one.clone(), other.clone()].map(|store| tokio::spawn(flood(store, quota, until)));
        let (mut admitted, mut locally) = (Vec::new(), 0);
        for flooded in flooding {
            let (more, by_lease) = flooded.await.expect("no process fails");
            admitted.extend(more);
            locally += by_lease;
        }
        admitted.sort_unstable();
        println!("{quota}: {} admitted, {locally} locally", admitted.len());
        assert!(locally > 300, "{locally} of {}", admitted.len());
        // What Redis admits is noted here a little later, on a busy machine: 50 ms are for that.
        assert_admits(&quota, &admitted, Duration::from_millis(250), 0);
        one.close().await;
        other.close().await;
        assert_eq!((one.counts().held(), other.counts().held()), (0, 0));
    }
}
