//! What must be true of refusals.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Decision, Outcome, Source};

use super::World;
use super::bans::ban_of;
use super::client::{Answer, Client, key_of_user};
use super::plan::Around;
use super::record::Record;
use super::state::State;
use crate::ledger::{Algorithm, Event, What};

/// For so long a refusal is remembered at most, in µs, with a grain of timers.
const MEMORY_US: u64 = 1_010_000;

/// How long a question and its answer are on their ways at most while all is well, with a grain of timers.
const WAYS: Duration = Duration::from_millis(15);

impl World {
    /// Has a client's counters forgotten: what was refused before is not refused after that.
    pub(super) async fn reset(self, client: Client, user: u8) {
        let Some(key) = key_of_user(user) else { return };
        self.begins_to_reset("a reset");
        let done = client.limiter.reset(&key).await;
        let mut state = self.lock();
        state.resets -= 1;
        state.trace.say(format_args!("user {user} is reset: {}", done.is_ok()));
    }

    pub(super) fn begins_to_reset(&self, what: &'static str) {
        let mut state = self.lock();
        state.trace.meet(what);
        state.resets += 1;
    }
}

impl State {
    /// What one process refuses from memory, the server would refuse too.
    pub(super) fn checks_deny_cache(&mut self, record: &Record, answer: &Answer) {
        let decision = answer.extensions().get::<Decision>().cloned();
        let Some(decision) = decision.filter(|decision| decision.source() == Source::DenyCache) else { return };
        self.trace.meet("a refusal from memory");
        let is_sure = self.disturbed.is_none_or(long_ago) && !self.is_crowd;
        // What this process gives back itself it sees at once, and by another's policies nothing can be told.
        let (is_alone, is_calm) = (self.processes.len() == 1, self.is_calm());
        // By the time it took to be asked: what came back since was not there then.
        let then = self.clock().saturating_sub(u64::try_from(record.began.elapsed().as_micros()).unwrap_or(0) + 2_000);
        for outcome in decision.denied_by().filter(|_| is_sure) {
            let key = self.key_of(record.user, outcome);
            // That of an account may be another one, while it is not known.
            let is_certain = |key: &Arc<[u8]>| key.windows(8).any(|part| part == b"{header " || part == b"{global:");
            let Some(key) = key.filter(is_certain) else { continue };
            let is_known = if is_alone {
                is_calm && self.is_free() && !self.is_being_reset(&key) || !self.is_changed(&key)
            } else {
                !self.is_replaced && !self.is_changed(&key)
            };
            let Some(left) = self.room(&key, then).filter(|_| is_known) else { continue };
            let (who, name) = (record.name(), outcome.policy());
            if left >= record.cost {
                return self.violate(format_args!("{who} is refused from memory, and {name} has {left} left"));
            }
            let is_exact = is_alone && is_calm && self.is_quick();
            let Some(wait) = outcome.retry_after().filter(|_| is_exact) else { continue };
            // It may have been found when the request began.
            let told = self.clock().saturating_sub(micros(record.began.elapsed()));
            let before = told.saturating_add(micros(wait.saturating_sub(WAYS)));
            if self.room(&key, before).is_some_and(|left| left >= record.cost) {
                return self.violate(format_args!("{who} is refused from memory by {name}, and told to wait {wait:?}"));
            }
        }
    }

    /// Whether no thread was blocked lately, on which settlements wait.
    pub(super) fn is_free(&self) -> bool {
        self.blocked.iter().all(|(_, until)| long_ago(*until))
    }

    /// Whether refusals were learned at once lately: the wait of one that waits for its caller, or on a blocked thread,
    /// counts from when it is.
    fn is_quick(&self) -> bool {
        let is_late = |record: &Record| {
            record.status == Some(429)
                && record.ended.is_some_and(|ended| !long_ago(ended) && ended - record.began > WAYS)
        };
        self.is_free() && !self.records.iter().any(is_late)
    }

    /// Whether units of a counter came back while a refusal may have been remembered.
    fn is_changed(&self, key: &[u8]) -> bool {
        let since = self.clock().saturating_sub(MEMORY_US);
        let recent = self.events.iter().rev().filter(|event| event.at_us >= since);
        let is_its = |event: &&Event| *event.key == *key || *event.key == *ban_of(key);
        recent.filter(is_its).any(|event| matches!(event.what, What::Refund { .. } | What::Reset))
    }

    /// Whether a counter was reset so lately that its process may not know.
    fn is_being_reset(&self, key: &[u8]) -> bool {
        if self.resets > 0 {
            return true;
        }
        let since = self.clock().saturating_sub(micros(WAYS));
        let recent = self.events.iter().rev().filter(|event| event.at_us >= since);
        let is_its = |event: &&Event| *event.key == *key || *event.key == *ban_of(key);
        recent.filter(is_its).any(|event| matches!(event.what, What::Reset))
    }

    /// The key of a user's counter, if it was asked about.
    fn key_of(&self, user: u8, outcome: &Outcome) -> Option<Arc<[u8]>> {
        let costs = |cost: u64| self.records.iter().any(|record| record.cost == cost && record.user == user);
        let event = self.events.iter().rev().find(|event| {
            u128::from(event.rule.window_us) == outcome.quota().window().as_micros()
                && matches!(event.what, What::Take { cost, .. } if costs(cost))
        });
        event.map(|event| Arc::clone(&event.key))
    }

    /// Who is refused may come again after the wait that it is told, and not before.
    pub(super) fn checks_wait_told(&mut self, record: &Record, decision: &Decision, answer: &Answer) {
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if record.status == Some(429) && after == Some(0) {
            self.violate(format_args!("{} is told to come again at once", record.name()));
        }
        if record.status == Some(429) && after.is_none() && decision.retry_after().is_some() {
            self.violate(format_args!("{} is refused, and not told when to come again", record.name()));
        }
        let is_disturbed = self.disturbed.is_some_and(|disturbed| disturbed >= record.began);
        let is_plain = self.processes[record.process].around == Around::Plain;
        let is_sure = is_plain && !is_disturbed && !self.is_crowd;
        for outcome in decision.denied_by().filter(|_| is_sure) {
            let Some(wait) = outcome.retry_after() else { continue };
            let Some(event) = self.take(record.cost, outcome).filter(|event| event.what.taken() == 0) else { continue };
            let is_last = self.events.iter().rfind(|other| other.key == event.key).is_some_and(|last| *last == *event)
                && !self.has_other_ban(event);
            let then = event.at_us + u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            let left = |at_us| self.room(&event.key, at_us).unwrap_or(record.cost);
            if event.rule.algorithm == Algorithm::Concurrency {
                // When a slot is released, nobody knows.
                continue;
            }
            let is_leaky = event.rule.algorithm == Algorithm::LeakyBucket;
            let fits = |left: u64| if is_leaky { left > 0 } else { left >= record.cost };
            let before = then.saturating_sub(event.rule.tick_us.max(1_000));
            let is_right = fits(left(then)) && (before <= event.at_us || !fits(left(before)));
            if is_last && !is_right {
                let (then, before) = (left(then), left(before));
                let text = format!("{} is told to wait {wait:?}: there are {before}, then {then} left", record.name());
                return self.violate(format_args!("{text}"));
            }
        }
    }
}

/// Whether nothing of that time is remembered any more.
fn long_ago(then: Instant) -> bool {
    then.elapsed() > Duration::from_secs(2)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
