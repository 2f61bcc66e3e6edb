//! Requests: all or nothing over their checks.

use super::answer::{Answer, Found};
use super::book::{Ledger, Request};
use super::counter::{Counter, Moment};
use super::event::{Event, What};
use super::log::Wait;
use super::memory::Memory;
use super::wire::{Asked, Kind};

/// A check that fits, as it is written if the request is admitted.
struct Fitting {
    /// The place of its counter.
    place: usize,
    memory: Memory,
    /// With what earlier checks of the request take from the same counter.
    sum: u64,
    check: usize,
}

impl Ledger {
    /// Notes a request: what fits must be what the models say, and nothing is taken if an enforced check
    /// does not fit, or a ban bars the request.
    pub(super) fn decide(
        &mut self,
        request: Request<'_>,
        is_barred: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let Request { places, moment, asked, answers } = request;
        let (mut fitting, mut admitted): (Vec<Fitting>, bool) = (Vec::new(), !is_barred);
        for (check, (one, answer)) in asked.iter().zip(answers).enumerate() {
            let (place, before) = (places[one.key], sum_before(asked, answers, check));
            let counter = &mut self.counters[place];
            let found = counter.decide(moment, one, before, answer);
            let memory = found.map_err(|error| counter.wrong(moment, one, &error))?;
            admitted &= (answer.fits || !is_enforced(one)) && answer.found != Found::Outside;
            if answer.fits && one.units > 0 {
                fitting.retain(|other| other.place != place);
                fitting.push(Fitting { place, memory, sum: before + one.units, check });
            }
        }
        if admitted {
            self.take(moment, asked, fitting)?;
        }
        events.extend(asked.iter().zip(answers).map(|(asked, answer)| {
            let is_outside = answer.found == Found::Outside;
            let what = if is_outside { What::Outside } else { what(asked, answer.fits, admitted) };
            self.counters[places[asked.key]].event(moment, asked, what)
        }));
        Ok(())
    }

    /// Takes what fits.
    fn take(&mut self, moment: Moment<'_>, asked: &[Asked], fitting: Vec<Fitting>) -> Result<(), String> {
        for Fitting { place, mut memory, sum, check } in fitting {
            let counter = &mut self.counters[place];
            counter.follow(asked[check].rule)?;
            memory.take(&counter.rule, moment.ticks(&counter.rule), sum);
            counter.totals.taken += sum;
            counter.write(memory, moment);
        }
        Ok(())
    }
}

impl Counter {
    /// Checks what is said of one check, before which others ask for so many units of the same counter;
    /// returns the counter as it was.
    fn decide(&mut self, moment: Moment<'_>, asked: &Asked, before: u64, answer: &Answer) -> Result<Memory, String> {
        self.follow(asked.rule)?;
        let Kind::Check { floor, .. } = asked.kind else { return Err("a change is no check".into()) };
        if self.is_outside(moment) {
            let is_so = answer.found == Found::Outside && !answer.fits;
            return if is_so { Ok(Memory::new(&self.rule, 0)) } else { Err(format!("it is in no window: {answer:?}")) };
        }
        let cost = if asked.units > 0 { before + asked.units } else { 0 };
        let (taken, need) = if answer.fits { (cost, 1) } else { (0, cost) };
        let memory = self.meet(moment, Wait { taken, need, floor }, answer)?;
        let fits = cost == 0 || memory.fits(&self.rule, moment.ticks(&self.rule), cost, floor);
        if fits == answer.fits {
            return Ok(memory);
        }
        let (says, is) = if fits { ("is refused", "fits") } else { ("is admitted", "does not fit") };
        Err(format!("a cost of {cost} {says}, and {is}: {memory:?}"))
    }

    pub(super) fn event(&self, moment: Moment<'_>, asked: &Asked, what: What) -> Event {
        // Of a time that is in no window named, nobody knows.
        let remaining = if self.is_outside(moment) { None } else { self.left(moment.at_us) };
        Event { key: self.key.clone(), at_us: moment.at_us, rule: asked.rule, what, remaining }
    }

    /// A sentence about what is wrong.
    pub(super) fn wrong(&self, moment: Moment<'_>, asked: &Asked, error: &str) -> String {
        let (at_us, key) = (moment.at_us, self.key.escape_ascii());
        format!("{key} at {at_us} us ({} ticks): {error}; asked was {asked:?}", moment.ticks(&asked.rule))
    }
}

/// Units that earlier checks of a request ask of the same counter: of those that fit or can refuse.
fn sum_before(asked: &[Asked], answers: &[Answer], check: usize) -> u64 {
    let before = asked.iter().zip(answers).take(check).filter(|(other, _)| other.key == asked[check].key);
    before.filter(|(other, answer)| answer.fits || is_enforced(other)).map(|(other, _)| other.units).sum()
}

fn is_enforced(asked: &Asked) -> bool {
    matches!(asked.kind, Kind::Check { enforced: true, .. })
}

fn what(asked: &Asked, fits: bool, admitted: bool) -> What {
    match asked.kind {
        Kind::Check { enforced, floor } if asked.units > 0 => {
            What::Take { cost: asked.units, floor, enforced, fits, admitted }
        }
        Kind::Check { floor, .. } => What::Look { floor, admitted },
        _ => unreachable!("changes stand alone, and bans before the checks"),
    }
}
