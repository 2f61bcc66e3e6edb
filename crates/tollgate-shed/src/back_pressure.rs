//! Back-pressure: services that are ready once a limiter has admitted the next call.
//!
//! A limiter and one key come in. A service is polled ready before there is a request, so there is nothing to extract a
//! key from: it is for loops of workers, which take their next job only when they may begin it.
//!
//! Services wait in a line, in `poll_ready`, and before they poll the inner service, so that a wait keeps no readiness of
//! that from others. The first in line calls the limiter until that admits: when it is time, or at once when a service of
//! this line returns something, which are the slots of a call that has ended, or all that one took which was never called.

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

/// A [`Layer`] whose services are ready once a limiter has admitted the next call: who calls them waits instead of being
/// refused.
///
/// Before each call, `poll_ready` takes the cost of every rule for one key, and then polls the inner service. Units stay
/// taken once the service is called; those of a service that was ready and is dropped without a call are refunded.
/// [Slots](tollgate::Quota::concurrency) are held until the future of the call has resolved or is dropped, and not until a
/// body has ended, as any service may have this layer.
///
/// Services of one layer, and their clones, stand in one line, first come, first served. Only the first of them calls
/// the store, and after a refusal sleeps for [`retry_after`](tollgate::Decision::retry_after), at most a minute, plus up
/// to a tenth of that, before it calls again; it wakes at once if a call of this layer frees slots. So a thousand idle
/// workers call the store as often as one. If the store fails and no decision can be made, it calls again after a second:
/// the service is not ready meanwhile, and never fails for that reason. In metrics each refusal counts, as with
/// [`until_ready`](Limiter::until_ready).
///
/// A service that was polled and is not ready stands in line until it is ready or dropped, even if it is not polled
/// again: then all behind it wait. Poll it until it is ready, or drop it. One that is ready keeps its units and slots
/// from all others until it is called or dropped, also while the inner service is not ready.
///
/// A wait has no timeout of its own: put `tokio::time::timeout` around `ready()`, and drop the service if that elapses,
/// so that it leaves the line.
///
/// # Where to use it
///
/// In a loop that takes one job after the other, around a client for a service that has limits, and below
/// `tower::buffer`, which lets many callers share it: the buffer bounds how many wait, and a `tower::load_shed` around the
/// buffer refuses the others.
///
/// Not in an axum `Router`: it clones the service for each request, and each clone would wait in a task of its own,
/// without bound. Nor does `LoadShed` directly around this layer help, as a clone is rarely ready when it is polled
/// first. There a [`RateLimitLayer`](tollgate::RateLimitLayer) refuses at once;
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
/// A job that waits for a second at most. A clone stands in line for itself:
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
    /// A layer whose calls a limiter has to admit for `key`.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(limiter: Limiter, key: Key) -> Self {
        built(Self::try_new(limiter, key))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// If rules are replaced later by such that would be an error, nothing is ready, and a warning with the code
    /// `never_ready` is logged once a minute, until they are replaced again.
    ///
    /// # Errors
    ///
    /// If no rule is for the key, as of [`Limiter::check`]. If a rule has a [ban](tollgate::Rule::ban), as waiting would
    /// lead to it; if one costs more than its quota ever holds; or if the store cannot refund units.
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

/// A [`Service`] that is ready once a limiter has admitted the next call, as a [`BackPressureLayer`] sets.
///
/// A clone stands in line for itself. Errors are those of the inner service.
///
/// # Panics
///
/// If it is called without being polled ready before.
#[must_use = "services do nothing unless called"]
pub struct BackPressure<S> {
    inner: S,
    line: Arc<Line>,
    /// There while it stands in line. The mutex is never locked: it lets services be shared, which the future may not be.
    waiting: Option<Mutex<Pin<Box<dyn Future<Output = Turn> + Send>>>>,
    /// There once the next call is admitted.
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

    /// Returns the inner service, whose calls need not be admitted.
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

/// The pause after a decision that does not name one.
const PAUSE: Duration = Duration::from_secs(1);

/// The resolution of tokio's timers: a shorter pause, or none, would make the wait a busy loop.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The longest pause, without its jitter: rules that are replaced, and units that another process refunds, end a wait
/// after it. `never_ready` is logged as often.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// What the services of one layer share.
#[derive(Debug)]
struct Line {
    limiter: Limiter,
    key: Key,
    /// Its permit is the turn of the first in line; it serves in the order of arrival.
    first: Semaphore,
    /// Notified when a service of this line has returned something.
    returned: Notify,
    never_ready: Lines,
}

impl Line {
    /// Calls the limiter once; returns the permit and its delay, or for how long to pause.
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

    /// Logs why no service will be ready, and returns the pause.
    fn never_ready(&self, reason: &str) -> Duration {
        self.never_ready.log(|more| {
            tracing::warn!(code = "never_ready", reason, more, "service will never be ready");
        });
        PAUSE
    }
}

/// Waits in line until the limiter admits a call, and for its turn in the queue of a leaky bucket.
async fn wait(line: Arc<Line>) -> Turn {
    let _first = line.first.acquire().await;
    loop {
        // What was returned before the limiter is called needs no further call.
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
                // Many processes should not call at once.
                let jitter = pause.mul_f64(fastrand::f64() / 10.0);
                drop(timeout(pause + jitter, line.returned.notified()).await);
            }
        }
    }
}

/// The turn of a service: what its next call needs was taken. Returned if it is dropped without a call.
struct Turn {
    /// There until it is spent or returned.
    permit: Option<Permit>,
    /// Those of the call that has begun.
    slots: SlotGuard,
    line: Arc<Line>,
}

impl Turn {
    /// Begins the call: its units stay taken, and its slots are released when this is dropped.
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
