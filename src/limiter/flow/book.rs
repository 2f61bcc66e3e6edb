//! The book of a pool: what is leased, who waits for it, and what to lease next. It knows no store and no runtime.
//!
//! Units are in lots, one for each portion that the store admitted. Whoever takes units finds enough of them, or waits
//! in line; a portion that comes is granted from the front of the line. A grant is only set aside: it is taken out of
//! lots when it is claimed. So whoever leaves the line needs no lot to return units to.
//!
//! Invariants: `granted` is the sum of the grants that are neither claimed, released nor void, and never more than what is
//! left; lots are refunded once; at most one call is in flight.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::{self, Receiver};
use tokio::time::Instant;

use super::error::FlowError;
use super::line::{Grant, Lot, Out, Step, Waiter, Waits, Want};
use super::portion::{Hold, Portion, remaining};
use crate::core::{Decided, Decision, Error, Source};
use crate::store::Check;

/// How long units are held that nobody takes.
pub(super) const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Book {
    lots: VecDeque<Lot>,
    /// The units left in all lots.
    left: u64,
    /// Those of them that are set aside for grants.
    granted: u64,
    last_grant: Option<Instant>,
    /// Until when grants are void, as none of them can be claimed any more.
    void: Option<Instant>,
    line: VecDeque<Waiter>,
    pub(super) portion: Portion,
    hold: Option<Hold>,
    /// When the last portion was admitted.
    admitted: Option<Instant>,
    /// Whether a call is in flight.
    in_flight: bool,
    /// Whether less than a quarter of a portion was left when units were taken.
    is_low: bool,
    /// The last decision.
    pub(super) decision: Option<Decision>,
    /// Why no decision could be made the last time.
    failure: Option<Arc<Error>>,
}

impl Book {
    /// A book of nothing, for these checks.
    pub(super) fn new(checks: &[Check]) -> Self {
        Self { portion: Portion::of(checks), ..Self::default() }
    }

    /// Returns the units that nobody has.
    pub(super) fn available(&self) -> u64 {
        self.left - self.granted
    }

    /// Takes units if enough of them are left and nobody waits before.
    pub(super) fn take(&mut self, want: Want, out: &mut Out) -> Option<u64> {
        if !self.line.is_empty() || self.available() < want.least {
            return None;
        }
        let units = want.most.min(self.available());
        self.spend(units, out);
        Some(units)
    }

    /// Returns whether a portion is needed soon.
    pub(super) fn is_low(&self) -> bool {
        self.is_low && !self.in_flight
    }

    /// Returns what the store is known to say of units that are not there.
    pub(super) fn known(&self, units: u64, now: Instant) -> FlowError {
        if units > self.portion.capacity {
            return FlowError::refused(self.decision.as_ref(), None);
        }
        let Some(hold) = self.hold.as_ref().filter(|hold| now < hold.until) else { return FlowError::pending() };
        let needs = self.line.iter().map(Waiter::keeps).fold(units, u64::saturating_add);
        if needs <= hold.left(now).saturating_add(self.available()) {
            return FlowError::pending();
        }
        let retry = hold.retry(needs - self.available());
        FlowError::refused(self.decision.as_ref(), retry.map(|at| at - now))
    }

    /// Returns why these units are not there.
    pub(super) fn refusal(&self, units: u64) -> FlowError {
        let failed = self.failure.as_ref().map(|error| FlowError::failed(Arc::clone(error)));
        failed.unwrap_or_else(|| self.known(units, Instant::now()))
    }

    /// Joins the line. Returns where the grant comes.
    pub(super) fn join(&mut self, want: Want, out: &mut Out) -> Receiver<Grant> {
        if self.line.len() == self.line.capacity() {
            // Those who left behind others are still there: the line grows only by those who wait.
            let left: VecDeque<_>;
            (left, self.line) = mem::take(&mut self.line).into_iter().partition(|waiter| waiter.sender.is_closed());
            self.line.reserve(self.line.len().max(4));
            out.refuse(left);
        }
        let (sender, receiver) = oneshot::channel();
        self.line.push_back(Waiter { want, sender });
        receiver
    }

    /// Claims a grant, unless it was set aside long ago: then it is released.
    pub(super) fn claim(&mut self, grant: (u64, Instant), now: Instant, out: &mut Out) -> Option<u64> {
        let (units, at) = grant;
        if at + IDLE <= now {
            self.release(grant, now, out);
            return None;
        }
        self.granted -= units;
        self.spend(units, out);
        Some(units)
    }

    /// Leaves what was granted for others, unless it was gained long ago.
    pub(super) fn release(&mut self, (units, at): (u64, Instant), now: Instant, out: &mut Out) {
        if self.void < Some(at) {
            self.granted -= units;
        }
        self.expire_lots(units, now, out);
        self.grant(now, out);
    }

    /// Notes that somebody may have left the line.
    pub(super) fn left(&mut self, now: Instant, out: &mut Out) {
        if self.skip_those_who_left(out) || self.line.is_empty() {
            self.expire_lots(u64::MAX, now, out);
            self.grant(now, out);
        }
    }

    /// Takes those who have left off the front of the line; returns whether there were any.
    fn skip_those_who_left(&mut self, out: &mut Out) -> bool {
        let before = self.line.len();
        while self.line.front().is_some_and(|front| front.sender.is_closed()) {
            out.refuse(self.line.pop_front());
        }
        self.line.len() < before
    }

    /// Takes units out of lots, the oldest first.
    fn spend(&mut self, mut units: u64, out: &mut Out) {
        self.left -= units;
        while let Some(lot) = self.lots.front_mut() {
            let part = units.min(lot.left);
            (lot.left, units) = (lot.left - part, units - part);
            if lot.left > 0 {
                break;
            }
            out.lots.extend(self.lots.pop_front());
        }
        self.is_low |= self.available() < self.portion.units.div_ceil(4);
    }

    /// Returns what to do now. A [call](Step::Call) has to be followed by [`decided`](Self::decided) or
    /// [`disband`](Self::disband).
    pub(super) fn step(&mut self, now: Instant, out: &mut Out) -> Step<u64> {
        self.left(now, out);
        let wanted = self.wanted();
        if let Some(hold) = &mut self.hold {
            hold.shorten(wanted);
        }
        self.hold.take_if(|hold| hold.until <= now);
        if !self.in_flight
            && let Some(units) = self.due(now)
        {
            (self.in_flight, self.is_low) = (true, false);
            return Step::Call(units);
        }
        // After a long wait, nobody who has taken units may be there any more.
        let is_needed = |hold: &&Hold| !self.line.is_empty() || self.is_low && !hold.is_long();
        let again = self.hold.as_ref().filter(|_| !self.in_flight).filter(is_needed).map(|hold| hold.until);
        // A lot that is late is granted, and over with the last grant.
        let ends = [self.lots.front().map(|lot| lot.at), self.last_grant].into_iter().flatten().map(|at| at + IDLE);
        let ends = ends.filter(|at| self.line.is_empty() && *at > now);
        again.into_iter().chain(ends).min().map_or(Step::Rest, Step::Wait)
    }

    /// Returns the units of the next call, if it is time.
    fn due(&mut self, now: Instant) -> Option<u64> {
        // Where nothing is enforced, several may need all that a number holds.
        let lack = self.lack().min(u64::MAX - self.left);
        if lack == 0 || self.line.is_empty() && !self.is_low {
            return None;
        }
        let Some(hold) = &self.hold else { return Some(lack) };
        // Until it is over no more than this is there: of use to those who need no more, and cannot wait for a portion.
        let units = lack.min(hold.left(now));
        let is_urgent = |front: &Waiter| hold.is_long() || front.want.waits == Waits::ForCall;
        let is_useful = self.line.front().is_some_and(is_urgent) && self.need() <= self.available() + units;
        (units > 0 && is_useful).then_some(units)
    }

    /// Returns the units that the front of the line needs.
    fn need(&self) -> u64 {
        self.line.front().map_or(0, |waiter| waiter.want.least)
    }

    /// Returns the units that a call is to bring: a portion, or what the front of the line needs.
    fn lack(&self) -> u64 {
        self.portion.units.max(self.need()).saturating_sub(self.available()).clamp(1, self.portion.capacity)
    }

    /// Returns the units to wait for: a whole portion, as otherwise the last ones would be leased one by one.
    fn wanted(&self) -> u64 {
        self.lack().max(self.portion.units)
    }

    /// Notes the decision about the units of a call. If none was made, all who wait are refused.
    pub(super) fn decided(&mut self, units: u64, decided: Result<Decided, Error>, now: Instant, out: &mut Out) {
        let Decided { decision, receipt } = match decided {
            Ok(decided) => decided,
            Err(error) => {
                (self.decision, self.failure) = (None, Some(Arc::new(error)));
                return out.refuse(self.disband());
            }
        };
        (self.in_flight, self.failure) = (false, None);
        if decision.is_allowed() {
            let since = self.admitted.replace(now).map(|last| now - last);
            self.portion.admitted(since, remaining(&decision));
            // Where everything is admitted, what the front needs takes no further decisions.
            let lack = self.need().saturating_sub(self.available()).min(u64::MAX - self.left);
            let units = if decision.source() == Source::Open { units.max(lack) } else { units };
            self.left += units;
            self.lots.push_back(Lot { receipt, units, left: units, at: now });
        } else {
            out.lots.push(Lot { receipt, units: 0, left: 0, at: now });
        }
        self.grant(now, out);
        self.hold = Hold::of(&decision, units, self.wanted(), now);
        self.decision = Some(decision);
        self.refuse(now, out);
    }

    /// Notes that no call is in flight, and empties the line: whose sender is dropped joins again.
    pub(super) fn disband(&mut self) -> VecDeque<Waiter> {
        self.in_flight = false;
        mem::take(&mut self.line)
    }

    /// Follows new quotas. Returns how many of the units one call can be for.
    pub(super) fn adapt(&mut self, checks: &[Check], units: u64) -> u64 {
        self.portion.adapt(checks);
        units.min(self.portion.capacity)
    }

    /// Sets units aside for the front of the line.
    fn grant(&mut self, now: Instant, out: &mut Out) {
        loop {
            self.skip_those_who_left(out);
            let (want, available) = match self.line.front() {
                Some(front) if front.want.least <= self.available() => (front.want, self.available()),
                _ => return,
            };
            let units = want.most.min(available);
            self.granted += units;
            self.last_grant = Some(now);
            out.grants.extend(self.line.pop_front().map(|front| (front.sender, Some((units, now)))));
        }
    }

    /// Refuses those who do not wait for time to pass, or want to know what refuses, and need more than is left.
    fn refuse(&mut self, now: Instant, out: &mut Out) {
        let Some(hold) = &self.hold else { return };
        let (available, left) = (self.available(), hold.left(now));
        let mut needs = 0_u64;
        for waiter in mem::take(&mut self.line) {
            needs = needs.saturating_add(waiter.keeps());
            let stays = waiter.want.waits == Waits::ForQuota
                || needs.saturating_add(waiter.want.least) <= available.saturating_add(left);
            if stays {
                self.line.push_back(waiter);
            } else {
                out.refuse([waiter]);
            }
        }
    }

    /// Returns lots that have not been used for long, of at most so many units, and which nobody has; all of them if no
    /// grant can be claimed any more.
    fn expire_lots(&mut self, mut most: u64, now: Instant, out: &mut Out) {
        if self.last_grant.is_some_and(|at| at + IDLE <= now) {
            // All that was granted, and not only what was released now, would be granted to others at once.
            (self.granted, self.void, most) = (0, self.last_grant.take(), u64::MAX);
        }
        most = most.min(self.available());
        while let Some(lot) = self.lots.front().filter(|lot| lot.at + IDLE <= now && lot.left <= most) {
            most -= lot.left;
            self.left -= lot.left;
            out.lots.extend(self.lots.pop_front());
        }
    }

    /// Returns all lots, as nobody takes units any more.
    pub(super) fn close(&mut self, out: &mut Out) {
        (self.left, self.granted) = (0, 0);
        out.lots.extend(mem::take(&mut self.lots));
    }
}

#[cfg(test)]
mod tests;
