//! That nobody can tell for certain who is counted.

use super::Extracted;

/// A request names several clients, or one that cannot be told for certain: the error of a closure that
/// finds that out.
///
/// See [`Extracted::Ambiguous`].
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Ambiguous};
///
/// let account = key::from_fn(|parts| {
///     let by_path = parts.uri.path().strip_prefix("/accounts/").map(str::to_owned);
///     let by_header = parts.headers.get("x-account").and_then(|id| id.to_str().ok()).map(str::to_owned);
///     match (by_path, by_header) {
///         (Some(one), Some(other)) if one != other => Err(Ambiguous),
///         (one, other) => Ok(one.or(other)),
///     }
/// });
/// # let _ = account;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ambiguous;

impl<T: Into<Extracted>> From<Result<T, Ambiguous>> for Extracted {
    fn from(found: Result<T, Ambiguous>) -> Self {
        found.map_or(Extracted::Ambiguous, Into::into)
    }
}
