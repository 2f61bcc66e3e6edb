//! Bans: the strikes against a key, and the last time for which it is refused.
//!
//! All times are ms. Strikes count as long as the first of them is not older than the window.

use super::answer::State;
use super::event::Rule;

/// A ban: since when, and how long it is.
type Ban = (u64, u64);

#[derive(Clone, Debug, Default)]
pub(super) struct Banned {
    /// The last ban there was, whether it is over or not.
    last: Option<Ban>,
    /// Times and how many strikes, since the last ban.
    strikes: Vec<(u64, u64)>,
}

/// What a strike comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Struck {
    /// How many count: none if it extends a ban.
    pub(super) strikes: u64,
    /// Whether a ban begins with it.
    pub(super) began: bool,
}

impl Banned {
    /// What a state tells of; `None` if it is no ban.
    pub(super) fn adopt(state: &State) -> Option<Self> {
        let State::Ban { ends, length, start, strikes } = *state else { return None };
        let last = (length > 0).then(|| (ends.saturating_sub(length), length));
        Some(Self { last, strikes: if strikes > 0 { vec![(start, strikes)] } else { Vec::new() } })
    }

    /// The state that a script would tell.
    pub(super) fn state(&self) -> State {
        let (since, length) = self.last.unwrap_or_default();
        State::Ban { ends: since + length, length, start: self.first().unwrap_or_default(), strikes: self.count() }
    }

    /// When the window of strikes began.
    fn first(&self) -> Option<u64> {
        self.strikes.iter().map(|(time, _)| *time).min()
    }

    fn count(&self) -> u64 {
        self.strikes.iter().map(|(_, strikes)| strikes).sum()
    }

    /// Whether strikes still count with those that come now.
    fn has_window(&self, rule: &Rule, now: u64) -> bool {
        self.first().is_some_and(|first| now < first + rule.window())
    }

    /// The last ban, which is no longer than the longest there may be by now.
    fn ban(&self, rule: &Rule) -> Option<Ban> {
        self.last.map(|(since, length)| (since, length.min(rule.capacity)))
    }

    /// Whether it began, or strikes came, so far ahead that no clock was right then.
    pub(super) fn is_ahead(&self, rule: &Rule, now: u64) -> bool {
        let is_ban_ahead = self.last.is_some_and(|(since, _)| since > now + rule.capacity);
        is_ban_ahead || self.first().is_some_and(|first| first > now + rule.window())
    }

    pub(super) fn is_banned(&self, rule: &Rule, now: u64) -> bool {
        self.ban(rule).is_some_and(|(since, length)| now < since + length)
    }

    /// Whether it makes no difference if it is lost: nobody is banned, no strike counts, and the next ban is as long as
    /// the first.
    pub(super) fn is_over(&self, rule: &Rule, now: u64) -> bool {
        let grows = rule.ban.growth > 1_000 && self.is_recent(rule, now);
        !self.is_banned(rule, now) && !self.has_window(rule, now) && !grows
    }

    /// Whether the last ban ended so lately that the next one is longer.
    fn is_recent(&self, rule: &Rule, now: u64) -> bool {
        self.ban(rule).is_some_and(|(since, length)| now < since + length + rule.capacity)
    }

    /// Notes a strike; `None` if it changes nothing.
    pub(super) fn strike(&mut self, rule: &Rule, now: u64) -> Option<Struck> {
        if self.is_banned(rule, now) {
            if !rule.ban.extends {
                return None;
            }
            self.last = self.ban(rule).map(|(since, length)| (since.max(now), length));
            return Some(Struck { strikes: 0, began: false });
        }
        if !self.has_window(rule, now) {
            self.strikes.clear();
        }
        self.strikes.push((now, 1));
        let began = self.count() >= rule.limit;
        if began {
            self.last = Some((now, self.next_length(rule, now)));
            self.strikes.clear();
        } else {
            self.last = self.ban(rule);
        }
        Some(Struck { strikes: 1, began })
    }

    /// How long a ban is that begins now.
    fn next_length(&self, rule: &Rule, now: u64) -> u64 {
        let grown = |(_, length): Ban| (length * rule.ban.growth).div_ceil(1_000);
        let last = self.ban(rule).filter(|_| self.is_recent(rule, now));
        last.map_or(0, grown).max(rule.ban.time).min(rule.capacity)
    }
}
