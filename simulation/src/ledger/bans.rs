//! The bans of a request: who is banned takes nothing, and who does not fit is a strike.

use super::answer::{Answer, Found};
use super::banned::{Banned, Struck};
use super::book::{Ledger, Request};
use super::counter::{Counter, Moment, Stored};
use super::event::{Event, Rule, What};
use super::log::Wait;
use super::memory::Memory;
use super::wire::{Asked, Bar, Kind};

/// The ban of a check.
struct Look {
    /// The place of its counter.
    place: usize,
    rule: Rule,
    bar: Bar,
    /// The place of the check among those of the request.
    check: usize,
    banned: Banned,
    was_banned: bool,
}

impl Ledger {
    /// Notes a request in which there are bans, each before its check.
    pub(super) fn decide_with_bans(&mut self, request: Request<'_>, events: &mut Vec<Event>) -> Result<(), String> {
        let looks = self.look_at_bans(request)?;
        let both = request.asked.iter().zip(request.answers);
        let (own, answers): (Vec<Asked>, Vec<Answer>) =
            both.filter(|(asked, _)| asked.is_check()).map(|(asked, answer)| (*asked, answer.clone())).unzip();
        let checks = Request { asked: &own, answers: &answers, ..request };
        let mut asked = own.clone();
        let spared = looks.iter().filter(|look| look.was_banned && !look.bar.enforced);
        let looks_barred: Vec<usize> = spared.map(|look| look.check).collect();
        // In shadow mode, who is banned takes nothing.
        for check in &looks_barred {
            asked[*check].units = 0;
        }
        let is_barred = looks.iter().any(|look| look.was_banned && look.bar.enforced);
        let mut decided = Vec::with_capacity(asked.len());
        self.decide(Request { asked: &asked, ..checks }, is_barred, &mut decided)?;
        self.strike(looks, checks, events)?;
        for look in looks_barred {
            // In shadow mode, who is banned does not fit.
            if let Kind::Check { floor, enforced } = checks.asked[look].kind
                && let What::Look { admitted, .. } = decided[look].what
                && checks.asked[look].units > 0
            {
                let cost = checks.asked[look].units;
                decided[look].what = What::Take { cost, floor, enforced, fits: false, admitted };
            }
        }
        events.append(&mut decided);
        Ok(())
    }

    /// What is said of each ban must be so.
    fn look_at_bans(&mut self, request: Request<'_>) -> Result<Vec<Look>, String> {
        let Request { places, moment, asked, answers } = request;
        let (mut looks, mut check) = (Vec::new(), 0);
        for (asked, answer) in asked.iter().zip(answers) {
            let Kind::Ban(bar) = asked.kind else {
                check += 1;
                continue;
            };
            let place = places[asked.key];
            let counter = &mut self.counters[place];
            let looked = counter.look(moment, asked, answer);
            let banned = looked.map_err(|error| counter.wrong(moment, asked, &error))?;
            let was_banned = banned.is_banned(&asked.rule, moment.ticks(&asked.rule));
            looks.push(Look { place, rule: asked.rule, bar, check, banned, was_banned });
        }
        Ok(looks)
    }

    /// Notes the strikes of a request that was decided.
    fn strike(&mut self, mut looks: Vec<Look>, checks: Request<'_>, events: &mut Vec<Event>) -> Result<(), String> {
        for index in 0..looks.len() {
            let Look { place, rule, bar, check, ref banned, was_banned } = looks[index];
            let (check, answer) = (&checks.asked[check], &checks.answers[check]);
            let (now, mut banned) = (checks.moment.ticks(&rule), banned.clone());
            self.belong_together(place, checks.places[check.key])?;
            let fits = if check.units == 0 { self.would_fit(checks, check) } else { answer.fits };
            let is_decided = checks.answers.iter().all(|answer| answer.found != Found::Outside);
            let is_strike = is_decided && bar.counts && (!fits || banned.is_banned(&rule, now));
            let struck = if is_strike { banned.strike(&rule, now) } else { None };
            if struck.is_some() {
                looks.iter_mut().filter(|other| other.place == place).for_each(|other| other.banned = banned.clone());
                self.counters[place].write(Memory::Banned(banned), checks.moment);
            }
            let Struck { strikes, began } = struck.unwrap_or(Struck { strikes: 0, began: false });
            let what = What::Ban { cost: check.units, enforced: bar.enforced, banned: was_banned, strikes, began };
            let counter = &self.counters[place];
            let remaining = counter.left(checks.moment.at_us);
            events.push(Event { key: counter.key.clone(), at_us: checks.moment.at_us, rule, what, remaining });
        }
        Ok(())
    }

    /// A ban is that of its check: of the same policy, by the same key.
    fn belong_together(&self, ban: usize, check: usize) -> Result<(), String> {
        let (ban, check) = (&self.counters[ban].key, &self.counters[check].key);
        let is_so = ban.strip_suffix(b"b").is_some_and(|name| check.starts_with(name));
        if is_so { Ok(()) } else { Err(format!("{} is not the ban of {}", ban.escape_ascii(), check.escape_ascii())) }
    }

    /// Whether one unit would fit of a check that takes none.
    fn would_fit(&self, checks: Request<'_>, check: &Asked) -> bool {
        let (counter, now) = (&self.counters[checks.places[check.key]], checks.moment.ticks(&check.rule));
        let Kind::Check { floor, .. } = check.kind else { return true };
        match &counter.stored {
            Stored::State(memory) if !memory.is_ahead(&check.rule, now) => memory.fits(&check.rule, now, 1, floor),
            _ => Memory::new(&check.rule, now).fits(&check.rule, now, 1, floor),
        }
    }
}

impl Counter {
    /// Checks what is said of a ban; returns it.
    fn look(&mut self, moment: Moment<'_>, asked: &Asked, answer: &Answer) -> Result<Banned, String> {
        self.follow(asked.rule)?;
        let Memory::Banned(banned) = self.meet(moment, Wait::default(), answer)? else {
            return Err("a quota is no ban".into());
        };
        let is_banned = banned.is_banned(&self.rule, moment.ticks(&self.rule));
        match (is_banned, answer.fits) {
            (true, false) | (false, true) => Ok(banned),
            (true, true) => Err(format!("it is banned, and let in: {banned:?}")),
            (false, false) => Err(format!("it is not banned, and refused: {banned:?}")),
        }
    }
}
