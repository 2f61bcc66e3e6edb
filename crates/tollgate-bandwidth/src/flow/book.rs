//! The book of a pool: what is leased, who waits for it, and what to lease next. It knows no store and no runtime.
//!
//! Units are in lots, one for each portion that the store admitted. Whoever takes units finds enough of them, or waits
//! in line; a portion that comes is granted from the front of the line. A grant is only set aside: it is taken out of
//! lots when it is claimed. So whoever leaves the line needs no lot to return units to.
//!
//! Invariants: lots have what is free, and what is granted; they are refunded once; at most one call is in flight.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::Sender;
use tokio::time::Instant;
use tollgate::store::Check;
use tollgate::{Decision, Error, Permit, Source};

use super::error::{FlowError, Reason};
use super::portion::{Hold, Portion};

/// How long units are held that nobody takes.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Book {
    lots: VecDeque<Lot>,
    /// The units in lots that nobody has.
    free: u64,
    /// Those in line, by their tickets, which grow.
    line: BTreeMap<u64, Waiter>,
    /// What is set aside for those who were in line, and since when.
    grants: BTreeMap<u64, (u64, Instant)>,
    last_ticket: u64,
    pub(super) portion: Portion,
    /// Whether a call is in flight.
    in_flight: bool,
    /// Whether less than a quarter of a portion was free when units were taken, since the last call.
    pub(super) is_low: bool,
    /// The result of the last call.
    last: Option<Result<Hold, Arc<Error>>>,
    /// Lots that are over, to be refunded without the lock.
    pub(super) over: Vec<Lot>,
    /// Who is to be woken without the lock.
    pub(super) woken: Vec<Sender<()>>,
}

/// A portion that the store admitted.
#[derive(Debug)]
pub(super) struct Lot {
    /// What refunds it.
    pub(super) permit: Permit,
    /// The decision that admitted it.
    pub(super) decision: Decision,
    /// The units of the portion.
    pub(super) units: u64,
    pub(super) left: u64,
    at: Instant,
}

/// What somebody needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// The units without which it goes on waiting.
    pub(super) least: u64,
    /// The units that it can use.
    pub(super) most: u64,
    pub(super) waits: Waits,
}

/// What somebody who needs units that are not there waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A call.
    ForCall,
    /// The quota.
    ForQuota,
}

/// Somebody in line.
#[derive(Debug)]
struct Waiter {
    want: Want,
    /// Dropped to wake it.
    sender: Sender<()>,
}

impl Book {
    pub(super) fn new(checks: &[Check]) -> Self {
        Self { portion: Portion::from_checks(checks), ..Self::default() }
    }

    /// Returns what the last decision says, unless the last one could not be made.
    pub(super) fn last(&self) -> Option<&Hold> {
        self.last.as_ref()?.as_ref().ok()
    }

    /// Takes units if enough of them are free and nobody waits before.
    pub(super) fn take(&mut self, want: Want) -> Option<u64> {
        if !self.line.is_empty() || self.free < want.least {
            return None;
        }
        let units = want.most.min(self.free);
        self.free -= units;
        self.spend(units);
        Some(units)
    }

    /// Returns why these units are not there.
    pub(super) fn refusal(&self, units: u64) -> FlowError {
        if let Some(Err(error)) = &self.last {
            return FlowError(Reason::Failed(Arc::clone(error)));
        }
        let decision = self.last().map(|last| &last.decision);
        if units > self.portion.capacity {
            return FlowError::refused(decision, None);
        }
        let now = Instant::now();
        let Some(hold) = self.last().filter(|hold| now < hold.until) else { return FlowError(Reason::Pending) };
        // Those behind cannot have what somebody waits for until it is gained.
        let kept = |waiter: &Waiter| if waiter.want.waits == Waits::ForQuota { waiter.want.least } else { 0 };
        let needs = self.line.values().map(kept).fold(units, u64::saturating_add);
        if needs <= hold.left(now).saturating_add(self.free) {
            return FlowError(Reason::Pending);
        }
        let retry = hold.retry(needs - self.free);
        FlowError::refused(decision, retry.map(|at| at - now))
    }

    pub(super) fn join(&mut self, want: Want, sender: Sender<()>) -> u64 {
        self.last_ticket += 1;
        self.line.insert(self.last_ticket, Waiter { want, sender });
        self.last_ticket
    }

    /// Claims what was granted, unless that was long ago; or returns why `least` units are not there.
    pub(super) fn claim(&mut self, ticket: u64, least: u64) -> Result<u64, FlowError> {
        self.expire(Instant::now());
        let Some((units, _)) = self.grants.remove(&ticket) else { return Err(self.refusal(least)) };
        self.spend(units);
        Ok(units)
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        let now = Instant::now();
        // What was gained for the front is not for others to pass at once.
        let most = if self.line.keys().next() == Some(&ticket) { u64::MAX } else { 0 };
        self.expire_lots(most, now);
        self.wake(ticket);
        if let Some((units, _)) = self.grants.remove(&ticket) {
            self.release(units, now);
        }
        self.expire(now);
    }

    /// Leaves what was granted for others, unless it was gained long ago.
    fn release(&mut self, units: u64, now: Instant) {
        self.free = self.free.saturating_add(units);
        self.expire_lots(units, now);
    }

    /// Takes units out of lots, the oldest first.
    fn spend(&mut self, mut units: u64) {
        while let Some(lot) = self.lots.front_mut() {
            let part = units.min(lot.left);
            (lot.left, units) = (lot.left - part, units - part);
            if lot.left > 0 {
                break;
            }
            self.over.extend(self.lots.pop_front());
        }
        self.is_low |= self.free < self.portion.units.div_ceil(4);
    }

    /// Returns the units of a call, if it is time for one. It has to be followed by [`decided`](Self::decided) or
    /// [`disband`](Self::disband).
    pub(super) fn call(&mut self) -> Option<u64> {
        let now = Instant::now();
        self.expire(now);
        let (mut units, wanted) = (self.lack(), self.wanted());
        if let Some(Ok(hold)) = &mut self.last {
            hold.shorten(wanted);
        }
        if let Some(hold) = self.last().filter(|hold| now < hold.until) {
            // Until it is over no more than this is there: of use to those who need no more, and cannot wait for a portion.
            units = units.min(hold.left(now));
            let (_, front) = self.line.first_key_value()?;
            let is_urgent = hold.is_long() || front.want.waits == Waits::ForCall;
            if units == 0 || !is_urgent || front.want.least > self.free.saturating_add(units) {
                return None;
            }
        }
        if !self.needs_call() {
            return None;
        }
        (self.in_flight, self.is_low) = (true, false);
        Some(units)
    }

    /// Returns whether somebody waits for units, or may soon.
    fn needs_call(&self) -> bool {
        !self.in_flight && (self.is_low || !self.line.is_empty())
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let again = self.last().filter(|_| self.needs_call()).map(|hold| hold.until);
        let grant = self.grants.values().next().map(|(_, at)| *at + IDLE);
        let lot =
            self.lots.front().filter(|lot| self.line.is_empty() && lot.left <= self.free).map(|lot| lot.at + IDLE);
        [again, grant, lot].into_iter().flatten().min()
    }

    /// Returns the units that the front of the line needs.
    fn need(&self) -> u64 {
        self.line.first_key_value().map_or(0, |(_, waiter)| waiter.want.least)
    }

    /// Returns the units that a call is to bring: what is missing of a portion, or of what the front of the line needs.
    fn lack(&self) -> u64 {
        self.portion.units.max(self.need()).saturating_sub(self.free).clamp(1, self.portion.capacity)
    }

    /// Returns the units to wait for: a whole portion, as otherwise the last ones would be leased one by one.
    fn wanted(&self) -> u64 {
        self.lack().max(self.portion.units)
    }

    /// Notes the decision about the units of a call. If none was made, all who wait are refused.
    pub(super) fn decided(&mut self, units: u64, decided: Result<(Decision, Permit), Error>) {
        let now = Instant::now();
        let (decision, permit) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.last = Some(Err(Arc::new(error)));
                return self.disband();
            }
        };
        self.in_flight = false;
        if decision.is_allowed() {
            self.portion.admitted(self.last().map(|last| now - last.at), &decision);
            // Where everything is admitted, what the front needs takes no further decisions.
            let lack = if decision.source() == Source::FailOpen { self.need().saturating_sub(self.free) } else { 0 };
            let units = units.max(lack);
            self.free = self.free.saturating_add(units);
            self.lots.push_back(Lot { permit, decision: decision.clone(), units, left: units, at: now });
        }
        self.grant(now);
        self.last = Some(Ok(Hold::from_decision(decision, units, self.wanted(), now)));
        // They are refused now, or need another call.
        let waits = |(ticket, waiter): (&u64, &Waiter)| (waiter.want.waits == Waits::ForCall).then_some(*ticket);
        for ticket in self.line.iter().filter_map(waits).collect::<Vec<_>>() {
            self.wake(ticket);
        }
    }

    /// Notes that no call is in flight, and empties the line: whoever was in it may join again.
    pub(super) fn disband(&mut self) {
        self.in_flight = false;
        self.woken.extend(mem::take(&mut self.line).into_values().map(|waiter| waiter.sender));
    }

    /// Sets units aside for the front of the line.
    fn grant(&mut self, now: Instant) {
        while let Some(front) = self.line.first_entry().filter(|front| front.get().want.least <= self.free) {
            let (ticket, Waiter { want, sender }) = front.remove_entry();
            let units = want.most.min(self.free);
            self.free -= units;
            self.grants.insert(ticket, (units, now));
            self.woken.push(sender);
        }
    }

    fn wake(&mut self, ticket: u64) {
        self.woken.extend(self.line.remove(&ticket).map(|waiter| waiter.sender));
    }

    /// Returns grants that were not claimed for long, and lots for which nobody waits; grants what is free then.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(grant) = self.grants.first_entry().filter(|grant| grant.get().1 + IDLE <= now) {
            let (units, _) = grant.remove();
            self.release(units, now);
        }
        if self.line.is_empty() {
            self.expire_lots(u64::MAX, now);
        }
        self.grant(now);
    }

    /// Returns lots that have not been used for long, of at most so many units, and which nobody has.
    fn expire_lots(&mut self, most: u64, now: Instant) {
        let mut most = most.min(self.free);
        while let Some(lot) = self.lots.front().filter(|lot| lot.at + IDLE <= now && lot.left <= most) {
            most -= lot.left;
            self.free -= lot.left;
            self.over.extend(self.lots.pop_front());
        }
    }

    /// Returns all lots, as nobody takes units any more.
    pub(super) fn close(&mut self) {
        self.over.extend(mem::take(&mut self.lots));
    }
}

#[cfg(test)]
mod tests;
