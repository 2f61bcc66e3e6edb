//! An answer that is often there at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Applied, Error};

/// A value that is ready, or the future of one.
///
/// A ready answer allocates nothing.
pub enum Answer<T> {
    /// The value is known.
    Ready(T),
    /// The value has to be waited for.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// What becomes of the changes of a settlement, in their order.
pub type Settling = Answer<Result<Vec<Applied>, Error>>;

impl<T> Answer<T> {
    /// Boxes a future.
    pub fn pending(future: impl Future<Output = T> + Send + 'static) -> Self {
        Answer::Pending(Box::pin(future))
    }

    /// Whether the value is there; it is, once its future has yielded it.
    pub(crate) fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if let Answer::Pending(future) = self
            && let Poll::Ready(value) = future.as_mut().poll(cx)
        {
            *self = Answer::Ready(value);
        }
        matches!(self, Answer::Ready(_))
    }

    /// Waits for the value if need be.
    pub async fn wait(self) -> T {
        match self {
            Answer::Ready(value) => value,
            Answer::Pending(future) => future.await,
        }
    }
}

impl<T> From<T> for Answer<T> {
    fn from(value: T) -> Self {
        Answer::Ready(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Ready(value) => f.debug_tuple("Ready").field(value).finish(),
            Answer::Pending(_) => f.write_str("Pending"),
        }
    }
}
