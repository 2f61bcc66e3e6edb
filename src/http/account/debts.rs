//! All debts of one request.
//!
//! Only what can change becomes a debt: policies with a fixed cost that count every response have none, so most
//! requests have nothing to settle.
//!
//! Strikes are no debts: a failure that a ban counts is known only from the response. A strike is one settlement, sent in
//! the background with what else goes to the store: the response does not wait for it. A request that is dropped before
//! its response strikes nobody.

use std::borrow::Cow;
use std::mem;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::debt::Debt;
use crate::core::{Decision, Lines, Outcome};
use crate::http::gate::Gate;
use crate::http::policy::{Count, Policy};
use crate::store::{
    Change, MaybeFuture, Receipt, ReceiptItem, Settlement, Settles, Settling, SlotGuard, Store, StoreId, WeakSlots,
};

/// How many checks of the handler are in the headers and settled with the response.
const MOST_SHOWN: usize = 64;

/// How many debts are kept at all; checks beyond [`MOST_SHOWN`] change only by charges and refunds.
const MOST_KEPT: usize = 1_024;

/// The place of a debt that clients do not see.
const HIDDEN: usize = usize::MAX;

/// Limits how often `many_checks` is logged.
static MANY: Lines = Lines::new();

/// All debts of one request, empty if nothing that it took can change, and its slots.
#[derive(Default)]
pub(super) struct Debts {
    pub(super) each: Vec<Debt>,
    /// The outcomes of the handler's first checks, in order.
    checked: Vec<Outcome>,
    /// Whether the handler checked a metered policy of its own.
    pub(super) has_metered_check: bool,
    /// What may be struck when the outcome of the request is known: for each policy that bans by outcome its place in the
    /// gate, and what its check took.
    strikes: Vec<(usize, Receipt)>,
    /// The slots of the request, until the body of its response has them. Handles do not hold them: they may be kept
    /// for hours.
    slots: SlotGuard,
    /// Those that the body holds, or that were released.
    passed: Option<WeakSlots>,
    /// Whether there is a response, or will be none.
    pub(super) is_ended: bool,
    /// How many settlements were sent.
    pub(super) sent: u64,
    /// The number of the last one whose result is not known.
    pub(super) unknown: u64,
}

/// A change in flight.
pub(super) struct PendingChange {
    /// The index of its debt.
    pub(super) debt: usize,
    /// The units that it charges; 0 for a refund.
    pub(super) charged: u64,
    pub(super) settling: Settling,
}

impl Debts {
    /// Creates the debts of a layer's decision; `policies` are the places of the policies in it.
    pub(super) fn of_layer(gate: &Gate, decision: &Decision, receipt: &Receipt, policies: &[usize]) -> Self {
        let slots = SlotGuard::new(gate.limits.store.hold(receipt));
        let mut debts = Self { slots, ..Self::default() };
        for (place, (taken, outcome)) in receipt.taken().iter().zip(decision.outcomes()).enumerate() {
            // A policy that is hidden does not apply to the request.
            if outcome.is_hidden() {
                continue;
            }
            let policy = &gate.policies[policies[place]];
            // The check of a policy has a ban unless clients share its key.
            if policy.options().bans_on.is_some() && outcome.has_ban() {
                debts.strikes.push((policies[place], Receipt::new(receipt.store(), [taken.clone()])));
            }
            debts.insert(place, policy, outcome, receipt.store(), taken);
        }
        debts
    }

    /// Adds what a check of the handler took; `place` is that of the first one among the outcomes that clients see.
    ///
    /// After the end, or beyond [`MOST_SHOWN`] checks, only charges and refunds of the handler change it, and all
    /// checks of one counter become one debt, as a handle may be used for hours.
    pub(super) fn add(&mut self, place: usize, policy: &Policy, decision: &Decision, receipt: &Receipt) {
        let metered = policy.options().metered;
        self.has_metered_check |= metered;
        if !decision.is_allowed() {
            return;
        }
        let is_shown = !self.is_ended && self.checked.len() < MOST_SHOWN;
        let place = if is_shown { place + self.checked.len() } else { HIDDEN };
        if is_shown {
            self.checked.extend_from_slice(decision.outcomes());
        }
        let is_kept = is_shown || metered && self.each.len() < MOST_KEPT;
        for (taken, outcome) in receipt.taken().iter().zip(decision.outcomes()) {
            let same = self.each.iter_mut().find(|debt| debt.is_to(receipt.store(), &taken.counter));
            match same.filter(|_| !is_shown) {
                Some(debt) => debt.add(taken),
                None if is_kept => self.insert(place, policy, outcome, receipt.store(), taken),
                None if self.is_ended => {}
                None => warn_of_many_checks(policy.name()),
            }
        }
    }

    /// Adds a debt if it can change: slots are released as such.
    fn insert(&mut self, place: usize, policy: &Policy, outcome: &Outcome, store: StoreId, taken: &ReceiptItem) {
        let is_held = taken.counter.quota().facts().held;
        // What counts bytes takes none by itself, whatever the quota of a tier.
        let counts_bytes = policy.options().unit.is_some();
        if counts_bytes || !is_held && (policy.rule().settles() == Settles::ByOutcome || !outcome.delay().is_zero()) {
            self.each.push(Debt::new(place, policy, outcome, store, taken));
        }
    }

    /// Returns whether nothing was taken that can change, is held or may be struck, and the handler checked nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty() && self.checked.is_empty() && self.slots.is_empty() && self.strikes.is_empty()
    }

    /// Strikes, and sets what is owed, by what counts and the real cost. Returns whether something is not known yet, which
    /// stays.
    pub(super) fn end(&mut self, gate: &Gate, counts: impl Fn(&Count) -> Option<bool>, real: Option<u64>) -> bool {
        for (place, receipt) in mem::take(&mut self.strikes) {
            let policy = &gate.policies[place];
            match policy.options().bans_on.as_ref().map_or(Some(false), &counts) {
                Some(true) => strike(gate, policy, receipt),
                Some(false) => {}
                None => self.strikes.push((place, receipt)),
            }
        }
        let mut is_open = !self.strikes.is_empty();
        for debt in &mut self.each {
            let counted = debt.count.as_ref().map_or(Some(true), &counts);
            is_open |= counted.is_none();
            match real {
                _ if counted == Some(false) => debt.set(0),
                Some(units) if debt.metered => debt.set(units),
                _ => {}
            }
        }
        is_open
    }

    /// Adds what a check of the handler took to the slots; returns it if the request holds none any more, as no end of a
    /// body follows.
    pub(super) fn hold(&mut self, slots: SlotGuard) -> SlotGuard {
        if self.passed.is_some() {
            return slots;
        }
        self.slots.add(slots);
        SlotGuard::default()
    }

    /// Returns a guard of the slots that the request still holds.
    pub(super) fn held(&self) -> SlotGuard {
        self.passed.as_ref().map_or_else(|| self.slots.clone(), SlotGuard::upgrade)
    }

    /// Returns the slots, from then on held by the returned guard alone; nothing if they were passed on before.
    pub(super) fn pass_slots(&mut self) -> SlotGuard {
        let slots = mem::take(&mut self.slots);
        if self.passed.is_none() {
            self.passed = Some(slots.downgrade());
        }
        slots
    }

    /// Sends what is due. Returns the changes whose results are not known yet; no other may be in flight.
    pub(super) fn send(&mut self, gate: &Gate) -> SmallVec<[PendingChange; 1]> {
        let mut sent = SmallVec::new();
        self.sent += 1;
        // Several debts may be to one counter: what was taken last is refunded first.
        for (index, debt) in self.each.iter_mut().enumerate().rev() {
            // The charged units are doubted already: if the store panics, it is unknown whether it charged them.
            let Some((charged, (receipt, changes))) = debt.due() else { continue };
            match gate.limits.store.settle(receipt, &changes) {
                Settling::Ready(Ok(applied)) => debt.apply(charged, &applied),
                settling => sent.push(PendingChange { debt: index, charged, settling }),
            }
        }
        sent
    }

    /// Returns the decision as clients see it: with what was checked and changed since.
    pub(super) fn shown<'a>(&self, decision: &'a Decision) -> Cow<'a, Decision> {
        if self.checked.is_empty() && self.each.iter().all(Debt::is_as_decided) {
            return Cow::Borrowed(decision);
        }
        let outcomes = decision.outcomes().iter().chain(&self.checked).enumerate().map(|(place, outcome)| {
            let debt = self.each.iter().find(|debt| debt.place == place);
            debt.map_or_else(|| outcome.clone(), Debt::shown)
        });
        Cow::Owned(Decision::new(outcomes, decision.source()))
    }
}

/// Logs that checks of a handler are not settled.
fn warn_of_many_checks(policy: &str) {
    MANY.log(policy, |more| {
        tracing::warn!(
            code = "many_checks",
            policy,
            more,
            "a handler made too many checks for one request: the latest are not settled with its response"
        );
    });
}

fn strike(gate: &Gate, policy: &Policy, receipt: Receipt) {
    let Some(ban) = policy.rule().banning() else { return };
    let (name, mode, telemetry) = (policy.rule().name().clone(), policy.rule().mode(), gate.limits.telemetry.clone());
    let settling = gate.limits.store.settle(receipt, &[Settlement::new(0, Change::Strike(ban))]);
    let reported = settling.map(move |settled| {
        if settled.is_ok_and(|applied| applied.iter().any(|applied| applied.began)) {
            telemetry.banned(&name, mode);
        }
    });
    if let (MaybeFuture::Pending(reported), Ok(runtime)) = (reported, Runtime::try_current()) {
        runtime.spawn(reported);
    }
}
