//! Extracts a key from a request extension.
//!
//! Extensions are set by the server or by layers outside of this one, such as one for authentication. No client can
//! write them, so keys of extensions are certain, and a status service may be open to all with them.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::{Bannable, Extracted, KeyExtractor, KeyInfo};
use crate::core::Answer;

/// An extractor that calls a closure with a request extension.
///
/// Made by [`extension`], which has the rules and an example.
#[derive(Clone)]
#[must_use]
pub struct Extension(Arc<dyn Fn(&Parts) -> Extracted + Send + Sync>);

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
pub fn extension<T, R>(find: impl Fn(&T) -> R + Send + Sync + 'static) -> Extension
where
    T: Send + Sync + 'static,
    R: Into<Extracted>,
{
    Extension(Arc::new(move |parts| parts.extensions.get().map(&find).into()))
}

impl KeyExtractor for Extension {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready((self.0)(parts))
    }

    /// Extensions are set by the server, not by clients.
    fn info(&self) -> KeyInfo {
        KeyInfo::default().bannable(Bannable::Client).unforgeable()
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").finish_non_exhaustive()
    }
}
