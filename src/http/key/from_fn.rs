//! A closure as an extractor.

use std::fmt;

use http::request::Parts;

use super::{Extracted, KeyExtractor, ListEntry};
use crate::core::Answer;

/// An extractor from a closure over the head of the request. See [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F> {
    find: F,
}

/// Counts what a closure returns: a [`Key`](super::Key), text, an `Option` of one of them, or a
/// `Result` whose error is the response, boxed or not, that refuses the request, or
/// [`Ambiguous`](super::Ambiguous).
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate::key::{self, Ambiguous};
///
/// // `acme.example.com` is the tenant `acme`.
/// let tenant = key::from_fn(|parts| {
///     let host = key::host().name(parts)?;
///     let tenant = host.as_deref().and_then(|host| host.split('.').next());
///     Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
/// });
/// # let _ = tenant;
/// ```
pub fn from_fn<F, R>(find: F) -> FromFn<F>
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    FromFn { find }
}

impl<F, R> KeyExtractor for FromFn<F>
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready((self.find)(parts).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value()
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").finish_non_exhaustive()
    }
}
