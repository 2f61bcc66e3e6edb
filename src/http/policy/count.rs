//! Responses that count. A gRPC call reports its failure in trailers, so the head of its response may not be enough to
//! decide.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

use crate::http::grpc;

/// Responses that count. The units of requests with any other response are refunded.
///
/// Units are taken before the inner service is called, so that requests in flight count. If a response does not count,
/// its units are refunded when the head of the response is known. Only gRPC calls may be settled at the end of the
/// body. Set a count with [`Policy::count`](crate::Policy::count).
///
/// # gRPC
///
/// [`failures`](Self::failures) and [`successes`](Self::successes) use `grpc-status` if a response has it, in its head
/// or in its trailers: a call with a status other than 0 has failed. A response of type `application/grpc` whose head
/// has no status is settled when its trailers arrive. If the response ends without trailers, or with an error, the call
/// has failed. If its body is not read to the end, the units stay taken, whatever counts. While a call is in flight,
/// its units stay taken too.
///
/// [`statuses`](Self::statuses) and [`when`](Self::when) see only the head of a response. Trailers inside the body of
/// gRPC-Web are not seen, so place this layer inside of the layer that translates gRPC-Web.
///
/// # Requests that are denied inside
///
/// A request that this crate denies inside of the layer is neither a failure nor a success of its client, whatever the
/// response is. So no ban begins because the service was overloaded. This crate denies a request inside of the layer
///
/// - if an inner layer does not call its inner service,
/// - if your own layer, for example a load shedder, responds with [`unavailable`](crate::response::unavailable),
/// - if the handler returns [`RateLimitHandle::denial`](crate::RateLimitHandle::denial).
///
/// [`statuses`](Self::statuses) and [`when`](Self::when) count the responses that they select, from any source:
/// `statuses([429])` counts denials of inner layers.
///
/// A service between the layers that builds its own requests or responses has to copy their extensions, because the
/// layers recognize denials by them. Denials of another process are responses like any other.
///
/// # Examples
///
/// A response with the status 304 (Not Modified) does not count:
///
/// ```
/// use http::StatusCode;
/// use tollgate::policy::Count;
///
/// let count = Count::when(|response| response.status != StatusCode::NOT_MODIFIED);
/// # let _ = count;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Count(CountBy);

/// Marks a request, in its extensions, if the count of an outer layer depends on [denials](DeniedMark) by inner layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitsRefusals;

/// Marks a denial, in its extensions, if an outer layer may [await](AwaitsRefusals) it, or if the request has the
/// handle of an outer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeniedMark {
    Inside,
    ByHandler,
}

#[derive(Clone)]
enum CountBy {
    /// If `failed`, failures count. Otherwise all other responses count.
    Outcome { failed: bool },
    /// Errors of the inner service count.
    Head(Arc<dyn Fn(&Parts) -> bool + Send + Sync>),
    /// Errors of the inner service do not count.
    Statuses(Arc<[StatusCode]>),
    /// Denials by inner layers of this crate do not count.
    Served,
}

impl Count {
    /// Counts all responses, and errors of the inner service. This is the default of a policy.
    pub fn all() -> Self {
        Self::when(|_| true)
    }

    /// Counts only failures: client and server errors (4xx and 5xx), [gRPC](Self#grpc) statuses other than 0, and
    /// errors of the inner service.
    ///
    /// Use it against password guessing: a login that responds with 401 counts. Every other 4xx and 5xx of the service
    /// counts too. A response with which this crate [denies](Self#requests-that-are-denied-inside) a request does not
    /// count. To count only 401, use [`statuses`](Self::statuses).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::policy::Count;
    /// use tollgate::{Policy, Quota, key};
    ///
    /// // 10 failed logins per hour and account.
    /// let policy = Policy::new("login", Quota::per_hour(10)).key(key::basic_user()).count(Count::failures());
    /// # let _ = policy;
    /// ```
    pub fn failures() -> Self {
        Self(CountBy::Outcome { failed: true })
    }

    /// Counts only successes.
    ///
    /// Failures are client and server errors (4xx and 5xx), [gRPC](Self#grpc) statuses other than 0, and errors of the
    /// inner service. A request that is [denied inside](Self#requests-that-are-denied-inside) is not a success.
    pub fn successes() -> Self {
        Self(CountBy::Outcome { failed: false })
    }

    /// Counts only responses with these HTTP statuses, including responses of inner layers.
    ///
    /// Errors of the inner service do not count. A layer does not build with an empty list of statuses.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::policy::Count;
    ///
    /// let count = Count::statuses([StatusCode::CREATED, StatusCode::ACCEPTED]);
    /// # let _ = count;
    /// ```
    pub fn statuses(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self(CountBy::Statuses(statuses.into_iter().collect()))
    }

    /// Counts only responses for which a closure over the head returns `true`, including responses of inner layers.
    ///
    /// Errors of the inner service count.
    pub fn when(counts: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self(CountBy::Head(Arc::new(counts)))
    }

    /// Counts all requests that no inner layer of this crate denied. The units of other requests are refunded.
    ///
    /// So no layer charges for a request that another layer denies. Use this count for layers that have to be separate,
    /// for example with authentication in between. Policies that can be decided together belong in one layer, which
    /// makes one call and has nothing to refund.
    ///
    /// An inner layer denies a request if it does not call its inner service. The cause may be a policy, a deny list, a
    /// key that is missing, ambiguous or rejected, or that no decision could be made. The response does not matter, and
    /// may be the application's own ([`on_denied`](crate::RateLimitLayer::on_denied)). Your own layer denies a request
    /// if it responds with [`unavailable`](crate::response::unavailable).
    ///
    /// Denials by the inner service count, even with [`RateLimitHandle::denial`](crate::RateLimitHandle::denial).
    /// Errors of the inner service count too.
    ///
    /// As with other counts, units stay taken until the response is known. Denials of such a policy are not cached. The
    /// policy does not limit a flood of requests that inner layers deny. Do not use this count if the policy has to
    /// keep such floods from the inner layers.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use tollgate::policy::Count;
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hello = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// let inside = RateLimitLayer::new(MemoryStore::new(), Policy::new("user", Quota::per_hour(1)));
    /// let outside = Policy::new("address", Quota::per_hour(100)).count(Count::served());
    /// let outside = RateLimitLayer::new(MemoryStore::new(), outside);
    /// let service = outside.layer(inside.layer(hello));
    ///
    /// for status in [200, 429, 429] {
    ///     let response = service.clone().oneshot(Request::new(String::new())).await?;
    ///     assert_eq!(response.status(), status);
    /// }
    /// let left = outside.clone().live().limiter().peek(&Key::new("global", "")).await?;
    /// assert_eq!(left.outcomes()[0].remaining(), 99);
    /// # Ok(())
    /// # }
    /// ```
    pub fn served() -> Self {
        Self(CountBy::Served)
    }

    pub(super) fn awaits_refusals(&self) -> bool {
        matches!(self.0, CountBy::Served | CountBy::Outcome { .. })
    }

    pub(super) fn is_of_none(&self) -> bool {
        matches!(&self.0, CountBy::Statuses(statuses) if statuses.is_empty())
    }

    /// `None` if trailers decide. Without a `response`, the inner service has returned an error.
    pub(crate) fn counts(&self, response: Option<&Parts>) -> Option<bool> {
        let refused = response.and_then(|response| response.extensions.get::<DeniedMark>());
        match &self.0 {
            CountBy::Outcome { .. } if refused.is_some() => Some(false),
            CountBy::Outcome { failed } => response.map_or(Some(true), has_failed).map(|has| has == *failed),
            CountBy::Head(counts) => Some(response.is_none_or(|response| counts(response))),
            CountBy::Statuses(statuses) => Some(response.is_some_and(|response| statuses.contains(&response.status))),
            CountBy::Served => Some(refused != Some(&DeniedMark::Inside)),
        }
    }

    /// `None` if only the head decides.
    pub(crate) fn counts_call(&self, has_failed: bool) -> Option<bool> {
        match &self.0 {
            CountBy::Outcome { failed } => Some(has_failed == *failed),
            CountBy::Head(_) | CountBy::Statuses(_) | CountBy::Served => None,
        }
    }
}

/// `None` if trailers decide.
fn has_failed(response: &Parts) -> Option<bool> {
    if response.status.is_client_error() || response.status.is_server_error() {
        return Some(true);
    }
    let failed = grpc::has_failed(&response.headers);
    if failed.is_none() && grpc::is_grpc(&response.headers) { None } else { Some(failed.unwrap_or(false)) }
}

impl Default for Count {
    fn default() -> Self {
        Self::all()
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CountBy::Outcome { failed: true } => f.write_str("Count::failures"),
            CountBy::Outcome { failed: false } => f.write_str("Count::successes"),
            CountBy::Head(_) => f.write_str("Count::when"),
            CountBy::Statuses(statuses) => f.debug_tuple("Count::statuses").field(statuses).finish(),
            CountBy::Served => f.write_str("Count::served"),
        }
    }
}
