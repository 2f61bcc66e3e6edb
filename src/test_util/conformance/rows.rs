//! Tables of what one counter answers. All times are in microseconds.

use std::panic::Location;
use std::time::Duration;

use super::super::ManualClock;
use super::subject::{Checked, Stop, Subject};
use crate::core::{Ban, Outcome, Quota};
use crate::store::{BanCheck, Check, Mode};

pub(super) const S: u64 = 1_000_000;
pub(super) const MS: u64 = 1_000;
pub(super) const DAY: u64 = 86_400 * S;
pub(super) const MONTH: u64 = 30 * DAY;

/// The time since the Unix epoch at which the clocks of cases start.
pub(super) const EPOCH_US: u64 = ManualClock::EPOCH.as_secs() * S;

pub(super) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The least time in which units return, for rows on a clock that is not set.
const SLOW: Duration = Duration::from_secs(5);

/// One request for one counter, and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    now: u64,
    cost: u64,
    floor: u64,
    mode: Mode,
    ban: Option<Ban>,
    answer: Answer,
    place: &'static Location<'static>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    allowed: bool,
    remaining: u64,
    retry_after: Option<Duration>,
    reset_after: Duration,
    delay: Duration,
    banned: bool,
}

impl Answer {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            allowed: outcome.is_allowed(),
            remaining: outcome.remaining(),
            retry_after: outcome.retry_after(),
            reset_after: outcome.reset_after(),
            delay: outcome.delay(),
            banned: outcome.is_banned(),
        }
    }

    /// Whether another answer is the same but for a tolerance of times.
    fn is_like(&self, other: &Self, tolerance: Duration) -> bool {
        let are_near = |one: Duration, two: Duration| one.abs_diff(two) <= tolerance;
        let waits = match (self.retry_after, other.retry_after) {
            (Some(one), Some(two)) => are_near(one, two),
            (one, two) => one == two,
        };
        let times = are_near(self.reset_after, other.reset_after) && are_near(self.delay, other.delay);
        let same = |answer: &Self| (answer.allowed, answer.remaining, answer.banned);
        same(self) == same(other) && waits && times
    }
}

/// Whether outcomes are the same but for a tolerance of times.
pub(super) fn are_alike(one: &Outcome, other: &Outcome, tolerance: Duration) -> bool {
    one.quota() == other.quota() && Answer::of(one).is_like(&Answer::of(other), tolerance)
}

#[track_caller]
pub(super) fn admits(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, None, reset_after).allowed()
}

#[track_caller]
pub(super) fn denies(now: u64, cost: u64, remaining: u64, retry_after: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, Some(us(retry_after)), reset_after)
}

/// Denied, and no wait helps.
#[track_caller]
pub(super) fn never(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, None, reset_after)
}

/// Refused by a ban, which is what the time to retry and the reset are of.
#[track_caller]
pub(super) fn banned(now: u64, cost: u64, left: u64) -> Row {
    row(now, cost, 0, Some(us(left)), left).banned()
}

#[track_caller]
fn row(now: u64, cost: u64, remaining: u64, retry_after: Option<Duration>, reset_after: u64) -> Row {
    let (reset_after, delay) = (us(reset_after), Duration::ZERO);
    let answer = Answer { allowed: false, remaining, retry_after, reset_after, delay, banned: false };
    Row { now, cost, floor: 0, mode: Mode::Enforce, ban: None, answer, place: Location::caller() }
}

impl Row {
    fn allowed(mut self) -> Self {
        self.answer.allowed = true;
        self
    }

    pub(super) fn floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }

    pub(super) fn ban(self, ban: Ban) -> Self {
        Self { ban: Some(ban), ..self }
    }

    /// Because the key is banned.
    pub(super) fn banned(mut self) -> Self {
        self.answer.banned = true;
        self
    }

    pub(super) fn shadow(self) -> Self {
        Self { mode: Mode::Shadow, ..self }
    }

    /// Admitted, after waiting this long.
    pub(super) fn delay(mut self, delay: u64) -> Self {
        self.answer.delay = us(delay);
        self
    }
}

impl Subject {
    /// Compares a table of a key that was not used before.
    pub(super) async fn table(&self, quota: Quota, rows: &[Row]) -> Checked {
        self.next_key();
        self.run(quota, rows).await
    }

    /// The same, if states are kept for as long as the clock stands still.
    pub(super) async fn table_by_clock(&self, quota: Quota, rows: &[Row]) -> Checked {
        if self.expires_by_clock() { self.table(quota, rows).await } else { Ok(()) }
    }

    /// Compares a table of the present key.
    pub(super) async fn run(&self, quota: Quota, rows: &[Row]) -> Checked {
        if self.tolerance() > Duration::ZERO && quota.window() / u32::try_from(quota.limit()).unwrap_or(u32::MAX) < SLOW
        {
            return Err(Stop::OwnClock);
        }
        for row in rows {
            self.row(quota, row).await?;
        }
        Ok(())
    }

    async fn row(&self, quota: Quota, row: &Row) -> Checked {
        self.at(row.now)?;
        let mut check: Check = self.check(quota, row.cost).floor(row.floor).mode(row.mode);
        check.ban = row.ban.map(|ban| Box::new(BanCheck::new(ban)));
        let decision = self.decide(&[check]).await?.decision;
        let place = || format!("{}:{}: {} of {quota} at {} us", file(row), row.place.line(), row.cost, row.now);
        let Some(outcome) = decision.outcomes().first() else {
            self.holds(false, || format!("{}: expected an outcome, found none", place()));
            return Ok(());
        };
        let found = Answer::of(outcome);
        let is_like = row.answer.is_like(&found, self.tolerance());
        self.holds(is_like, || format!("{}: expected {:?}, found {found:?}", place(), row.answer));
        let refuses = row.mode == Mode::Enforce && !found.allowed;
        self.equal(decision.is_allowed(), !refuses, || format!("{}: the decision", place()));
        let retry_after = outcome.retry_after().filter(|_| refuses);
        self.equal(decision.retry_after(), retry_after, || format!("{}: the decision's time to retry", place()));
        Ok(())
    }
}

/// The name of the file that a row is in.
fn file(row: &Row) -> &'static str {
    row.place.file().rsplit(['/', '\\']).next().unwrap_or_default()
}
