//! Makes an extractor of a closure.
//!
//! Closures implement [`KeyExtractor`](super::KeyExtractor) themselves; this function only fixes their signature, so
//! that the compiler infers the lifetime of `&Parts`.

use http::request::Parts;

use super::Extracted;

/// Identifies clients by the result of a closure over the head of the request.
///
/// The closure returns a [`Key`](super::Key) or text, an `Option` of one of them (`None` is a
/// [missing](super::MissingKey) key), or a `Result` of one of these. The error of the `Result` is a response that
/// rejects the request, boxed or not, [`Ambiguous`](super::Ambiguous), or an [`Error`](crate::Error), which is a
/// [failure](crate::OnFailure#keys). The closure is called for each request that the policy applies to, and should
/// not block.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// // `acme.example.com` is the tenant `acme`.
/// let tenant = key::from_fn(|parts| {
///     let host = key::host().name(parts)?;
///     let tenant = host.as_deref().and_then(|host| host.split('.').next());
///     Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
/// });
///
/// let request = http::Request::get("/").header("host", "ACME.example.com:8080");
/// let (parts, ()) = request.body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = tenant.extract(&parts) else { panic!("there is a host") };
/// assert_eq!(key.as_str(), "tenant:acme");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn from_fn<F, R>(find: F) -> F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    find
}
