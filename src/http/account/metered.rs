//! The bytes of bodies: which counters they are taken from, and a body that takes them before its frames pass.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::{Frame, SizeHint};
use smallvec::SmallVec;

use super::body_error::BodyError;
use crate::core::{Decision, Lines, Outcome, PolicyName, Source};
use crate::http::gate::Gate;
use crate::http::policy::{Direction, Over};
use crate::limiter::{Flow, FlowError, Waits, flow_of, refuses_frames};
use crate::store::{Check, Counter, Decided, Mode, Receipt, Settlement, Store};

/// Limits how often `tier_without_portions` is logged.
static TIER: Lines = Lines::new();

/// The checks of a request whose units are bytes, with the places of their policies.
#[derive(Debug, Default)]
pub(crate) struct ByteChecks {
    each: Vec<(usize, Check)>,
    has_body: bool,
}

impl ByteChecks {
    /// Returns those among the checks of a decision; mostly none. `has_body` is what [`has_body`] returns.
    #[inline]
    pub(crate) fn of(gate: &Gate, policies: &[usize], checks: &[Check], has_body: bool) -> Self {
        if !gate.counts_bytes {
            return Self::default();
        }
        let each = policies.iter().copied().zip(checks);
        let each = each.filter(|(place, _)| gate.policies[*place].options().bytes.is_some());
        Self { each: each.map(|(place, check)| (place, check.clone())).collect(), has_body }
    }

    /// Returns whether the units of no check are bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Refuses a request of which a body could only be cut, and refunds what it took. One that another policy refuses
    /// waits for both.
    pub(crate) fn refuse(&self, gate: &Gate, decided: Decided) -> Decided {
        let is_cut = |(place, _): &&(usize, Check)| {
            gate.policies[*place].options().bytes.is_some_and(|bytes| bytes.over == Over::Cut)
        };
        let cuts: SmallVec<[&Check; 1]> = self.each.iter().filter(is_cut).map(|(_, check)| check).collect();
        // A refusal from the cache reports of other policies that nothing is left where it is not known.
        if cuts.is_empty() || decided.decision.source() == Source::DenyCache {
            return decided;
        }
        // A fallback has a share of each quota, of which it says no more than what is left.
        let is_share = decided.decision.source() == Source::Fallback;
        let refused = |outcome: &Outcome| {
            let of = |check: &&&Check| check.counter.policy() == outcome.policy_name();
            let check = cuts.iter().find(of).filter(|_| outcome.mode() == Mode::Enforce)?;
            let free = if is_share { 1 } else { outcome.quota().capacity().saturating_sub(check.floor) };
            refuses_frames(outcome, free)
        };
        let Decided { decision, receipt, .. } = decided;
        if !decision.outcomes().iter().any(|outcome| refused(outcome).is_some()) {
            return Decided::new(decision, receipt);
        }
        let has_taken = decision.is_allowed();
        let outcomes = decision.outcomes().iter().map(|outcome| refused(outcome).unwrap_or_else(|| outcome.clone()));
        let decision = Decision::new(outcomes.collect::<Vec<_>>(), decision.source());
        if !has_taken {
            return Decided::new(decision, receipt);
        }
        // Slots are released as such.
        drop(gate.limits.store.hold(&receipt));
        let refunds = Settlement::refunds(&receipt);
        let empty = Receipt::new(receipt.store(), []);
        drop(gate.limits.store.settle(receipt, &refunds));
        Decided::new(decision, empty)
    }

    /// Returns what the bodies of one direction take their bytes from; `None` if they are not limited.
    pub(super) fn meter(&self, gate: &Gate, direction: Direction) -> Option<Box<Meter>> {
        let limits = |place: usize| gate.policies[place].options().bytes.filter(|bytes| bytes.direction == direction);
        let each = || self.each.iter().filter_map(|(place, check)| Some((limits(*place)?, *place, check)));
        each().next()?;
        let cuts =
            each().filter(|(bytes, ..)| bytes.over == Over::Cut).map(|(_, _, check)| check.counter.policy().clone());
        let cuts = cuts.collect();
        let checks = each().map(|(_, place, check)| {
            let mut check = check.clone();
            if check.counter.quota().facts().only_in_store() {
                // A tier may have any quota, and bytes are taken in portions.
                warn_of_tier(check.counter.policy().as_str());
                check.counter = Counter::of(gate.policies[place].rule().limit(None), check.counter.key().clone());
            }
            check
        });
        let flow = flow_of(&gate.limits, checks);
        Some(Box::new(Meter { flow, cuts, waits: false, rest: Bytes::new(), has_failed: false }))
    }

    /// Returns whether the request has a body that is limited.
    pub(super) fn has_request(&self, gate: &Gate) -> bool {
        let of = |place: usize| gate.policies[place].options().bytes.map(|bytes| bytes.direction);
        self.has_body && self.each.iter().any(|(place, _)| of(*place) == Some(Direction::Request))
    }
}

/// Returns whether the head of a request says that a body comes: that of HTTP/2 need not.
pub(crate) fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length.as_bytes() != b"0")
}

/// Logs that a tier's quota cannot limit bytes.
fn warn_of_tier(policy: &str) {
    TIER.log(policy, |more| {
        tracing::warn!(
            code = "tier_without_portions",
            policy,
            more,
            "the quota of a tier cannot limit bytes, which take units in portions: the policy's own quota does"
        );
    });
}

/// Takes the bytes of one body before they pass.
#[derive(Debug)]
pub(crate) struct Meter {
    flow: Flow,
    /// The policies that cut the body.
    cuts: SmallVec<[PolicyName; 1]>,
    /// Whether the body waits for a policy that paces it, among some that cut it.
    waits: bool,
    /// What was read and may not pass yet.
    rest: Bytes,
    has_failed: bool,
}

/// What polling a limited body for a frame returns.
pub(crate) type Metered<D> = Poll<Option<Result<Frame<D>, BodyError>>>;

impl Meter {
    /// Polls for a frame, or the next part of one; `next` polls the inner body, and is called once at most.
    pub(crate) fn poll_with<D>(
        &mut self,
        cx: &mut Context<'_>,
        next: impl FnOnce(&mut Context<'_>) -> Metered<D>,
    ) -> Metered<D>
    where
        D: Buf + From<Bytes>,
    {
        if self.has_failed {
            return Poll::Ready(None);
        }
        if self.rest.is_empty() {
            let frame = match ready!(next(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let mut data = match frame.into_data() {
                Ok(data) if data.has_remaining() => data,
                Ok(empty) => return Poll::Ready(Some(Ok(Frame::data(empty)))),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            let size = data.remaining();
            match self.poll_units(size, cx) {
                Poll::Ready(Ok(units)) if units == size => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Poll::Ready(Ok(units)) => {
                    self.rest = data.copy_to_bytes(size);
                    return self.pass(units);
                }
                Poll::Ready(Err(error)) => return self.fail(error),
                Poll::Pending => self.rest = data.copy_to_bytes(size),
            }
            return Poll::Pending;
        }
        match ready!(self.poll_units(self.rest.len(), cx)) {
            Ok(units) => self.pass(units),
            Err(error) => self.fail(error),
        }
    }

    /// Polls for some of these bytes.
    fn poll_units(&mut self, size: usize, cx: &mut Context<'_>) -> Poll<Result<usize, FlowError>> {
        loop {
            let waits = match (self.cuts.is_empty(), self.waits) {
                (true, _) => Waits::ForQuota,
                (false, true) => Waits::UnlessCut,
                (false, false) => Waits::ForCall,
            };
            match ready!(self.flow.poll_some(cx, size as u64, waits)) {
                Ok(units) => {
                    self.waits = false;
                    return Poll::Ready(Ok(usize::try_from(units).unwrap_or(size)));
                }
                Err(error) if error.is_unavailable() => return Poll::Ready(Err(error)),
                Err(error) => match self.cuts.iter().find(|policy| error.policy() == Some(policy.as_str())) {
                    Some(policy) => {
                        self.flow.count_cut(policy);
                        return Poll::Ready(Err(error));
                    }
                    None => self.waits = error.is_refused(),
                },
            }
        }
    }

    /// Passes a part of what was read.
    fn pass<D: From<Bytes>>(&mut self, units: usize) -> Metered<D> {
        Poll::Ready(Some(Ok(Frame::data(D::from(self.rest.split_to(units))))))
    }

    /// Ends the body.
    fn fail<D>(&mut self, error: FlowError) -> Metered<D> {
        self.has_failed = true;
        self.rest = Bytes::new();
        tracing::debug!(policy = error.policy(), error = format!("{error:#}"), "a body was ended before its end");
        Poll::Ready(Some(Err(BodyError::new(error))))
    }

    /// Returns whether the body has ended, if the inner one has.
    pub(crate) fn is_end_stream(&self, is_end: bool) -> bool {
        self.has_failed || self.rest.is_empty() && is_end
    }

    /// Returns the size hint of the body with what was read of it.
    pub(crate) fn size_hint(&self, inner: &SizeHint) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, SizeHint::new());
        if self.has_failed {
            return SizeHint::with_exact(0);
        }
        // The upper bound first, which the lower one is compared with.
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
