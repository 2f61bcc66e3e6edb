//! State that every service of one layer shares.
//!
//! It holds the limits (the rules and the store, which do not depend on HTTP) and their HTTP side: extractors, options
//! and responses of the same policies. Both are published as one value, which is swapped as a whole, so that a request
//! never sees the rules of one configuration and the headers of another.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::events::Events;
#[cfg(feature = "axum")]
use super::key::ClientIp;
use super::policy::{AwaitsRefusals, DeniedMark, Policy};
use super::response::{Refusal, Responses};
use crate::core::{Decision, Error, Lines};
use crate::limiter::{InForce, Limits, has_units};
use crate::store::{SharedStore, StoreDecision};
use crate::telemetry::PolicyTelemetry;

/// Each request loads it once, and ends with it, even if policies are replaced.
pub(crate) type SharedGate = Arc<ArcSwap<LayerState>>;

pub(crate) type Refuses = dyn Fn(&StoreDecision) -> Option<Decision> + Send + Sync;

/// Clones share the counters and the health of the store.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each follows from the policies and settings by itself")]
pub(crate) struct LayerState {
    pub(crate) limits: Arc<Limits>,
    /// In the order of the rules in `limits`.
    pub(crate) policies: Vec<Policy>,
    pub(crate) responses: Responses,
    #[cfg(feature = "axum")]
    pub(crate) client: ClientIp,
    pub(crate) settles_nothing: bool,
    pub(crate) awaits_refusals: bool,
    pub(crate) is_metered: bool,
    pub(crate) has_handles: bool,
    /// Counted unit, unless it is requests.
    pub(crate) unit: Option<&'static str>,
    pub(crate) refuses: Option<Arc<Refuses>>,
    pub(crate) unknown_keys: Arc<Lines>,
    pub(crate) skips: Arc<[PolicyTelemetry]>,
    pub(crate) events: Events,
}

impl LayerState {
    pub(crate) fn new(store: SharedStore) -> Self {
        Self {
            limits: Arc::new(Limits::new(store)),
            policies: Vec::new(),
            responses: Responses::new(),
            #[cfg(feature = "axum")]
            client: super::key::client_ip(),
            settles_nothing: false,
            awaits_refusals: false,
            is_metered: false,
            has_handles: true,
            unit: None,
            refuses: None,
            unknown_keys: Arc::default(),
            skips: Arc::default(),
            events: Events::default(),
        }
    }

    /// The policies must have been [accepted](Self::accepts).
    pub(crate) fn set_policies(&mut self, policies: Vec<Policy>) {
        let policies: Vec<Policy> = policies.into_iter().map(Policy::interned).collect();
        Arc::make_mut(&mut self.limits)
            .set_policies(policies.iter().map(|policy| (policy.rule().clone(), policy.rule_keys())));
        self.responses.headers.set_policies(&policies);
        self.settles_nothing = policies.iter().all(Policy::settles_nothing);
        self.awaits_refusals = policies.iter().any(Policy::awaits_refusals);
        self.is_metered = policies.iter().any(|policy| policy.options().metered);
        self.skips = policies.iter().map(|policy| PolicyTelemetry::new(policy.rule().name())).collect();
        self.policies = policies;
    }

    pub(crate) fn accepts(&self, policies: Vec<Policy>) -> Result<Vec<Policy>, Error> {
        #[cfg(feature = "axum")]
        self.client.check()?;
        #[cfg(feature = "axum")]
        let policies = policies.into_iter().map(|one| one.bound_to(&self.client)).collect::<Result<Vec<_>, _>>()?;
        let policies = policies.into_iter().map(|one| in_units(one, self.unit)).collect::<Result<Vec<_>, _>>()?;
        policies.iter().try_for_each(Policy::validate)?;
        self.limits.supports(policies.iter().map(Policy::rule))?;
        Ok(policies)
    }

    pub(crate) fn refusal_of(&self, decided: &StoreDecision) -> Option<Decision> {
        let refuses = self.refuses.as_ref().filter(|_| decided.decision.is_allowed())?;
        refuses(decided).filter(|decision| !decision.is_allowed())
    }

    /// Marks the response if an outer layer may await the denial: by an extension, or by its handle (`has_outer`).
    pub(crate) fn refuse(&self, refusal: Refusal, parts: &Parts, has_outer: bool) -> Response<Bytes> {
        match &refusal {
            // Warned here because clients that are counted as their proxy are denied together.
            Refusal::Refused(decision) => Policy::warn_of_proxy(&self.policies, decision, parts),
            Refusal::Denied(policy) => self.events.forbidden(policy.as_str()),
            _ => {}
        }
        let mut response = self.responses.response_to(refusal, parts, |error| self.limits.store.next_probe(error));
        if has_outer || parts.extensions.get::<AwaitsRefusals>().is_some() {
            response.extensions_mut().insert(DeniedMark::Inside);
        }
        response
    }
}

/// Fails if the policy belongs to a layer with another unit, because it would limit nothing here.
fn in_units(policy: Policy, unit: Option<&'static str>) -> Result<Policy, Error> {
    let fault = |text: &str| Err(Error::invalid(format!("policy {:?}: {text}", policy.name())));
    let Some(unit) = unit else {
        return match policy.options().unit {
            Some(unit) => fault(&format!("it counts {unit}, and no requests")),
            None => Ok(policy),
        };
    };
    let (rule, options) = (policy.rule(), policy.options());
    has_units(rule.name(), rule.quota())?;
    let wrong = [
        ("cost", options.cost_by.is_some() || rule.units() != 1),
        ("count", options.count.is_some()),
        ("metered", options.metered),
        ("refund_dropped", options.refund_dropped),
        ("ban", rule.banning().is_some()),
    ];
    match wrong.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => fault(&format!("it counts {unit}, of which a request takes none: remove {option}")),
        None => Ok(policy.in_units(unit)),
    }
}

impl InForce for ArcSwap<LayerState> {
    fn now(&self) -> Arc<Limits> {
        Arc::clone(&self.load().limits)
    }
}
