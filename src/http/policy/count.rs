//! Which responses count, once they are known.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

use crate::http::grpc;

/// Which requests keep what they took, by their response.
///
/// Units are taken before the inner service is called, so that requests under way count; what does
/// not count is given back when the response is known. A response body is not waited for, but for that of
/// a gRPC call.
///
/// # gRPC
///
/// [`failures`](Self::failures) and [`successes`](Self::successes) go by `grpc-status` where a response has
/// it, in its head or in its trailers: the calls that failed are those with a status other than 0. A response
/// of type `application/grpc` whose head has none is settled when its trailers come. One that ends without
/// them, or with an error, failed. What was taken for one that nobody reads to its end stays taken, whatever
/// counts, and so does what was taken for a call while it is under way.
///
/// [`statuses`](Self::statuses) and [`when`](Self::when) see the head of a response only. Trailers inside the
/// body of gRPC-Web are not seen: put the layer inside of what translates it.
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
    rule: Rule,
}

#[derive(Clone)]
enum Rule {
    /// Either those that failed, or the others.
    Outcome { failed: bool },
    /// What a closure says of the head; and whether the inner service's error counts.
    Head { counts: Arc<dyn Fn(&Parts) -> bool + Send + Sync>, errors: bool },
}

impl Count {
    /// Everything counts.
    pub fn all() -> Self {
        Self::by_head(|_| true, true)
    }

    /// Only failures count: client and server errors (4xx and 5xx), [gRPC](Self#grpc) statuses other than 0,
    /// and errors of the service. Such as a login that answers 401, against guessing.
    pub fn failures() -> Self {
        Self { rule: Rule::Outcome { failed: true } }
    }

    /// Failures do not count: client and server errors (4xx and 5xx), [gRPC](Self#grpc) statuses other than 0,
    /// and errors of the service.
    pub fn successes() -> Self {
        Self { rule: Rule::Outcome { failed: false } }
    }

    /// Only these HTTP statuses count.
    pub fn statuses(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses: Vec<StatusCode> = statuses.into_iter().collect();
        Self::by_head(move |response| statuses.contains(&response.status), false)
    }

    /// What a closure says of the head of the response; errors of the service count.
    pub fn when(counts: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self::by_head(counts, true)
    }

    fn by_head(counts: impl Fn(&Parts) -> bool + Send + Sync + 'static, errors: bool) -> Self {
        Self { rule: Rule::Head { counts: Arc::new(counts), errors } }
    }

    /// Whether a response counts; `None` if its trailers say so. No response is an error of the service.
    pub(crate) fn counts(&self, response: Option<&Parts>) -> Option<bool> {
        match &self.rule {
            Rule::Outcome { failed } => response.map_or(Some(true), has_failed).map(|has| has == *failed),
            Rule::Head { counts, errors } => Some(response.map_or(*errors, |response| counts(response))),
        }
    }

    /// Whether a call counts whose outcome its head did not tell; `None` if that depends on the head only.
    pub(crate) fn counts_call(&self, has_failed: bool) -> Option<bool> {
        match &self.rule {
            Rule::Outcome { failed } => Some(has_failed == *failed),
            Rule::Head { .. } => None,
        }
    }
}

/// Whether a request failed, by the head of its response; `None` if its trailers say so.
fn has_failed(response: &Parts) -> Option<bool> {
    if response.status.is_client_error() || response.status.is_server_error() {
        return Some(true);
    }
    let told = grpc::has_failed(&response.headers);
    if told.is_none() && grpc::is_grpc(&response.headers) { None } else { Some(told.unwrap_or(false)) }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count").finish_non_exhaustive()
    }
}
