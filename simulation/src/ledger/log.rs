//! Logs: when each unit was taken.

use super::answer::State;
use super::event::Rule;

/// Units by the time they were taken at.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// The last time written, in ticks.
    pub(super) seen: u64,
    /// Times and how many units, in order.
    units: Vec<(u64, u64)>,
    /// Others may be there, as only a digest was told.
    is_partial: bool,
    /// Units of those that count, as told last: when they were taken is not known.
    vague: u64,
    /// As many there are at most, as a clock that is set back has more of them count.
    most_vague: u64,
    /// The time at which no such unit counts.
    vague_until: u64,
}

/// What a digest depends on, beside the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    /// Units that are taken.
    pub(super) taken: u64,
    /// Units that are to fit next.
    pub(super) need: u64,
    /// Units that must remain.
    pub(super) floor: u64,
}

impl Log {
    pub(super) fn new(now: u64) -> Self {
        Self { seen: now, units: Vec::new(), is_partial: false, vague: 0, most_vague: 0, vague_until: 0 }
    }

    /// The counter that a state tells of; `None` if it is none of this kind.
    pub(super) fn adopt(rule: &Rule, state: &State) -> Option<Self> {
        match state {
            State::Log { last, units } => {
                let units = units.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect();
                Some(Self { units, ..Self::new(*last) })
            }
            State::Digest { last, live, newest, .. } => {
                let vague_until = newest + rule.window();
                Some(Self { is_partial: true, vague: *live, most_vague: u64::MAX, vague_until, ..Self::new(*last) })
            }
            _ => None,
        }
    }

    /// Whether all units are known.
    pub(super) fn is_known(&self, now: u64) -> bool {
        !self.is_partial || self.seen.max(now) >= self.vague_until
    }

    /// Units known to count at a time.
    fn known(&self, rule: &Rule, now: u64) -> u64 {
        let time = self.seen.max(now);
        self.units.iter().filter(|(of, _)| of + rule.window() > time).map(|(_, units)| units).sum()
    }

    /// Units that count at a time, however many nobody knows of.
    pub(super) fn most(&self, rule: &Rule, now: u64) -> u64 {
        self.known(rule, now).saturating_add(self.most_vague)
    }

    /// Units that count now, which is when it was compared.
    pub(super) fn used(&self, rule: &Rule, now: u64) -> u64 {
        self.known(rule, now) + if self.is_known(now) { 0 } else { self.vague }
    }

    /// Whether nothing matters that happened before a time, or nobody knows.
    pub(super) fn is_over(&self, rule: &Rule, now: u64) -> bool {
        self.known(rule, now) == 0
    }

    pub(super) fn add(&mut self, rule: &Rule, now: u64, units: u64) {
        let time = self.seen.max(now);
        if self.is_known(now) {
            (self.is_partial, self.vague) = (false, 0);
        }
        self.most_vague = self.vague;
        self.seen = time;
        self.units.retain(|(of, units)| *units > 0 && of + rule.window() > time);
        match self.units.last_mut() {
            Some((of, sum)) if *of == time => *sum += units,
            _ if units > 0 => self.units.push((time, units)),
            _ => {}
        }
    }

    /// Gives back units, of those taken at `stamp` or of any, the newest first; returns how many.
    pub(super) fn refund(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        let (time, mut back) = (self.seen.max(now), 0);
        let live = self.units.iter_mut().rev().filter(|(of, _)| of + rule.window() > time);
        for (_, units) in live.filter(|(of, _)| stamp.is_none_or(|stamp| stamp == *of)) {
            let part = (*units).min(asked - back);
            *units -= part;
            back += part;
        }
        if back > 0 {
            self.add(rule, now, 0);
        }
        back
    }

    /// Checks what is told of the log as it is, which says how many of the units nobody knows still count.
    pub(super) fn compare(&mut self, rule: &Rule, now: u64, wait: Wait, told: &State) -> Result<(), String> {
        if self.is_partial {
            return self.narrow(rule, now, told);
        }
        let expected = match told {
            State::Log { .. } => State::Log { last: self.seen, units: self.times().collect() },
            _ => self.digest(rule, now, wait),
        };
        if *told == expected { Ok(()) } else { Err(format!("it tells {told:?}, which is {expected:?}")) }
    }

    /// As [`compare`](Self::compare) of a log of which not all is known.
    fn narrow(&mut self, rule: &Rule, now: u64, told: &State) -> Result<(), String> {
        let time = self.seen.max(now);
        let (live, whole) = match told {
            State::Digest { live, .. } => (*live, None),
            State::Log { units, .. } => {
                let live = units.iter().filter(|of| **of + rule.window() > time).count() as u64;
                (live, Self::adopt(rule, told))
            }
            _ => return Err("no log is told of one".into()),
        };
        let (known, most) = (self.known(rule, now), if self.is_known(now) { 0 } else { self.most_vague });
        let vague = live.checked_sub(known).filter(|vague| *vague <= most);
        let vague = vague.ok_or_else(|| format!("it tells {told:?}, which cannot be: {self:?}"))?;
        match whole {
            Some(whole) => *self = whole,
            // What does not count is still there, until it is written.
            None if self.is_known(now) => {}
            None => self.vague = vague,
        }
        Ok(())
    }

    /// The time of every unit.
    fn times(&self) -> impl Iterator<Item = u64> {
        self.units.iter().flat_map(|(of, units)| std::iter::repeat_n(*of, usize::try_from(*units).unwrap_or(0)))
    }

    fn digest(&self, rule: &Rule, now: u64, wait: Wait) -> State {
        let (time, live) = (self.seen.max(now), self.known(rule, now));
        let newest = self.units.last().map_or(self.seen, |(of, _)| *of);
        let over = i128::from(live + wait.taken) + i128::from(wait.need) + i128::from(wait.floor);
        let over = u64::try_from(over - i128::from(rule.limit)).unwrap_or(0).clamp(1, live.max(1));
        let skipped = usize::try_from(over - 1).unwrap_or(usize::MAX);
        let leaving = self.times().filter(|of| of + rule.window() > time).nth(skipped);
        State::Digest { last: self.seen, live, newest, leaving: leaving.unwrap_or(self.seen) }
    }
}
