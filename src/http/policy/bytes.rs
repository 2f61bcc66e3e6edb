//! Policies that count the bytes of bodies instead of requests.

use super::Policy;
use crate::core::Error;
use crate::limiter::can_flow;

/// What happens to a body whose limit of bytes is reached.
///
/// # Examples
///
/// ```
/// use tollgate::{Over, Policy, Quota, key};
///
/// let downloads = Policy::new("downloads", Quota::per_second(1_000_000).burst(4_000_000))
///     .key(key::header("x-api-key"))
///     .response_bytes(Over::Pace);
/// # let _ = downloads;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Over {
    /// The rest waits until the quota has gained it.
    Pace,
    /// The body fails with a [`FlowError`](crate::FlowError), so that the connection of HTTP/1 is closed, or the stream
    /// of HTTP/2 reset. While too little is left for a frame (at most 16 KiB), requests are refused. Their
    /// `Retry-After` is exact, or at most the time until the quota resets if that is a sliding window or log.
    ///
    /// Such a refusal is not cached: each one calls the store, and once more to refund what other policies took.
    Cut,
}

/// Which bodies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

/// The bytes that a policy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyBytes {
    pub(crate) direction: Direction,
    pub(crate) over: Over,
}

impl Policy {
    /// Counts the bytes of response bodies instead of requests: a unit of the quota is a byte.
    ///
    /// Data of bodies counts, and neither heads nor trailers do. Bytes are taken in portions, as by a
    /// [`Flow`](crate::Flow), which has the accuracy; all bodies of a key share theirs. A body that is not read takes
    /// nothing, and a paced one buffers at most one frame. With [`OnFailure::Deny`](crate::OnFailure::Deny), bodies
    /// fail while the store does. Bytes of an upgraded connection, such as a web socket, do not count: limit these by a
    /// flow.
    ///
    /// If a layer compresses bodies, this one has to be inside it to count the bytes before they are compressed.
    ///
    /// It is an error if the quota of such a policy is a [concurrency](crate::Quota::concurrency) or a
    /// [leaky bucket](crate::Quota::leaky_bucket), or if the policy also has a cost or a [`count`](Self::count), is
    /// [`metered`](Self::metered), is [refunded if dropped](Self::refund_dropped), or has a [ban](Self::ban), as bytes
    /// that wait are no refusals: the layer is not built.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Over, Policy, Quota, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new())
    ///     .policy(Policy::new("requests", Quota::per_minute(60)).key(key::client_ip()))
    ///     .policy(Policy::new("bytes", Quota::per_second(500_000)).key(key::client_ip()).response_bytes(Over::Pace));
    /// # let _ = layer;
    /// ```
    pub fn response_bytes(self, over: Over) -> Self {
        self.bytes(BodyBytes { direction: Direction::Response, over })
    }

    /// Counts the bytes of request bodies instead of requests, as [`response_bytes`](Self::response_bytes) those of
    /// responses.
    ///
    /// A request body gets another type by that, so it needs a [`RequestBodyLayer`](crate::RequestBodyLayer) inside of
    /// the layer with this policy, or a handler that calls [`Handle::limit_body`](crate::Handle::limit_body). Without
    /// them the policy limits nothing, and a warning is logged once a request whose head has a `Content-Length` or a
    /// `Transfer-Encoding` has succeeded.
    pub fn request_bytes(self, over: Over) -> Self {
        self.bytes(BodyBytes { direction: Direction::Request, over })
    }

    fn bytes(self, bytes: BodyBytes) -> Self {
        self.settled(|options| options.bytes = Some(bytes))
    }

    /// Checks that the policy limits no bodies of requests, which are limited by their handles.
    ///
    /// # Errors
    ///
    /// If it does; the message names the policy.
    pub(crate) fn check_handle(&self) -> Result<(), Error> {
        let Some(BodyBytes { direction: Direction::Request, .. }) = self.options.bytes else { return Ok(()) };
        let name = self.name();
        let text = format!("policy {name:?}: it limits request bodies, which needs a handle: leave out without_handle");
        Err(Error::invalid(text))
    }

    /// Checks that bytes are not to be counted in a way that makes no sense.
    ///
    /// # Errors
    ///
    /// If they are; the message names the policy and the option.
    pub(crate) fn check_bytes(&self) -> Result<(), Error> {
        if self.options.bytes.is_none() {
            return Ok(());
        }
        can_flow(self.rule.name(), self.rule.quota())?;
        let has_cost = self.options.cost_by.is_some() || self.rule.units() != 1;
        let wrong = [
            ("cost", has_cost),
            ("count", self.options.count.is_some()),
            ("metered", self.options.metered),
            ("refund_dropped", self.options.refund_dropped),
            ("ban", self.rule.banning().is_some()),
        ];
        let Some((option, _)) = wrong.iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
        let name = self.name();
        Err(Error::invalid(format!("policy {name:?}: it counts the bytes that pass: leave out {option}")))
    }
}
