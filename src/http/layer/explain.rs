//! Explains what the policies make of a request, as the admission of that request would, but without the store.

use http::request::Parts;

use super::RateLimitLayer;
use super::explanation::{Explained, Explanation, Verdict};
use crate::http::admission::{Judge, Resolved, Skip};
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::lookup::RawValues;
use crate::store::{Answer, Check};

impl RateLimitLayer {
    /// Returns what the policies make of a request: which apply, by which key, at which cost, and why the others do not.
    ///
    /// It takes nothing, does not call the store and starts no lookup; only an ambiguous key counts in
    /// `tollgate_ambiguous_keys_total`, and a missing address is warned of as for a request. Closures of policies run,
    /// too. What earlier layers insert into the extensions of a request, such as the route that matched and the address
    /// of the peer, has to be in `parts`, so call it where the layer is.
    ///
    /// Keys are as in the store: secrets are hashed, addresses are not, so show it to operators only.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let policy = Policy::new("user", Quota::per_hour(1_000)).key(key::header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    ///
    /// let (parts, ()) = Request::new(()).into_parts();
    /// let explanation = layer.explain(&parts);
    /// let user = &explanation.policies()[0];
    /// assert!(!user.applies());
    /// assert_eq!(user.why(), Some("the request has no key, and missing_key is Skip"));
    /// println!("{explanation}");
    /// ```
    pub fn explain(&self, parts: &Parts) -> Explanation {
        let gate = self.gate.load_full();
        let explain = |(place, policy)| explained(policy, parts, Judge::resolve(&gate, place, parts, false));
        Explanation { policies: gate.policies.iter().enumerate().map(explain).collect() }
    }
}

/// Returns what a policy makes of a request.
fn explained(policy: &Policy, parts: &Parts, resolved: Resolved) -> Explained {
    let rule = policy.rule();
    let explained = Explained {
        policy: rule.name().clone(),
        quota: *policy.quota(),
        key: None,
        cost: 0,
        mode: rule.mode(),
        verdict: Verdict::Skips,
        why: None,
    };
    match resolved {
        Resolved::Check(check) => of_check(explained, &check, policy),
        Resolved::Skip(Skip::Scope) => Explained { why: Some(policy.options().scope.why_not(parts)), ..explained },
        Resolved::Skip(skip) => Explained { why: Some(of_skip(skip).into()), ..explained },
        Resolved::Waiting(_) => {
            Explained { verdict: Verdict::Waits, why: Some("its key, or its quota, is looked up".into()), ..explained }
        }
        Resolved::Refused(refusal) => {
            Explained { verdict: Verdict::Refuses, why: Some(of_refusal(&refusal).into()), ..explained }
        }
    }
}

/// Returns what it is for a request that the policy has a check for.
fn of_check(explained: Explained, check: &Check, policy: &Policy) -> Explained {
    let only_ban = check.is_only_for_ban();
    let why = match check.counter.key().as_str() {
        _ if only_ban => Some("looks only for a ban of the key, as it does not apply"),
        _ if !policy.has_key() => Some("it has no key, so all requests share this counter"),
        "anonymous:" => Some("requests without a key share this counter"),
        key if key.starts_with("ambiguous:") => {
            Some("the key or the cost is ambiguous: such requests share this counter")
        }
        "unknown:" => Some("the key could not be looked up: such requests share this counter"),
        _ if has_no_tier(policy, check) => Some("its tier could not be looked up: on_unknown decides the quota"),
        _ => None,
    };
    let verdict = if only_ban { Verdict::Skips } else { Verdict::Counts };
    let (key, quota) = (Some(check.counter.key().clone()), *check.counter.quota());
    Explained { quota, key, cost: check.cost, verdict, why: why.map(Into::into), ..explained }
}

/// Returns why a request is not counted.
/// Returns whether the tier of a key is not known, as its lookup has failed.
fn has_no_tier(policy: &Policy, check: &Check) -> bool {
    let tier = policy.rule().tiers().map(|lookup| lookup.find(check.counter.key(), RawValues::default));
    matches!(tier, Some(Answer::Ready(Err(_))))
}

fn of_skip(skip: Skip) -> &'static str {
    match skip {
        Skip::Scope => "it does not apply",
        Skip::Preflight => "CORS preflights are not counted",
        Skip::Listed => "the client is on its allow list",
        Skip::NoKey => "the request has no key, and missing_key is Skip",
        Skip::Unknown => "its key could not be looked up, and on_failure is Allow",
        Skip::NoTier => "its tier could not be looked up, and on_unknown is Skip",
        Skip::Shadow => "it would refuse the request, and is in shadow mode",
    }
}

/// Returns why a request is refused.
fn of_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Refused(_) => "refused by a decision",
        Refusal::Rejected(_) => "refused by the extractor of its key",
        Refusal::NoKey => "refused with 403: the request has no key, and missing_key is Deny",
        Refusal::Ambiguous => "refused with 400: the key or the cost is ambiguous",
        Refusal::Denied => "refused with 403: the client is on its deny list",
        Refusal::Failed(_) => "refused with 503: the key, or the tier, is not known",
    }
}
