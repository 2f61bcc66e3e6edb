//! Writing of the headers into a response.
//!
//! A denial is this crate's own response, so its headers are just inserted. The response of the inner service may have
//! such headers already, from a nested layer or an upstream. They are merged, and a denial inside never appears to have
//! units left.

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::fields::{AT_ONCE, Advertised, ListField, interned, number, used, values_of_one, whole_seconds};
use super::merge::{Earlier, RATELIMIT, RATELIMIT_POLICY, is_of_limit, merge};
use super::settings::RateLimitHeaders;
use crate::core::{Decision, Limit, Mode, Outcome};
use crate::http::grpc::{MESSAGE, PUSHBACK, STATUS};
use crate::http::policy::Policy;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// Returns the headers that a CORS layer has to expose, so that scripts in browsers can read the limits.
///
/// The list has all headers that any [`RateLimitHeaders`](crate::RateLimitHeaders) may send, so it does not depend on
/// the settings of a layer. A later version may have more headers. The last three are for gRPC-Web calls.
///
/// # Examples
///
/// ```
/// use tollgate::response::exposed_headers;
///
/// // With tower-http: `CorsLayer::new().expose_headers(exposed_headers())`.
/// assert!(exposed_headers().iter().any(|name| name == "retry-after"));
/// ```
pub fn exposed_headers() -> Vec<HeaderName> {
    let of_limits = [RETRY_AFTER, RATELIMIT, RATELIMIT_POLICY, LIMIT, REMAINING, RESET, USED, RESOURCE];
    of_limits.into_iter().chain([PUSHBACK, STATUS, MESSAGE]).collect()
}

/// Denials are not stored, because they are true only now and only for this client.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

const USUAL: usize = 5;
const MAX_FIELDS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct HeaderWriter {
    headers: RateLimitHeaders,
    policies: Vec<Rendered>,
    /// `RateLimit-Policy` of all policies as configured. `None` if no policy is advertised.
    value: Option<HeaderValue>,
}

#[derive(Clone, Debug)]
struct Rendered {
    configured: Limit,
    mode: Mode,
    is_shown: bool,
    /// Counted unit, unless it is requests.
    unit: Option<&'static str>,
    advertised: Advertised,
    limit: HeaderValue,
}

impl Rendered {
    fn new(policy: &Policy) -> Self {
        let (is_shown, advertised) = (policy.is_advertised(), Advertised::from_quota(policy.quota()));
        let (configured, mode, unit) = (policy.rule().limit(None), policy.rule().mode(), policy.options().unit);
        Self { configured, mode, is_shown, unit, advertised, limit: interned(number(advertised.q)) }
    }

    /// Calendar windows are never rendered in advance, because they differ in length.
    fn is_of(&self, outcome: &Outcome) -> bool {
        outcome.name_and_quota() == &self.configured
            && self.configured.quota.calendar().is_none()
            && outcome.mode() == self.mode
            && !outcome.is_hidden()
    }
}

#[derive(Clone, Copy)]
struct Bound<'a> {
    outcome: &'a Outcome,
    advertised: Advertised,
    limit: Option<&'a HeaderValue>,
}

impl Bound<'_> {
    fn limit(&self) -> HeaderValue {
        self.limit.cloned().unwrap_or_else(|| number(Advertised::from_quota(self.outcome.quota()).q))
    }
}

impl HeaderWriter {
    pub(crate) fn new(headers: RateLimitHeaders) -> Self {
        Self { headers, policies: Vec::new(), value: None }
    }

    pub(crate) fn set_headers(&mut self, headers: RateLimitHeaders) {
        self.headers = headers;
    }

    pub(crate) fn set_policies(&mut self, policies: &[Policy]) {
        self.policies = policies.iter().map(Rendered::new).collect();
        let mut field = ListField::default();
        for policy in self.policies.iter().filter(|policy| policy.is_shown && policy.mode == Mode::Enforce) {
            field.policy(policy.configured.policy.as_str(), policy.advertised, policy.unit);
        }
        self.value = field.finish().map(interned);
    }

    pub(crate) fn headers(&self) -> &RateLimitHeaders {
        &self.headers
    }

    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.headers.dialect.is_none() && !self.headers.legacy
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap, status: StatusCode, decision: &Decision) {
        if decision.outcomes().is_empty() || self.are_none() {
            return;
        }
        let binding = self.binding(decision);
        if !headers.keys().any(is_of_limit) {
            return self.insert(headers, decision, binding, decision.outcomes().iter(), 0);
        }
        // Units that are left here must not make a client retry sooner than a denial inside allows.
        self.merge(headers, decision, binding.filter(|_| status != StatusCode::TOO_MANY_REQUESTS));
    }

    /// Without `binding` no remaining units are written.
    fn merge(&self, headers: &mut HeaderMap, decision: &Decision, binding: Option<&Outcome>) {
        let (writes_lists, writes_legacy) = (self.headers.dialect.is_some(), self.headers.legacy);
        let shown = || decision.outcomes().iter().filter(|outcome| self.shows(outcome));
        let is_ours = |name: &[u8]| shown().any(|outcome| outcome.policy().as_bytes() == name);
        let earlier = Earlier::parse(headers, unix_time().as_secs(), is_ours);
        let wait = |outcome: &Outcome| if outcome.is_held() { 0 } else { whole_seconds(outcome.reset_after()) };
        let stricter = binding.filter(|outcome| earlier.promise_more(outcome.remaining(), wait(outcome)));
        if stricter.is_some() {
            earlier.remove(headers, writes_lists, writes_legacy);
        }
        if writes_lists && (stricter.is_some() || earlier.are_lists) {
            let limits = binding.filter(|_| stricter.is_some() || earlier.take_members());
            if let Some(value) = self.policy_value(decision) {
                merge(headers, RATELIMIT_POLICY, &value, false);
            }
            let limits = limits.map(|outcome| self.bound(outcome));
            if let Some(value) = limits.and_then(|bound| self.limits(Some(bound), decision.outcomes().iter(), 0)) {
                merge(headers, RATELIMIT, &value, stricter.is_some());
            }
        }
        if let Some(outcome) = stricter.filter(|_| writes_legacy) {
            self.insert_legacy(headers, self.bound(outcome));
        }
    }

    /// Overwrites headers of the same names. `later` is the jitter in seconds, added if a wait can help.
    pub(crate) fn write_refusal(&self, headers: &mut HeaderMap, decision: &Decision, later: u64) {
        if self.are_none() {
            return;
        }
        let later = decision.retry_after().map_or(0, |_| later);
        self.insert(headers, decision, self.binding(decision), decision.denied_by(), later);
    }

    /// `wait` is in seconds.
    pub(crate) fn problem_headers(&self, decision: &Decision, later: u64, wait: Option<u64>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(MAX_FIELDS);
        headers.insert(CONTENT_TYPE, PROBLEM);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, number(seconds));
        }
        self.write_refusal(&mut headers, decision, later);
        headers
    }

    fn insert<'a>(
        &'a self,
        headers: &mut HeaderMap,
        decision: &Decision,
        binding: Option<&'a Outcome>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) {
        let binding = binding.map(|outcome| self.bound(outcome));
        // Reserved once, because a map that grows is rebuilt.
        headers.reserve(USUAL);
        if let (Some(bound), [outcome]) = (binding, decision.outcomes())
            && self.headers.dialect.is_some()
            && self.headers.legacy
            && !outcome.is_held()
        {
            let reset = self.reset(outcome.reset_after());
            let [limits, left, reset] = values_of_one(outcome, bound.advertised, later, reset);
            if let Some(value) = self.policy_value(decision) {
                headers.insert(RATELIMIT_POLICY, value);
            }
            headers.insert(RATELIMIT, limits);
            headers.insert(LIMIT, bound.limit());
            headers.insert(REMAINING, left);
            headers.insert(RESET, reset);
            return self.insert_more(headers, bound);
        }
        if self.headers.dialect.is_some() {
            if let Some(value) = self.policy_value(decision) {
                headers.insert(RATELIMIT_POLICY, value);
            }
            if let Some(value) = self.limits(binding, outcomes, later) {
                headers.insert(RATELIMIT, value);
            }
        }
        if let Some(bound) = binding.filter(|_| self.headers.legacy) {
            self.insert_legacy(headers, bound);
        }
    }

    fn policy_value(&self, decision: &Decision) -> Option<HeaderValue> {
        let outcomes = decision.outcomes();
        if outcomes.len() == self.policies.len()
            && outcomes.iter().zip(&self.policies).all(|(of, policy)| policy.is_of(of))
        {
            return self.value.clone();
        }
        let mut field = ListField::default();
        for outcome in outcomes.iter().filter(|outcome| self.shows(outcome)) {
            let unit = self.policy(outcome).and_then(|policy| policy.unit);
            field.policy(outcome.policy(), Advertised::from_outcome(outcome), unit);
        }
        field.finish()
    }

    /// Returns the outcome with the fewest units left, or in a denial with the longest wait. Slots count only if there
    /// is no other outcome.
    fn binding<'a>(&self, decision: &'a Decision) -> Option<&'a Outcome> {
        let shown = |outcome: &&Outcome| self.shows(outcome);
        let binding = decision.binding().filter(shown);
        if binding.is_some() {
            return binding;
        }
        if decision.is_allowed() {
            decision.outcomes().iter().filter(shown).min_by_key(|outcome| (outcome.is_held(), outcome.remaining()))
        } else {
            decision.denied_by().filter(shown).max_by_key(|outcome| outcome.retry_after().unwrap_or(Duration::MAX))
        }
    }

    fn bound<'a>(&'a self, outcome: &'a Outcome) -> Bound<'a> {
        let rendered = self.policies.iter().find(|policy| policy.configured == *outcome.name_and_quota());
        let advertised = match rendered {
            Some(rendered) if outcome.quota().calendar().is_none() => rendered.advertised,
            _ => Advertised::from_outcome(outcome),
        };
        Bound { outcome, advertised, limit: rendered.map(|rendered| &rendered.limit) }
    }

    fn policy(&self, outcome: &Outcome) -> Option<&Rendered> {
        self.policies.iter().find(|policy| policy.configured.policy == *outcome.policy_name())
    }

    pub(crate) fn shows(&self, outcome: &Outcome) -> bool {
        let hides = |policy: &Rendered| !policy.is_shown && policy.configured.policy == *outcome.policy_name();
        outcome.mode() == Mode::Enforce && !outcome.is_hidden() && !self.policies.iter().any(hides)
    }

    pub(crate) fn unit(&self, outcome: &Outcome) -> Option<&'static str> {
        if outcome.is_held() { Some(AT_ONCE) } else { self.policy(outcome)?.unit }
    }

    fn limits<'a>(
        &'a self,
        binding: Option<Bound<'a>>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) -> Option<HeaderValue> {
        let is_binding = |outcome: &Outcome| binding.is_some_and(|binding| std::ptr::eq(binding.outcome, outcome));
        let others = outcomes.filter(|outcome| !is_binding(outcome) && self.shows(outcome));
        let mut field = ListField::default();
        for bound in binding.into_iter().chain(others.map(|outcome| self.bound(outcome))) {
            field.outcome(bound.outcome, bound.advertised, later);
        }
        field.finish()
    }

    fn insert_legacy(&self, headers: &mut HeaderMap, bound: Bound<'_>) {
        let Bound { outcome, advertised, .. } = bound;
        headers.insert(LIMIT, bound.limit());
        headers.insert(REMAINING, number(outcome.remaining().min(advertised.q)));
        if !outcome.is_held() {
            headers.insert(RESET, number(self.reset(outcome.reset_after())));
        }
        self.insert_more(headers, bound);
    }

    fn insert_more(&self, headers: &mut HeaderMap, Bound { outcome, advertised, .. }: Bound<'_>) {
        if self.headers.used {
            headers.insert(USED, number(used(outcome, outcome.remaining().min(advertised.q))));
        }
        if self.headers.resource {
            let name = HeaderValue::from_str(outcome.policy()).expect("a policy's name is visible ASCII");
            headers.insert(RESOURCE, name);
        }
    }

    fn reset(&self, after: Duration) -> u64 {
        let since = if self.headers.reset_in_seconds { Duration::ZERO } else { unix_time() };
        whole_seconds(since.saturating_add(after))
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
