//! Services that are ready once a limiter has admitted the next call.

mod errors;
mod lines;
mod slots;

use std::convert::Infallible;
use std::time::Duration;

use futures::FutureExt;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_shed::BackPressureLayer;
use tollgate_test::{Recorded, RecordingStore};
use tower::{Service, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// A store in memory that reads the clock.
fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}

fn key() -> Key {
    Key::hashed("header x-job", "mail")
}

/// A limiter of one rule on the runtime's time, and its store.
fn limiter(quota: Quota) -> (Limiter, RecordingStore<MemoryStore>) {
    let store = RecordingStore::new(memory(&ManualClock::paused()));
    (Limiter::new(store.clone(), [Rule::new("mail", quota)]), store)
}

/// A layer of one rule on the runtime's time.
fn layer(quota: Quota) -> BackPressureLayer {
    BackPressureLayer::new(limiter(quota).0, key())
}

async fn left(limiter: &Limiter) -> u64 {
    limiter.peek(&key()).await.expect("the store decides").outcomes()[0].remaining()
}

/// Whether a service is ready when it is polled once.
fn is_ready<S: Service<u32, Error = Infallible>>(service: &mut S) -> bool {
    service.ready().now_or_never().is_some()
}

/// A service that responds with the number of its job.
fn echo() -> impl Service<u32, Response = u32, Error = Infallible, Future: Send> + Clone + Send + Sync {
    service_fn(async |job| Ok(job))
}

/// How often a store was called for a decision since the last look.
fn decides(store: &RecordingStore<MemoryStore>) -> usize {
    store.take().iter().filter(|call| matches!(call, Recorded::Decide(_))).count()
}
