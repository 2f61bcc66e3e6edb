//! What something before the layer knows.

use std::fmt;
use std::marker::PhantomData;

use http::request::Parts;

use super::{Extracted, KeyExtractor, ListEntry};
use crate::core::Answer;

/// A closure over a request extension. See [`extension`].
pub struct Extension<T, F> {
    find: F,
    of: PhantomData<fn(&T)>,
}

/// Counts what a closure makes of a request extension, such as the user whom an earlier layer found.
///
/// It may return what [`from_fn`](super::from_fn) may. A request without the extension has no key.
///
/// # Examples
///
/// ```
/// use tollgate::{key, Key};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let by_user = key::extension(|user: &User| Key::new("user", user.id.to_string()));
/// # let _ = by_user;
/// ```
pub fn extension<T, F, R>(find: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    Extension { find, of: PhantomData }
}

impl<T, F, R> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(parts.extensions.get::<T>().map(&self.find).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value()
    }

    /// What is before the layer says it.
    fn is_proven(&self) -> bool {
        true
    }
}

impl<T, F: Clone> Clone for Extension<T, F> {
    fn clone(&self) -> Self {
        Self { find: self.find.clone(), of: PhantomData }
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").finish_non_exhaustive()
    }
}
