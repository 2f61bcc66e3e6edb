//! Warns of traps of a set-up that only requests show: a policy that never applies, and clients that are counted
//! together.
//!
//! The first requests of a layer are watched. What shows itself with one of them is logged at once; what shows itself
//! only by never happening, at the last of them. Each cause is one line for a layer, or for a policy of it. Warnings
//! have codes, which docs/troubleshooting.md explains; none has a key, an address or the value of a header, and none
//! changes what is admitted.

use std::sync::Arc;
#[cfg(feature = "axum")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use http::request::Parts;

use super::clients::{Clients, is_first};
use super::keys::Keys;
#[cfg(feature = "axum")]
use super::routes::{Routes, warn_of_no_route};
use crate::core::PolicyName;
use crate::http::key::{KeyExtractor, MissingKey};
use crate::http::policy::Policy;

/// How many requests are watched.
const WATCHED: u32 = 1_000;

/// The first requests of a layer, and what was warned of.
pub(crate) struct Watch {
    /// How many requests have begun, as long as they are watched.
    begun: AtomicU32,
    /// How many of them were resolved: one in flight may still have a key.
    resolved: AtomicU32,
    /// How many responses came, as long as they are watched: handlers may take long.
    responses: AtomicU32,
    clients: Clients,
    /// [`UNMETERED`]; of the layer, whatever policies it has.
    warned: Arc<AtomicU8>,
    #[cfg(feature = "axum")]
    had_route: AtomicBool,
    /// In the order of the policies.
    policies: Box<[Arc<Watched>]>,
    /// Policies that others replaced, and what was warned of them.
    past: Vec<Arc<Watched>>,
}

/// How many policies are remembered that others replaced.
const MOST_PAST: usize = 64;

/// One policy of the layer.
struct Watched {
    name: PolicyName,
    keys: Keys,
    /// [`ROUTE`].
    #[cfg(feature = "axum")]
    warned: Arc<AtomicU8>,
    #[cfg(feature = "axum")]
    routes: Routes,
}

/// It was warned of a real cost that is charged to nobody.
const UNMETERED: u8 = 1;

/// It was warned of a route that does not match.
#[cfg(feature = "axum")]
const ROUTE: u8 = 1;

impl Watch {
    /// Watches requests to these policies from now on.
    pub(crate) fn of(policies: &[Policy]) -> Self {
        Self {
            begun: AtomicU32::new(0),
            resolved: AtomicU32::new(0),
            responses: AtomicU32::new(0),
            clients: Clients::of(policies),
            warned: Arc::default(),
            #[cfg(feature = "axum")]
            had_route: AtomicBool::new(false),
            policies: policies.iter().map(|policy| Arc::new(Watched::of(policy))).collect(),
            past: Vec::new(),
        }
    }

    /// Watches requests to other policies of the same layer: what was logged of the layer itself stays logged, and what
    /// was logged of a policy whose key or routes are as before.
    pub(crate) fn renewed(&self, policies: &[Policy]) -> Self {
        let (clients, warned) = (self.clients.renewed(policies), Arc::clone(&self.warned));
        let known = || self.policies.iter().chain(&self.past);
        let continued = |policy: &Policy| {
            let mut watched = Watched::of(policy);
            known()
                .filter(|before| before.name == *policy.rule().name())
                .for_each(|before| watched.continue_from(before));
            Arc::new(watched)
        };
        let next: Box<[Arc<Watched>]> = policies.iter().map(continued).collect();
        let is_past =
            |before: &&Arc<Watched>| before.has_warned() && !next.iter().any(|watched| watched.continues(before));
        let past = known().filter(is_past).take(MOST_PAST).cloned().collect();
        Self { clients, warned, policies: next, past, ..Self::of(&[]) }
    }

    /// Returns whether requests are still watched.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.begun.load(Relaxed) < WATCHED
    }

    /// Begins to watch a request; returns whether it is one of the first.
    pub(super) fn begin(&self) -> bool {
        self.begun.fetch_update(Relaxed, Relaxed, |begun| (begun < WATCHED).then_some(begun + 1)).is_ok()
    }

    /// A request that was watched ended before it was resolved: another one takes its place.
    pub(super) fn give_back(&self) {
        self.begun.fetch_sub(1, Relaxed);
    }

    /// Returns whether the costs of responses are still watched.
    pub(crate) fn awaits_responses(&self) -> bool {
        self.responses.load(Relaxed) < WATCHED
    }

    /// Counts a response; returns whether its cost is watched.
    #[inline]
    pub(crate) fn begins_response(&self) -> bool {
        self.awaits_responses() && self.responses.fetch_add(1, Relaxed) < WATCHED
    }

    /// Watches a request that has come.
    pub(crate) fn request(&self, policies: &[Policy], client: &dyn KeyExtractor, parts: &Parts) {
        #[cfg(feature = "axum")]
        self.routes(policies, parts);
        self.forwarding(policies, client, parts);
    }

    /// Counts a request that is resolved. Returns whether it is the last one: then the watch [ends](Self::end) with it.
    pub(crate) fn count_resolved(&self) -> bool {
        self.resolved.fetch_add(1, Relaxed) + 1 == WATCHED
    }

    /// A request has the key of the policy at a place.
    #[inline]
    pub(crate) fn has_key(&self, place: usize) {
        if let Some(watched) = self.policies.get(place) {
            watched.keys.has();
        }
    }

    /// A watched request lacks the key of the policy at a place, and nobody has said that it may pass. `is_known` is
    /// whether it is warned of the cause: what is seen only at the end is not looked for then.
    pub(crate) fn lacks_key(&self, place: usize, policy: &Policy, is_known: impl FnOnce() -> bool) {
        let Some(watched) = self.policies.get(place) else { return };
        if policy.rule_for_missing_key() == MissingKey::Skip || !is_known() {
            watched.keys.lacks();
        }
    }

    /// A request lacks the key of the policy at a place, and no policy limits it.
    pub(crate) fn unlimited(&self, place: usize, policy: &Policy) {
        if let Some(watched) = self.policies.get(place) {
            watched.keys.are_all(policy);
        }
    }

    /// A request lacks the key of a policy; `is_reason` is whether for want of the peer's address.
    pub(crate) fn lacks_peer(&self, is_reason: impl FnOnce() -> bool) {
        self.clients.lacks_peer(is_reason);
    }

    /// Looks whether a request has a forwarded header from a peer that is not trusted; `client` is the extractor of the
    /// layer for lists of addresses.
    pub(crate) fn forwarding(&self, policies: &[Policy], client: &dyn KeyExtractor, parts: &Parts) {
        self.clients.forwarding(policies, client, parts);
    }

    /// A service is made of the layer, or its policies were replaced.
    pub(crate) fn set_up(&self, policies: &[Policy], client: &dyn KeyExtractor) {
        self.clients.set_up(policies, client);
    }

    /// A response has a real cost, and no policy of the layer is metered.
    #[cold]
    pub(crate) fn unmetered(&self) {
        if is_first(&self.warned, UNMETERED) {
            tracing::warn!(
                code = "TG007",
                "a response has a RealCost, or a Handle charged or refunded units, and no policy of the layer is metered, \
                 so nothing is charged for it: call metered() on the policy that is to charge it, in a file set \
                 metered = true"
            );
        }
    }

    /// The last of the watched requests has been resolved.
    #[cold]
    pub(crate) fn end(&self, policies: &[Policy], client: &dyn KeyExtractor) {
        self.clients.end(policies, client);
        for (policy, watched) in policies.iter().zip(&self.policies) {
            watched.keys.end(policy);
            #[cfg(feature = "axum")]
            if watched.routes.is_any_unmatched() && is_first(&watched.warned, ROUTE) {
                watched.routes.warn_at_the_end(policy.name(), self.had_route.load(Relaxed));
            }
            #[cfg(feature = "axum")]
            if !self.had_route.load(Relaxed)
                && policy.extractor().inputs().has_route
                && is_first(&watched.warned, ROUTE)
            {
                warn_of_no_route(policy.name());
            }
        }
    }

    /// Watches which routes match.
    #[cfg(feature = "axum")]
    fn routes(&self, policies: &[Policy], parts: &Parts) {
        use crate::http::key::matched;

        let matched = matched(parts);
        if matched.is_some() {
            self.had_route.store(true, Relaxed);
        }
        let had_route = self.had_route.load(Relaxed);
        // Inside Router::nest the path is that of another route, which a policy names by its whole template.
        let is_named = matched.is_some_and(|matched| self.policies.iter().any(|watched| watched.routes.has(matched)));
        for (policy, watched) in policies.iter().zip(&self.policies) {
            let Some(trap) = watched.routes.trap(matched, parts.uri.path(), had_route) else { continue };
            if !is_named && is_first(&watched.warned, ROUTE) {
                trap.warn(policy.name());
            }
        }
    }
}

impl Watched {
    fn of(policy: &Policy) -> Self {
        Self {
            name: policy.rule().name().clone(),
            keys: Keys::of(policy),
            #[cfg(feature = "axum")]
            warned: Arc::default(),
            #[cfg(feature = "axum")]
            routes: Routes::of(policy.templates()),
        }
    }

    /// Takes over what was warned of the policy that this one replaces.
    fn continue_from(&mut self, before: &Self) {
        self.keys.continue_from(&before.keys);
        #[cfg(feature = "axum")]
        if self.routes.are_those_of(&before.routes) {
            self.warned = Arc::clone(&before.warned);
        }
    }

    /// Returns whether it is warned of nothing again that was warned of the policy that this one replaced.
    fn continues(&self, before: &Self) -> bool {
        #[cfg(feature = "axum")]
        let same_routes = Arc::ptr_eq(&self.warned, &before.warned);
        #[cfg(not(feature = "axum"))]
        let same_routes = true;
        same_routes && self.keys.continues(&before.keys)
    }

    /// Returns whether anything was warned of.
    fn has_warned(&self) -> bool {
        #[cfg(feature = "axum")]
        let of_routes = self.warned.load(Relaxed) != 0;
        #[cfg(not(feature = "axum"))]
        let of_routes = false;
        of_routes || self.keys.has_warned()
    }
}
