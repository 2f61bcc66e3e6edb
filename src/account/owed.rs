//! All that one request owes.

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::debt::{Debt, Of};
use crate::gate::Gate;
use crate::policy::Options;
use crate::store::{Applied, Change, Receipt, Settles, Settling};
use crate::{Decision, Error, Outcome, Policy, Store};

/// All that one request owes: nothing, if nothing that it took can change.
#[derive(Debug, Default)]
pub(super) struct Owed {
    debts: Vec<Debt>,
    /// Decisions that the handler asked for.
    asked: Vec<Asked>,
    /// Those that hold slots.
    receipts: Vec<Receipt>,
    /// There is a response, or there will be none: what is given back goes to the store from then on.
    is_ended: bool,
    /// All answers are waited for.
    pub(super) matters: bool,
    waiting: Option<oneshot::Sender<()>>,
}

/// A policy that the handler asked, and what was decided.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) policy: Policy,
    decision: Decision,
}

/// A change on its way whose answer is waited for.
pub(super) struct Sent {
    /// The debt's place.
    pub(super) debt: usize,
    /// How many units it charges, if it does.
    pub(super) charge: Option<u64>,
    pub(super) settling: Settling,
}

impl Owed {
    /// What a layer's decision took.
    pub(super) fn of_layer(gate: &Gate, decision: &Decision, receipt: Receipt, policies: &[usize]) -> Self {
        let mut owed = Self::default();
        let of = |check: usize| (Of::Layer(policies[check]), &gate.policies[policies[check]]);
        owed.insert(gate, decision, receipt, of);
        owed
    }

    /// Adds what a decision took that the handler asked for.
    pub(super) fn add(&mut self, gate: &Gate, policy: &Policy, decision: &Decision, receipt: Receipt) {
        let place = self.asked.len();
        self.asked.push(Asked { policy: policy.clone(), decision: decision.clone() });
        self.insert(gate, decision, receipt, |_| (Of::Handler(place), policy));
    }

    fn insert<'a>(
        &mut self,
        gate: &Gate,
        decision: &Decision,
        receipt: Receipt,
        of: impl Fn(usize) -> (Of, &'a Policy),
    ) {
        let mut holds_slots = false;
        for (check, (taken, outcome)) in receipt.taken().iter().zip(decision.outcomes()).enumerate() {
            let (of, policy) = of(check);
            holds_slots |= taken.slot != 0;
            if policy.options().settles() == Settles::ByOutcome || !outcome.delay().is_zero() {
                self.debts.push(Debt::new(of, check, receipt.store(), taken));
            }
        }
        if holds_slots {
            self.receipts.push(receipt);
        } else {
            drop(gate.store.settle(receipt, &[]));
        }
    }

    /// Sets what is to be owed, as `wanted` says of options, outcome, and what was to be owed so far.
    pub(super) fn want(&mut self, gate: &Gate, decision: &Decision, wanted: impl Fn(&Options, &Outcome, u64) -> u64) {
        for debt in &mut self.debts {
            let outcome = outcome(decision, &self.asked, debt);
            debt.wanted = wanted(debt.policy(gate, &self.asked).options(), outcome, debt.wanted);
        }
    }

    /// As [`want`](Self::want), at the end of the request.
    pub(super) fn end(&mut self, gate: &Gate, decision: &Decision, wanted: impl Fn(&Options, &Outcome, u64) -> u64) {
        for debt in &mut self.debts {
            let outcome = outcome(decision, &self.asked, debt);
            debt.set(wanted(debt.policy(gate, &self.asked).options(), outcome, debt.wanted));
        }
        self.is_ended = true;
        self.matters = self.debts.iter().any(|debt| debt.matters_soon(outcome(decision, &self.asked, debt)));
        for receipt in self.receipts.drain(..) {
            drop(gate.store.settle(receipt, &[]));
        }
    }

    /// Makes the changes that are due and depend on no answer. Those that are not `followed` are the last.
    pub(super) fn make_changes(&mut self, gate: &Gate, followed: bool) -> SmallVec<[Sent; 1]> {
        let mut sent = SmallVec::new();
        for (place, debt) in self.debts.iter_mut().enumerate() {
            while let Some(change) = debt.due(self.is_ended) {
                let charge = if let Change::Charge(units) = change { Some(units) } else { None };
                match debt.make(change, gate) {
                    Settling::Ready(applied) => debt.learn(charge, first(applied)),
                    settling if self.matters || followed && charge.is_some() => {
                        debt.is_busy = true;
                        sent.push(Sent { debt: place, charge, settling });
                    }
                    Settling::Pending(_) if charge.is_some() => debt.is_over = true,
                    Settling::Pending(_) => {}
                }
            }
        }
        if !self.is_busy() {
            self.waiting = None;
        }
        sent
    }

    /// Learns what became of a change.
    pub(super) fn learn(&mut self, place: usize, charge: Option<u64>, applied: Result<Vec<Applied>, Error>) {
        if let Some(debt) = self.debts.get_mut(place) {
            debt.is_busy = false;
            debt.learn(charge, first(applied));
        }
    }

    /// Ends a request of which nothing changed, as nothing that it took can, and nothing else was asked;
    /// returns whether it is one.
    #[inline]
    pub(super) fn ends_as_decided(&mut self) -> bool {
        self.is_ended = true;
        self.debts.is_empty() && self.asked.is_empty() && self.receipts.is_empty()
    }

    /// Whether answers are waited for.
    pub(super) fn is_busy(&self) -> bool {
        self.debts.iter().any(|debt| debt.is_busy)
    }

    /// Ends once no answer is waited for.
    pub(super) fn when_settled(&mut self) -> oneshot::Receiver<()> {
        let (waiting, settled) = oneshot::channel();
        self.waiting = Some(waiting);
        settled
    }

    /// The decision as clients are told it: with what was asked and changed since.
    pub(super) fn shown(&self, decision: &Decision) -> Decision {
        if self.asked.is_empty() && self.debts.iter().all(Debt::is_as_taken) {
            return decision.clone();
        }
        let layer = decision.outcomes().iter().enumerate().map(|(check, outcome)| (None, check, outcome));
        let asked = self.asked.iter().enumerate().flat_map(|(place, asked)| {
            let outcomes = asked.decision.outcomes().iter().enumerate();
            outcomes.map(move |(check, outcome)| (Some(place), check, outcome))
        });
        let outcomes = layer.chain(asked).map(|(handler, check, outcome)| {
            let is_of = |debt: &&Debt| debt.check == check && debt.of.handler() == handler;
            self.debts.iter().find(is_of).map_or_else(|| outcome.clone(), |debt| debt.shown(outcome))
        });
        Decision::new(outcomes, decision.source())
    }
}

fn outcome<'a>(decision: &'a Decision, asked: &'a [Asked], debt: &Debt) -> &'a Outcome {
    let decision = debt.of.handler().map_or(decision, |place| &asked[place].decision);
    &decision.outcomes()[debt.check]
}

fn first(applied: Result<Vec<Applied>, Error>) -> Result<Option<Applied>, Error> {
    applied.map(|applied| applied.into_iter().next())
}
