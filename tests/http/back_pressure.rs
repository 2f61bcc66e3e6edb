//! Services that are ready once a limiter has admitted the next call, the same on each kind of store, in real time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate::store::Store;
use tollgate::{Key, Limiter, MemoryStore, Quota, RedisStore, Rule};
use tollgate_shed::BackPressureLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::server::RedisServer;

const SECOND: Duration = Duration::from_secs(1);

fn key() -> Key {
    Key::hashed("header x-job", "mail")
}

async fn left(limiter: &Limiter) -> u64 {
    limiter.peek(&key()).await.expect("the store decides").outcomes()[0].remaining()
}

async fn on_each_store(test: impl AsyncFn(&'static str, Arc<dyn Store>)) {
    test("memory", Arc::new(MemoryStore::new())).await;
    let server = RedisServer::start();
    let redis =
        RedisStore::builder().timeout(10 * SECOND).connect(&server.url()).await.expect("the server was started");
    test("Redis", Arc::new(redis)).await;
}

fn limiter(store: Arc<dyn Store>, name: &str, quota: Quota) -> Limiter {
    Limiter::new(store, [Rule::new(name, quota)])
}

/// Waits until the store has all that was sent to it.
async fn until_left(limiter: &Limiter, expected: u64, of: &str) {
    let all = async {
        while left(limiter).await != expected {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(10 * SECOND, all).await.unwrap_or_else(|_| panic!("{of}: {expected} are never left"));
}

#[tokio::test]
async fn jobs_begin_at_the_rate_of_the_quota() {
    on_each_store(async |name, store| {
        let layer = BackPressureLayer::new(limiter(store, "rate", Quota::per_second(50).burst(1)), key());
        let start = Instant::now();
        let workers = (0..4).map(|_| {
            let mut service = layer.layer(service_fn(async |(): ()| Ok::<_, Infallible>(())));
            tokio::spawn(async move {
                for _ in 0..5 {
                    service.ready().await.unwrap().call(()).await.unwrap();
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("it does not panic");
        }
        assert!(start.elapsed() >= Duration::from_millis(19 * 20 - 1), "{name}: {:?}", start.elapsed());
    })
    .await;
}

#[tokio::test]
async fn no_more_calls_are_in_progress_than_there_are_slots_and_all_are_made() {
    on_each_store(async |name, store| {
        let limiter = limiter(store, "slots", Quota::concurrency(3));
        let layer = BackPressureLayer::new(limiter.clone(), key());
        let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let workers = (0..10).map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let work = service_fn(move |(): ()| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // The first ones go on once all slots are taken, however slow the store is.
                    while most.load(Ordering::SeqCst) < 3 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    sleep(Duration::from_millis(5)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(())
                }
            });
            let mut service = layer.layer(work);
            tokio::spawn(async move {
                for _ in 0..5 {
                    service.ready().await.unwrap().call(()).await.unwrap();
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        let all = async {
            for worker in workers {
                worker.await.expect("it does not panic");
            }
        };
        // The slots of 50 calls in turn are free at once: without that each is a pause of a second.
        timeout(10 * SECOND, all).await.unwrap_or_else(|_| panic!("{name}: some wait for ever"));
        assert_eq!(most.load(Ordering::SeqCst), 3, "{name}");
        until_left(&limiter, 3, name).await;
    })
    .await;
}
