//! Extracts a key from a request extension.
//!
//! Extensions are set by the server or by layers outside of this one, such as one for authentication. No client can
//! write them, so keys of extensions are certain, and a status service may be open to all with them.

use std::fmt;
use std::marker::PhantomData;

use http::request::Parts;

use super::{Bannable, Extracted, KeyExtractor, ListEntry};
use crate::core::Answer;

/// An extractor that calls a closure with a request extension of type `T`.
///
/// Made by [`extension`], which has the rules and an example.
#[must_use]
pub struct Extension<T, F> {
    find: F,
    of: PhantomData<fn(&T)>,
}

/// Identifies clients by a request extension, such as the user that a layer for authentication has found.
///
/// The closure may return what that of [`from_fn`](super::from_fn) may. A request without the extension has no key.
/// The layer that inserts the extension has to be outside of the rate limit.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let by_user = key::extension(|user: &User| Key::new("user", user.id.to_string()));
///
/// let (mut parts, ()) = http::Request::get("/").body(())?.into_parts();
/// assert!(matches!(by_user.extract(&parts), Answer::Ready(Extracted::Missing)));
/// parts.extensions.insert(User { id: 7 });
/// assert!(matches!(by_user.extract(&parts), Answer::Ready(Extracted::Key(key)) if key.as_str() == "user:7"));
/// # Ok::<(), http::Error>(())
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

    /// Extensions are set by the server, not by clients.
    fn is_proven(&self) -> bool {
        true
    }

    fn bannable(&self) -> Bannable {
        Bannable::Client
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
