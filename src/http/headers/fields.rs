//! The values of the header fields: `q` and `w` of a policy, `r` and `t` of an outcome.
//!
//! The formulas are those of draft-ietf-httpapi-ratelimit-headers-11, with the choices this crate
//! makes where the draft leaves them open.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use smallvec::SmallVec;

use crate::core::quota::Algorithm;
use crate::{Outcome, Policy, Quota};

/// The largest Integer of a structured field (RFC 9651 §3.3.1).
pub(crate) const LARGEST: u64 = 999_999_999_999_999;

/// A quota as clients are told it: `q` units in `w` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) q: u64,
    pub(crate) w: u64,
}

impl Advertised {
    /// The shortest whole number of seconds in which the capacity is refilled, and the units then.
    ///
    /// So `q` is never below the capacity, and for whole seconds and no extra burst both are as
    /// configured.
    pub(crate) fn of(quota: &Quota) -> Self {
        let seconds = quota.window().as_secs();
        if quota.capacity() <= quota.limit() && quota.window().subsec_nanos() == 0 {
            return Self { q: quota.limit().min(LARGEST), w: seconds.min(LARGEST) };
        }
        let limit = u128::from(quota.limit());
        let capacity = limit.max(quota.capacity().into());
        let window = quota.window().as_micros();
        let w = (capacity * window).div_ceil(limit * 1_000_000).max(1);
        let q = limit * w * 1_000_000 / window;
        Self { q: clamp(q), w: clamp(w) }
    }
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(LARGEST).min(LARGEST)
}

/// Whole seconds, rounded up.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).min(LARGEST)
}

/// The parameters of one member of `RateLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) r: u64,
    /// `None` when no wait changes `r`.
    pub(crate) t: Option<u64>,
}

impl Left {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let Advertised { q, w } = Advertised::of(outcome.quota());
        let r = outcome.remaining().min(q);
        if !outcome.is_allowed() || r == 0 {
            return Self { r, t: outcome.wait().map(|wait| whole_seconds(wait).max(1)) };
        }
        let refilled = match r.checked_mul(w) {
            Some(product) => product.div_ceil(q),
            None => clamp((u128::from(r) * u128::from(w)).div_ceil(u128::from(q))),
        };
        Self { r, t: Some(refilled.max(whole_seconds(window_end(outcome)))) }
    }

    /// Only `r`.
    pub(crate) fn units(outcome: &Outcome) -> u64 {
        outcome.remaining().min(Advertised::of(outcome.quota()).q)
    }
}

/// Units taken, where `left` are left: a bucket that holds less than the limit is full at its burst.
pub(crate) fn used(outcome: &Outcome, left: u64) -> u64 {
    let Advertised { q, .. } = Advertised::of(outcome.quota());
    outcome.quota().capacity().min(q).saturating_sub(left)
}

/// Until the window counted in ends, for algorithms that give all units back at once.
fn window_end(outcome: &Outcome) -> Duration {
    match outcome.quota().algorithm() {
        Algorithm::FixedWindow => outcome.reset_after(),
        Algorithm::SlidingWindow => {
            let (reset, window) = (outcome.reset_after(), outcome.quota().window());
            if reset > window { reset.saturating_sub(window) } else { reset }
        }
        Algorithm::SlidingLog | Algorithm::TokenBucket | Algorithm::LeakyBucket => Duration::ZERO,
    }
}

/// What all requests are told of a list of policies.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyField {
    /// `RateLimit-Policy`, rendered once; `None` if no policy is shown.
    pub(crate) value: Option<HeaderValue>,
    /// `X-RateLimit-Limit` of each quota that is shown: its `q` in `value`.
    limits: Vec<(Quota, HeaderValue)>,
    /// Whether a policy must not be named.
    pub(crate) hides: bool,
}

impl PolicyField {
    pub(crate) fn of(policies: &[Policy]) -> Self {
        let mut field = Field::default();
        let shown = policies.iter().filter(|policy| policy.is_shown());
        let render = |policy: &Policy| (*policy.quota(), field.policy(policy.name(), policy.quota()));
        let places: Vec<(Quota, Range<usize>)> = shown.map(render).collect();
        let bytes = Bytes::copy_from_slice(&field.bytes);
        let part = |place| HeaderValue::from_maybe_shared(bytes.slice(place)).expect(VISIBLE);
        Self {
            value: (!bytes.is_empty()).then(|| part(0..bytes.len())),
            limits: places.into_iter().map(|(quota, place)| (quota, part(place))).collect(),
            hides: policies.iter().any(|policy| !policy.is_shown()),
        }
    }

    /// `X-RateLimit-Limit` of a quota.
    pub(crate) fn limit(&self, quota: &Quota) -> HeaderValue {
        let rendered = self.limits.iter().find(|(shown, _)| shown == quota);
        rendered.map_or_else(|| number(Advertised::of(quota).q), |(_, limit)| limit.clone())
    }
}

const VISIBLE: &str = "names and numbers are visible ASCII";

/// A number as a header's value.
pub(crate) fn number(number: u64) -> HeaderValue {
    // `HeaderValue::from` would allocate twice.
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are visible ASCII")
}

/// A field's value, being written: a List of quoted names with Integer parameters.
#[derive(Debug, Default)]
pub(crate) struct Field {
    bytes: SmallVec<[u8; 128]>,
}

impl Field {
    /// Adds a member of `RateLimit-Policy`; returns the place of its `q`.
    pub(crate) fn policy(&mut self, name: &str, quota: &Quota) -> Range<usize> {
        let Advertised { q, w } = Advertised::of(quota);
        self.member(name);
        let place = self.parameter(b'q', q);
        self.parameter(b'w', w);
        place
    }

    /// Adds a member of `RateLimit`.
    pub(crate) fn left(&mut self, outcome: &Outcome, later: u64) {
        let Left { r, t } = Left::of(outcome);
        self.member(outcome.policy());
        self.parameter(b'r', r);
        if let Some(t) = t {
            self.parameter(b't', (t + later).min(LARGEST));
        }
    }

    /// The value; `None` if it has no member.
    pub(crate) fn finish(&self) -> Option<HeaderValue> {
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

    /// Adds a parameter; returns the place of its number.
    fn parameter(&mut self, name: u8, number: u64) -> Range<usize> {
        self.bytes.extend_from_slice(&[b';', name, b'=']);
        let from = self.bytes.len();
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        from..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn advertised(quota: Quota, q: u64, w: u64) {
        assert_eq!(Advertised::of(&quota), Advertised { q, w });
        assert!(q >= quota.capacity());
    }

    #[test]
    fn whole_second_windows_are_advertised_as_configured() {
        advertised(Quota::per_minute(100), 100, 60);
        advertised(Quota::per_hour(5_000).burst(200), 5_000, 3_600);
        advertised(Quota::fixed_window(7, Duration::from_secs(86_400)), 7, 86_400);
    }

    #[test]
    fn a_burst_above_the_limit_is_never_more_than_q() {
        advertised(Quota::per_second(10).burst(100), 100, 10);
        advertised(Quota::per_second(10).burst(101), 110, 11);
    }

    #[test]
    fn the_limit_of_a_quota_is_its_q_whether_it_was_rendered_before_or_not() {
        let hidden = Policy::new("hidden", Quota::per_hour(3)).unadvertised();
        let policies =
            [hidden, Policy::new("a", Quota::per_minute(7)), Policy::new("b", Quota::per_second(10).burst(101))];
        let field = PolicyField::of(&policies);
        let limits = policies.map(|policy| field.limit(policy.quota()));
        assert_eq!(limits, ["3", "7", "110"]);
        assert_eq!(field.limit(&Quota::per_hour(9)), "9");
    }

    #[test]
    fn windows_of_less_than_a_second_are_advertised_by_the_second() {
        advertised(Quota::token_bucket(5, Duration::from_millis(100)), 50, 1);
        advertised(Quota::fixed_window(1, Duration::from_micros(1)), 1_000_000, 1);
    }
}
