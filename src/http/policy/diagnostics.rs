//! Errors of a policy when a layer is built, and warnings when a first request shows the cause.
//!
//! A policy that limits nothing, or denies all requests, is an error. A policy that does not do what it seems to do
//! causes a warning, once for each cause. Warnings have codes, which docs/troubleshooting.md explains. No warning
//! contains a key, an address or the value of a header, and no warning changes which requests are allowed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderName;
use http::header::FORWARDED;
use http::request::Parts;

use super::scope::is_route;
use super::{Count, Options, Policy};
use crate::core::{Decision, Error};
use crate::http::MissingKey;
use crate::http::key::{Bannable, matched, normal_template, peer};
use crate::limiter::is_first;

/// Headers in which common proxies put the client's address.
const FORWARDING: [HeaderName; 3] =
    [HeaderName::from_static("x-forwarded-for"), FORWARDED, HeaderName::from_static("x-real-ip")];

impl Policy {
    /// Empty allow and deny lists are not errors, because lists may be computed.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let fault = self.slots_fault().or_else(|| self.ban_fault()).or_else(|| self.cost_fault());
        let fault = fault.or_else(|| self.options.scope.fault());
        let named = fault.map(|fault| format!("policy {:?}: {fault}", self.name())).or_else(|| self.list_fault());
        named.map_or(Ok(()), |text| Err(Error::invalid(text)))
    }

    fn slots_fault(&self) -> Option<String> {
        let Options { metered, count, .. } = &self.options;
        let is_settled = self.quota().facts().held && (*metered || count.is_some());
        let option = if *metered { "metered" } else { "count" };
        is_settled.then(|| format!("its slots are released at the end of each request: remove {option}"))
    }

    /// Clients must not be able to get others banned.
    fn ban_fault(&self) -> Option<String> {
        let ban = self.rule.banning()?;
        let text = match self.info.bannable {
            _ if ban.extends && self.options.bans_on.is_some() => {
                "a denial is no failure, so a ban by failures is not extended: remove extending"
            }
            Bannable::Client => return None,
            Bannable::Claimed if ban.verified => return None,
            Bannable::Claimed => {
                "clients choose this key, so one could have another banned: ban by address, by a tuple of client_ip() \
                 and this key, or say that keys are verified before (of_verified_keys)"
            }
            Bannable::Spoofable => {
                "with trusted_hops a client that reaches a later proxy writes this address, and has others banned: use \
                 trusted_proxies with the networks of your proxies"
            }
            Bannable::Shared => "all clients share this key, so one could have all of them banned: ban by address",
        };
        Some(text.to_owned())
    }

    /// With closures or tiers, a cost above the capacity is not an error, because they may change the cost or the
    /// capacity.
    fn cost_fault(&self) -> Option<String> {
        let Options { cost_by, unit, tier, metered, deny, count, bans_on, .. } = &self.options;
        let is_fixed = cost_by.is_none() && unit.is_none();
        if let Some((cost, capacity)) = self.rule.excess().filter(|_| is_fixed && tier.is_none()) {
            return Some(format!(
                "a request costs {cost} and the quota holds {capacity} at most, so all would be denied: lower the cost, \
                 or raise the limit or burst"
            ));
        }
        if cost_by.is_some() && self.quota().is_long_log() {
            let text = "each request reads and writes the whole log, and a closure chooses how fast it fills: use \
                        Policy::cost, a sliding window, or a log of 10,000 units at most";
            return Some(text.to_owned());
        }
        let refuses = self.rule.banning().is_some() || deny.is_some();
        let refuses = refuses || self.rule_for_missing_key() == MissingKey::Deny;
        let text = if self.rule.units() == 0 && is_fixed && !metered && !refuses {
            "requests cost 0, so this policy limits nothing: use a cost of 1 or more, make it metered, or if that is \
             meant, set cost_by(|_| 0)"
        } else if count.as_ref().is_some_and(Count::is_of_none) {
            "count is of no statuses, so this policy limits nothing: at least one is needed"
        } else if bans_on.as_ref().is_some_and(Count::is_of_none) {
            "the ban is for responses of no statuses, so nobody would be banned: at least one is needed"
        } else {
            return None;
        };
        Some(text.to_owned())
    }

    fn list_fault(&self) -> Option<String> {
        let lists = [("allow", &self.options.allow), ("deny", &self.options.deny)];
        let (what, (place, why)) =
            lists.into_iter().find_map(|(what, list)| Some((what, list.as_ref()?.idle(&*self.extractor)?)))?;
        Some(format!("entry {place} of the {what} list of policy {:?} {why}", self.name()))
    }
}

#[derive(Debug, Default)]
pub(super) struct PolicyDiagnostics {
    key: AtomicBool,
    peer: AtomicBool,
    proxy: AtomicBool,
    route: AtomicBool,
    had_route: AtomicBool,
}

impl Policy {
    /// Continues the policy in `before` that has the same name and kind of key, so that no warning is repeated.
    pub(crate) fn continuing(self, before: &[Self]) -> Self {
        let is_same = |other: &&Self| other.name() == self.name() && other.info().kind == self.info().kind;
        let warned = before.iter().find(is_same).map(|other| Arc::clone(&other.warned));
        Self { warned: warned.unwrap_or(self.warned), ..self }
    }

    #[cold]
    pub(crate) fn warn_of_no_key(&self) {
        if !is_first(&self.warned.key) {
            return;
        }
        let set_by = if self.info().unforgeable { "server" } else { "client" };
        tracing::warn!(code = "TG001", policy = self.name(), set_by, "request has no key and no limit");
    }

    #[cold]
    pub(crate) fn warn_of_no_peer(&self, parts: &Parts) {
        let lacks_peer = self.info().needs_peer && peer(parts).is_none() && self.extractor().address(parts).is_none();
        if lacks_peer && is_first(&self.warned.peer) {
            tracing::warn!(code = "TG004", policy = self.name(), "request has no peer address");
        }
    }

    pub(crate) fn warn_of_proxy(policies: &[Self], decision: &Decision, parts: &Parts) {
        let applied = |policy: &&Self| decision.outcomes().iter().any(|outcome| outcome.policy() == policy.name());
        let unwarned = || policies.iter().filter(|policy| !policy.warned.proxy.load(Relaxed));
        let is_forwarded = || FORWARDING.iter().any(|name| parts.headers.contains_key(name));
        if unwarned().next().is_some() && is_forwarded() {
            unwarned().filter(applied).for_each(|policy| policy.warn_of_peer(parts));
        }
    }

    fn warn_of_peer(&self, parts: &Parts) {
        let lists = [&self.options.allow, &self.options.deny];
        let has_lists = lists.into_iter().flatten().any(|list| list.has_nets());
        let client = if has_lists { self.address(parts) } else { self.extractor().address(parts) };
        let is_peer = client.is_some() && client == peer(parts).map(|peer| peer.to_canonical());
        if is_peer && is_first(&self.warned.proxy) {
            tracing::warn!(
                code = "TG003",
                policy = self.name(),
                "client is the peer although a forwarding header is present"
            );
        }
    }

    /// In a nested router, this path may be a valid route of another policy.
    pub(crate) fn warn_of_other_route(&self, policies: &[Self], parts: &Parts) {
        let Some(routes) = self.options.scope.routes.as_ref().filter(|_| !self.warned.route.load(Relaxed)) else {
            return;
        };
        let (policy, path, matched) = (self.name(), parts.uri.path(), self.matched(parts));
        let Some(route) = routes.iter().map(|route| normal_template(route)).find(|route| *route == path) else {
            return;
        };
        let mut others = policies.iter().filter_map(|policy| policy.options.scope.routes.as_ref());
        // Not logged if the layer has seen a route before, because clients may request unknown paths.
        let is_unknown = matched.is_none() && self.warned.had_route.load(Relaxed);
        if is_unknown || others.any(|routes| is_route(parts, routes)) || !is_first(&self.warned.route) {
            return;
        }
        if let Some(matched) = matched {
            tracing::warn!(code = "TG002", policy, route, matched, "route of the policy never matches here");
        } else {
            tracing::warn!(code = "TG002", policy, route, "no route matches where this layer is");
        }
    }

    pub(crate) fn warn_of_no_route(&self, parts: &Parts) {
        let had_route = self.warned.had_route.load(Relaxed);
        if !had_route && self.matched(parts).is_none() && is_first(&self.warned.route) {
            tracing::warn!(code = "TG002", policy = self.name(), "request has no route to count by");
        }
    }

    fn matched<'a>(&self, parts: &'a Parts) -> Option<&'a str> {
        let matched = matched(parts);
        if matched.is_some() && !self.warned.had_route.load(Relaxed) {
            self.warned.had_route.store(true, Relaxed);
        }
        matched
    }
}
