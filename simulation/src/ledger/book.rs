//! All counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::{Answer, answers};
use super::clock::Clock;
use super::counter::{Counter, Moment, Stored};
use super::event::{Event, Remaining};
use super::reports::Reports;
use super::wire::{Asked, Kind, asked};
use crate::server::Call;

/// Units since the start, whatever was forgotten meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Taken by admitted requests.
    pub taken: u64,
    /// Given back.
    pub refunded: u64,
    /// Added.
    pub charged: u64,
    /// Taken anew by renewals.
    pub restored: u64,
}

impl Totals {
    /// What was taken and added less what was given back.
    pub fn net(&self) -> i128 {
        i128::from(self.taken) + i128::from(self.charged) + i128::from(self.restored) - i128::from(self.refunded)
    }
}

/// One request of a call.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// Of all keys of the call, where their counters are.
    pub(super) places: &'a [usize],
    pub(super) moment: Moment<'a>,
    pub(super) asked: &'a [Asked],
    pub(super) answers: &'a [Answer],
}

/// What was really taken from every counter.
#[derive(Debug, Default)]
pub struct Ledger {
    places: BTreeMap<Arc<[u8]>, usize>,
    pub(super) counters: Vec<Counter>,
    clock: Clock,
    /// What should be stored under keys that no call has had yet, and under all others of them.
    unseen: BTreeMap<Vec<u8>, Stored>,
    unseen_else: Stored,
    /// What tallies were reported.
    pub(crate) reports: Reports,
}

impl Ledger {
    /// Notes a call, and says what it did.
    ///
    /// # Errors
    ///
    /// What is wrong with its answer, if it is not what the algorithms are defined to.
    pub fn ran(&mut self, call: &Call) -> Result<Vec<Event>, String> {
        let asked = asked(call)?;
        let (at_us, answers) = answers(&call.reply, &asked)?;
        check_time(call, at_us)?;
        let number = self.clock.tick(call.at_us);
        let places = self.places_of(call, &asked)?;
        let (mut events, mut rest) = (Vec::with_capacity(asked.len()), (&*asked, &*answers));
        let clock = std::mem::take(&mut self.clock);
        let moment = Moment { at_us, call: number, clock: &clock };
        let mut done = Ok(());
        while done.is_ok()
            && let Some(last) = rest.0.iter().position(|asked| asked.is_last)
        {
            let (request, after) = (rest.0.split_at(last + 1), rest.1.split_at(last + 1));
            let whole = Request { places: &places, moment, asked: request.0, answers: after.0 };
            done = self.request(whole, &mut events);
            rest = (request.1, after.1);
        }
        self.clock = clock;
        done.map(|()| events)
    }

    fn request(&mut self, request: Request<'_>, events: &mut Vec<Event>) -> Result<(), String> {
        let Request { places, moment, asked, answers } = request;
        if asked.iter().any(|asked| matches!(asked.kind, Kind::Ban(_))) {
            return self.decide_with_bans(request, events);
        }
        if asked[0].is_check() {
            return self.decide(request, false, events);
        }
        events.push(self.counters[places[asked[0].key]].settle(moment, &asked[0], &answers[0])?);
        Ok(())
    }

    /// The counters of a call's keys.
    fn places_of(&mut self, call: &Call, asked: &[Asked]) -> Result<Vec<usize>, String> {
        let mut places = Vec::with_capacity(call.keys.len());
        for (index, key) in call.keys.iter().enumerate() {
            let rule = asked.iter().find(|asked| asked.key == index).map(|asked| asked.rule);
            let rule = rule.ok_or_else(|| format!("nothing is asked of {}", key.escape_ascii()))?;
            places.push(self.places.get(&**key).copied().unwrap_or_else(|| {
                let key: Arc<[u8]> = Arc::from(&**key);
                let stored = self.unseen.remove(&*key).unwrap_or_else(|| self.unseen_else.clone());
                self.counters.push(Counter::new(key.clone(), rule, stored));
                self.places.insert(key, self.counters.len() - 1);
                self.counters.len() - 1
            }));
        }
        Ok(places)
    }

    /// Notes a server's time, as has to be done before its clock is set back: what expired until then may be
    /// gone, although no call saw that time.
    pub fn clock(&mut self, at_us: u64) {
        self.clock.tick(at_us);
        self.reports.steps();
    }

    /// Notes that a key is gone, as it was evicted or deleted.
    pub fn forgot(&mut self, key: &[u8]) {
        self.store(key, &Stored::Nothing);
        self.reports.forgot(key);
    }

    /// Notes that all keys are gone.
    pub fn forgot_all(&mut self) {
        self.store_all(&Stored::Nothing);
    }

    /// Takes what the next call finds under a key for true, as another server may have an older state.
    pub fn doubt(&mut self, key: &[u8]) {
        self.store(key, &Stored::Doubt);
    }

    /// Takes what the next call finds under each key for true.
    pub fn doubt_all(&mut self) {
        self.store_all(&Stored::Doubt);
    }

    fn store(&mut self, key: &[u8], stored: &Stored) {
        match self.places.get(key) {
            Some(place) => self.counters[*place].stored = stored.clone(),
            None => drop(self.unseen.insert(key.to_vec(), stored.clone())),
        }
    }

    fn store_all(&mut self, stored: &Stored) {
        self.counters.iter_mut().for_each(|counter| counter.stored = stored.clone());
        self.unseen.clear();
        self.unseen_else = stored.clone();
    }

    fn counter(&self, key: &[u8]) -> Option<&Counter> {
        self.places.get(key).map(|place| &self.counters[*place])
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.places.keys()
    }

    /// Units of a key since the start.
    pub fn totals(&self, key: &[u8]) -> Totals {
        self.counter(key).map(|counter| counter.totals).unwrap_or_default()
    }

    /// What was taken and added less what was given back, since the start: in units.
    pub fn net(&self, key: &[u8]) -> i128 {
        self.totals(key).net()
    }

    /// Units of a key that were taken by admitted requests, since the start.
    pub fn taken(&self, key: &[u8]) -> u64 {
        self.totals(key).taken
    }

    /// Units of a key that were given back, since the start.
    pub fn refunded(&self, key: &[u8]) -> u64 {
        self.totals(key).refunded
    }

    /// Units of a key that were added, since the start.
    pub fn charged(&self, key: &[u8]) -> u64 {
        self.totals(key).charged
    }

    /// How many requests of one unit would fit at a time in µs, by the last rule; `None` if nobody can know.
    pub fn remaining(&self, key: &[u8], at_us: u64) -> Remaining {
        self.counter(key)?.left(at_us)
    }
}

/// Checks that the time is the server's, or else the one that was given.
fn check_time(call: &Call, told_us: u64) -> Result<(), String> {
    let given = &*call.args[0];
    let text = std::str::from_utf8(given).ok();
    let at_us = if given.is_empty() { Some(call.at_us) } else { text.and_then(|text| text.parse().ok()) };
    if at_us == Some(told_us) {
        return Ok(());
    }
    Err(format!("the answer is of {told_us} us, and the time is {} us ({:?} given)", call.at_us, given.escape_ascii()))
}
