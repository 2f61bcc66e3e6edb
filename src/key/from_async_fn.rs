//! A closure that has to wait, as an extractor.

use std::fmt;
use std::future::Future;

use http::request::Parts;

use super::{Extracted, KeyExtractor, ListEntry};
use crate::store::Answer;

/// An extractor from a closure that returns a future. See [`from_async_fn`].
#[derive(Clone, Copy)]
pub struct FromAsyncFn<F> {
    find: F,
}

/// Counts what a future yields: what [`from_fn`](super::from_fn) may return.
///
/// The future owns what it needs: it cannot borrow from the request. The request waits for it without
/// a bound of its own, and drops it when the client goes away.
///
/// # Examples
///
/// ```
/// use tollgate::{key, Key};
///
/// async fn account_of(token: Vec<u8>) -> Option<u64> {
///     # let _ = token;
///     // asks a database
///     Some(7)
/// }
///
/// let by_account = key::from_async_fn(|parts| {
///     let token = parts.headers.get("authorization").map(|value| value.as_bytes().to_vec());
///     async move { Some(Key::new("account", account_of(token?).await?.to_string())) }
/// });
/// # let _ = by_account;
/// ```
pub fn from_async_fn<F, Fut>(find: F) -> FromAsyncFn<F>
where
    F: Fn(&Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Extracted>> + Send + 'static,
{
    FromAsyncFn { find }
}

impl<F, Fut> KeyExtractor for FromAsyncFn<F>
where
    F: Fn(&Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Extracted>> + Send + 'static,
{
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let found = (self.find)(parts);
        Answer::pending(async move { found.await.into() })
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value()
    }
}

impl<F> fmt::Debug for FromAsyncFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromAsyncFn").finish_non_exhaustive()
    }
}
