//! Answers come in time, and from whom they may.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::Source;
use tollgate::store::Mode;

use super::super::caller::Record;
use super::super::client::{ALLOWED, Answer};
use super::super::plan::{Around, Patience, Rule};
use super::super::{State, between};
use super::TIMERS;

/// What who waits for another runtime adds.
const GRACE: Duration = Duration::from_millis(6);

/// Failures in a row that open a breaker.
const FAILURES: u32 = 5;

impl State {
    /// No caller waits beyond its timeout and 2 ms.
    pub(in super::super) fn checks_wait(&mut self, place: usize) {
        let record = &self.records[place];
        let until = record.decided.unwrap_or(record.began);
        let delay = record.decision.as_ref().map_or(Duration::ZERO, tollgate::Decision::delay);
        let idles = if let Patience::Idles(millis) = record.patience { millis } else { 0 };
        let budget = self.plan.setting.processes[record.process].timeout();
        let grace = if record.is_elsewhere { GRACE } else { Duration::ZERO };
        let most = budget.max(Duration::from_millis(idles))
            + delay
            + TIMERS
            + grace
            + self.blocked_between(record.began, until);
        let waits = !matches!(self.plan.setting.processes[record.process].around, Around::Ratio(_));
        let most = if waits || idles > 0 { most } else { Duration::ZERO };
        let (waited, name) = (until - record.began, record.name());
        if waited > most {
            self.violate(format_args!("{name} waited {waited:?}, and may wait {most:?}"));
        }
    }

    /// Without the store, requests are admitted as the layer's rule says.
    pub(in super::super) fn checks_admission(&mut self, place: usize) {
        let record = self.records[place].clone();
        let Some(decision) = &record.decision else { return };
        let (setting, source) = (&self.plan.setting, decision.source());
        let (process, due) = (setting.processes[record.process].clone(), setting.policies.len());
        let (told, name) = (decision.outcomes().len(), record.name());
        if told < due {
            self.violate(format_args!("{name} is admitted by {told} policies of {due}"));
        }
        if !decision.outcomes().iter().any(|outcome| outcome.mode() == Mode::Enforce) {
            return;
        }
        let is_allowed = match source {
            Source::Fallback => process.rule != Rule::Deny,
            Source::FailOpen => process.rule == Rule::Allow,
            Source::DenyCache => false,
            Source::Lease | Source::Ratio => process.around != Around::Plain,
            _ => true,
        };
        if !is_allowed {
            self.violate(format_args!("{name} is admitted by {source:?}"));
        }
        // Each node of a Cluster is away for itself. Who waited for a while was admitted before, and did not look.
        if self.nodes.len() == 1 && record.began.elapsed() <= process.timeout() + TIMERS {
            self.checks_allowed(record.process, source);
        }
    }

    /// All are admitted without the store for no longer than is allowed.
    fn checks_allowed(&mut self, process: usize, source: Source) {
        if source != Source::FailOpen {
            self.open_since[process] = None;
            return;
        }
        let (since, now) = (*self.open_since[process].get_or_insert_with(Instant::now), Instant::now());
        // What was replied while a thread was blocked, or a caller did not poll, is learned after it.
        let late = self.blocked_between(since, now) + between(&self.idle, since, now);
        if since.elapsed() > ALLOWED + TIMERS + late {
            let since = since.elapsed();
            self.violate(format_args!("process {process} has admitted all without its store for {since:?}"));
        }
    }

    /// A refusal says when to come again, in whole seconds that are not too few.
    pub(in super::super) fn checks_answer(&mut self, place: usize, answer: Answer) {
        let record = self.records[place].clone();
        let Some(decision) = &record.decision else { return };
        let name = record.name();
        if record.source() == Some(Source::DenyCache) {
            self.trace.meet(if decision.is_banned() { "a cached refusal by a ban" } else { "a cached refusal" });
        }
        let told = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if record.status == Some(429) && decision.retry_after().is_some() {
            let least = decision.retry_after().unwrap_or_default().as_secs_f64();
            #[allow(clippy::cast_precision_loss, reason = "it is a short time")]
            if told.is_none_or(|told| told == 0 || (told as f64) < least) {
                self.violate(format_args!("{name} may come again after {least} s, and is told {told:?}"));
            }
        }
        self.checks_banned(&record, answer);
    }

    /// A connection that is lost is one failure, however many waited for it: a few open no breaker.
    pub(in super::super) fn checks_breakers(&mut self, process: usize, is_asked: bool) {
        let is_quick = self.plan.setting.processes[process].timeout() >= self.slowest();
        if let Some(losses) = self.losses.filter(|losses| *losses < FAILURES && is_quick && !is_asked) {
            self.violate(format_args!("a breaker is open after {losses} lost connections"));
        }
    }

    /// What connecting, loading a script and asking may take: for a Cluster, also to find out which node to ask.
    fn slowest(&self) -> Duration {
        Duration::from_millis(if self.nodes.len() > 1 { 100 } else { 50 })
    }

    /// The store decides while nothing is wrong.
    pub(in super::super) fn checks_calm(&mut self, place: usize, is_asked: bool) {
        let record = self.records[place].clone();
        let (source, process) = (record.source(), &self.plan.setting.processes[record.process]);
        if source.is_some_and(|source| source != Source::FailOpen) {
            self.open_since[record.process] = None;
        }
        let is_by_nobody = |source| matches!(source, Some(Source::Fallback | Source::FailOpen));
        let has_failed = !record.is_admitted && source.is_none() || is_by_nobody(source);
        let waits = record.patience == Patience::Waits;
        let is_usual = !matches!(process.around, Around::Ratio(_)) && waits && record.is_asked && !record.is_elsewhere;
        let (waited, budget) = (record.decided.unwrap_or_else(Instant::now) - record.began, process.timeout());
        // Who fails for a breaker has not waited.
        let is_in_time = waited < budget && is_asked || budget >= self.slowest();
        // After a clock was set by hours, the windows that a process names may be wrong once.
        let failed_since = |step: Instant| {
            let is_one = |other: &Record| (step..record.began).contains(&other.began) && is_by_nobody(other.source());
            self.records.iter().any(|other| other.process == record.process && is_one(other))
        };
        let is_hourly = self.plan.setting.policies[0].is_hourly;
        let is_told = !is_hourly || self.steps_us.last().is_none_or(|(step, _)| failed_since(*step));
        if has_failed && is_usual && is_in_time && is_told && self.is_calm_since(record.began) {
            let (name, status) = (record.name(), record.status);
            self.violate(format_args!("{name} fails after {waited:?} while all is well: {status:?} by {source:?}"));
        }
    }
}
