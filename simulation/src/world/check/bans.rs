//! A banned client stays banned, for no longer than its policy says.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use http_body::Body as _;
use tokio::time::Instant;
use tollgate::Source;
use tollgate::store::Mode;

use super::super::State;
use super::super::caller::Record;
use super::super::client::{Answer, NAMES};
use super::super::plan::BanPlan;
use super::STRAYS;

impl State {
    fn ban(&self) -> Option<BanPlan> {
        self.plan.setting.policies[0].ban
    }

    /// What is told of a ban is true as far as its client can know, and it is not admitted before its end.
    pub(super) fn checks_banned(&mut self, record: &Record, answer: Answer) {
        let (Some(ban), Some(decision)) = (self.ban(), &record.decision) else { return };
        let name = record.name();
        let is_banned = decision.is_banned();
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            let kind = if is_banned { "#abnormal-usage-detected\"" } else { "#quota-exceeded\"" };
            let text = text_of(answer);
            if !text.contains(kind) {
                self.violate(format_args!("{name} is refused as {text:?}, and banned: {is_banned}"));
            }
        }
        let is_since = !self.changes.iter().any(|(at, user)| *user == record.user && *at >= record.began);
        let is_sure = self.disturbed.is_empty() && !self.may_be_reset && is_since;
        self.checks_admitted(record, is_sure);
        for outcome in decision.outcomes().iter().filter(|outcome| outcome.is_banned()) {
            self.trace.meet("a refusal by a ban");
            let (left, wait) = (outcome.banned_for().unwrap_or_default(), outcome.retry_after());
            // Of one that nobody was told of, any may be the first that is told.
            let is_first =
                !ban.extends && ban.growth > 100 && is_sure && self.strikes(record, None) < 2 * u64::from(ban.after);
            let most = Duration::from_millis(if is_first { ban.time_ms } else { ban.most_ms });
            let most = most * if self.disturbed.is_empty() { 1 } else { 2 };
            let is_right = outcome.policy() == NAMES[0] && !outcome.is_allowed() && !left.is_zero() && left <= most;
            if !is_right || wait.is_some_and(|wait| wait < left) {
                return self.violate(format_args!("{name} is banned for {left:?} of {most:?}, and waits {wait:?}"));
            }
            let within = Duration::from_millis(ban.within_ms + ban.most_ms) + STRAYS;
            let strikes = self.strikes(record, Some(within));
            if self.disturbed.is_empty() && strikes < u64::from(ban.after) {
                return self.violate(format_args!("{name} is banned after {strikes} strikes of {}", ban.after));
            }
            if decision.source() == Source::Store && outcome.mode() == Mode::Enforce && is_sure {
                let (until, now) = (record.began + left, Instant::now());
                let known = self.banned.entry(record.user).or_insert((until, now));
                if until > known.0 {
                    *known = (until, now);
                }
            }
        }
    }

    /// Who received a refusal by a ban is not admitted by the store before its end. A request of the same instant may have
    /// been sent before.
    fn checks_admitted(&mut self, record: &Record, is_sure: bool) {
        let Some((until, learned)) = self.banned.get(&record.user).copied() else { return };
        let is_enforced = record.outcome(0).is_some_and(|(outcome, _)| outcome.mode() == Mode::Enforce);
        let (decided, by_store) = (record.decided.unwrap_or(until), record.source() == Some(Source::Store));
        if is_sure && is_enforced && by_store && record.is_admitted && learned < record.began && decided < until {
            let (name, left) = (record.name(), until - decided);
            self.violate(format_args!("{name} is admitted, and its client banned for {left:?} more"));
        }
    }

    /// How many strikes there may have been of a user before a request, within a time or at all: refusals that
    /// callers saw, of any process, and requests of which nobody knows.
    fn strikes(&self, of: &Record, within: Option<Duration>) -> u64 {
        let is_one = |record: &&Record| {
            let is_recent = within.is_none_or(|within| record.began + within > of.began);
            let is_strike = match (record.outcome(0), record.source()) {
                (Some((outcome, _)), Some(Source::Store | Source::DenyCache)) => {
                    !outcome.is_allowed() || record.has_left
                }
                _ => true,
            };
            record.user == of.user && record.began <= of.ended.unwrap_or(of.began) && is_recent && is_strike
        };
        self.records.iter().filter(is_one).count() as u64
    }
}

/// The whole body of an answer, which is there.
fn text_of(answer: Answer) -> String {
    let (mut body, mut text) = (Box::pin(answer.into_body()), Vec::new());
    let cx = &mut Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::as_mut(&mut body).poll_frame(cx) {
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    String::from_utf8_lossy(&text).into_owned()
}
