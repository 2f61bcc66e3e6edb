//! Writing the headers, beside those that are there.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::fields::{Field, PolicyField};
use super::merge::{is_stricter, merge};
use super::names::{LIMIT, RATELIMIT, RATELIMIT_POLICY, REMAINING, RESET, RESOURCE, TOLD, USED};
use super::numbers::{Left, number, used, whole_seconds};
use super::settings::{Headers, ResetFormat};
use crate::core::Mode;
use crate::http::policy::Policy;
use crate::{Decision, Outcome};

/// Writes the headers of a layer's policies.
#[derive(Clone, Debug)]
pub(crate) struct HeaderWriter {
    headers: Headers,
    policies: PolicyField,
}

impl HeaderWriter {
    /// A writer for no policy yet.
    pub(crate) fn new(headers: Headers) -> Self {
        Self { headers, policies: PolicyField::default() }
    }

    pub(crate) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
    }

    pub(crate) fn set_policies(&mut self, policies: &[Policy]) {
        self.policies = PolicyField::of(policies);
    }

    /// Which headers are sent.
    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Writes the headers of an admitted request's response, beside those that are there.
    pub(crate) fn write(&self, headers: &mut HeaderMap, status: StatusCode, decision: &Decision) {
        if decision.outcomes().is_empty() || self.headers.are_none() {
            return;
        }
        let binding = self.binding(decision);
        if !headers.keys().any(|name| TOLD.contains(name)) {
            return self.insert_headers(headers, decision, binding, decision.outcomes().iter(), 0);
        }
        // Units left here must not tell a client to come back sooner than the refusal does.
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
            // What the others said of these is not about the limit that is told now.
            headers.remove(USED);
            headers.remove(RESOURCE);
            self.write_legacy(headers, binding);
        }
    }

    /// Writes the headers of a refusal, whose waits are so many seconds later if any wait can help.
    pub(crate) fn write_refusal(&self, headers: &mut HeaderMap, decision: &Decision, later: u64) {
        if self.headers.are_none() {
            return;
        }
        let later = decision.retry_after().map_or(0, |_| later);
        self.insert_headers(headers, decision, self.binding(decision), decision.violated(), later);
    }

    /// Writes all headers over those that are there; `outcomes` are told in `RateLimit`.
    fn insert_headers<'a>(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        binding: Option<&'a Outcome>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) {
        // No more: a map that has to grow is made anew.
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

    fn policy_value(&self, decision: &Decision) -> Option<HeaderValue> {
        let outcomes = decision.outcomes();
        if self.policies.is_of(outcomes) {
            return self.policies.value.clone();
        }
        let mut field = Field::default();
        for outcome in outcomes.iter().filter(|outcome| self.shows(outcome)) {
            field.policy(outcome.policy(), outcome.quota());
        }
        field.finish()
    }

    /// The policy that binds among those that clients are told of.
    fn binding<'a>(&self, decision: &'a Decision) -> Option<&'a Outcome> {
        let told = |outcome: &&Outcome| self.shows(outcome);
        let binding = decision.binding().filter(told);
        if binding.is_some() {
            return binding;
        }
        if decision.is_allowed() {
            decision.outcomes().iter().filter(told).min_by_key(|outcome| outcome.remaining())
        } else {
            decision.violated().filter(told).max_by_key(|outcome| outcome.retry_after().unwrap_or(Duration::MAX))
        }
    }

    /// Whether clients are told of an outcome.
    pub(crate) fn shows(&self, outcome: &Outcome) -> bool {
        outcome.mode() == Mode::Enforce && !outcome.is_hidden() && !self.policies.hides(outcome.policy_name())
    }

    /// The members of `RateLimit`, the binding policy first.
    fn limits<'a>(
        &self,
        binding: Option<&'a Outcome>,
        outcomes: impl Iterator<Item = &'a Outcome>,
        later: u64,
    ) -> Option<HeaderValue> {
        let is_binding = |outcome: &Outcome| binding.is_some_and(|binding| std::ptr::eq(binding, outcome));
        let others = outcomes.filter(|outcome| !is_binding(outcome));
        let mut field = Field::default();
        for outcome in binding.into_iter().chain(others).filter(|outcome| self.shows(outcome)) {
            field.left(outcome, later);
        }
        field.finish()
    }

    fn write_legacy(&self, headers: &mut HeaderMap, binding: Option<&Outcome>) {
        let Some(outcome) = binding.filter(|_| self.headers.legacy) else { return };
        let r = Left::units(outcome);
        headers.insert(LIMIT, self.policies.limit(outcome.quota()));
        headers.insert(REMAINING, number(r));
        headers.insert(RESET, number(self.reset(outcome.reset_after())));
        if self.headers.used {
            headers.insert(USED, number(used(outcome, r)));
        }
        if self.headers.resource {
            let name = HeaderValue::from_str(outcome.policy()).expect("a policy's name is visible ASCII");
            headers.insert(RESOURCE, name);
        }
    }

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
