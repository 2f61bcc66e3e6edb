//! The service: it waits in line in `poll_ready`, and spends what it has taken in `call`.
//!
//! It stands in line before it polls the inner service, so that a wait keeps no readiness of that from others.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;

use super::wait::{Line, Running, Turn, wait};

/// A [`Service`] that is ready once a limiter has admitted the next call, as a
/// [`BackPressureLayer`](crate::BackPressureLayer) sets.
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
    state: State,
}

/// Where a service is on its way to the next call.
enum State {
    Idle,
    /// It stands in line. The mutex is never locked: it lets services be shared, which the future may not be.
    Waiting(Mutex<Pin<Box<dyn Future<Output = Turn> + Send>>>),
    /// The next call is admitted.
    Ready(Turn),
}

impl<S> BackPressure<S> {
    pub(super) fn new(inner: S, line: Arc<Line>) -> Self {
        Self { inner, line, state: State::Idle }
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
        loop {
            self.state = match &mut self.state {
                State::Idle => State::Waiting(Mutex::new(Box::pin(wait(Arc::clone(&self.line))))),
                State::Waiting(waiting) => {
                    let waiting = waiting.get_mut().unwrap_or_else(PoisonError::into_inner);
                    State::Ready(ready!(waiting.as_mut().poll(cx)))
                }
                State::Ready(_) => return self.inner.poll_ready(cx),
            };
        }
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let State::Ready(turn) = mem::replace(&mut self.state, State::Idle) else {
            panic!("`poll_ready` must return ready before each `call`");
        };
        let running = turn.spend();
        BackPressureFuture { inner: self.inner.call(request), running: Some(running) }
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
        running: Option<Running>,
    }
}

impl<F: Future> Future for BackPressureFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        *this.running = None;
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for BackPressureFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackPressureFuture").finish_non_exhaustive()
    }
}
