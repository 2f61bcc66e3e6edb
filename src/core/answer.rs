//! Return type of store methods: a value that is often ready at once.
//!
//! A store in memory decides without waiting, and so does a store that finds a denial in its cache. A [`MaybeFuture`]
//! returns such a value itself. Only a store that really waits boxes a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{ChangeResult, Error};

/// A value that is ready, or a boxed future of it.
///
/// A ready answer allocates nothing. A pending answer can be dropped at any point. The method that returned it
/// documents what happens then, such as [`Store::decide`](crate::store::Store::decide). Drop it if you do not need its
/// value, such as the result of [`Store::settle`](crate::store::Store::settle).
///
/// It will have no other variants, so a wrapper store can match both, and needs no future for a ready value.
///
/// # Examples
///
/// ```
/// use tollgate::store::MaybeFuture;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// assert_eq!(MaybeFuture::from(7).wait().await, 7);
/// assert_eq!(MaybeFuture::pending(async { 8 }).wait().await, 8);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "an answer may be pending: wait for it, or drop it if its value is not needed"]
pub enum MaybeFuture<T> {
    /// The value.
    Ready(T),
    /// A future that yields the value.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// The result of each change of a settlement, in the order of the changes.
pub type Settling = MaybeFuture<Result<Vec<ChangeResult>, Error>>;

impl<T> MaybeFuture<T> {
    /// Boxes a future as a pending answer.
    pub fn pending(future: impl Future<Output = T> + Send + 'static) -> Self {
        MaybeFuture::Pending(Box::pin(future))
    }

    pub(crate) fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if let MaybeFuture::Pending(future) = self
            && let Poll::Ready(value) = future.as_mut().poll(cx)
        {
            *self = MaybeFuture::Ready(value);
        }
        matches!(self, MaybeFuture::Ready(_))
    }

    /// Maps the value with a closure, once it is ready.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> MaybeFuture<U>
    where
        T: 'static,
    {
        match self {
            MaybeFuture::Ready(value) => MaybeFuture::Ready(change(value)),
            MaybeFuture::Pending(future) => MaybeFuture::pending(async move { change(future.await) }),
        }
    }

    /// Returns the value, after waiting for it if it is pending.
    pub async fn wait(self) -> T {
        match self {
            MaybeFuture::Ready(value) => value,
            MaybeFuture::Pending(future) => future.await,
        }
    }
}

impl<T> From<T> for MaybeFuture<T> {
    fn from(value: T) -> Self {
        MaybeFuture::Ready(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for MaybeFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaybeFuture::Ready(value) => f.debug_tuple("Ready").field(value).finish(),
            MaybeFuture::Pending(_) => f.write_str("Pending"),
        }
    }
}
