//! All debts of one request, each to one counter.
//!
//! Only what can change becomes a debt: policies with a fixed cost that count every response have none, so most
//! requests have nothing to settle.
//!
//! A debt has the units that are owed and those that the store has taken; a settlement sends the difference. Charged units
//! are *doubted* until the store replies, as it may cut a charge. If it never does they stay doubted: neither charged
//! again nor refunded, so that an error never admits a client to more.
//!
//! What the store has taken is kept in parts. A refund has to name when the units were taken: a window may have ended
//! since, a bucket refilled. So each part keeps the stamp that the store returned with it, and refunds go from the last
//! part to the first.
//!
//! Strikes are no debts: a failure that a ban counts is known only from the response. A strike is one settlement, sent in
//! the background with what else goes to the store: the response does not wait for it. A request that is dropped before
//! its response strikes nobody.

use std::borrow::Cow;
use std::mem;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use crate::core::{Ban, Decision, Key, Lines, Outcome, PolicyName};
use crate::http::gate::Gate;
use crate::http::policy::{Count, Policy};
use crate::store::{
    Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, ReceiptItem, Settlement, Settles, Settling,
    SlotGuard, Store, StoreId, WeakSlots,
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
    /// What may be struck when the outcome of the request is known.
    strikes: Vec<Strike>,
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
    pub(super) fn of_layer(gate: &Gate, decision: &Decision, receipt: &Receipt, policies: &[usize]) -> Self {
        let slots = SlotGuard::new(gate.limits.store.hold(receipt));
        let mut debts = Self { slots, ..Self::default() };
        for (place, (taken, outcome)) in receipt.items().iter().zip(decision.outcomes()).enumerate() {
            // A policy that is hidden does not apply to the request.
            if outcome.is_hidden() {
                continue;
            }
            let policy = &gate.policies[policies[place]];
            debts.strikes.extend(Strike::new(policy, outcome, receipt.store(), taken));
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
        for (taken, outcome) in receipt.items().iter().zip(decision.outcomes()) {
            if is_shown {
                self.strikes.extend(Strike::new(policy, outcome, receipt.store(), taken));
            }
            let same = self.each.iter_mut().find(|debt| debt.is_to(receipt.store(), &taken.counter));
            match same.filter(|_| !is_shown) {
                Some(debt) => debt.add(taken),
                None if is_kept => self.insert(place, policy, outcome, receipt.store(), taken),
                None if self.is_ended => {}
                None => warn_of_many_checks(policy.name()),
            }
        }
    }

    fn insert(&mut self, place: usize, policy: &Policy, outcome: &Outcome, store: StoreId, taken: &ReceiptItem) {
        let is_held = taken.counter.quota().facts().held;
        // What does not count requests takes nothing by itself, whatever the quota of a tier.
        let counts_others = policy.options().unit.is_some();
        if counts_others || !is_held && (policy.rule().settles() == Settles::ByOutcome || !outcome.delay().is_zero()) {
            self.each.push(Debt::new(place, policy, outcome, store, taken));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty() && self.checked.is_empty() && self.slots.is_empty() && self.strikes.is_empty()
    }

    /// Strikes, and sets what is owed, by what counts and the real cost. Returns whether something is not known yet, which
    /// stays.
    pub(super) fn end(&mut self, gate: &Gate, counts: impl Fn(&Count) -> Option<bool>, real: Option<u64>) -> bool {
        for strike in mem::take(&mut self.strikes) {
            match counts(&strike.on) {
                Some(true) => strike.send(gate),
                Some(false) => {}
                None => self.strikes.push(strike),
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
        tracing::warn!(code = "many_checks", policy, more, "too many checks in one request");
    });
}

/// A strike of a policy that bans by outcome, once the response is one that it counts.
struct Strike {
    on: Count,
    ban: Ban,
    policy: PolicyName,
    mode: Mode,
    /// What the policy's check took.
    receipt: Receipt,
}

impl Strike {
    fn new(policy: &Policy, outcome: &Outcome, store: StoreId, taken: &ReceiptItem) -> Option<Self> {
        // The check of a policy has a ban unless clients share its key.
        let on = policy.options().bans_on.as_ref().filter(|_| outcome.has_ban())?.clone();
        let (rule, receipt) = (policy.rule(), Receipt::new(store, [taken.clone()]));
        Some(Self { on, ban: rule.banning()?, policy: rule.name().clone(), mode: rule.mode(), receipt })
    }

    fn send(self, gate: &Gate) {
        let Self { ban, policy, mode, receipt, .. } = self;
        let telemetry = gate.limits.telemetry.clone();
        let settling = gate.limits.store.settle(receipt, &[Settlement::new(0, Change::Strike(ban))]);
        let reported = settling.map(move |settled| {
            if settled.is_ok_and(|applied| applied.iter().any(ChangeResult::ban_began)) {
                telemetry.banned(&policy, mode);
            }
        });
        if let (MaybeFuture::Pending(reported), Ok(runtime)) = (reported, Runtime::try_current()) {
            runtime.spawn(reported);
        }
    }
}

/// The debt of a request to one counter, in units.
#[derive(Debug)]
pub(super) struct Debt {
    /// The place of its outcome among those that clients see.
    place: usize,
    pub(super) metered: bool,
    pub(super) refund_dropped: bool,
    count: Option<Count>,
    /// The outcome of the decision.
    before: Outcome,
    /// The units that the store has taken.
    parts: Parts,
    /// Units that decisions took.
    cost: u64,
    /// Units of charges in flight, and of those whose results were lost.
    doubted: u64,
    /// The units that are to be taken, if the store takes the charge in flight in full.
    owed: u64,
    /// The units that are to be taken even if it takes nothing of that charge: what was charged or set since.
    least: u64,
    /// The outcome that the store returned with the latest change, and the units of this debt that it had taken by
    /// then.
    after: Option<(Outcome, u64)>,
}

impl Debt {
    fn new(place: usize, policy: &Policy, before: &Outcome, store: StoreId, taken: &ReceiptItem) -> Self {
        let options = policy.options();
        Self {
            place,
            metered: options.metered,
            refund_dropped: options.refund_dropped,
            count: options.count.clone(),
            before: before.clone(),
            parts: Parts::new(store, taken),
            cost: taken.units,
            doubted: 0,
            owed: taken.units,
            least: 0,
            after: None,
        }
    }

    /// Adds what another decision took from the same counter.
    fn add(&mut self, taken: &ReceiptItem) {
        self.cost += taken.units;
        self.charge(taken.units);
        self.parts.add(taken.units, taken.stamp);
    }

    fn is_to(&self, store: StoreId, counter: &Counter) -> bool {
        self.parts.are_of(store, counter)
    }

    pub(super) fn look(&self) -> Check {
        let (key, floor) = self.parts.key_and_floor();
        let counter = Counter::of(self.before.name_and_quota().clone(), key.clone());
        Check::new(counter, 0).floor(floor).mode(self.before.mode())
    }

    /// Returns whether the request has a turn to wait for.
    pub(super) fn is_delayed(&self) -> bool {
        !self.before.delay().is_zero()
    }

    /// Owes more units.
    pub(super) fn charge(&mut self, units: u64) {
        self.owed = self.owed.saturating_add(units);
        self.least = self.least.saturating_add(units);
    }

    /// Owes fewer units, down to 0.
    pub(super) fn refund(&mut self, units: u64) {
        self.owed = self.owed.saturating_sub(units);
        self.least = self.least.saturating_sub(units);
    }

    /// Sets the units that are owed, whatever a charge in flight takes.
    pub(super) fn set(&mut self, units: u64) {
        (self.owed, self.least) = (units, units);
    }

    /// Returns what is to be charged or refunded, if anything, with the charged units, 0 for a refund. Refunded units leave
    /// the debt at once. Nothing of the debt may be in flight.
    fn due(&mut self) -> Option<(u64, Changes)> {
        let taken = self.parts.units();
        let charged = self.owed.saturating_sub(taken.saturating_add(self.doubted));
        if charged > 0 {
            (self.doubted, self.least) = (self.doubted.saturating_add(charged), 0);
            return Some((charged, self.parts.charge(charged)));
        }
        (self.owed < taken).then(|| (0, self.parts.refund(taken - self.owed)))
    }

    /// Applies the result of what was sent. Units that the store did not charge are not owed any more.
    pub(super) fn apply(&mut self, charged: u64, applied: &[ChangeResult]) {
        let last = applied.last();
        if charged > 0 {
            let (units, stamp) = last.map_or((0, 0), |applied| (applied.units.min(charged), applied.stamp));
            self.doubted -= charged;
            self.parts.add(units, stamp);
            self.owed = self.owed.saturating_sub(charged - units).max(self.least);
        } else if let Some(applied) = last {
            self.parts.restamp(applied.stamp);
        }
        if let Some(outcome) = last.and_then(|applied| applied.outcome.clone()) {
            self.after = Some((outcome, self.parts.units()));
        }
    }

    /// Returns whether another request like this one may be decided differently before the last change than after it.
    pub(super) fn matters_soon(&self, is_in_flight: bool) -> bool {
        let (taken, owed) = (self.parts.units(), self.owed);
        let perhaps = taken.saturating_add(self.doubted);
        let may_refuse = self.before.mode() == Mode::Enforce;
        // The least that was left since the decision, or may be left until the last change.
        let after = self.after.as_ref().map_or(u64::MAX, |(after, _)| after.remaining());
        let least = || self.before.remaining().min(after).min(self.shown_with(owed.max(perhaps)).remaining());
        may_refuse && (is_in_flight || owed < taken || owed > perhaps) && least() < self.cost.max(1)
    }

    /// Returns whether the debt is as it was decided, and the store has returned nothing newer.
    fn is_as_decided(&self) -> bool {
        self.owed == self.cost && self.after.is_none()
    }

    /// Returns the outcome of the decision as it is after the changes.
    fn shown(&self) -> Outcome {
        self.shown_with(self.owed)
    }

    /// Returns the outcome as if these units were owed.
    fn shown_with(&self, units: u64) -> Outcome {
        match &self.after {
            Some((after, taken)) => self.before.after(after).settled(*taken, units),
            None => self.before.settled(self.cost, units),
        }
    }
}

/// How many parts are kept apart; beyond that the two oldest become one.
const MOST_PARTS: usize = 64;

/// The receipt and the settlements of a change to one debt.
type Changes = (Receipt, SmallVec<[Settlement; 1]>);

/// What a store has taken of one debt: the units of the decision, then those charged since, in order.
#[derive(Debug)]
struct Parts {
    store: StoreId,
    /// Never empty; only the first may have no units.
    each: SmallVec<[ReceiptItem; 1]>,
    /// The stamp of the part of which the last refund left some units.
    rest: Option<u64>,
}

impl Parts {
    /// Creates the first part.
    fn new(store: StoreId, taken: &ReceiptItem) -> Self {
        Self { store, each: SmallVec::from_buf([taken.clone()]), rest: None }
    }

    fn are_of(&self, store: StoreId, counter: &Counter) -> bool {
        self.store == store && self.each[0].counter == *counter
    }

    /// Returns the key of the counter, and the units that the decision left for others.
    fn key_and_floor(&self) -> (&Key, u64) {
        (self.each[0].counter.key(), self.each[0].floor)
    }

    /// Returns the units of all parts.
    fn units(&self) -> u64 {
        self.each.iter().map(|part| part.units).sum()
    }

    /// Adds units that were taken after all others.
    ///
    /// Units of one stamp are one part. Where two parts with different stamps become one, it has the older stamp, so
    /// that no more is refunded than of the two.
    fn add(&mut self, units: u64, stamp: u64) {
        let last = self.last();
        if last.stamp == stamp || units == 0 {
            last.units += units;
            return;
        }
        let part = last.clone().units(units).stamp(stamp);
        if self.each.len() == MOST_PARTS {
            let second = self.each.remove(1);
            self.each[0].units += second.units;
        }
        self.each.push(part);
    }

    /// Returns what charges more units. They are added once the store has taken them.
    fn charge(&mut self, units: u64) -> Changes {
        let receipt = Receipt::of_one(self.store, self.last().clone());
        (receipt, SmallVec::from_buf([Settlement::new(0, Change::Charge(units))]))
    }

    /// Removes units, those first that were taken last. Returns what refunds them, with a receipt of all parts, as what a
    /// bucket has refilled of one depends on those before it.
    fn refund(&mut self, units: u64) -> Changes {
        let receipt = Receipt::new(self.store, self.each.iter().cloned());
        let (mut changes, mut left) = (SmallVec::new(), units);
        self.rest = None;
        for (check, part) in self.each.iter_mut().enumerate().rev() {
            let back = left.min(part.units);
            if back > 0 {
                (part.units, left) = (part.units - back, left - back);
                self.rest = (part.units > 0).then_some(part.stamp);
                changes.push(Settlement::new(check, Change::Refund(back)));
            }
        }
        while self.each.len() > 1 && self.last().units == 0 {
            self.each.pop();
        }
        (receipt, changes)
    }

    /// Sets the stamp that the store returned with a refund, if that left some units of a part.
    fn restamp(&mut self, stamp: u64) {
        let rest = self.rest.take();
        if let Some(part) = self.each.iter_mut().rfind(|part| Some(part.stamp) == rest) {
            part.stamp = stamp;
        }
    }

    fn last(&mut self) -> &mut ReceiptItem {
        self.each.last_mut().expect("there is always one part")
    }
}

#[cfg(test)]
mod tests;
