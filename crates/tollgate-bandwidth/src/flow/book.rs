//! Bookkeeping of a pool: leased units, waiters, and the size of the next lease, without a store or a runtime.
//!
//! Lots hold units, one lot for each portion that the store allowed. A caller takes units if enough are free, or waits
//! in the queue. A new portion is granted from the front of the queue. A grant only reserves units, which leave their
//! lots when the grant is claimed, so a waiter that leaves has no units to return.
//!
//! Invariants: lots hold exactly the free and the granted units; each lot is refunded once; at most one call is in
//! flight.

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

const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Book {
    lots: VecDeque<Lot>,
    free: u64,
    line: BTreeMap<u64, Waiter>,
    grants: BTreeMap<u64, (u64, Instant)>,
    last_ticket: u64,
    pub(super) portion: Portion,
    in_flight: bool,
    /// Whether less than a quarter of a portion was free when units were taken, since the last call.
    pub(super) is_low: bool,
    last: Option<Result<Hold, Arc<Error>>>,
    /// Lots to refund without the lock.
    pub(super) over: Vec<Lot>,
    /// Waiters to wake without the lock.
    pub(super) woken: Vec<Sender<()>>,
}

#[derive(Debug)]
pub(super) struct Lot {
    pub(super) permit: Permit,
    pub(super) decision: Decision,
    pub(super) units: u64,
    pub(super) left: u64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) waits: Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    ForCall,
    ForQuota,
}

#[derive(Debug)]
struct Waiter {
    want: Want,
    /// Dropped to wake the waiter.
    sender: Sender<()>,
}

impl Book {
    pub(super) fn new(checks: &[Check]) -> Self {
        Self { portion: Portion::from_checks(checks), ..Self::default() }
    }

    pub(super) fn last(&self) -> Option<&Hold> {
        self.last.as_ref()?.as_ref().ok()
    }

    pub(super) fn take(&mut self, want: Want) -> Option<u64> {
        if !self.line.is_empty() || self.free < want.least {
            return None;
        }
        let units = want.most.min(self.free);
        self.free -= units;
        self.spend(units);
        Some(units)
    }

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
        // Later waiters cannot have the units that an earlier waiter still waits for.
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

    pub(super) fn claim(&mut self, ticket: u64, least: u64) -> Result<u64, FlowError> {
        self.expire(Instant::now());
        let Some((units, _)) = self.grants.remove(&ticket) else { return Err(self.refusal(least)) };
        self.spend(units);
        Ok(units)
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        let now = Instant::now();
        // Units replenished for the front of the queue must not pass to others immediately.
        let most = if self.line.keys().next() == Some(&ticket) { u64::MAX } else { 0 };
        self.expire_lots(most, now);
        self.wake(ticket);
        if let Some((units, _)) = self.grants.remove(&ticket) {
            self.release(units, now);
        }
        self.expire(now);
    }

    fn release(&mut self, units: u64, now: Instant) {
        self.free = self.free.saturating_add(units);
        self.expire_lots(units, now);
    }

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

    /// Returns the units of a call, if one is due; [`decided`](Self::decided) or [`disband`](Self::disband) must
    /// follow.
    pub(super) fn call(&mut self) -> Option<u64> {
        let now = Instant::now();
        self.expire(now);
        let (mut units, wanted) = (self.lack(), self.wanted());
        if let Some(Ok(hold)) = &mut self.last {
            hold.shorten(wanted);
        }
        if let Some(hold) = self.last().filter(|hold| now < hold.until) {
            // Until the hold is over the store has no more units than this, which help callers that need no more and
            // cannot wait for a portion.
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

    fn need(&self) -> u64 {
        self.line.first_key_value().map_or(0, |(_, waiter)| waiter.want.least)
    }

    fn lack(&self) -> u64 {
        self.portion.units.max(self.need()).saturating_sub(self.free).clamp(1, self.portion.capacity)
    }

    fn wanted(&self) -> u64 {
        self.lack().max(self.portion.units)
    }

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
            // While all requests are allowed, the front of the queue needs no further decisions.
            let lack = if decision.source() == Source::FailOpen { self.need().saturating_sub(self.free) } else { 0 };
            let units = units.max(lack);
            self.free = self.free.saturating_add(units);
            self.lots.push_back(Lot { permit, decision: decision.clone(), units, left: units, at: now });
        }
        self.grant(now);
        self.last = Some(Ok(Hold::from_decision(decision, units, self.wanted(), now)));
        // These waiters are denied now, or need another call.
        let waits = |(ticket, waiter): (&u64, &Waiter)| (waiter.want.waits == Waits::ForCall).then_some(*ticket);
        for ticket in self.line.iter().filter_map(waits).collect::<Vec<_>>() {
            self.wake(ticket);
        }
    }

    pub(super) fn disband(&mut self) {
        self.in_flight = false;
        self.woken.extend(mem::take(&mut self.line).into_values().map(|waiter| waiter.sender));
    }

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

    fn expire_lots(&mut self, most: u64, now: Instant) {
        let mut most = most.min(self.free);
        while let Some(lot) = self.lots.front().filter(|lot| lot.at + IDLE <= now && lot.left <= most) {
            most -= lot.left;
            self.free -= lot.left;
            self.over.extend(self.lots.pop_front());
        }
    }

    pub(super) fn close(&mut self) {
        self.over.extend(mem::take(&mut self.lots));
    }
}

#[cfg(test)]
mod tests;
