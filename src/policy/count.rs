//! Which responses count, once they are known.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

/// Which requests keep what they took, by their response.
///
/// Units are taken before the inner service is called, so that requests under way count; what does
/// not count is given back when the response is known. A response body is not waited for.
///
/// # Examples
///
/// Nothing that is answered from a cache counts:
///
/// ```
/// use http::StatusCode;
/// use tollgate::Count;
///
/// let count = Count::when(|response| response.status != StatusCode::NOT_MODIFIED);
/// # let _ = count;
/// ```
#[derive(Clone)]
pub struct Count {
    counts: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
    /// Whether the inner service's error counts.
    errors: bool,
}

impl Count {
    /// Everything counts.
    pub fn all() -> Self {
        Self::of(|_| true, true)
    }

    /// Only failures count: client and server errors (4xx and 5xx), and errors of the service. Such
    /// as a login that answers 401, against guessing.
    pub fn failures() -> Self {
        Self::of(|response| is_failure(response.status), true)
    }

    /// Failures do not count: client and server errors (4xx and 5xx), and errors of the service.
    pub fn successes() -> Self {
        Self::of(|response| !is_failure(response.status), false)
    }

    /// Only these statuses count.
    pub fn statuses(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses: Vec<StatusCode> = statuses.into_iter().collect();
        Self::of(move |response| statuses.contains(&response.status), false)
    }

    /// What a closure says of the head of the response; errors of the service count.
    pub fn when(counts: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self::of(counts, true)
    }

    fn of(counts: impl Fn(&Parts) -> bool + Send + Sync + 'static, errors: bool) -> Self {
        Self { counts: Arc::new(counts), errors }
    }

    /// Whether a response counts; `None` is an error of the service.
    pub(crate) fn counts(&self, response: Option<&Parts>) -> bool {
        response.map_or(self.errors, |response| (self.counts)(response))
    }
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count").finish_non_exhaustive()
    }
}
