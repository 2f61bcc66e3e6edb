//! Debts of one request, each to one counter.
//!
//! Only what can change becomes a debt. Policies with a fixed cost that count every response have none, so most
//! requests have nothing to settle.
//!
//! A debt has the units that are owed and the units that the store has taken. A settlement sends the difference.
//! Charged units are *doubted* until the store replies, because the store may cut a charge. If the store never replies,
//! the units stay doubted. They are neither charged again nor refunded, so that an error never allows a client more.
//!
//! The units that the store has taken are kept in parts, because a refund has to name when the units were taken. Since
//! then, a window may have ended, or a bucket may have refilled. So each part keeps the stamp that the store returned
//! with it, and refunds go from the last part to the first.
//!
//! Strikes are not debts, because a failure that a ban counts is known only from the response. A strike is one
//! settlement, sent in the background together with other changes. A request that is dropped before its response
//! strikes nothing.

use std::borrow::Cow;
use std::mem;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use crate::core::{Ban, Decision, Key, Lines, Outcome, PolicyName};
use crate::http::gate::LayerState;
use crate::http::policy::{Count, Policy};
use crate::store::{
    Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, ReceiptItem, Settlement, Settles, Settling,
    SlotGuard, Store, StoreId, WeakSlots,
};

const MAX_SHOWN: usize = 64;

/// Bound of all debts. Checks beyond [`MAX_SHOWN`] change only by charges and refunds.
const MAX_KEPT: usize = 1_024;

const HIDDEN: usize = usize::MAX;

static MANY: Lines = Lines::new();

#[derive(Default)]
pub(super) struct Debts {
    pub(super) each: Vec<Debt>,
    checked: Vec<Outcome>,
    pub(super) has_metered_check: bool,
    strikes: Vec<Strike>,
    /// Handles do not hold them, because they may be kept for hours.
    slots: SlotGuard,
    /// Slots that the body holds, or that were released.
    passed: Option<WeakSlots>,
    pub(super) is_ended: bool,
    pub(super) sent: u64,
    pub(super) unknown: u64,
}

pub(super) struct PendingChange {
    pub(super) debt: usize,
    /// Charged units. 0 for a refund.
    pub(super) charged: u64,
    pub(super) settling: Settling,
}

impl Debts {
    pub(super) fn from_decision(gate: &LayerState, decision: &Decision, receipt: &Receipt, policies: &[usize]) -> Self {
        let slots = SlotGuard::new(gate.limits.store.hold(receipt));
        let mut debts = Self { slots, ..Self::default() };
        for (place, (taken, outcome)) in receipt.items().iter().zip(decision.outcomes()).enumerate() {
            // A hidden policy does not apply to the request.
            if outcome.is_hidden() {
                continue;
            }
            let policy = &gate.policies[policies[place]];
            debts.strikes.extend(Strike::new(policy, outcome, receipt.store(), taken));
            debts.insert(place, policy, outcome, receipt.store(), taken);
        }
        debts
    }

    /// After the end, or beyond [`MAX_SHOWN`] checks, only charges and refunds change it.
    pub(super) fn add(&mut self, place: usize, policy: &Policy, decision: &Decision, receipt: &Receipt) {
        let metered = policy.options().metered;
        self.has_metered_check |= metered;
        if !decision.is_allowed() {
            return;
        }
        let is_shown = !self.is_ended && self.checked.len() < MAX_SHOWN;
        let place = if is_shown { place + self.checked.len() } else { HIDDEN };
        if is_shown {
            self.checked.extend_from_slice(decision.outcomes());
        }
        let is_kept = is_shown || metered && self.each.len() < MAX_KEPT;
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
        // A policy with another unit takes nothing by itself, whatever the quota of a tier.
        let counts_others = policy.options().unit.is_some();
        if counts_others || !is_held && (policy.rule().settles() == Settles::ByOutcome || !outcome.delay().is_zero()) {
            self.each.push(Debt::new(place, policy, outcome, store, taken));
        }
    }

    /// Returns `false` if something is left to settle or to release.
    pub(super) fn end_as_decided(&mut self) -> bool {
        self.is_ended = true;
        let is_empty =
            self.each.is_empty() && self.checked.is_empty() && self.slots.is_empty() && self.strikes.is_empty();
        if is_empty {
            self.passed.get_or_insert_default();
        }
        is_empty
    }

    /// Returns `true` if it is not known yet whether the response counts for some debts or strikes, so that these stay
    /// open.
    pub(super) fn end(
        &mut self,
        gate: &LayerState,
        counts: impl Fn(&Count) -> Option<bool>,
        real: Option<u64>,
    ) -> bool {
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

    /// Returns the slots if the request has ended, because no end of a body follows that would release them.
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

    pub(super) fn pass_slots(&mut self) -> SlotGuard {
        let slots = mem::take(&mut self.slots);
        if self.passed.is_none() {
            self.passed = Some(slots.downgrade());
        }
        slots
    }

    /// No other change may be in flight.
    pub(super) fn send(&mut self, gate: &LayerState) -> SmallVec<[PendingChange; 1]> {
        let mut sent = SmallVec::new();
        self.sent += 1;
        // Several debts may be to one counter, where the units taken last are refunded first.
        for (index, debt) in self.each.iter_mut().enumerate().rev() {
            // The charged units are doubted already because, if the store panics, it is unknown whether it charged
            // them.
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

fn warn_of_many_checks(policy: &str) {
    MANY.log(policy, |more| {
        tracing::warn!(code = "many_checks", policy, more, "too many checks in one request");
    });
}

struct Strike {
    on: Count,
    ban: Ban,
    policy: PolicyName,
    mode: Mode,
    receipt: Receipt,
}

impl Strike {
    fn new(policy: &Policy, outcome: &Outcome, store: StoreId, taken: &ReceiptItem) -> Option<Self> {
        // The check of a policy has a ban unless clients share its key.
        let on = policy.options().bans_on.as_ref().filter(|_| outcome.has_ban())?.clone();
        let (rule, receipt) = (policy.rule(), Receipt::new(store, [taken.clone()]));
        Some(Self { on, ban: rule.banning()?, policy: rule.name().clone(), mode: outcome.mode(), receipt })
    }

    fn send(self, gate: &LayerState) {
        let Self { ban, policy, mode, receipt, .. } = self;
        let (telemetry, events) = (gate.limits.telemetry.clone(), gate.events.clone());
        let key = receipt.items().first().map(|taken| taken.counter.key().clone());
        let settling = gate.limits.store.settle(receipt, &[Settlement::new(0, Change::Strike(ban))]);
        let reported = settling.map(move |settled| {
            let began = settled.unwrap_or_default().into_iter().find(ChangeResult::ban_began);
            if let Some(began) = began {
                telemetry.banned(&policy, mode);
                if let Some(key) = key {
                    events.ban_began(&policy, &key, mode, began.banned_for);
                }
            }
        });
        if let (MaybeFuture::Pending(reported), Ok(runtime)) = (reported, Runtime::try_current()) {
            runtime.spawn(reported);
        }
    }
}

#[derive(Debug)]
pub(super) struct Debt {
    place: usize,
    pub(super) metered: bool,
    pub(super) refund_dropped: bool,
    count: Option<Count>,
    before: Outcome,
    parts: DebtParts,
    cost: u64,
    /// Units of charges in flight, or whose results were lost.
    doubted: u64,
    /// Units to be taken if the store takes the charge in flight in full.
    owed: u64,
    /// Units to be taken even if the store takes nothing of that charge.
    least: u64,
    /// Latest outcome from the store, and the units of this debt that were taken by then.
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
            parts: DebtParts::new(store, taken),
            cost: taken.units,
            doubted: 0,
            owed: taken.units,
            least: 0,
            after: None,
        }
    }

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
        let counter = Counter::from_limit(self.before.name_and_quota().clone(), key.clone());
        Check::new(counter, 0).floor(floor).mode(self.before.mode()).overridden(self.before.is_overridden())
    }

    pub(super) fn is_delayed(&self) -> bool {
        !self.before.delay().is_zero()
    }

    pub(super) fn charge(&mut self, units: u64) {
        self.owed = self.owed.saturating_add(units);
        self.least = self.least.saturating_add(units);
    }

    pub(super) fn refund(&mut self, units: u64) {
        self.owed = self.owed.saturating_sub(units);
        self.least = self.least.saturating_sub(units);
    }

    pub(super) fn set(&mut self, units: u64) {
        (self.owed, self.least) = (units, units);
    }

    /// Returns the change to send, if any, with its charged units. Nothing of the debt may be in flight.
    fn due(&mut self) -> Option<(u64, DebtChange)> {
        let taken = self.parts.units();
        let charged = self.owed.saturating_sub(taken.saturating_add(self.doubted));
        if charged > 0 {
            (self.doubted, self.least) = (self.doubted.saturating_add(charged), 0);
            return Some((charged, self.parts.charge(charged)));
        }
        (self.owed < taken).then(|| (0, self.parts.refund(taken - self.owed)))
    }

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

    /// Returns `true` if a similar request may be decided differently before the last change than after it.
    pub(super) fn matters_soon(&self, is_in_flight: bool) -> bool {
        let (taken, owed) = (self.parts.units(), self.owed);
        let perhaps = taken.saturating_add(self.doubted);
        let may_refuse = self.before.mode() == Mode::Enforce;
        // The fewest units that were left since the decision, or may be left until the last change.
        let after = self.after.as_ref().map_or(u64::MAX, |(after, _)| after.remaining());
        let least = || self.before.remaining().min(after).min(self.shown_with(owed.max(perhaps)).remaining());
        may_refuse && (is_in_flight || owed < taken || owed > perhaps) && least() < self.cost.max(1)
    }

    fn is_as_decided(&self) -> bool {
        self.owed == self.cost && self.after.is_none()
    }

    fn shown(&self) -> Outcome {
        self.shown_with(self.owed)
    }

    fn shown_with(&self, units: u64) -> Outcome {
        match &self.after {
            Some((after, taken)) => self.before.after(after).settled(*taken, units),
            None => self.before.settled(self.cost, units),
        }
    }
}

/// Bound of parts. Beyond it the two oldest become one.
const MAX_PARTS: usize = 64;

type DebtChange = (Receipt, SmallVec<[Settlement; 1]>);

#[derive(Debug)]
struct DebtParts {
    store: StoreId,
    /// Never empty. Only the first may have no units.
    each: SmallVec<[ReceiptItem; 1]>,
    /// Stamp of the part that the last refund took only in part.
    rest: Option<u64>,
}

impl DebtParts {
    fn new(store: StoreId, taken: &ReceiptItem) -> Self {
        Self { store, each: SmallVec::from_buf([taken.clone()]), rest: None }
    }

    fn are_of(&self, store: StoreId, counter: &Counter) -> bool {
        self.store == store && self.each[0].counter == *counter
    }

    fn key_and_floor(&self) -> (&Key, u64) {
        (self.each[0].counter.key(), self.each[0].floor)
    }

    fn units(&self) -> u64 {
        self.each.iter().map(|part| part.units).sum()
    }

    /// Merged parts have the older stamp, so that the merged part never refunds more than the two parts would.
    fn add(&mut self, units: u64, stamp: u64) {
        let last = self.last();
        if last.stamp == stamp || units == 0 {
            last.units += units;
            return;
        }
        let part = last.clone().units(units).stamp(stamp);
        if self.each.len() == MAX_PARTS {
            let second = self.each.remove(1);
            self.each[0].units += second.units;
        }
        self.each.push(part);
    }

    fn charge(&mut self, units: u64) -> DebtChange {
        let receipt = Receipt::new(self.store, [self.last().clone()]);
        (receipt, SmallVec::from_buf([Settlement::new(0, Change::Charge(units))]))
    }

    /// The receipt has all parts, because how much of one part a bucket has refilled depends on the parts before it.
    fn refund(&mut self, units: u64) -> DebtChange {
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
