//! What must be true.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::store::Mode;
use tollgate::{Decision, Outcome, Source};

use super::client::Answer;
use super::plan::{Around, Ask, By, Patience, Rule};
use super::state::State;

/// What timers add, and their grain.
pub(super) const TIMERS: Duration = Duration::from_millis(2);

/// The client who asks whether all is well.
pub(super) const NOBODY: &str = "nobody";

/// How long the lookup of an account may take.
const LOOKUP: Duration = Duration::from_secs(1);

/// What who waits for another runtime adds.
const GRACE: Duration = Duration::from_millis(6);

impl State {
    /// No caller waits beyond its budget and 2 ms. One whose account is looked up may wait for that, and for a look before.
    pub(super) fn checks_wait(&mut self, place: usize, ask: &Ask, began: Instant, until: Instant) {
        let record = &self.records[place];
        let delay = record.decision.as_ref().map_or(Duration::ZERO, Decision::delay);
        let idles = match ask.patience {
            Patience::Idles(millis) => Duration::from_millis(millis),
            _ => Duration::ZERO,
        };
        let budget = self.processes[record.process].timeout();
        let grace = if record.is_elsewhere { GRACE } else { Duration::ZERO };
        let is_looked_up = self.policies.iter().any(|plan| plan.by == By::Account);
        let decided = if is_looked_up { budget + LOOKUP + budget + idles } else { budget.max(idles) };
        let most = decided + delay + TIMERS + grace + self.blocked_between(began, until);
        let waited = until - began;
        if waited > most {
            let name = self.records[place].name();
            self.violate(format_args!("{name} waited {waited:?}, and may wait {most:?}"));
        }
    }

    /// Who is admitted by the store has paid for it; by whom else, the layer's rule says.
    pub(super) fn checks_admission(&mut self, place: usize) {
        let record = self.records[place].clone();
        let (process, Some(decision)) = (self.processes[record.process].clone(), &record.decision) else { return };
        let source = decision.source();
        // Accounts may be found by nobody.
        let due = self.policies.iter().filter(|plan| plan.by != By::Account).count();
        let told = decision.outcomes().len();
        if told < due {
            self.violate(format_args!("{} is admitted by {told} policies of {due}", record.name()));
        }
        let refuses = decision.outcomes().iter().any(|outcome| outcome.mode() == Mode::Enforce);
        // Each node of a Cluster is away for itself.
        if refuses && self.nodes.len() == 1 {
            self.checks_allowed(&record, source);
        }
        let is_allowed = !refuses
            || match source {
                Source::Fallback => process.rule != Rule::Deny,
                Source::FailOpen => process.rule == Rule::Allow,
                Source::DenyCache => false,
                Source::Lease => process.around != Around::Plain,
                _ => true,
            };
        if !is_allowed {
            self.violate(format_args!("{} is admitted by {source:?}", record.name()));
        }
        if source != Source::Store || process.around != Around::Plain {
            return self.checks_bounds(&record, decision);
        }
        // Where all cost the same, a request is found by its time.
        let is_known = !self.is_crowd || self.disturbed.is_none_or(|disturbed| disturbed < record.began);
        let enforced = |outcome: &&Outcome| outcome.mode() == Mode::Enforce && is_known;
        for outcome in decision.outcomes().iter().filter(enforced) {
            let paid = self.takes(&record, outcome).iter().any(|event| event.what.taken() == record.cost);
            if !paid {
                let name = outcome.policy();
                self.violate(format_args!("{} is admitted by {name}, and did not pay", record.name()));
            }
        }
        self.checks_remaining(&record, decision);
        self.checks_in_progress(&record);
        self.checks_barred(&record, decision);
    }

    /// Headers say what is left.
    pub(super) fn checks_headers(&mut self, place: usize, answer: &Answer) {
        let record = self.records[place].clone();
        self.checks_deny_cache(&record, answer);
        self.checks_banned(&record, answer);
        let is_changed = record.charged + record.refunded > 0 && self.policies.iter().any(|plan| plan.metered);
        if is_changed || !matches!(record.status, Some(200 | 429)) {
            return;
        }
        let decision = answer.extensions().get::<Decision>();
        let Some(decision) = decision.filter(|decision| decision.source() == Source::Store) else { return };
        if self.processes[record.process].around == Around::Plain && !record.is_admitted {
            self.checks_remaining(&record, decision);
        }
        self.checks_wait_told(&record, decision, answer);
        if !["ratelimit", "ratelimit-policy"].iter().all(|name| answer.headers().contains_key(*name))
            && decision.outcomes().iter().any(|outcome| outcome.mode() == Mode::Enforce)
        {
            self.violate(format_args!("{} is answered without a word of what is left", record.name()));
        }
        let header = answer.headers().get("ratelimit").and_then(|value| value.to_str().ok()).unwrap_or_default();
        for outcome in decision.outcomes() {
            let wanted = format!("\"{}\";r={}", outcome.policy(), outcome.remaining());
            let is_there = header.split(", ").any(|item| item == wanted || item.starts_with(&format!("{wanted};")));
            if header.contains(&format!("\"{}\"", outcome.policy())) && !is_there {
                self.violate(format_args!("{}: {wanted} is not in {header:?}", record.name()));
            }
        }
    }
}
