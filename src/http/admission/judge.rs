//! Resolution of one policy for one request.
//!
//! The order of steps is guaranteed: the scope (method, route, `when`), the deny and allow lists of addresses, the key,
//! the deny and allow lists of keys, and then the quota of the key. So a denied address is denied with any key. An
//! allowed address needs no key and is not counted, but a denied key is denied even from an allowed address. Closures
//! for costs and tiers run before the key is extracted. They do not run for requests that cannot be counted.
//!
//! After a lookup, the resolution continues without the head of the request, because the head is part of the inner
//! service's request by then.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::resolved::{Keyless, LookupStage, PendingPolicy, Resolved, Skip};
use crate::core::{Error, Key, Mode, Quota};
use crate::http::MissingKey;
use crate::http::gate::LayerState;
use crate::http::key::{self, Extracted};
use crate::http::policy::{AccessList, Policy, Terms};
use crate::http::response::Refusal;
use crate::limiter::CheckDraft;
use crate::store::{Check, MaybeFuture, OnFailure};

#[derive(Clone, Copy)]
pub(crate) struct PolicyResolver<'a> {
    gate: &'a Arc<LayerState>,
    policy: &'a Policy,
    place: usize,
    /// `None` after a lookup.
    parts: Option<&'a Parts>,
    /// `true` if the set-up mistakes that the request reveals are logged.
    warns: bool,
}

impl<'a> PolicyResolver<'a> {
    #[inline]
    pub(super) fn without_parts(gate: &'a Arc<LayerState>, place: usize) -> Self {
        Self { gate, policy: &gate.policies[place], place, parts: None, warns: false }
    }

    /// Resolves the policy at an index. In shadow mode it never denies.
    #[inline]
    pub(crate) fn resolve(gate: &'a Arc<LayerState>, place: usize, parts: &'a Parts, warns: bool) -> Resolved {
        let judge = Self { parts: Some(parts), warns, ..Self::without_parts(gate, place) };
        let policy = judge.policy;
        let Some(mode) = gate.limits.mode(policy.rule()) else { return Resolved::Skip(Skip::Override) };
        let Some(terms) = policy.options().scope.terms(parts) else {
            if warns {
                policy.warn_of_other_route(&gate.policies, parts);
            }
            return judge.resolve_ban(parts, mode);
        };
        let resolved = judge.judge(parts, terms, |policy| policy.cost_of(parts));
        if mode == Mode::Enforce { resolved } else { resolved.in_shadow() }
    }

    /// Resolves the policy for a status request, at cost 0 and in any scope.
    pub(crate) fn resolve_look(gate: &'a Arc<LayerState>, place: usize, parts: &'a Parts) -> Resolved {
        let judge = Self { parts: Some(parts), ..Self::without_parts(gate, place) };
        judge.judge(parts, Terms::ALL, |_| Ok(0))
    }

    /// Resolves to a peek at the ban, if the ban applies to the whole layer. Closures for costs, tiers and reserves do
    /// not run. A request whose key is ambiguous is denied, because it may be that of a banned client.
    fn resolve_ban(self, parts: &Parts, mode: Mode) -> Resolved {
        let (policy, options) = (self.policy, self.policy.options());
        let bans = policy.rule().banning().is_some_and(|ban| ban.layer);
        if !bans || !self.gate.limits.may_enforce(policy.rule()) {
            return Resolved::Skip(Skip::Scope);
        }
        if options.allow.as_deref().is_some_and(|list| self.lists(list, parts).unwrap_or(false)) {
            return Resolved::Skip(Skip::Scope);
        }
        let draft = CheckDraft { only_ban: true, ..CheckDraft::new(self.place, policy.rule(), 0) };
        let keyless = Keyless::new(draft, Terms { counted: true, keyed: false });
        let resolved = match policy.extractor().extract(parts) {
            MaybeFuture::Ready(extracted) => self.resolve_key(keyless, extracted),
            MaybeFuture::Pending(extracting) => self.waits(keyless, LookupStage::Key(extracting)),
        };
        match resolved {
            Resolved::Refused(refusal) if !matches!(*refusal, Refusal::Ambiguous) => Resolved::Skip(Skip::Scope),
            resolved if mode == Mode::Enforce => resolved,
            resolved => resolved.in_shadow(),
        }
    }

    #[inline]
    fn judge(self, parts: &Parts, terms: Terms, units: impl FnOnce(&Policy) -> Result<u64, u64>) -> Resolved {
        let (policy, options) = (self.policy, self.policy.options());
        let listed = |list: &AccessList| self.lists(list, parts);
        if options.deny.as_deref().is_some_and(|list| listed(list).unwrap_or(list.denies_unknown())) {
            return self.denied();
        }
        let allowed = options.allow.as_deref().is_some_and(|list| listed(list).unwrap_or(false));
        let terms = if allowed { Terms::NONE } else { terms };
        if !terms.counted && !policy.denies_values() {
            return Resolved::Skip(Skip::Listed);
        }
        let draft = CheckDraft::new(self.place, policy.rule(), 0);
        let mut keyless = Keyless::new(draft, terms);
        if terms.counted {
            let units = units(policy);
            keyless.ambiguous_cost = units.is_err();
            let (Ok(cost) | Err(cost)) = units;
            keyless.draft.cost = cost;
            keyless.draft.critical = policy.is_critical(parts);
            keyless.draft.set_tier(policy.rule(), policy.tier_of(parts));
        }
        match policy.extractor().extract(parts) {
            MaybeFuture::Ready(extracted) => self.resolve_key(keyless, extracted),
            MaybeFuture::Pending(extracting) => {
                keyless.denied_part = self.denies_part();
                keyless.address = self.address_in_key();
                self.waits(keyless, LookupStage::Key(extracting))
            }
        }
    }

    fn denied(self) -> Resolved {
        Resolved::refused(Refusal::Denied(self.policy.rule().name().clone()))
    }

    /// `None` if the address is unknown and the list has addresses.
    fn lists(self, list: &AccessList, parts: &Parts) -> Option<bool> {
        if !list.has_nets() {
            return Some(false);
        }
        let address = self.policy.address(parts);
        if address.is_none() && list.meets_unknown() {
            tracing::warn!(
                code = "list_without_address",
                policy = self.policy.name(),
                "request has no client address for a list"
            );
        }
        address.map(|address| list.has_address(address))
    }

    /// If a part of a joined key is on the deny list, the request is denied even if another part is missing. A request
    /// that is not counted can be denied but never becomes a check.
    #[inline]
    pub(super) fn resolve_key(self, mut keyless: Keyless, extracted: Extracted) -> Resolved {
        let (policy, options) = (self.policy, self.policy.options());
        if let Some(parts) = self.parts.filter(|_| self.warns && !keyless.draft.only_ban) {
            self.warn(parts, &extracted);
        }
        let mut offered = None;
        let key = match extracted {
            Extracted::Key(key) => key,
            Extracted::Secret(secret) => {
                offered = Some(secret.offered);
                secret.key
            }
            Extracted::Missing if keyless.denied_part || self.denies_part() => {
                return self.denied();
            }
            Extracted::Rejected(_) | Extracted::Missing if !keyless.terms.keyed => {
                return Resolved::Skip(keyless.uncounted());
            }
            Extracted::Rejected(response) => return Resolved::refused(Refusal::Rejected(response)),
            Extracted::Failed(error) => return self.without_key(keyless, *error),
            Extracted::Ambiguous => return self.ambiguous(keyless),
            Extracted::Missing => match policy.rule_for_missing_key() {
                MissingKey::Skip => return Resolved::Skip(Skip::NoKey),
                MissingKey::Deny => return Resolved::refused(Refusal::NoKey),
                MissingKey::Share => {
                    keyless.draft.bans = false;
                    Key::new("anonymous", "")
                }
            },
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return self.denied();
        }
        if listed(&options.allow) {
            return Resolved::Skip(Skip::Listed);
        }
        if !keyless.terms.counted {
            return Resolved::Skip(Skip::Listed);
        }
        if keyless.ambiguous_cost {
            return self.ambiguous_cost(keyless);
        }
        if self.gate.limits.exempts(policy.rule(), &key) {
            return Resolved::Skip(Skip::Override);
        }
        // A peek at a ban needs no tier, because a ban belongs to the key and not to its quota.
        let lookup = policy.rule().tiers().filter(|_| !keyless.draft.only_ban);
        let Some(lookup) = lookup else { return self.check(keyless.draft, key) };
        let offered = || {
            let mut offered = offered.unwrap_or_default();
            if let Some(parts) = self.parts {
                key::offer_raw_values(policy.extractor(), parts, &mut offered);
            }
            offered
        };
        match lookup.find(&key, offered) {
            MaybeFuture::Ready(found) => self.check_tiered(keyless.draft, key, found),
            MaybeFuture::Pending(tier) => self.waits(keyless, LookupStage::Tier(key, tier)),
        }
    }

    fn warn(self, parts: &Parts, extracted: &Extracted) {
        if let Extracted::Missing = extracted {
            self.policy.warn_of_no_peer(parts);
        }
        if self.policy.info().needs_route {
            self.policy.warn_of_no_route(parts);
        }
    }

    /// Resolves a policy after its key lookup failed, according to the layer's [`OnFailure`].
    ///
    /// | rule | the policy denies missing keys or some values | any other policy |
    /// | --- | --- | --- |
    /// | `Allow` | does not apply | does not apply |
    /// | `Deny` | 503 | 503 |
    /// | `Fallback` | 503 | all such requests share one counter, with the policy's own quota |
    fn without_key(self, keyless: Keyless, error: Error) -> Resolved {
        let (policy, rule) = (self.policy, self.gate.limits.failure.on_failure);
        self.gate.unknown_keys.log(policy.name(), |more| {
            let (policy, error) = (policy.name(), format!("{error:#}"));
            tracing::warn!(code = "key_unknown", policy, error, ?rule, more, "key lookup failed");
        });
        match (rule, policy.rule_for_missing_key()) {
            (OnFailure::Allow, _) => Resolved::Skip(Skip::Unknown),
            (OnFailure::Deny, _) | (_, MissingKey::Deny) => Resolved::refused(Refusal::Failed(error)),
            // Any client can make lookups fail, and such a client may be on the list.
            _ if policy.denies_values() => Resolved::refused(Refusal::Failed(error)),
            (OnFailure::Fallback, _) if !keyless.terms.counted => Resolved::Skip(Skip::Listed),
            (OnFailure::Fallback, _) => self.check_shared(keyless.draft, Key::new("unknown", "")),
        }
    }

    #[inline]
    fn check(self, draft: CheckDraft, key: Key) -> Resolved {
        if draft.only_ban && !draft.bans {
            return Resolved::Skip(Skip::Scope);
        }
        self.overridden(draft.check(self.policy.rule(), key))
    }

    pub(super) fn check_tiered(self, draft: CheckDraft, key: Key, found: Result<Option<Quota>, Error>) -> Resolved {
        match self.gate.limits.check(draft, key, found) {
            Ok(Some(check)) => self.overridden(check),
            Ok(None) => Resolved::Skip(Skip::NoTier),
            Err(error) => Resolved::refused(Refusal::Failed(error)),
        }
    }

    #[inline]
    fn overridden(self, check: Check) -> Resolved {
        self.gate.limits.overridden(check).map_or_else(|| Resolved::Skip(Skip::Override), Resolved::Check)
    }

    fn check_shared(self, draft: CheckDraft, key: Key) -> Resolved {
        self.check(CheckDraft { bans: false, ..draft }, key)
    }

    fn waits(self, keyless: Keyless, stage: LookupStage) -> Resolved {
        let gate = Arc::clone(self.gate);
        Resolved::Waiting(Box::new(PendingPolicy { gate, keyless, stage, in_shadow: false, skipped: None }))
    }
}

impl PolicyResolver<'_> {
    /// If the key contains the client's address, the requests of one address share a counter. Otherwise all ambiguous
    /// requests share one counter. A deny list of values, and a ban, deny the request, because each value may be that of
    /// a client who is listed or banned.
    fn ambiguous(self, keyless: Keyless) -> Resolved {
        let policy = self.policy;
        self.note_ambiguous("a request has an ambiguous key");
        let denies = policy.refuses_by_key(keyless.terms) || self.gate.limits.denies_a_key(policy.rule());
        if denies || policy.rule().banning().is_some() {
            return Resolved::refused(Refusal::Ambiguous);
        }
        if keyless.terms.counted { self.check_ambiguous(keyless) } else { Resolved::Skip(Skip::Listed) }
    }

    /// Treats an ambiguous cost as an ambiguous key. If the policy bans keys, the request is denied instead, because no
    /// client may escape its ban.
    fn ambiguous_cost(self, keyless: Keyless) -> Resolved {
        self.note_ambiguous("a request has an ambiguous cost");
        let denies = self.gate.limits.denies_a_key(self.policy.rule());
        if denies || self.policy.rule().banning().is_some() || self.policy.rule_for_missing_key() == MissingKey::Deny {
            return Resolved::refused(Refusal::Ambiguous);
        }
        self.check_ambiguous(keyless)
    }

    fn check_ambiguous(self, mut keyless: Keyless) -> Resolved {
        let of_address = |address| Key::new("ambiguous", key::ip_key(address, key::DEFAULT_V6_PREFIX).value());
        let key = self.address_in_key().or(keyless.address).map_or(Key::fixed("ambiguous:"), of_address);
        keyless.draft.limit = self.policy.rule().limit(None);
        self.check_shared(keyless.draft, key)
    }

    fn address_in_key(self) -> Option<IpAddr> {
        let keys = key::parts(self.policy.extractor());
        keys.into_iter().filter(|key| key.info().address_in_key).find_map(|key| key.address(self.parts?))
    }

    fn note_ambiguous(self, what: &'static str) {
        let policy = self.policy;
        self.gate.limits.telemetry.ambiguous(policy.rule().name());
        tracing::debug!(policy = policy.name(), rule = ?policy.rule_for_missing_key(), "{what}");
    }

    fn denies_part(self) -> bool {
        let list = self.policy.options().deny.as_deref().filter(|list| list.has_values());
        let Some((list, parts)) = list.zip(self.parts) else { return false };
        key::parts(self.policy.extractor()).into_iter().any(|part| match part.extract(parts) {
            MaybeFuture::Ready(found) => found.into_key().is_ok_and(|(key, _)| list.has_key(&key)),
            // This part would need a lookup.
            MaybeFuture::Pending(_) => false,
        })
    }
}
