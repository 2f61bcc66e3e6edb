//! Tables of what one counter answers. All times are in microseconds.

use std::panic::Location;
use std::time::Duration;

use tollgate::store::{Check, Deadline, Mode};
use tollgate::{Outcome, Quota};

pub(crate) use super::subject::EPOCH_US;
use super::subject::{KEY, Subject, check, on_each_store};

pub(crate) const S: u64 = 1_000_000;
pub(crate) const MS: u64 = 1_000;
pub(crate) const DAY: u64 = 86_400 * S;
pub(crate) const MONTH: u64 = 30 * DAY;

pub(crate) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// One request for one counter, and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    now: u64,
    cost: u64,
    floor: u64,
    mode: Mode,
    answer: Answer,
    place: &'static Location<'static>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    allowed: bool,
    remaining: u64,
    retry_after: Option<u64>,
    reset_after: u64,
    delay: u64,
}

#[track_caller]
pub(crate) fn admits(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, Answer { allowed: true, remaining, retry_after: None, reset_after, delay: 0 })
}

#[track_caller]
pub(crate) fn denies(now: u64, cost: u64, remaining: u64, retry_after: u64, reset_after: u64) -> Row {
    row(now, cost, Answer { allowed: false, remaining, retry_after: Some(retry_after), reset_after, delay: 0 })
}

/// Denied, and no wait helps.
#[track_caller]
pub(crate) fn never(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, Answer { allowed: false, remaining, retry_after: None, reset_after, delay: 0 })
}

#[track_caller]
fn row(now: u64, cost: u64, answer: Answer) -> Row {
    Row { now, cost, floor: 0, mode: Mode::Enforce, answer, place: Location::caller() }
}

impl Row {
    pub(crate) fn floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }

    pub(crate) fn shadow(self) -> Self {
        Self { mode: Mode::Shadow, ..self }
    }

    /// Admitted, after waiting this long.
    pub(crate) fn delay(mut self, delay: u64) -> Self {
        self.answer.delay = delay;
        self
    }

    fn check(&self, quota: Quota) -> Check {
        check(KEY, quota, self.cost).floor(self.floor).mode(self.mode)
    }
}

/// Runs a table on whatever decides here.
pub(crate) async fn table(quota: Quota, rows: &[Row]) {
    on_each_store(async |subject| run(subject, quota, rows).await).await;
}

/// Runs a table on one subject.
pub(crate) async fn run(subject: &Subject, quota: Quota, rows: &[Row]) {
    for row in rows {
        step(subject, quota, row).await;
    }
}

/// Asks, compares the answer, and looks at what was written: nothing unless units were taken.
async fn step(subject: &Subject, quota: Quota, row: &Row) {
    let told = format!("{}, {quota}, {}: {row:?}", subject.name, row.place);
    subject.clock.set(row.now);
    let before = subject.kept();
    let decision = subject.decide(&[row.check(quota)], Deadline::none()).await.decision;
    let outcome = &decision.outcomes()[0];
    assert_eq!(answer(outcome), row.answer, "{told}");
    let refuses = row.mode == Mode::Enforce && !row.answer.allowed;
    assert_eq!(decision.is_allowed(), !refuses, "{told}");
    assert_eq!(decision.retry_after(), outcome.retry_after().filter(|_| refuses), "{told}");
    if row.answer.allowed && row.cost > 0 {
        subject.assert_lives(outcome.reset_after(), quota.window());
    } else {
        assert_eq!(subject.kept(), before, "{told}");
    }
}

fn answer(outcome: &Outcome) -> Answer {
    Answer {
        allowed: outcome.is_allowed(),
        remaining: outcome.remaining(),
        retry_after: outcome.retry_after().map(micros),
        reset_after: micros(outcome.reset_after()),
        delay: micros(outcome.delay()),
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no test waits that long")
}

/// Checks that what is under the key in Redis, and is no state of ours, is a new state.
pub(crate) async fn assert_foreign_values_are_new(quota: Quota, taken_again: Row) {
    on_each_store(async |subject| {
        for foreign in [
            &[&["SET", "KEY", "1"][..]][..],
            &[&["SET", "KEY", ""]],
            &[&["SET", "KEY", "twelve bytes"]],
            &[&["SET", "KEY", "as long as a window"]],
            &[&["SET", "KEY", "as long as a bucket's"]],
            &[&["DEL", "KEY"], &["HSET", "KEY", "tokens", "1"]],
            &[&["DEL", "KEY"], &["RPUSH", "KEY", "1", "2"]],
        ] {
            let _ = subject.take(taken_again.now, quota, 1).await;
            if !subject.overwrite(foreign) {
                subject.reset(quota).await;
            }
            run(subject, quota, &[taken_again]).await;
            subject.reset(quota).await;
        }
    })
    .await;
}
