//! Makes services that show clients what is left of their limits.
//!
//! A status request is free and needs no authentication, so a service for all clients shows only policies whose key
//! and quota a client cannot make up. For the others the application decides who may see them. Which policies those
//! are is checked when the service is made, and again when policies are replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::request::Parts;

use super::RateLimitLayer;
use crate::core::Error;
use crate::http::gate::Gate;
use crate::http::policy::{Policy, Predicate};
use crate::http::status::StatusService;

impl RateLimitLayer {
    /// Returns a service that shows each client what is left of its limits, and takes nothing.
    ///
    /// It is for a route such as `GET /rate_limit`, outside of this layer.
    ///
    /// Requests are neither authenticated nor counted. So it shows only policies whose key is
    /// [unforgeable](field@crate::key::KeyInfo::unforgeable), by the connection or the server (addresses,
    /// [extensions](crate::key::extension), the route, or one key for all), and whose quota is not chosen by a
    /// [`tier`](Policy::tier) from what the request contains. For others there is
    /// [`status_service_for`](Self::status_service_for).
    ///
    /// When policies are [replaced](Self::replace_policies), those that it must not show are left out, and a warning
    /// with the code `status_left_out` names them.
    ///
    /// # Errors
    ///
    /// If an advertised policy must not be shown to all clients. The message names it and the remedies.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let by_address = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300));
    /// let status = by_address.status_service()?;
    /// # let _ = status;
    ///
    /// // Any client could send another client's key.
    /// let by_header = key::header("x-api-key");
    /// let by_header = RateLimitLayer::composite(MemoryStore::new()).user(Quota::per_hour(50), by_header);
    /// assert!(by_header.status_service().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn status_service(&self) -> Result<StatusService, Error> {
        let gate = self.gate.load();
        if let Some(policy) = forgeable(&gate).next() {
            return Err(Error::invalid(format!(
                "the status of policy {:?} would be shown to anybody who sends another client's key or tier: set who \
                 may see it with status_service_for, use a key that the connection or the server proves, or make the \
                 policy unadvertised",
                policy.name()
            )));
        }
        self.shows_all.store(true, Ordering::Relaxed);
        Ok(StatusService::new(Arc::clone(&self.gate), None))
    }

    /// Returns a status service, as [`status_service`](Self::status_service), that shows all advertised policies, but
    /// only to requests for which the closure returns true. Others get 403.
    ///
    /// A response shows the counters of the key that the request contains, and the quota of its tier. So the closure
    /// must return whether that client sent the request, as whatever authenticates other requests does.
    ///
    /// # Examples
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

    /// Logs which policies a status service for all clients leaves out, if there is such a service.
    pub(super) fn warn_of_forgeable(&self) {
        let gate = self.gate.load();
        let policies: Vec<&str> = forgeable(&gate).map(Policy::name).collect();
        if self.shows_all.load(Ordering::Relaxed) && !policies.is_empty() {
            tracing::warn!(
                code = "status_left_out",
                ?policies,
                "the status service leaves out policies that it would show to anybody who sends another client's key \
                 or tier: use status_service_for"
            );
        }
    }
}

/// Returns the advertised policies whose key or tier a client could make up.
fn forgeable(gate: &Gate) -> impl Iterator<Item = &Policy> {
    gate.policies.iter().filter(|policy| policy.is_shown() && !policy.is_unforgeable())
}
