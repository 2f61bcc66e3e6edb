//! One counter: what should be stored of it, and what was taken in all.

use std::sync::Arc;

use super::answer::{Answer, Found};
use super::book::Totals;
use super::clock::Clock;
use super::event::{Algorithm, Remaining, Rule};
use super::log::Wait;
use super::memory::Memory;

/// What should be stored under a key.
#[derive(Clone, Debug, Default)]
pub(super) enum Stored {
    #[default]
    Nothing,
    /// What is no state.
    Foreign,
    State(Memory),
    /// What the next answer tells.
    Doubt,
}

#[derive(Debug)]
pub(super) struct Counter {
    pub(super) key: Arc<[u8]>,
    /// The rule that it was last decided by.
    pub(super) rule: Rule,
    pub(super) stored: Stored,
    /// The rule that it was last written by, and the call: what it is kept for follows from them. `None` of
    /// a state that was believed.
    written: Option<(Rule, u64)>,
    pub(super) totals: Totals,
}

/// When a check is decided, and in which call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) at_us: u64,
    pub(super) call: u64,
    pub(super) clock: &'a Clock,
}

impl Moment<'_> {
    pub(super) fn ticks(&self, rule: &Rule) -> u64 {
        self.at_us / rule.tick_us
    }
}

impl Counter {
    pub(super) fn new(key: Arc<[u8]>, rule: Rule, stored: Stored) -> Self {
        Self { key, rule, stored, written: None, totals: Totals::default() }
    }

    /// Takes note of the rule that is used now.
    pub(super) fn follow(&mut self, rule: Rule) -> Result<(), String> {
        if !rule.is_alike(&self.rule) {
            return Err(format!("its rule was {:?}", self.rule));
        }
        self.rule = rule;
        Ok(())
    }

    /// Whether what is stored may be gone by now: it has no meaning since the highest time seen.
    pub(super) fn may_be_gone(&self, moment: Moment<'_>) -> bool {
        match (&self.stored, &self.written) {
            (Stored::State(memory), Some((rule, call))) => {
                memory.is_over(rule, moment.clock.highest_since(*call) / rule.tick_us)
            }
            _ => true,
        }
    }

    /// What decides now, given what was found, which has to be what should be there.
    pub(super) fn meet(&mut self, moment: Moment<'_>, wait: Wait, answer: &Answer) -> Result<Memory, String> {
        let (rule, now) = (self.rule, moment.ticks(&self.rule));
        if matches!(self.stored, Stored::Doubt) {
            self.believe(answer)?;
        }
        let may_be_gone = self.may_be_gone(moment);
        match (&mut self.stored, answer.found) {
            (Stored::State(memory), Found::Kept) if !memory.is_ahead(&rule, now) => {
                let told = answer.state.as_ref().ok_or("no state is told")?;
                memory.compare(&rule, now, wait, told)?;
                return Ok(memory.clone());
            }
            (Stored::State(memory), Found::Ahead) if memory.is_ahead(&rule, now) => {}
            (Stored::Foreign, Found::Foreign) | (Stored::Doubt, Found::Ahead) | (Stored::Nothing, Found::Fresh) => {}
            (_, Found::Fresh) if may_be_gone => self.stored = Stored::Nothing,
            (stored, found) => return Err(format!("it finds {found:?}, where this should be: {stored:?}")),
        }
        Ok(Memory::new(&rule, now))
    }

    /// Takes what is told for true.
    pub(super) fn believe(&mut self, answer: &Answer) -> Result<(), String> {
        self.written = None;
        self.stored = match (answer.found, &answer.state) {
            (Found::Kept, Some(state)) => {
                Stored::State(Memory::adopt(&self.rule, state).ok_or("a state of another kind is told")?)
            }
            (Found::Kept, None) => return Err("no state is told".into()),
            (Found::Fresh, _) => Stored::Nothing,
            (Found::Foreign, _) => Stored::Foreign,
            (Found::Ahead | Found::Outside, _) => Stored::Doubt,
        };
        Ok(())
    }

    /// Whether the time is in none of the windows of a calendar that its rule names.
    pub(super) fn is_outside(&self, moment: Moment<'_>) -> bool {
        self.rule.algorithm == Algorithm::Calendar && self.rule.named.at(moment.ticks(&self.rule)).is_none()
    }

    /// Notes that this call wrote it.
    pub(super) fn write(&mut self, memory: Memory, moment: Moment<'_>) {
        self.stored = Stored::State(memory);
        self.written = Some((self.rule, moment.call));
    }

    /// How many requests of one unit fit.
    pub(super) fn left(&self, at_us: u64) -> Remaining {
        let now = at_us / self.rule.tick_us;
        match &self.stored {
            Stored::State(memory) if !memory.is_ahead(&self.rule, now) => memory.left(&self.rule, now),
            Stored::State(_) | Stored::Nothing | Stored::Foreign => Some(self.rule.most()),
            Stored::Doubt => None,
        }
    }
}
