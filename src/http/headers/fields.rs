//! Values of `RateLimit-Policy` (`q`, and `w` or `qu`, of each policy) and `RateLimit` (`r` and `t` of each outcome).
//!
//! Both are Lists of structured fields (RFC 9651). The formulas are from draft-ietf-httpapi-ratelimit-headers-11, with
//! this crate's choices where the draft leaves them open.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use smallvec::SmallVec;

use crate::core::{Backwards, Digits, Outcome, Quota};

pub(super) const AT_ONCE: &str = "concurrent-requests";

/// Length of `, "name";r=1;t=1` with the longest name and numbers.
const MAX_OUTCOME: usize = 128;

/// Interned values, many more than a process has layers. Further values are counted by reference.
const MAX_INTERNED: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct ListField {
    bytes: SmallVec<[u8; 128]>,
}

impl ListField {
    pub(super) fn policy(&mut self, name: &str, Advertised { q, w }: Advertised, unit: Option<&str>) {
        if !self.bytes.is_empty() {
            self.bytes.extend_from_slice(b", ");
        }
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'"');
        self.parameter(b'q', q);
        if let Some(w) = w {
            self.parameter(b'w', w);
        }
        if let Some(unit) = unit.or(w.is_none().then_some(AT_ONCE)) {
            self.bytes.extend_from_slice(b";qu=\"");
            self.bytes.extend_from_slice(unit.as_bytes());
            self.bytes.push(b'"');
        }
    }

    /// `later` is jitter in seconds, added to `t`.
    pub(super) fn outcome(&mut self, outcome: &Outcome, advertised: Advertised, later: u64) {
        let mut member = Backwards::<MAX_OUTCOME>::EMPTY;
        write_outcome(&mut member, outcome, advertised, later);
        if !self.bytes.is_empty() {
            member.text(b", ");
        }
        self.bytes.extend_from_slice(member.as_bytes());
    }

    pub(super) fn finish(&self) -> Option<HeaderValue> {
        let value = HeaderValue::from_bytes(&self.bytes).expect("names and numbers are visible ASCII");
        (!value.is_empty()).then_some(value)
    }

    fn parameter(&mut self, name: u8, number: u64) {
        self.bytes.extend_from_slice(&[b';', name, b'=']);
        self.bytes.extend_from_slice(Digits::new(number).as_bytes());
    }
}

#[inline]
fn write_outcome<const N: usize>(text: &mut Backwards<N>, outcome: &Outcome, advertised: Advertised, later: u64) {
    let (r, t) = left(outcome, advertised);
    if let Some(t) = t {
        text.number((t + later).min(MAX_INTEGER));
        text.text(b";t=");
    }
    text.number(r);
    text.text(b"\";r=");
    text.text(outcome.policy().as_bytes());
    text.text(b"\"");
}

/// Returns `RateLimit` of this outcome alone, its units left, and the reset.
///
/// They share one allocation, because three would cost more than their text.
#[inline]
pub(super) fn values_of_one(outcome: &Outcome, advertised: Advertised, later: u64, reset: u64) -> [HeaderValue; 3] {
    let mut text = Backwards::<{ MAX_OUTCOME + 40 }>::EMPTY;
    text.number(reset);
    let behind_left = text.len();
    text.number(outcome.remaining().min(advertised.q));
    let behind_limits = text.len();
    write_outcome(&mut text, outcome, advertised, later);
    let (left, reset) = (text.len() - behind_limits, text.len() - behind_left);
    let all = Bytes::from_owner(text);
    let value = |text| HeaderValue::from_maybe_shared(text).expect("names and numbers are visible ASCII");
    [value(all.slice(..left)), value(all.slice(left..reset)), value(all.slice(reset..))]
}

/// Largest Integer of a structured field (RFC 9651 §3.3.1).
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Advertised quota: `q` units in `w` seconds, or at once without `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) q: u64,
    pub(crate) w: Option<u64>,
}

impl Advertised {
    /// Returns the shortest whole number of seconds in which the capacity is refilled, and the units refilled by then.
    ///
    /// So `q` is never below the capacity, and both are as configured if the window is whole seconds and the burst no
    /// more than the limit. Slots have no window. A calendar has the usual length of its windows: see
    /// [`from_outcome`](Self::from_outcome).
    pub(crate) fn from_quota(quota: &Quota) -> Self {
        Self::over(quota, quota.window())
    }

    /// A calendar has the length of the window that counts now.
    pub(crate) fn from_outcome(outcome: &Outcome) -> Self {
        Self::over(outcome.quota(), outcome.window())
    }

    fn over(quota: &Quota, window: Duration) -> Self {
        if quota.facts().held {
            return Self { q: quota.limit().min(MAX_INTEGER), w: None };
        }
        let seconds = window.as_secs();
        if quota.capacity() <= quota.limit() && window.subsec_nanos() == 0 {
            return Self { q: quota.limit().min(MAX_INTEGER), w: Some(seconds.min(MAX_INTEGER)) };
        }
        let limit = u128::from(quota.limit());
        let capacity = limit.max(quota.capacity().into());
        let window = window.as_micros();
        let w = (capacity * window).div_ceil(limit * 1_000_000).max(1);
        let q = limit * w * 1_000_000 / window;
        Self { q: clamp(q), w: Some(clamp(w)) }
    }
}

fn clamp(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(MAX_INTEGER).min(MAX_INTEGER)
}

/// Rounds up, to at most [`MAX_INTEGER`].
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).min(MAX_INTEGER)
}

/// Returns `r`, the units left, and `t` in seconds. There is no `t` if no wait changes `r`, or if nothing tells when
/// slots become free.
///
/// If nothing is left, or the request is denied, `t` is the wait. Otherwise `t` is how long `r` units last at the rate
/// of the quota, or the time until the window ends, whichever is longer.
fn left(outcome: &Outcome, Advertised { q, w }: Advertised) -> (u64, Option<u64>) {
    let r = outcome.remaining().min(q);
    let Some(w) = w else { return (r, None) };
    if !outcome.is_allowed() || r == 0 {
        return (r, outcome.wait().map(|wait| whole_seconds(wait).max(1)));
    }
    let refilled = match r.checked_mul(w) {
        Some(product) => product.div_ceil(q),
        None => clamp((u128::from(r) * u128::from(w)).div_ceil(u128::from(q))),
    };
    // `None` for algorithms that refill bit by bit.
    let window_end = outcome.quota().window_end(outcome.reset_after());
    (r, Some(window_end.map_or(refilled, |end| refilled.max(whole_seconds(end)))))
}

/// Returns the units of the capacity that are not left, because a bucket with a burst below the limit never holds more.
pub(crate) fn used(outcome: &Outcome, left: u64) -> u64 {
    let Advertised { q, .. } = Advertised::from_quota(outcome.quota());
    outcome.quota().capacity().min(q).saturating_sub(left)
}

pub(crate) fn number(number: u64) -> HeaderValue {
    // `HeaderValue::from` would allocate twice, and most numbers need not be allocated at all.
    let value = match Digits::small(number) {
        Some(digits) => HeaderValue::from_maybe_shared(Bytes::from_static(digits)),
        None => HeaderValue::from_bytes(Digits::new(number).as_bytes()),
    };
    value.expect("digits are visible ASCII")
}

/// Returns an equal value for a layer to send with all responses, whose clones share no reference count.
pub(super) fn interned(value: HeaderValue) -> HeaderValue {
    static INTERNED: LazyLock<Mutex<HashSet<&'static [u8]>>> = LazyLock::new(Mutex::default);
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = interned.get(value.as_bytes()).copied();
    let bytes = match same {
        Some(same) => same,
        None if interned.len() >= MAX_INTERNED => return value,
        None => {
            let bytes: &[u8] = Box::leak(value.as_bytes().into());
            interned.insert(bytes);
            bytes
        }
    };
    HeaderValue::from_maybe_shared(Bytes::from_static(bytes)).expect("it was a value before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_advertised_over_whole_seconds_and_with_no_more_than_its_burst() {
        for (quota, q, w) in [
            (Quota::per_hour(5_000).burst(200), 5_000, 3_600),
            (Quota::fixed_window(7, Duration::from_secs(86_400)), 7, 86_400),
            (Quota::per_second(10).burst(100), 100, 10),
            (Quota::per_second(10).burst(101), 110, 11),
            (Quota::token_bucket(5, Duration::from_millis(100)), 50, 1),
            (Quota::fixed_window(1, Duration::from_micros(1)), 1_000_000, 1),
        ] {
            assert_eq!(Advertised::from_quota(&quota), Advertised { q, w: Some(w) }, "{quota}");
        }
    }

    #[test]
    fn equal_values_are_interned_once() {
        let [one, same] = [7_654_321; 2].map(|q| interned(number(q)));
        assert_eq!((&one, one.as_bytes().as_ptr()), (&number(7_654_321), same.as_bytes().as_ptr()));
    }
}
