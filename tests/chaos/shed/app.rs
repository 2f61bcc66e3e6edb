//! The server under test: both shedders, and workers with back-pressure beside them.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::middleware::map_response;
use axum::response::IntoResponse;
use axum::routing::get;
use futures::stream;
use tokio::time::sleep;
use tollgate::{Decision, Quota, RedisStore, Source};
use tollgate_shed::{Class, FleetShedLayer, Ramp, WorkerShedLayer};

use super::jobs::Jobs;
use crate::app::{BLOCKS, FREE, SHORT, is_critical, listen, tell_source};

/// Half of what a request takes; the other half is that of its body.
const HALF: Duration = Duration::from_millis(20);

/// A slot nobody renews or releases is free after this time.
pub(super) const LIFE: Duration = Duration::from_secs(10);
/// Requests at once.
pub(super) const SLOTS: Quota = Quota::concurrency(60).slot_ttl(LIFE);
const RESERVE: f64 = 0.2;
/// Of them, for requests that are not critical.
pub(super) const OTHERS: u64 = 48;
/// The fallback admits a share of them.
pub(super) const INSTANCES: NonZeroU32 = NonZeroU32::new(2).expect("it is not zero");
/// As many requests at once as the process should have. If each waited for Redis while that is away, there would be
/// more.
const AT_ONCE: NonZeroU32 = NonZeroU32::new(256).expect("it is not zero");

const PARTS: [&str; 2] = ["hello ", "world\n"];

/// How many requests that are not critical are in progress, by who admitted them: the handler's own count.
#[derive(Default)]
pub(super) struct Peaks {
    by_redis: Peak,
    by_fallback: Peak,
}

#[derive(Default)]
struct Peak {
    now: AtomicU64,
    most: AtomicU64,
}

/// One of them.
struct InProgress(Arc<Peaks>, Option<Source>);

/// What the test has of the server.
pub(super) struct Server {
    pub(super) peaks: Arc<Peaks>,
    pub(super) jobs: Jobs,
}

impl Server {
    /// Serves in the background; returns the address.
    pub(super) async fn start(store: RedisStore) -> (SocketAddr, Self) {
        let peaks = Arc::<Peaks>::default();
        let ramp = Ramp::new().after(Duration::from_secs(1), Duration::from_secs(2)).recovery(Duration::from_secs(2));
        let fleet = FleetShedLayer::new(store.clone(), "fleet", SLOTS, RESERVE).instances(INSTANCES);
        let shed = Router::new()
            .route("/", get(work))
            .route(BLOCKS, get(block))
            .with_state(Arc::clone(&peaks))
            .layer(fleet)
            .layer(WorkerShedLayer::new("worker", AT_ONCE).ramp(ramp).classify(class))
            .layer(map_response(tell_source));
        let address = listen(shed.route(FREE, get(async || "ok\n"))).await;
        (address, Self { peaks, jobs: Jobs::start(store) })
    }
}

fn class(parts: &Parts) -> Class {
    if is_critical(parts) { Class::Critical } else { Class::from_parts(parts) }
}

async fn work(
    State(peaks): State<Arc<Peaks>>,
    Extension(class): Extension<Class>,
    decision: Decision,
) -> impl IntoResponse {
    let source = Some(decision.source()).filter(|_| class != Class::Critical);
    let progress = InProgress::begin(peaks, source);
    sleep(HALF).await;
    let parts = stream::unfold((progress, 0), async |(progress, part)| {
        if part > 0 {
            sleep(HALF).await;
        }
        let text = PARTS.get(part)?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(*text)), (progress, part + 1)))
    });
    (Extension(decision), [(CONTENT_LENGTH, "12")], Body::from_stream(parts))
}

async fn block(decision: Decision) -> impl IntoResponse {
    thread::sleep(SHORT);
    Extension(decision)
}

impl Peaks {
    fn of(&self, source: Option<Source>) -> Option<&Peak> {
        match source? {
            Source::Store => Some(&self.by_redis),
            Source::Fallback => Some(&self.by_fallback),
            other => panic!("nobody decides by {other:?} here"),
        }
    }

    /// The most at once, admitted by Redis and by the fallback.
    pub(super) fn most(&self) -> [u64; 2] {
        [&self.by_redis, &self.by_fallback].map(|peak| peak.most.load(Ordering::SeqCst))
    }
}

impl InProgress {
    fn begin(peaks: Arc<Peaks>, source: Option<Source>) -> Self {
        if let Some(peak) = peaks.of(source) {
            let now = peak.now.fetch_add(1, Ordering::SeqCst) + 1;
            peak.most.fetch_max(now, Ordering::SeqCst);
        }
        Self(peaks, source)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if let Some(peak) = self.0.of(self.1) {
            peak.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
