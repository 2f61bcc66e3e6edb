//! A closure as an extractor.

use http::request::Parts;

use super::Extracted;

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
pub fn from_fn<F, R>(find: F) -> F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    find
}
