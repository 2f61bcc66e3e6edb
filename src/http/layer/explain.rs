use std::borrow::Cow;
use std::{array, fmt, iter};

use http::request::Parts;
#[cfg(feature = "serde")]
use serde::ser::SerializeStruct;

use super::LiveLayer;
use crate::core::{Key, Mode, Overridden, PolicyName, Quota};
use crate::http::admission::{PolicyResolver, Resolved, Skip};
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::limiter::lookup::RawValues;
use crate::store::{Check, MaybeFuture};

impl LiveLayer {
    /// Explains which policies apply to a request, by which key, at which cost, and why the others do not.
    ///
    /// It takes nothing, does not call the store and starts no lookup. It runs the closures of policies. An ambiguous
    /// key counts in `tollgate_ambiguous_keys_total`, and a missing address for a list is logged
    /// (`list_without_address`). Extensions that earlier layers insert into a request, such as the route that matched
    /// and the address of the peer, have to be in `parts`, so call it where the layer is.
    ///
    /// Keys are shown as stored. Secrets are hashed, but addresses are not, so show keys to operators only.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let policy = Policy::new("user", Quota::per_hour(1_000)).key(key::header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).live();
    ///
    /// let (parts, ()) = Request::new(()).into_parts();
    /// let explanation = layer.explain(&parts);
    /// let user = &explanation.policies()[0];
    /// assert!(!user.applies());
    /// assert_eq!(user.why(), Some("the request has no key, and missing_key is Skip"));
    /// println!("{explanation}");
    /// ```
    pub fn explain(&self, parts: &Parts) -> Explanation {
        let gate = self.layer.gate.load_full();
        let explain = |(place, policy)| explained(policy, parts, PolicyResolver::resolve(&gate, place, parts, false));
        Explanation { policies: gate.policies.iter().enumerate().map(explain).collect() }
    }
}

fn explained(policy: &Policy, parts: &Parts, resolved: Resolved) -> PolicyExplanation {
    let (mut quota, mut key, mut cost, mut mode) = (*policy.quota(), None, 0, policy.rule().mode());
    let (effect, why): (_, Option<Cow<'static, str>>) = match resolved {
        Resolved::Check(check) => {
            (quota, key, cost) = (*check.counter.quota(), Some(check.counter.key().clone()), check.cost);
            mode = check.mode;
            let effect = match check.overridden {
                Overridden::Denied(_) => PolicyEffect::Denies,
                _ if check.is_only_for_ban() => PolicyEffect::Skips,
                _ => PolicyEffect::Counts,
            };
            (effect, why_checked(&check, policy).map(Into::into))
        }
        Resolved::Skip(Skip::Scope) => (PolicyEffect::Skips, Some(policy.options().scope.why_not(parts))),
        Resolved::Skip(skip) => (PolicyEffect::Skips, Some(why_skipped(skip).into())),
        Resolved::Waiting(_) => (PolicyEffect::Waits, Some("its key, or its quota, is looked up".into())),
        Resolved::Refused(refusal) => (PolicyEffect::Denies, Some(why_denied(&refusal).into())),
    };
    PolicyExplanation { policy: policy.rule().name().clone(), quota, key, cost, mode, effect, why }
}

fn why_checked(check: &Check, policy: &Policy) -> Option<&'static str> {
    match check.overridden {
        Overridden::Denied(_) => return Some("an override denies the key"),
        Overridden::Changed => return Some("an override changes its quota or mode"),
        Overridden::No => {}
    }
    match check.counter.key().as_str() {
        _ if check.is_only_for_ban() => Some("looks only for a ban of the key, as it does not apply"),
        _ if !policy.has_key() => Some("it has no key, so all requests share this counter"),
        "anonymous:" => Some("requests without a key share this counter"),
        key if key.starts_with("ambiguous:") => {
            Some("the key or the cost is ambiguous: such requests share this counter")
        }
        "unknown:" => Some("the key could not be looked up: such requests share this counter"),
        _ if has_no_tier(policy, check) => Some("its tier could not be looked up: on_unknown decides the quota"),
        _ => None,
    }
}

fn has_no_tier(policy: &Policy, check: &Check) -> bool {
    let tier = policy.rule().tiers().map(|lookup| lookup.find(check.counter.key(), RawValues::default));
    matches!(tier, Some(MaybeFuture::Ready(Err(_))))
}

fn why_skipped(skip: Skip) -> &'static str {
    match skip {
        Skip::Scope => "it does not apply",
        Skip::Listed => "the client is on its allow list",
        Skip::NoKey => "the request has no key, and missing_key is Skip",
        Skip::Unknown => "its key could not be looked up, and on_failure is Allow",
        Skip::NoTier => "its tier could not be looked up, and on_unknown is Skip",
        Skip::Override => "an override exempts the key, or switches the policy off",
        Skip::Shadow => "it would deny the request, and is in shadow mode",
    }
}

fn why_denied(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Refused(_) => "denied by a decision",
        Refusal::Rejected(_) => "denied by the extractor of its key",
        Refusal::NoKey => "denied with 403: the request has no key, and missing_key is Deny",
        Refusal::Ambiguous => "denied with 400: the key or the cost is ambiguous",
        Refusal::Denied(_) => "denied with 403: the client is on its deny list",
        Refusal::Failed(_) => "denied with 503: the key, or the tier, is not known",
    }
}

const HEADER: [&str; 6] = ["policy", "applies", "key", "cost", "quota", "why"];

/// Effect of a layer's policies on a request, from [`LiveLayer::explain`](crate::LiveLayer::explain).
///
/// Displayed, it is a table with a header, and a line for each policy. With the feature `serde` it is data for
/// operators, where the times of a [quota](Quota#serialization) are in seconds, and missing values are null:
///
/// ```json
/// {
///   "policies": [
///     {
///       "policy": "user",
///       "applies": true,
///       "denies": false,
///       "shadow": false,
///       "key": "header x-user:ada",
///       "cost": 5,
///       "quota": {
///         "algorithm": "token_bucket",
///         "limit": 1000,
///         "window_seconds": 3600.0,
///         "capacity": 1000,
///         "calendar": null
///       },
///       "why": null
///     }
///   ]
/// }
/// ```
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let layer = RateLimitLayer::composite(MemoryStore::new())
///     .policy(Policy::new("user", Quota::per_hour(1_000)).key(key::header("x-user").plain()).cost(5))
///     .policy(Policy::new("upload", Quota::per_hour(10)).methods([http::Method::PUT]))
///     .live();
/// let request = Request::builder().header("x-user", "ada").body(()).expect("a valid request");
///
/// let explanation = layer.explain(&request.into_parts().0);
/// assert_eq!(
///     explanation.to_string(),
///     "\
/// policy  applies  key                cost  quota                          why
/// user    yes      header x-user:ada  5     1000 per 3600s (token_bucket)  -
/// upload  no       -                  -     10 per 3600s (token_bucket)    its methods do not include GET
/// "
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Explanation {
    policies: Vec<PolicyExplanation>,
}

/// Effect of one policy on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyExplanation {
    policy: PolicyName,
    quota: Quota,
    key: Option<Key>,
    cost: u64,
    mode: Mode,
    effect: PolicyEffect,
    why: Option<Cow<'static, str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyEffect {
    Counts,
    Skips,
    Denies,
    Waits,
}

impl Explanation {
    /// Returns the policies in the order in which they were added, also policies after one that denies the request.
    pub fn policies(&self) -> &[PolicyExplanation] {
        &self.policies
    }
}

impl PolicyExplanation {
    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        self.policy.as_str()
    }

    /// Returns the quota. It is the quota of the client's tier, if there is one and it needs no lookup.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the key of the counter, as in the store. `None` if the request is not counted, or the key is looked up.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns how many units the request costs. 0 if there is no [key](Self::key).
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns `true` if the policy is in shadow mode, so that it denies nothing.
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Returns `true` if the policy applies: it counts the request or denies it, or a lookup decides whether it does.
    pub fn applies(&self) -> bool {
        self.effect != PolicyEffect::Skips
    }

    /// Returns `true` if the policy denies the request whatever its counter has left, for example a client on a deny
    /// list.
    pub fn denies(&self) -> bool {
        self.effect == PolicyEffect::Denies
    }

    /// Returns why the policy does not apply, or a remark. `None` if it counts the request by its own key.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn row(&self) -> [String; 6] {
        let applies = match self.effect {
            PolicyEffect::Skips => "no",
            PolicyEffect::Waits => "perhaps",
            PolicyEffect::Counts if self.is_shadow() => "shadow",
            PolicyEffect::Counts | PolicyEffect::Denies => "yes",
        };
        let none = || "-".to_owned();
        [
            self.policy().to_owned(),
            applies.to_owned(),
            self.key.as_ref().map_or_else(none, Key::to_string),
            self.key.as_ref().map_or_else(none, |_| self.cost.to_string()),
            self.quota.to_string(),
            self.why().map_or_else(none, str::to_owned),
        ]
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.policies.iter().map(PolicyExplanation::row);
        let lines: Vec<[String; 6]> = iter::once(HEADER.map(str::to_owned)).chain(lines).collect();
        // Bounded, because a format panics with a larger width.
        let most = usize::from(u16::MAX);
        let widest = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0).min(most);
        let widths: [usize; 5] = array::from_fn(widest);
        for line in &lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(f, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line[HEADER.len() - 1])?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Explanation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Explanation", 1)?;
        fields.serialize_field("policies", &self.policies)?;
        fields.end()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PolicyExplanation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("PolicyExplanation", 8)?;
        fields.serialize_field("policy", self.policy())?;
        fields.serialize_field("applies", &self.applies())?;
        fields.serialize_field("denies", &self.denies())?;
        fields.serialize_field("shadow", &self.is_shadow())?;
        fields.serialize_field("key", &self.key())?;
        fields.serialize_field("cost", &self.cost())?;
        fields.serialize_field("quota", self.quota())?;
        fields.serialize_field("why", &self.why())?;
        fields.end()
    }
}
