//! The error of a closure whose key is ambiguous.
//!
//! A request may name two clients: a header twice, or a path and a header that differ. To choose one of them is to let
//! the client choose, so an extractor reports it instead, and the policy's [`MissingKey`](super::MissingKey) rule
//! decides. Only closures need this type; extractors of the crate use it among themselves.

use super::Extracted;

/// The error of a closure whose request names several clients, or one that is not certain.
///
/// It becomes [`Extracted::Ambiguous`], which documents what happens to the request.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Ambiguous, Extracted};
///
/// // An account that the path and a header may name: both have to name the same one.
/// let account = key::from_fn(|parts| {
///     let by_path = parts.uri.path().strip_prefix("/accounts/").map(str::to_owned);
///     let by_header = parts.headers.get("x-account").and_then(|id| id.to_str().ok()).map(str::to_owned);
///     match (by_path, by_header) {
///         (Some(one), Some(other)) if one != other => Err(Ambiguous),
///         (one, other) => Ok(one.or(other)),
///     }
/// });
///
/// let request = http::Request::get("/accounts/7").header("x-account", "8");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert_eq!(account(&parts), Err(Ambiguous));
/// assert!(matches!(Extracted::from(account(&parts)), Extracted::Ambiguous));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ambiguous;

impl<T: Into<Extracted>> From<Result<T, Ambiguous>> for Extracted {
    fn from(found: Result<T, Ambiguous>) -> Self {
        found.map_or(Extracted::Ambiguous, Into::into)
    }
}
