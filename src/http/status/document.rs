//! The document that a status request returns: what is left of each policy, as JSON.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use crate::core::{Decision, Outcome};
use crate::http::gate::Gate;
use crate::http::headers::{Advertised, Left, used, whole_seconds};

/// What a client has left of each policy that it may see.
#[derive(Debug)]
pub(super) struct Status {
    /// In the order in which the policies were added.
    policies: Vec<PolicyStatus>,
}

/// What a client has left of one policy, in the numbers that headers have.
#[derive(Debug)]
pub(super) struct PolicyStatus {
    /// The policy's name.
    policy: String,
    /// Units, as in `X-RateLimit-Limit`.
    limit: u64,
    /// Units that are not left, as in `X-RateLimit-Used`: those taken, and those that a reserve holds for critical
    /// requests.
    used: u64,
    /// Units left, as in `X-RateLimit-Remaining`.
    remaining: u64,
    /// The time until all units are there again, if nothing more is taken.
    reset_after: Duration,
    /// The time until the ban of the client ends, if it is banned.
    banned_for: Option<Duration>,
}

impl Status {
    /// Returns the status of a decision that took nothing, without the policies that clients must not see.
    pub(super) fn of(gate: &Gate, decision: &Decision) -> Self {
        let shown = decision.outcomes().iter().filter(|outcome| gate.responses.headers().shows(outcome));
        Self { policies: shown.map(PolicyStatus::of).collect() }
    }

    /// Returns the status as JSON: under `resources`, each policy by its name, with `limit`, `used` and `remaining` in
    /// units and `reset` in Unix time (seconds, rounded up); of one by which the client is banned, also `banned`, the end of
    /// the ban.
    pub(super) fn to_json(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = String::from(r#"{"resources":{"#);
        for (index, status) in self.policies.iter().enumerate() {
            let PolicyStatus { policy, limit, used, remaining, reset_after, banned_for } = status;
            let comma = if index == 0 { "" } else { "," };
            let reset = whole_seconds(now.saturating_add(*reset_after));
            // A policy's name needs no escaping.
            write!(
                json,
                r#"{comma}"{policy}":{{"limit":{limit},"used":{used},"remaining":{remaining},"reset":{reset}"#
            )
            .expect("writing to a string cannot fail");
            if let Some(left) = banned_for {
                let until = whole_seconds(now.saturating_add(*left));
                write!(json, r#","banned":{until}"#).expect("writing to a string cannot fail");
            }
            json.push('}');
        }
        json.push_str("}}");
        json
    }
}

impl PolicyStatus {
    /// Returns the status of one policy by its outcome.
    fn of(outcome: &Outcome) -> Self {
        let (Advertised { q, .. }, r) = (Advertised::of(outcome.quota()), Left::units(outcome));
        let (policy, reset_after) = (outcome.policy().to_owned(), outcome.reset_after());
        let banned_for = outcome.banned_for();
        Self { policy, limit: q, used: used(outcome, r), remaining: r, reset_after, banned_for }
    }
}
