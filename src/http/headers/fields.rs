//! The values of `RateLimit-Policy` (`q`, and `w` or `qu`, of each policy) and `RateLimit` (`r` and `t` of each outcome).
//!
//! Both are Lists of structured fields (RFC 9651). What does not change from request to request is rendered once, when
//! the policies are set.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderValue;
use smallvec::SmallVec;

use super::numbers::{Advertised, LARGEST, Left};
use crate::core::{Digits, Limit, Outcome, PolicyName, Quota};
use crate::http::policy::Policy;

/// The parts of headers that are equal in all responses of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyField {
    /// `RateLimit-Policy`; `None` if no policy is shown.
    pub(super) value: Option<HeaderValue>,
    /// Each quota that is shown.
    quotas: Vec<Rendered>,
    /// All policies, as they are configured.
    configured: Vec<Limit>,
    /// The policies that are not shown.
    hidden: Vec<PolicyName>,
    /// The policies whose units are bytes.
    bytes: Vec<PolicyName>,
}

/// The numbers of a quota, which are equal in all responses unless it is a calendar's.
#[derive(Clone, Debug)]
struct Rendered {
    quota: Quota,
    advertised: Advertised,
    /// `X-RateLimit-Limit`: a slice of `RateLimit-Policy`, its `q`.
    limit: HeaderValue,
}

impl PolicyField {
    /// Renders the policies that are shown.
    pub(super) fn of(policies: &[Policy]) -> Self {
        let mut field = PolicyList::default();
        let shown = policies.iter().filter(|policy| policy.is_shown());
        let hidden = policies.iter().filter(|policy| !policy.is_shown());
        let render = |policy: &Policy| {
            let (is_bytes, advertised) = (policy.options().bytes.is_some(), Advertised::of(policy.quota()));
            (*policy.quota(), advertised, field.policy(policy.name(), advertised, is_bytes))
        };
        let places: Vec<(Quota, Advertised, Range<usize>)> = shown.map(render).collect();
        let name = |policy: &Policy| policy.rule().name().clone();
        let bytes = Bytes::copy_from_slice(&field.bytes);
        let part = |place| HeaderValue::from_maybe_shared(bytes.slice(place)).expect(VISIBLE);
        let rendered = |(quota, advertised, place)| Rendered { quota, advertised, limit: part(place) };
        Self {
            value: (!bytes.is_empty()).then(|| part(0..bytes.len())),
            quotas: places.into_iter().map(rendered).collect(),
            bytes: policies.iter().filter(|policy| policy.options().bytes.is_some()).map(name).collect(),
            configured: policies.iter().map(|policy| policy.rule().limit(None)).collect(),
            hidden: hidden.map(name).collect(),
        }
    }

    /// Returns whether a decision is over all policies, each with its own quota, so that [`value`](Self::value) fits.
    /// It never does if one has windows of a calendar, which differ in length.
    pub(super) fn is_of(&self, outcomes: &[Outcome]) -> bool {
        let is_of = |(outcome, limit): (&Outcome, &Limit)| {
            outcome.name_and_quota() == limit && limit.quota.calendar().is_none() && !outcome.is_hidden()
        };
        outcomes.len() == self.configured.len() && outcomes.iter().zip(&self.configured).all(is_of)
    }

    /// Returns whether a policy is not shown.
    pub(super) fn hides(&self, name: &PolicyName) -> bool {
        self.hidden.contains(name)
    }

    /// Returns whether the units of a policy are bytes.
    pub(super) fn counts_bytes(&self, name: &PolicyName) -> bool {
        self.bytes.contains(name)
    }

    /// Returns the quota of an outcome as it is advertised, and `X-RateLimit-Limit` of it if that was rendered before:
    /// it was not if the quota is that of a tier.
    pub(super) fn advertised(&self, outcome: &Outcome) -> (Advertised, Option<&HeaderValue>) {
        let quota = outcome.quota();
        match self.quotas.iter().find(|rendered| rendered.quota == *quota) {
            Some(rendered) if quota.calendar().is_none() => (rendered.advertised, Some(&rendered.limit)),
            rendered => (Advertised::of_outcome(outcome), rendered.map(|rendered| &rendered.limit)),
        }
    }
}

const VISIBLE: &str = "names and numbers are visible ASCII";

/// The parameter of a quota whose units are slots.
const AT_ONCE: &[u8] = b";qu=\"concurrent-requests\"";

/// The parameter of a quota whose units are bytes.
const BYTES: &[u8] = b";qu=\"content-bytes\"";

/// The value of `RateLimit-Policy` while it is written: a List of quoted names with parameters, mostly Integers.
#[derive(Debug, Default)]
pub(super) struct PolicyList {
    bytes: SmallVec<[u8; 128]>,
}

/// A member of `RateLimit` before it is written.
pub(super) struct Member<'a> {
    name: &'a str,
    r: Digits,
    t: Option<Digits>,
}

impl<'a> Member<'a> {
    /// Creates the member of an outcome, with `later` seconds of jitter in its `t`.
    pub(super) fn of(outcome: &'a Outcome, advertised: Advertised, later: u64) -> Self {
        let Left { r, t } = Left::of(outcome, advertised);
        let t = t.map(|t| Digits::of((t + later).min(LARGEST)));
        Self { name: outcome.policy(), r: Digits::of(r), t }
    }

    /// Returns the number of bytes that are written.
    fn len(&self) -> usize {
        let t = self.t.as_ref().map_or(0, |t| 3 + t.as_bytes().len());
        2 + self.name.len() + 3 + self.r.as_bytes().len() + t
    }

    fn write(&self, value: &mut Vec<u8>) {
        value.push(b'"');
        value.extend_from_slice(self.name.as_bytes());
        value.extend_from_slice(b"\";r=");
        value.extend_from_slice(self.r.as_bytes());
        if let Some(t) = &self.t {
            value.extend_from_slice(b";t=");
            value.extend_from_slice(t.as_bytes());
        }
    }
}

/// Returns `RateLimit` of these members, of which there must be one: in as many bytes as it takes.
pub(super) fn limits(members: &[Member<'_>]) -> HeaderValue {
    let size = members.iter().map(|member| 2 + member.len()).sum::<usize>() - 2;
    let mut value = Vec::with_capacity(size);
    for member in members {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        member.write(&mut value);
    }
    HeaderValue::from_maybe_shared(Bytes::from(value)).expect(VISIBLE)
}

impl PolicyList {
    /// Adds a member of `RateLimit-Policy`, perhaps of bytes, and returns where its `q` is.
    pub(super) fn policy(&mut self, name: &str, Advertised { q, w }: Advertised, is_bytes: bool) -> Range<usize> {
        self.member(name);
        let place = self.parameter(b'q', q);
        match w {
            Some(w) => drop(self.parameter(b'w', w)),
            None => self.bytes.extend_from_slice(AT_ONCE),
        }
        if is_bytes {
            self.bytes.extend_from_slice(BYTES);
        }
        place
    }

    /// Returns the value; `None` if it has no member.
    pub(super) fn finish(&self) -> Option<HeaderValue> {
        let value = HeaderValue::from_bytes(&self.bytes).expect(VISIBLE);
        (!value.is_empty()).then_some(value)
    }

    fn member(&mut self, name: &str) {
        if !self.bytes.is_empty() {
            self.bytes.extend_from_slice(b", ");
        }
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'"');
    }

    /// Adds a parameter, and returns where its number is.
    fn parameter(&mut self, name: u8, number: u64) -> Range<usize> {
        self.bytes.extend_from_slice(&[b';', name, b'=']);
        let from = self.bytes.len();
        self.bytes.extend_from_slice(Digits::of(number).as_bytes());
        from..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Check, Counter, Key};

    #[test]
    fn the_limit_of_a_quota_is_its_q_whether_it_was_rendered_before_or_not() {
        let hidden = Policy::new("hidden", Quota::per_hour(3)).unadvertised();
        let policies =
            [hidden, Policy::new("a", Quota::per_minute(7)), Policy::new("b", Quota::per_second(10).burst(101))];
        let field = PolicyField::of(&policies);
        let limit = |quota: Quota| {
            let counter = Counter::new("any".try_into().expect("a valid name"), Key::new("user", "ada"), quota);
            field.advertised(&Outcome::allowed(&Check::new(counter, 1), 1)).1.cloned()
        };
        let expected = [None, Some("7"), Some("110")].map(|limit| limit.map(HeaderValue::from_static));
        assert_eq!(policies.map(|policy| limit(*policy.quota())), expected, "what is hidden needs none");
        assert_eq!(limit(Quota::per_hour(9)), None, "a tier's is not rendered before");
    }
}
