//! The worker shedder: sheds by how much one process has to do.
//!
//! The layer makes services that share a [state](state): requests in progress or a closure that measures, the ramp, and
//! the level of shedding. About once a second a request samples the utilization; no task and no timer does.

mod response;
pub(super) mod state;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::time::Instant;
use tower::{Layer, Service};

pub use self::response::{ShedBody, WorkerShedFuture};
use self::state::{Gauge, Settings, State};
use super::class::Class;
use super::ramp::Ramp;
use super::shedder::Classifier;
use crate::core::error::built;
use crate::core::{Error, PolicyName};
use crate::store::Clock;

/// The least time in `Retry-After`.
const WAIT: Duration = Duration::from_secs(5);

/// A [`Layer`] that sheds requests by their class while this process has too much to do.
///
/// What the process has to do, its utilization, is known by its requests in progress ([`new`](Self::new)) or by a
/// closure ([`measured`](Self::measured)). A [`Ramp`] turns it into a level of shedding: by default nothing is shed in
/// the first 30 s, then test traffic, reads, and after 120 s all writes; [critical](Class::Critical) requests never. Of a
/// class that is shed in part, each request has the same chance.
///
/// A request is in progress until the end of its response's body, or until that is dropped. After an upgrade, as of a
/// WebSocket, it is not. A request that is shed is never in progress.
///
/// Clones share all state, and so do the services of a layer. Each setter returns a layer with a new state: configure a
/// layer completely before you apply it. Nothing is sampled while no request comes or ends, so the level stays as it is
/// then; the next request brings it up to date.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use std::num::NonZeroU32;
/// use tollgate::shed::{Class, WorkerShedLayer};
///
/// let at_once = NonZeroU32::new(256).expect("it is not zero");
/// let layer = WorkerShedLayer::new("worker", at_once)
///     .classify(|parts| if parts.headers.contains_key("x-test") { Class::Test } else { Class::of(parts) });
/// assert_eq!(layer.level(), 0.0);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # let _ = app;
/// ```
#[derive(Clone)]
#[must_use]
pub struct WorkerShedLayer {
    state: Arc<State>,
}

impl WorkerShedLayer {
    /// Creates a shedder by the requests in progress, as a part of those that the process can serve at once.
    ///
    /// The utilization is their average over the time since the last sample. If a process can serve a few slow requests
    /// only, chance moves that too much: [measure](Self::measured) something else there.
    ///
    /// # Panics
    ///
    /// If the name is not that of a policy: see [`PolicyName`].
    #[track_caller]
    pub fn new(name: &str, at_once: NonZeroU32) -> Self {
        built(Self::try_new(name, at_once))
    }

    /// Creates a shedder, as [`new`](Self::new), and returns an error where that panics.
    ///
    /// # Errors
    ///
    /// If the name is not that of a policy: see [`PolicyName`].
    pub fn try_new(name: &str, at_once: NonZeroU32) -> Result<Self, Error> {
        Self::of(name, Gauge::InProgress(at_once))
    }

    /// Creates a shedder by what a closure measures, where 1 is full: the utilization of the CPU, of a queue, of a pool,
    /// or the delay of tasks as a part of what is bearable.
    ///
    /// It is called about once a second, by a request, and must not block. If it panics, it panics in that request.
    /// NaN means that nothing is known: it is logged, and changes nothing.
    ///
    /// # Panics
    ///
    /// If the name is not that of a policy: see [`PolicyName`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tokio::sync::Semaphore;
    /// use tollgate::shed::WorkerShedLayer;
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

    /// Creates a shedder, as [`measured`](Self::measured), and returns an error where that panics.
    ///
    /// # Errors
    ///
    /// If the name is not that of a policy: see [`PolicyName`].
    pub fn try_measured(name: &str, utilization: impl Fn() -> f64 + Send + Sync + 'static) -> Result<Self, Error> {
        Self::of(name, Gauge::Measured(Arc::new(utilization)))
    }

    /// Sets how utilization turns into shedding, instead of [`Ramp::new`].
    pub fn ramp(self, ramp: Ramp) -> Self {
        self.change(|settings| settings.ramp = ramp)
    }

    /// Sets how the class of requests is determined, instead of by [`Class::of`]. It is called once for each request.
    pub fn classify(self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        self.change(|settings| settings.class = Classifier::new(class))
    }

    /// Sets the least `Retry-After`, instead of 5 s; up to as much again is added at random. It is at least 1 s.
    pub fn retry_after(self, wait: Duration) -> Self {
        self.change(|settings| settings.wait = wait.max(Duration::from_secs(1)))
    }

    /// Sets the clock, instead of that of tokio, whose time a test can pause.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.change(|settings| settings.clock = Arc::new(clock))
    }

    /// Returns how far shedding has come by the last sample, from 0 to 1.
    pub fn level(&self) -> f64 {
        self.state.level()
    }

    fn of(name: &str, gauge: Gauge) -> Result<Self, Error> {
        let start = Instant::now();
        let settings = Settings {
            name: PolicyName::try_from(name)?,
            gauge,
            ramp: Ramp::new(),
            class: Classifier::default(),
            clock: Arc::new(move || start.elapsed()),
            wait: WAIT,
        };
        Ok(Self { state: Arc::new(State::new(settings)) })
    }

    fn change(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.state.settings().clone();
        change(&mut settings);
        Self { state: Arc::new(State::new(settings)) }
    }
}

impl<S> Layer<S> for WorkerShedLayer {
    type Service = WorkerShed<S>;

    fn layer(&self, inner: S) -> WorkerShed<S> {
        WorkerShed::new(inner, Arc::clone(&self.state))
    }
}

impl fmt::Debug for WorkerShedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { name, ramp, .. } = self.state.settings();
        let level = self.level();
        f.debug_struct("WorkerShedLayer")
            .field("name", name)
            .field("ramp", ramp)
            .field("level", &level)
            .finish_non_exhaustive()
    }
}

/// A [`Service`] that sheds requests by their class, as a [`WorkerShedLayer`] sets.
///
/// A request that is shed gets a response of this crate, and the service inside is not called. Errors of the inner
/// service are passed on, and this service adds none.
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct WorkerShed<S> {
    inner: S,
    state: Arc<State>,
}

impl<S> WorkerShed<S> {
    fn new(inner: S, state: Arc<State>) -> Self {
        Self { inner, state }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, which sheds nothing.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for WorkerShed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ShedBody<R>>;
    type Error = S::Error;
    type Future = WorkerShedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.state.admit(&mut parts) {
            Ok(in_progress) => {
                WorkerShedFuture::calling(self.inner.call(Request::from_parts(parts, body)), in_progress)
            }
            Err(response) => WorkerShedFuture::shed(response),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for WorkerShed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerShed").field("inner", &self.inner).finish_non_exhaustive()
    }
}
