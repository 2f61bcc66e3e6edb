//! Writes the headers of the limits into a response.
//!
//! A refusal is this crate's own response, so its headers are just inserted. The response of the inner service may have
//! such headers already, of a nested layer or an upstream: if it has, they are merged, and a refusal inside is never
//! made to look as if there were units left.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use smallvec::SmallVec;

use super::fields::{Field, Member, PolicyField, limits};
use super::merge::{is_stricter, merge};
use super::names::{LIMIT, MERGED, RATELIMIT, RATELIMIT_POLICY, REMAINING, RESET, RESOURCE, USED};
use super::numbers::{Advertised, number, used, whole_seconds};
use super::settings::{Headers, ResetFormat};
use crate::core::{Decision, Mode, Outcome};
use crate::http::policy::Policy;

/// Writes the headers of a layer's policies.
#[derive(Clone, Debug)]
pub(crate) struct HeaderWriter {
    headers: Headers,
    policies: PolicyField,
}

impl HeaderWriter {
    /// Creates a writer without policies.
    pub(crate) fn new(headers: Headers) -> Self {
        Self { headers, policies: PolicyField::default() }
    }

    pub(crate) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
    }

    /// Sets the policies, and renders what does not change from response to response.
    pub(crate) fn set_policies(&mut self, policies: &[Policy]) {
        self.policies = PolicyField::of(policies);
    }

    /// Returns which headers are sent.
    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Writes the headers into the response to an admitted request, merged with those that it has.
    pub(crate) fn write(&self, headers: &mut HeaderMap, status: StatusCode, decision: &Decision) {
        if decision.outcomes().is_empty() || self.headers.are_none() {
            return;
        }
        let binding = self.binding(decision);
        if !headers.keys().any(|name| MERGED.contains(name)) {
            return self.insert_headers(headers, decision, binding, decision.outcomes().iter(), 0);
        }
        // Units that are left here must not make a client retry sooner than the refusal inside allows.
        let waits = [RATELIMIT, RETRY_AFTER, REMAINING];
        let refused_inside =
            status == StatusCode::TOO_MANY_REQUESTS && waits.iter().any(|name| headers.contains_key(name));
        let binding = binding.filter(|_| !refused_inside);
        let is_written = self.headers.dialect.is_some();
        let stricter = binding.is_some_and(|binding| is_stricter(headers, binding.remaining(), is_written));
        if is_written {
            if let Some(value) = self.policy_value(decision) {
                merge(headers, RATELIMIT_POLICY, value, false);
            }
            let shown = if refused_inside { None } else { self.limits(binding, decision.outcomes().iter(), 0) };
            if let Some(value) = shown {
                merge(headers, RATELIMIT, value, stricter);
            }
        }
        if stricter && self.headers.legacy {
            // These were about the other limit, and not each is written anew.
            for name in [RESET, USED, RESOURCE] {
                headers.remove(name);
            }
            self.write_legacy(headers, binding);
        }
    }

    /// Writes the headers of a refusal, with `later` seconds of jitter if a wait can help.
    pub(crate) fn write_refusal(&self, headers: &mut HeaderMap, decision: &Decision, later: u64) {
        if self.headers.are_none() {
            return;
        }
        let later = decision.retry_after().map_or(0, |_| later);
        self.insert_headers(headers, decision, self.binding(decision), decision.violated(), later);
    }

    /// Inserts all headers, over any of the same names; `outcomes` are the members of `RateLimit`.
    fn insert_headers<'a>(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        binding: Option<&'a Outcome>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) {
        // Once for all of them, as a map that has to grow is rebuilt.
        headers.reserve(self.headers.count());
        if self.headers.dialect.is_some() {
            if let Some(value) = self.policy_value(decision) {
                headers.insert(RATELIMIT_POLICY, value);
            }
            if let Some(value) = self.limits(binding, outcomes, later) {
                headers.insert(RATELIMIT, value);
            }
        }
        self.write_legacy(headers, binding);
    }

    /// Returns `RateLimit-Policy`: rendered before, unless policies do not apply, have the quota of a tier, or
    /// count by a calendar.
    fn policy_value(&self, decision: &Decision) -> Option<HeaderValue> {
        let outcomes = decision.outcomes();
        if self.policies.is_of(outcomes) {
            return self.policies.value.clone();
        }
        let mut field = Field::default();
        for outcome in outcomes.iter().filter(|outcome| self.shows(outcome)) {
            let is_bytes = self.policies.counts_bytes(outcome.policy_name());
            field.policy(outcome.policy(), Advertised::of_outcome(outcome), is_bytes);
        }
        field.finish()
    }

    /// Returns the outcome that binds, among those that clients may see: of an admitted request the one with the least
    /// left, where slots are left out if there are others, of a refused one that with the longest wait.
    fn binding<'a>(&self, decision: &'a Decision) -> Option<&'a Outcome> {
        let shown = |outcome: &&Outcome| self.shows(outcome);
        let binding = decision.binding().filter(shown);
        if binding.is_some() {
            return binding;
        }
        if decision.is_allowed() {
            decision.outcomes().iter().filter(shown).min_by_key(|outcome| (outcome.is_held(), outcome.remaining()))
        } else {
            decision.violated().filter(shown).max_by_key(|outcome| outcome.retry_after().unwrap_or(Duration::MAX))
        }
    }

    /// Returns whether clients may see an outcome: its policy is enforced and advertised.
    pub(crate) fn shows(&self, outcome: &Outcome) -> bool {
        outcome.mode() == Mode::Enforce && !outcome.is_hidden() && !self.policies.hides(outcome.policy_name())
    }

    /// Returns `RateLimit`, with the binding policy first.
    fn limits<'a>(
        &self,
        binding: Option<&'a Outcome>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) -> Option<HeaderValue> {
        let is_binding = |outcome: &Outcome| binding.is_some_and(|binding| std::ptr::eq(binding, outcome));
        let mut others = outcomes.filter(|outcome| !is_binding(outcome) && self.shows(outcome)).peekable();
        let member = |outcome: &'a Outcome| Member::of(outcome, self.policies.advertised(outcome), later);
        if let (Some(binding), None) = (binding, others.peek()) {
            return Some(limits(&[member(binding)]));
        }
        let mut members = SmallVec::<[Member<'_>; 4]>::new();
        for outcome in binding.into_iter().chain(others) {
            members.push(member(outcome));
        }
        (!members.is_empty()).then(|| limits(&members))
    }

    /// Inserts the `X-RateLimit-*` headers of the binding policy.
    fn write_legacy(&self, headers: &mut HeaderMap, binding: Option<&Outcome>) {
        let Some(outcome) = binding.filter(|_| self.headers.legacy) else { return };
        let r = outcome.remaining().min(self.policies.advertised(outcome).q);
        headers.insert(LIMIT, self.policies.limit(outcome.quota()));
        headers.insert(REMAINING, number(r));
        if !outcome.is_held() {
            headers.insert(RESET, number(self.reset(outcome.reset_after())));
        }
        if self.headers.used {
            headers.insert(USED, number(used(outcome, r)));
        }
        if self.headers.resource {
            let name = HeaderValue::from_str(outcome.policy()).expect("a policy's name is visible ASCII");
            headers.insert(RESOURCE, name);
        }
    }

    /// Returns `X-RateLimit-Reset`, rounded up to whole seconds.
    fn reset(&self, after: Duration) -> u64 {
        let since = match self.headers.reset {
            ResetFormat::UnixTime => unix_time(),
            ResetFormat::Seconds => Duration::ZERO,
        };
        whole_seconds(since.saturating_add(after))
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
