//! Telling clients of a layer's limits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::request::Parts;

use super::RateLimitLayer;
use crate::http::gate::Gate;
use crate::http::policy::Predicate;
use crate::http::status::StatusService;
use crate::{Error, Policy};

impl RateLimitLayer {
    /// A service that tells each client its limits, without taking anything: for a route such as
    /// `GET /rate_limit`, outside this layer.
    ///
    /// It asks nobody who they are, and costs nothing. So it shows only what a client's connection or the
    /// server says is that client's: policies whose key is
    /// [proven](crate::key::KeyExtractor::is_proven), as addresses, [extensions](crate::key::extension),
    /// the route and what is one for all are, and whose quota no [`tier`](Policy::tier) chooses by what the
    /// request says. For others there is [`status_service_for`](Self::status_service_for).
    ///
    /// When policies are [replaced](Self::replace_policies), those it may not show are left out, and one
    /// warning with the code `status_left_out` names them.
    ///
    /// # Errors
    ///
    /// If an advertised policy may not be shown to all: the message says which, and what to do.
    pub fn status_service(&self) -> Result<StatusService, Error> {
        let gate = self.gate.load();
        if let Some(policy) = unproven(&gate).next() {
            return Err(Error::invalid(format!(
                "the status of policy {:?} would be shown to whoever writes another client's key or tier: say who may \
                 see it with status_service_for, count by what the connection or the server says, or make the policy \
                 unadvertised",
                policy.name()
            )));
        }
        self.shows_all.store(true, Ordering::Relaxed);
        Ok(StatusService::new(Arc::clone(&self.gate), None))
    }

    /// As [`status_service`](Self::status_service), of all advertised policies, but only for requests
    /// of which a closure over their head says so; others are answered with 403.
    ///
    /// A client is shown the counters of the key its request has, and the quota of its tier. So the closure
    /// must say whether the request is by that client, as what authenticates the other requests does:
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// /// Put into the request's extensions by what checks the password.
    /// #[derive(Clone)]
    /// struct Authenticated;
    ///
    /// let limits = RateLimitLayer::composite(MemoryStore::new()).user(Quota::per_hour(5_000), key::basic_user());
    /// let status = limits.status_service_for(|parts| parts.extensions.get::<Authenticated>().is_some());
    /// # let _ = status;
    /// ```
    pub fn status_service_for(&self, shows_to: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> StatusService {
        let shows_to: Arc<Predicate> = Arc::new(shows_to);
        StatusService::new(Arc::clone(&self.gate), Some(shows_to))
    }

    /// Says which of new policies a status for all leaves out, if there is one.
    pub(super) fn warn_of_unproven(&self) {
        let gate = self.gate.load();
        let policies: Vec<&str> = unproven(&gate).map(Policy::name).collect();
        if self.shows_all.load(Ordering::Relaxed) && !policies.is_empty() {
            tracing::warn!(
                code = "status_left_out",
                ?policies,
                "the status service leaves policies out, as it would show them to whoever writes another client's key \
                 or tier: use status_service_for"
            );
        }
    }
}

/// Advertised policies whose keys clients could make up.
fn unproven(gate: &Gate) -> impl Iterator<Item = &Policy> {
    gate.policies.iter().filter(|policy| policy.is_shown() && !policy.is_proven())
}
