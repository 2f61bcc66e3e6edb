//! Changes to what was taken.

use super::answer::{Answer, Found};
use super::counter::{Counter, Moment, Stored};
use super::event::{Algorithm, Event, What};
use super::log::Wait;
use super::memory::Memory;
use super::wire::{Asked, Kind};

/// What a digest after a change is of.
const LOOK: Wait = Wait { taken: 0, need: 1, floor: 0 };

impl Counter {
    /// Notes a refund, a charge, a renewal or a reset.
    pub(super) fn settle(&mut self, moment: Moment<'_>, asked: &Asked, answer: &Answer) -> Result<Event, String> {
        let (restored, was_banned) = (self.totals.restored, self.left(moment.at_us) == Some(0));
        // A lift has no terms.
        let is_lift = asked.kind == Kind::Reset && asked.rule.algorithm == Algorithm::Ban;
        let followed = if is_lift { Ok(()) } else { self.follow(asked.rule) };
        let changed = followed.and_then(|()| self.change(moment, asked, answer));
        changed.map_err(|error| self.wrong(moment, asked, &error))?;
        let (units, asked_units) = (answer.units, asked.units);
        let what = match asked.kind {
            Kind::Refund { stamp } => {
                self.totals.refunded += units;
                What::Refund { asked: asked_units, units, stamp }
            }
            Kind::Charge => {
                self.totals.charged += units;
                What::Charge { asked: asked_units, units }
            }
            Kind::Renew { stamp } => {
                let restored = self.totals.restored - restored;
                What::Renew { asked: asked_units, units, restored, stamp }
            }
            Kind::Strike => {
                let is_banned = self.left(moment.at_us) == Some(0);
                What::Strike { strikes: units, began: is_banned && !was_banned }
            }
            Kind::Reset | Kind::Check { .. } | Kind::Ban(_) => What::Reset,
        };
        Ok(self.event(moment, asked, what))
    }

    fn change(&mut self, moment: Moment<'_>, asked: &Asked, answer: &Answer) -> Result<(), String> {
        if asked.kind == Kind::Reset {
            let found_as_known = match self.stored {
                Stored::Nothing => !answer.fits,
                _ => answer.fits || self.may_be_gone(moment),
            };
            self.stored = Stored::Nothing;
            let is_so = found_as_known && answer.found == Found::Fresh;
            return if is_so { Ok(()) } else { Err(format!("a reset is answered {answer:?}")) };
        }
        if self.is_outside(moment) {
            let is_so = answer.found == Found::Outside && !answer.fits && answer.units == 0;
            return if is_so { Ok(()) } else { Err(format!("it is in no window: {answer:?}")) };
        }
        // A renewal is one even if all is there, and a strike may extend a ban.
        let is_own = matches!(asked.kind, Kind::Renew { .. } | Kind::Strike);
        if !is_own && answer.fits != (answer.units > 0) || answer.units > asked.units {
            return Err(format!("a change of {} is answered {answer:?}", asked.units));
        }
        if self.is_unknown(moment) {
            return self.believe_change(moment, asked, answer);
        }
        let states = [Some(self.stored.clone()), self.may_be_gone(moment).then_some(Stored::Nothing)];
        let mut wrong = Ok(());
        for stored in states.into_iter().flatten() {
            match self.try_change(stored, moment, asked, answer) {
                Ok(()) => return Ok(()),
                // What it should be from what should be there is said first.
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        wrong
    }

    /// Whether the answer has to be believed.
    fn is_unknown(&self, moment: Moment<'_>) -> bool {
        let now = moment.ticks(&self.rule);
        match &self.stored {
            Stored::Doubt => true,
            Stored::State(memory) => !memory.is_ahead(&self.rule, now) && !memory.is_known(now),
            Stored::Nothing | Stored::Foreign => false,
        }
    }

    fn believe_change(&mut self, moment: Moment<'_>, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let now = moment.ticks(&self.rule);
        let most = match (&self.stored, asked.kind) {
            (Stored::State(Memory::Log(log)), Kind::Refund { .. }) => log.most(&self.rule, now),
            _ => u64::MAX,
        };
        if answer.units > most {
            return Err(format!("{} units are given back of {most} at most", answer.units));
        }
        self.believe(answer)?;
        if matches!(asked.kind, Kind::Renew { .. }) {
            self.totals.restored += asked.units - answer.units;
        }
        if answer.fits
            && let Stored::State(memory) = &self.stored
        {
            self.write(memory.clone(), moment);
        }
        Ok(())
    }

    /// Checks the answer to a change of what is `stored`.
    fn try_change(&mut self, stored: Stored, moment: Moment<'_>, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let (rule, now) = (self.rule, moment.ticks(&self.rule));
        let (mut memory, before) = match &stored {
            Stored::State(memory) if memory.is_ahead(&rule, now) => (Memory::new(&rule, now), Found::Ahead),
            Stored::State(memory) => (memory.clone(), Found::Kept),
            Stored::Foreign => (Memory::new(&rule, now), Found::Foreign),
            Stored::Nothing | Stored::Doubt => (Memory::new(&rule, now), Found::Fresh),
        };
        let (units, restored, is_changed) = match asked.kind {
            Kind::Strike => {
                let struck = memory.strike(&rule, now);
                (struck.map_or(0, |struck| struck.strikes), 0, struck.is_some())
            }
            Kind::Renew { stamp } => {
                let (units, restored) = memory.renew(&rule, now, asked.units, stamp);
                (units, restored, units + restored > 0)
            }
            kind => {
                let units = match kind {
                    Kind::Refund { stamp } => memory.refund(&rule, now, asked.units, stamp),
                    _ => memory.charge(&rule, now, asked.units),
                };
                (units, 0, units > 0)
            }
        };
        let found = if is_changed { Found::Kept } else { before };
        if (units, found, is_changed) != (answer.units, answer.found, answer.fits) {
            return Err(format!("it should come to {units} and find {found:?} of {stored:?}: {answer:?}"));
        }
        if let Some(told) = &answer.state {
            memory.compare(&rule, now, LOOK, told)?;
        }
        self.totals.restored += restored;
        if is_changed {
            self.write(memory, moment);
        } else {
            self.stored = stored;
        }
        Ok(())
    }
}
