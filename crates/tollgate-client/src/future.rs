use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of a [`Retry`](crate::Retry) or [`Pace`](crate::Pace) service.
///
/// # Cancellation
///
/// If it is dropped, the attempt in progress is dropped, and no other attempt begins.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<R, E>(Pin<Box<dyn Future<Output = Result<R, E>> + Send>>);

impl<R, E> ResponseFuture<R, E> {
    pub(crate) fn new(future: impl Future<Output = Result<R, E>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
