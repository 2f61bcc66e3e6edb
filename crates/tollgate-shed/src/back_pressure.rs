//! Back-pressure: services that are ready once a limiter has allowed the next call.
//!
//! A service is polled ready before there is a request, so the key is fixed: the layer is for loops of workers, which
//! take their next job only when they may begin it.
//!
//! Services wait in a queue, in `poll_ready`, before they poll the inner service, so that a wait does not keep the
//! inner service's readiness from others. The head of the queue calls the limiter until it allows the call: when the
//! wait is over, or immediately when a service of this queue returns slots or unused units.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tollgate::store::SlotGuard;
use tollgate::{Error, Key, Limiter, Permit};
use tower::{Layer, Service};

use crate::built;
use crate::events::Lines;

/// A [`Layer`] that delays readiness until a limiter allows the next call: callers wait instead of being denied.
///
/// Before each call, `poll_ready` takes the cost of every rule for one key, and then polls the inner service. Units
/// stay taken once the service is called. If a ready service is dropped without a call, its units are refunded.
/// [Slots](tollgate::Quota::concurrency) are held until the future of the call has resolved or is dropped, and not
/// until a body has ended, because the layer works with any service.
///
/// Services of one layer, and their clones, wait in one queue, first come, first served. Only the head of the queue
/// calls the store. After a denial it sleeps for [`retry_after`](tollgate::Decision::retry_after), at most a minute,
/// plus up to a tenth of that, before it calls again. It wakes immediately if a call of this layer frees slots. So a
/// thousand idle workers call the store as often as one. If the store fails and no decision can be made, it calls again
/// after a second: until then the service is not ready, but it never fails for that reason. In metrics each denial
/// counts, like with [`until_ready`](Limiter::until_ready).
///
/// A service that was polled and is not ready stays in the queue until it is ready or dropped. If it is not polled
/// again, all services behind it wait. Poll it until it is ready, or drop it. A ready service keeps its units and slots
/// from all others until it is called or dropped, even while the inner service is not ready.
///
/// A wait has no timeout: put `tokio::time::timeout` around `ready()`, and drop the service if the timeout elapses, so
/// that it leaves the queue.
///
/// # Where to use it
///
/// Use it in a loop that takes one job after the other, around a client for a service that has limits, and below
/// `tower::buffer`, which lets many callers share it: the buffer bounds the number of waiters, and a `tower::load_shed`
/// around the buffer rejects the others.
///
/// Do not use it in an axum `Router`: it clones the service for each request, and each clone would wait in a separate
/// task, without bound. `LoadShed` directly around this layer does not help, because a clone is rarely ready when it is
/// first polled. Use a [`RateLimitLayer`](tollgate::RateLimitLayer) there, which denies immediately.
/// [`limiter`](tollgate::LiveLayer::limiter) shares its rules.
///
/// A service of this layer needs a tokio runtime with timers.
///
/// # Examples
///
/// Jobs that start at most twice at once, in all processes that share the store, and 100 times a second:
///
/// ```
/// use std::convert::Infallible;
/// use tollgate_shed::BackPressureLayer;
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let rules = [Rule::new("mail", Quota::per_second(100)), Rule::new("at-once", Quota::concurrency(2))];
/// let layer = BackPressureLayer::new(Limiter::new(MemoryStore::new(), rules), Key::new("job", "mail"));
///
/// let send = service_fn(async |mail: &'static str| Ok::<_, Infallible>(mail.len()));
/// let mut service = layer.layer(send);
/// for mail in ["one", "two", "three"] {
///     // Take a job from the queue only here: it may begin now.
///     service.ready().await?.call(mail).await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// A job that waits for a second at most. A clone has its own place in the queue:
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tokio::time::timeout;
/// use tollgate_shed::BackPressureLayer;
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Infallible> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(1))]);
/// let layer = BackPressureLayer::new(limiter, Key::new("job", "mail"));
/// let service = layer.layer(service_fn(async |mail: &'static str| Ok::<_, Infallible>(mail.len())));
///
/// let mut late = Vec::new();
/// for mail in ["one", "two"] {
///     let mut waiting = service.clone();
///     match timeout(Duration::from_secs(1), waiting.ready()).await {
///         Ok(ready) => drop(ready?.call(mail).await?),
///         // `waiting` is dropped, which ends its place in line.
///         Err(_) => late.push(mail),
///     }
/// }
/// assert_eq!(late, ["two"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BackPressureLayer {
    line: Arc<Line>,
}

impl BackPressureLayer {
    /// Creates a layer whose calls a limiter must allow for `key`.
    ///
    /// # Panics
    ///
    /// If [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(limiter: Limiter, key: Key) -> Self {
        built(Self::try_new(limiter, key))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// If later rules would be an error here, no service is ready, and a warning with the code `never_ready` is logged
    /// once a minute, until the rules are replaced again.
    ///
    /// # Errors
    ///
    /// If no rule is for the key, like [`Limiter::check`]; if a rule has a [ban](tollgate::Rule::ban), because waiting
    /// would lead to it; if a rule costs more than its quota ever holds; or if the store cannot refund units.
    pub fn try_new(limiter: Limiter, key: Key) -> Result<Self, Error> {
        limiter.supports_permits(&key)?;
        let (first, returned, never_ready) = (Semaphore::new(1), Notify::new(), Lines::new(MAX_PAUSE));
        Ok(Self { line: Arc::new(Line { limiter, key, first, returned, never_ready }) })
    }
}

impl<S> Layer<S> for BackPressureLayer {
    type Service = BackPressure<S>;

    fn layer(&self, inner: S) -> BackPressure<S> {
        BackPressure::new(inner, Arc::clone(&self.line))
    }
}

/// A [`Service`] that is ready once a limiter has allowed the next call, created by a [`BackPressureLayer`].
///
/// A clone has its own place in the queue. Only the inner service returns errors.
///
/// # Panics
///
/// If it is called without being polled ready first.
#[must_use = "services do nothing unless called"]
pub struct BackPressure<S> {
    inner: S,
    line: Arc<Line>,
    /// Set while it waits. The mutex is never locked: it makes the service `Sync`, which the future may not be.
    waiting: Option<Mutex<Pin<Box<dyn Future<Output = Turn> + Send>>>>,
    turn: Option<Turn>,
}

impl<S> BackPressure<S> {
    fn new(inner: S, line: Arc<Line>) -> Self {
        Self { inner, line, waiting: None, turn: None }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, whose calls are not limited.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Q> Service<Q> for BackPressure<S>
where
    S: Service<Q>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BackPressureFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.turn.is_none() {
            let waiting = self.waiting.get_or_insert_with(|| Mutex::new(Box::pin(wait(Arc::clone(&self.line)))));
            let waiting = waiting.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.turn = Some(ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let mut turn = self.turn.take().expect("`poll_ready` must return ready before each `call`");
        turn.spend();
        BackPressureFuture { inner: self.inner.call(request), turn: Some(turn) }
    }
}

impl<S: Clone> Clone for BackPressure<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.line))
    }
}

impl<S: fmt::Debug> fmt::Debug for BackPressure<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackPressure").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a call through a [`BackPressure`] service. It holds the slots of the call until it resolves or is
    /// dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct BackPressureFuture<F> {
        #[pin]
        inner: F,
        turn: Option<Turn>,
    }
}

impl<F: Future> Future for BackPressureFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        *this.turn = None;
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for BackPressureFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackPressureFuture").finish_non_exhaustive()
    }
}

const PAUSE: Duration = Duration::from_secs(1);

/// Resolution of tokio's timers: a shorter pause, or none, would make the wait a busy loop.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Longest pause, without its jitter, after which replaced rules and units refunded by other processes end a wait.
/// `never_ready` is logged as often.
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Line {
    limiter: Limiter,
    key: Key,
    /// Its single permit is the turn of the head of the queue, in the order of arrival.
    first: Semaphore,
    returned: Notify,
    never_ready: Lines,
}

impl Line {
    async fn call(&self) -> Result<(Permit, Duration), Duration> {
        let (decision, permit) = self.limiter.permit(&self.key).await.map_err(|error| {
            if error.is_invalid() {
                return self.never_ready(&format!("{error:#}"));
            }
            tracing::debug!(error = format!("{error:#}"), "service not ready without a decision");
            PAUSE
        })?;
        if decision.is_allowed() {
            return Ok((permit, decision.delay()));
        }
        let unknown = || self.never_ready("the cost is more than the quota of a tier ever holds");
        Err(decision.retry_after().unwrap_or_else(unknown).clamp(TIMER_RESOLUTION, MAX_PAUSE))
    }

    fn never_ready(&self, reason: &str) -> Duration {
        self.never_ready.log(|more| {
            tracing::warn!(code = "never_ready", reason, more, "service will never be ready");
        });
        PAUSE
    }
}

async fn wait(line: Arc<Line>) -> Turn {
    let _first = line.first.acquire().await;
    loop {
        // The call sees all that was returned before it, so only later notifications count.
        pin!(line.returned.notified()).enable();
        match line.call().await {
            Ok((permit, delay)) => {
                let turn = Turn { permit: Some(permit), slots: SlotGuard::default(), line: Arc::clone(&line) };
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                return turn;
            }
            Err(pause) => {
                // Many processes should not call at the same time.
                let jitter = pause.mul_f64(fastrand::f64() / 10.0);
                drop(timeout(pause + jitter, line.returned.notified()).await);
            }
        }
    }
}

/// Dropping it without a call refunds the units.
struct Turn {
    permit: Option<Permit>,
    slots: SlotGuard,
    line: Arc<Line>,
}

impl Turn {
    fn spend(&mut self) {
        self.slots = self.permit.take().map(Permit::spend).unwrap_or_default();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let has_returned = self.permit.take().is_some() | !mem::take(&mut self.slots).is_empty();
        if has_returned {
            self.line.returned.notify_one();
        }
    }
}
