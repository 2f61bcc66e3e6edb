//! Flows of two processes over one Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Limiter, Quota, RedisStore, Rule};

use super::audit::flow_of;
use crate::support::server::RedisServer;
use crate::support::soon::soon;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_redis_pass_no_more_than_one_quota_and_make_no_call_per_chunk() {
    const RATE: u64 = 4_000_000;
    const CHUNK: u64 = 16_384;
    let redis = RedisServer::start();
    let (start, passed, mut all) = (Instant::now(), Arc::<AtomicU64>::default(), JoinSet::new());
    for _ in 0..2 {
        let store = RedisStore::builder().timeout(Duration::from_secs(5)).connect(&redis.url()).await;
        let rule = Rule::new("bytes", Quota::per_second(RATE));
        let limiter = Limiter::new(store.expect("the server was started"), [rule]);
        for _ in 0..4 {
            let (flow, passed) = (flow_of(&limiter).await, Arc::clone(&passed));
            all.spawn(async move {
                loop {
                    flow.acquire(CHUNK).await.expect("Redis decides");
                    passed.fetch_add(CHUNK, Ordering::SeqCst);
                }
            });
        }
    }
    // On a busy machine it takes longer than two seconds until so much has passed.
    soon(async {
        while passed.load(Ordering::SeqCst) < 3 * RATE {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let passed = passed.load(Ordering::SeqCst);
    // Measured after, so it is no less than what had passed.
    let elapsed = start.elapsed();
    let most = RATE + u64::try_from(elapsed.as_micros()).expect("short") * RATE / 1_000_000;
    assert!(passed <= most, "{passed} of {most}");
    let (calls, chunks) = (redis.scripts(), passed / CHUNK);
    let most = 40 + u64::try_from(elapsed.as_millis()).expect("short") / 50;
    assert!(calls <= most && calls * 5 <= chunks, "{calls} calls for {chunks} chunks in {elapsed:?}");
    all.shutdown().await;
}
