//! Admission by policies whose checks follow from their keys alone: see [`Policy::is_plain`].
//!
//! The head of a request comes in. Its keys go to the store by reference, and what the store decides at once comes out,
//! without a receipt. A request that lacks a key, or has an ambiguous one, goes the way of all others, and so does one
//! that the store does not decide at once.

use std::sync::Arc;

use http::request::Parts;
use smallvec::{SmallVec, smallvec};

use super::{Admission, log_refusals};
use crate::core::{Checks, Key};
use crate::http::account::Admitted;
use crate::http::gate::Gate;
use crate::http::key::Extracted;
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::limiter::Places;
use crate::store::{Answer, PlainCheck, Store};

impl Admission {
    /// Begins to decide by all policies of a gate, which are plain.
    #[inline]
    pub(super) fn of_plain(gate: &Arc<Gate>, parts: &Parts) -> Self {
        if let [policy] = &gate.policies[..] {
            // Its key needs no list.
            return match plain_key(policy, parts) {
                Ok(key) => Self::by_plain(gate, &[policy.rule().plain_check(&key)], parts),
                Err(extracted) => Self::of_any(gate, parts, false, smallvec![extracted]),
            };
        }
        let mut keys = SmallVec::<[Key; 4]>::new();
        for policy in &gate.policies {
            match plain_key(policy, parts) {
                Ok(key) => keys.push(key),
                Err(extracted) => {
                    let before = keys.into_iter().map(|key| Answer::Ready(Extracted::Key(key)));
                    return Self::of_any(gate, parts, false, before.chain([extracted]).collect());
                }
            }
        }
        let rules = gate.policies.iter().map(Policy::rule);
        let checks = rules.zip(&keys).map(|(rule, key)| rule.plain_check(key));
        Self::by_plain(gate, &checks.collect::<SmallVec<[PlainCheck<'_>; 4]>>(), parts)
    }

    /// Decides by checks of all policies: at once and without a receipt, if the store can.
    #[inline]
    fn by_plain(gate: &Arc<Gate>, checks: &[PlainCheck<'_>], parts: &Parts) -> Self {
        let timer = gate.limits.observer.start();
        let Some(decided) = gate.limits.store.decide_now(checks) else {
            let owned: Checks = checks.iter().map(PlainCheck::to_check).collect();
            return Self::by(gate, &(0..checks.len()).collect::<Places>(), &owned, parts);
        };
        let policies = || checks.iter().map(|check| (check.policy, check.quota));
        if decided.is_allowed() {
            gate.limits.observer.decided_by(timer, || decided.decision(policies()));
            return Admission::Known(Some(Ok(Admitted::plain(Arc::clone(gate), decided))));
        }
        let decision = decided.into_decision(policies());
        gate.limits.observer.decided(timer, Ok(&decision));
        let mark = |check: usize| checks.get(check).map(|check| gate.sampler.mark(check.key));
        log_refusals(gate, 0..checks.len(), mark, &decision);
        Admission::Known(Some(Err(Refusal::Refused(decision))))
    }
}

/// Returns the key of a plain policy.
///
/// # Errors
///
/// What its extractor returned, if that is no key.
#[inline]
fn plain_key(policy: &Policy, parts: &Parts) -> Result<Key, Answer<Extracted>> {
    match policy.extractor().extract(parts) {
        Answer::Ready(Extracted::Key(key)) => Ok(key),
        Answer::Ready(Extracted::Secret(secret)) => Ok(secret.into_parts().0),
        extracted => Err(extracted),
    }
}
