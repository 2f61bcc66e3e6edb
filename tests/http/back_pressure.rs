//! Services that are ready once a limiter on Redis has admitted the next call, in real time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tollgate::{Key, Limiter, Quota, RedisStore, Rule};
use tollgate_shed::BackPressureLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::server::RedisServer;
use crate::support::soon::soon;

#[tokio::test]
async fn no_more_calls_are_in_progress_than_there_are_slots_and_all_are_made() {
    let server = RedisServer::start();
    let settings = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    let (limiter, key) = (Limiter::new(store, [Rule::new("slots", Quota::concurrency(3))]), Key::new("job", "mail"));
    let layer = BackPressureLayer::new(limiter.clone(), key.clone());
    let counts = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let workers = (0..10).map(|_| {
        let counts = Arc::clone(&counts);
        let mut service = layer.layer(service_fn(move |(): ()| {
            let counts = Arc::clone(&counts);
            async move {
                let (running, most) = &*counts;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The first ones go on once all slots are taken, however slow the store is.
                while most.load(Ordering::SeqCst) < 3 {
                    sleep(Duration::from_millis(1)).await;
                }
                sleep(Duration::from_millis(5)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(())
            }
        }));
        tokio::spawn(async move {
            for _ in 0..5 {
                service.ready().await.unwrap().call(()).await.unwrap();
            }
        })
    });
    // The slots of 50 calls in turn are free at once: without that each is a pause of a second.
    let all = timeout(Duration::from_secs(10), join_all(workers)).await.expect("some wait for ever");
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(counts.1.load(Ordering::SeqCst), 3);
    soon(async {
        while limiter.peek(&key).await.expect("the store decides").outcomes()[0].remaining() != 3 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
