//! The worker shedder, which sheds by the load of one process.
//!
//! The layer and its services share their state. A request that begins or ends samples the utilization, at most once a
//! second, so no task and no timer is needed. A shed request is never in flight, because shedding would otherwise keep
//! up the load that causes it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tollgate::Error;
use tollgate::policy::PolicyName;
use tollgate::response::Drain;
use tollgate::store::Clock;

use crate::built;
use crate::ramp::{Progress, Ramp, Usage};
use crate::shedder::{Class, Shedder};

const SAMPLE: u64 = 1_000_000_000;

#[derive(Clone)]
enum Gauge {
    InProgress(NonZeroU32),
    /// Utilization, where 1 is full.
    Measured(Arc<dyn Fn() -> f64 + Send + Sync>),
}

/// A [`Layer`](tower::Layer) that sheds requests by their class while this process is overloaded.
///
/// The utilization of the process is measured by its requests in flight ([`new`](Self::new)) or by a closure
/// ([`measured`](Self::measured)). A [`Ramp`] turns it into a level of shedding: by default nothing is shed in the
/// first 30 s, then test traffic, reads, and after 120 s all writes; [critical](Class::Critical) requests never. In a
/// class that is shed in part, each request has the same chance.
///
/// A request is in flight until its response body has ended or is dropped. After an upgrade, such as to a WebSocket, it
/// is no longer in flight. A shed request is never in flight.
///
/// Clones share all state, and so do the services of a layer. Each setter returns a layer with a new state: configure a
/// layer completely before you apply it. While no request begins or ends, nothing is sampled, so the level stays the
/// same until the next request updates it.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use std::num::NonZeroU32;
/// use tollgate_shed::{Class, WorkerShedLayer};
///
/// let at_once = NonZeroU32::new(256).expect("it is not zero");
/// let layer = WorkerShedLayer::new("worker", at_once)
///     .classify(|parts| if parts.headers.contains_key("x-test") { Class::Test } else { Class::from_parts(parts) });
/// assert_eq!(layer.level(), 0.0);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # let _ = app;
/// ```
#[derive(Clone)]
#[must_use]
pub struct WorkerShedLayer {
    state: Arc<WorkerInner>,
}

impl WorkerShedLayer {
    /// Creates a shedder driven by requests in flight over `at_once`, the number that the process can serve.
    ///
    /// The utilization is their average over the time since the last sample. If a process can serve only a few slow
    /// requests, chance moves the average too much: [measure](Self::measured) something else there.
    ///
    /// # Panics
    ///
    /// If the name is no valid [`PolicyName`].
    #[track_caller]
    pub fn new(name: &str, at_once: NonZeroU32) -> Self {
        built(Self::try_new(name, at_once))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If the name is no valid [`PolicyName`].
    pub fn try_new(name: &str, at_once: NonZeroU32) -> Result<Self, Error> {
        Self::from_gauge(name, Gauge::InProgress(at_once))
    }

    /// Creates a shedder driven by a closure that measures the utilization, where 1 is full: the utilization of the
    /// CPU, of a queue, of a pool, or the delay of tasks relative to an acceptable delay.
    ///
    /// It is called about once a second, by a request, and must not block. If it panics, it panics in that request. NaN
    /// is an unknown utilization: it is logged, and changes nothing.
    ///
    /// # Panics
    ///
    /// If the name is no valid [`PolicyName`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tokio::sync::Semaphore;
    /// use tollgate_shed::WorkerShedLayer;
    ///
    /// let connections = Arc::new(Semaphore::new(20));
    /// let pool = Arc::clone(&connections);
    /// let layer = WorkerShedLayer::measured("pool", move || 1.0 - pool.available_permits() as f64 / 20.0);
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn measured(name: &str, utilization: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        built(Self::try_measured(name, utilization))
    }

    /// Fallible version of [`measured`](Self::measured).
    ///
    /// # Errors
    ///
    /// If the name is no valid [`PolicyName`].
    pub fn try_measured(name: &str, utilization: impl Fn() -> f64 + Send + Sync + 'static) -> Result<Self, Error> {
        Self::from_gauge(name, Gauge::Measured(Arc::new(utilization)))
    }

    /// Sets how utilization turns into shedding, instead of [`Ramp::new`].
    pub fn ramp(self, ramp: Ramp) -> Self {
        self.change(|state| state.ramp = ramp)
    }

    /// Sets how the class of requests is determined, instead of by [`Class::from_parts`]. It is called once for each request.
    pub fn classify(self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        self.change(|state| state.shedder.class = Arc::new(class))
    }

    /// Sets the least `Retry-After`, instead of 5 s. Up to the same time is added at random. It is at least 1 s.
    pub fn min_retry_after(self, wait: Duration) -> Self {
        self.change(|state| state.wait = wait.max(Duration::from_secs(1)))
    }

    /// Sets how much of the body of a shed request is read, like
    /// [`RateLimitLayer::drain_denied`](tollgate::RateLimitLayer::drain_denied).
    pub fn drain_denied(self, max_bytes: u64, time: Duration) -> Self {
        self.change(|state| state.drain = Drain::new(max_bytes, time))
    }

    /// Sets the clock, instead of tokio's clock, which a test can pause.
    pub fn clock(self, clock: impl Clock) -> Self {
        self.change(|state| state.shedder.clock = Arc::new(clock))
    }

    /// Returns how far shedding has come by the last sample, from 0 to 1.
    pub fn level(&self) -> f64 {
        f64::from_bits(self.state.level.load(Ordering::Relaxed))
    }

    fn from_gauge(name: &str, gauge: Gauge) -> Result<Self, Error> {
        let shedder = Shedder::new(PolicyName::try_from(name)?);
        Ok(Self { state: Arc::new(WorkerInner::new(shedder, gauge)) })
    }

    fn change(self, change: impl FnOnce(&mut WorkerInner)) -> Self {
        let WorkerInner { shedder, gauge, ramp, wait, drain, .. } = &*self.state;
        let new = WorkerInner::new(shedder.anew(), gauge.clone());
        let mut state = WorkerInner { ramp: *ramp, wait: *wait, drain: *drain, ..new };
        change(&mut state);
        Self { state: Arc::new(state) }
    }

    pub(crate) fn drain(&self) -> Drain {
        self.state.drain
    }

    pub(crate) fn admit(&self, parts: &mut Parts) -> Result<Option<InProgress>, Box<Response<Bytes>>> {
        let WorkerInner { shedder, gauge, wait, .. } = &*self.state;
        let now = shedder.clock.now();
        self.sample(now);
        let class = shedder.offered(parts);
        if is_drawn(Ramp::share(self.level(), class)) {
            return Err(Box::new(shedder.shed(parts, *wait, *wait)));
        }
        if matches!(gauge, Gauge::Measured(_)) {
            return Ok(None);
        }
        self.progress().0.add(1.0, now);
        Ok(Some(InProgress(self.clone())))
    }

    fn sample(&self, now: Duration) {
        let WorkerInner { shedder, gauge, ramp, sampled, level: shown, .. } = &*self.state;
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let due = |last| (nanos.abs_diff(last) >= SAMPLE).then_some(nanos);
        if sampled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_err() {
            return;
        }
        let (utilization, mut progress) = match gauge {
            Gauge::InProgress(at_once) => {
                let mut progress = self.progress();
                (progress.0.take(now) / f64::from(at_once.get()), progress)
            }
            // Measured without a lock, because it may take time, and may call the layer.
            Gauge::Measured(measure) => (measure(), self.progress()),
        };
        progress.1 = ramp.next(progress.1, now, utilization);
        let level = ramp.level_at(progress.1);
        shown.store(level.to_bits(), Ordering::Relaxed);
        drop(progress);
        shedder.sampled(level, utilization);
    }

    fn progress(&self) -> MutexGuard<'_, (Usage, Progress)> {
        self.state.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WorkerShedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkerInner { shedder, ramp, .. } = &*self.state;
        let mut debug = f.debug_struct("WorkerShedLayer");
        debug.field("name", &shedder.name).field("ramp", ramp).field("level", &self.level()).finish_non_exhaustive()
    }
}

struct WorkerInner {
    shedder: Shedder,
    gauge: Gauge,
    ramp: Ramp,
    wait: Duration,
    drain: Drain,
    /// Nanoseconds of the clock.
    sampled: AtomicU64,
    /// Bits of a float, so that it is read without a lock.
    level: AtomicU64,
    progress: Mutex<(Usage, Progress)>,
}

impl WorkerInner {
    fn new(shedder: Shedder, gauge: Gauge) -> Self {
        let (ramp, wait, drain) = (Ramp::new(), Duration::from_secs(5), Drain::default());
        let (sampled, level) = (AtomicU64::new(u64::MAX), AtomicU64::new(0.0_f64.to_bits()));
        Self { shedder, gauge, ramp, wait, drain, sampled, level, progress: Mutex::default() }
    }
}

/// By chance, because every n-th request could always be the same client's.
fn is_drawn(share: f64) -> bool {
    fastrand::f64() < share
}

#[derive(Debug)]
pub(crate) struct InProgress(WorkerShedLayer);

impl Drop for InProgress {
    fn drop(&mut self) {
        let now = self.0.state.shedder.clock.now();
        self.0.progress().0.add(-1.0, now);
        self.0.sample(now);
    }
}
