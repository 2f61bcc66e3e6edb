//! All debts of one request.
//!
//! Only what can change becomes a debt: policies with a fixed cost that count every response have none, so most
//! requests have nothing to settle.

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::debt::{Checked, Debt, Of};
use super::wanted::Wanted;
use crate::core::{Decision, Error, Lines, Outcome};
use crate::http::gate::Gate;
use crate::http::policy::{Options, Policy};
use crate::store::{Applied, Change, Receipt, Settles, Settling};

/// How many checks of the handler are in the headers and settled with the response.
const MOST_SHOWN: usize = 64;

/// How many are kept at all; those beyond [`MOST_SHOWN`] change only by charges and refunds.
const MOST_KEPT: usize = 1_024;

/// Limits how often `many_checks` is logged.
static MANY: Lines = Lines::new();

/// All debts of one request; empty if nothing that it took can change.
#[derive(Debug, Default)]
pub(super) struct Debts {
    each: Vec<Debt>,
    /// What the handler checked, in order.
    checked: Vec<Checked>,
    /// Whether there is a response, or will be none: refunds are sent from then on.
    is_ended: bool,
    /// Whether every result is waited for, as the client's next request may depend on one.
    pub(super) matters: bool,
    /// Dropped once no change is in flight, which ends the wait of the response.
    waiting: Option<oneshot::Sender<()>>,
    /// Changes made outside of a runtime, whose results no task waits for yet.
    pub(super) unfollowed: Vec<Sent>,
}

/// A change in flight whose result is waited for.
#[derive(Debug)]
pub(super) struct Sent {
    /// The place of its debt.
    pub(super) debt: usize,
    pub(super) change: Change,
    pub(super) settling: Settling,
}

impl Debts {
    /// Creates the debts of a layer's decision; `policies` are the places of the policies in it.
    pub(super) fn of_layer(gate: &Gate, decision: &Decision, receipt: &Receipt, policies: &[usize]) -> Self {
        let mut debts = Self::default();
        let of = |check: usize| (Of::Layer(policies[check]), &gate.policies[policies[check]]);
        debts.insert(decision, receipt, of);
        debts
    }

    /// Adds what a check of the handler took.
    ///
    /// After the end, or beyond [`MOST_SHOWN`] checks, only charges and refunds of the handler change it, and all
    /// checks of one counter become one debt, as a handle may be used for hours.
    pub(super) fn add(&mut self, policy: &Policy, decision: &Decision, receipt: &Receipt) {
        let is_late = self.is_ended || self.checked.len() >= MOST_SHOWN;
        let debt = self.each.iter_mut().find(|debt| match receipt.taken() {
            [only] if is_late => debt.is_to(receipt.store(), &only.counter),
            _ => false,
        });
        if let Some(debt) = debt {
            receipt.taken().iter().for_each(|taken| debt.add(taken));
        } else if !is_late || policy.options().metered && self.checked.len() < MOST_KEPT {
            let place = self.checked.len();
            self.checked.push(Checked { policy: policy.clone(), decision: decision.clone() });
            self.insert(decision, receipt, |_| (Of::Handler(place), policy));
        } else if !self.is_ended {
            let policy = policy.name();
            MANY.log(policy, |more| {
                tracing::warn!(
                    code = "many_checks",
                    policy,
                    more,
                    "a handler made too many checks for one request: the latest are not settled with its response"
                );
            });
        }
    }

    /// Adds debts for what can change.
    fn insert<'a>(&mut self, decision: &Decision, receipt: &Receipt, of: impl Fn(usize) -> (Of, &'a Policy)) {
        for (check, (taken, outcome)) in receipt.taken().iter().zip(decision.outcomes()).enumerate() {
            let (of, policy) = of(check);
            // Slots are released as such.
            let is_held = taken.counter.quota().facts().held;
            // Bytes are settled by themselves. A policy of the layer that is hidden does not apply to the request; one
            // that the handler checked is only not shown.
            let applies = of.handler().is_some() || !outcome.is_hidden();
            if policy.options().bytes.is_some() || !applies {
                continue;
            }
            if !is_held && (policy.rule().settles() == Settles::ByOutcome || !outcome.delay().is_zero()) {
                self.each.push(Debt::new(of, check, receipt.store(), taken));
            }
        }
    }

    /// Changes the debts to metered policies.
    pub(super) fn meter(&mut self, gate: &Gate, change: impl Fn(&mut Wanted)) {
        for debt in &mut self.each {
            if debt.policy(gate, &self.checked).options().metered {
                change(&mut debt.wanted);
            }
        }
    }

    /// Sets the debts at the end of the request.
    ///
    /// `wanted` returns the units for a policy's options, its outcome, and the units wanted so far.
    pub(super) fn end(&mut self, gate: &Gate, decision: &Decision, wanted: impl Fn(&Options, &Outcome, u64) -> u64) {
        for debt in &mut self.each {
            let outcome = outcome(decision, &self.checked, debt);
            let units = wanted(debt.policy(gate, &self.checked).options(), outcome, debt.wanted.units());
            debt.wanted.set(units);
        }
        self.is_ended = true;
        self.matters = self.each.iter().any(|debt| debt.matters_soon(outcome(decision, &self.checked, debt)));
    }

    /// Sends the changes that are due and do not depend on a change in flight; they are the last ones unless they are
    /// `followed`. Returns those whose results are to be waited for.
    pub(super) fn make_changes(&mut self, gate: &Gate, followed: bool) -> SmallVec<[Sent; 1]> {
        let (mut sent, places) = (SmallVec::new(), 0..self.each.len());
        // Several debts may be to one counter: what was taken last is refunded first.
        let each = places.clone().map(|place| (place, false)).chain(places.rev().map(|place| (place, true)));
        for (place, refunds) in each {
            let debt = &mut self.each[place];
            let is_now = |change: &Change| matches!(change, Change::Refund(_)) == refunds;
            while let Some(change) = debt.due(self.is_ended).filter(is_now) {
                match debt.make(change, gate) {
                    Settling::Ready(applied) => debt.apply(change, applied),
                    settling if self.matters || followed && debt.depends_on(change) => {
                        debt.is_busy = true;
                        sent.push(Sent { debt: place, change, settling });
                    }
                    Settling::Pending(_) => debt.is_over = !followed,
                }
            }
        }
        if !self.is_busy() {
            self.waiting = None;
        }
        sent
    }

    /// Applies the result of a change that was in flight.
    pub(super) fn apply(&mut self, place: usize, change: Change, applied: Result<Vec<Applied>, Error>) {
        if let Some(debt) = self.each.get_mut(place) {
            debt.is_busy = false;
            debt.apply(change, applied);
        }
    }

    /// Ends a request, and returns whether its debts are as decided, with nothing to settle.
    #[inline]
    pub(super) fn ends_as_decided(&mut self) -> bool {
        self.is_ended = true;
        self.each.is_empty() && self.checked.is_empty()
    }

    /// Returns whether a change is in flight whose result is waited for.
    pub(super) fn is_busy(&self) -> bool {
        self.each.iter().any(|debt| debt.is_busy)
    }

    /// Returns a receiver that resolves once no such change is in flight.
    pub(super) fn when_settled(&mut self) -> oneshot::Receiver<()> {
        let (waiting, settled) = oneshot::channel();
        self.waiting = Some(waiting);
        settled
    }

    /// Returns the decision as clients see it: with what was checked and changed since.
    pub(super) fn shown(&self, decision: &Decision) -> Decision {
        if self.checked.is_empty() && self.each.iter().all(Debt::is_as_taken) {
            return decision.clone();
        }
        let layer = decision.outcomes().iter().enumerate().map(|(check, outcome)| (None, check, outcome));
        let checked = self.checked.iter().take(MOST_SHOWN).enumerate().flat_map(|(place, checked)| {
            let outcomes = checked.decision.outcomes().iter().enumerate();
            outcomes.map(move |(check, outcome)| (Some(place), check, outcome))
        });
        let outcomes = layer.chain(checked).map(|(handler, check, outcome)| {
            let is_of = |debt: &&Debt| debt.check == check && debt.of.handler() == handler;
            self.each.iter().find(is_of).map_or_else(|| outcome.clone(), |debt| debt.shown(outcome))
        });
        Decision::new(outcomes, decision.source())
    }
}

/// Returns the outcome that a debt comes from.
fn outcome<'a>(decision: &'a Decision, checked: &'a [Checked], debt: &Debt) -> &'a Outcome {
    let decision = debt.of.handler().map_or(decision, |place| &checked[place].decision);
    &decision.outcomes()[debt.check]
}
