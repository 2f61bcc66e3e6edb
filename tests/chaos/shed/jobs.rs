//! Workers that take a job whenever their service is ready.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Key, Limiter, Quota, RedisStore, Rule};
use tollgate_shed::BackPressureLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::app::{INSTANCES, LIFE};

/// Jobs at once.
pub(super) const SLOTS: Quota = Quota::concurrency(4).slot_ttl(LIFE);
const WORKERS: usize = 8;
const TAKES: Duration = Duration::from_millis(20);
/// A worker looks so often whether it is to stop.
const LOOKS: Duration = Duration::from_millis(500);

/// What the workers did.
pub(super) struct Jobs {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stops: AtomicBool,
    begun: AtomicU64,
    done: Mutex<Vec<Instant>>,
}

/// How many jobs began, and when each ended.
pub(super) struct Seen {
    pub(super) begun: u64,
    pub(super) done: Vec<Instant>,
}

/// The key of all jobs.
pub(super) fn key() -> Key {
    Key::new("job", "all")
}

impl Jobs {
    /// Starts the workers.
    pub(super) fn start(store: RedisStore) -> Self {
        let limiter = Limiter::new(store, [Rule::new("jobs", SLOTS)]).instances(INSTANCES);
        let (layer, shared) = (BackPressureLayer::new(limiter, key()), Arc::<Shared>::default());
        let workers = (0..WORKERS).map(|_| {
            let job = service_fn(async |shared: Arc<Shared>| {
                shared.begun.fetch_add(1, Ordering::SeqCst);
                sleep(TAKES).await;
                shared.done.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                Ok::<_, Infallible>(())
            });
            tokio::spawn(work(layer.layer(job), Arc::clone(&shared)))
        });
        let workers = workers.collect();
        Self { shared, workers }
    }

    /// Has workers take no other job, and waits until they have ended.
    pub(super) async fn stop(self) -> Seen {
        self.shared.stops.store(true, Ordering::SeqCst);
        for worker in self.workers {
            worker.await.expect("no worker panics");
        }
        let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Seen { begun: self.shared.begun.load(Ordering::SeqCst), done }
    }
}

async fn work(mut service: impl Service<Arc<Shared>, Error = Infallible>, shared: Arc<Shared>) {
    while !shared.stops.load(Ordering::SeqCst) {
        // What is left of the wait goes on with the next look.
        if let Ok(ready) = timeout(LOOKS, service.ready()).await {
            let Ok(_) = ready.expect("it never fails").call(Arc::clone(&shared)).await;
        }
    }
}
