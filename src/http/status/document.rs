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
    /// The time until all units are there again, if nothing more is taken; `None` if it depends on how long work takes.
    reset_after: Option<Duration>,
    /// The unit that is counted, unless it is requests, as in `RateLimit-Policy`.
    unit: Option<&'static str>,
    /// The time until the ban of the client ends, if it is banned.
    banned_for: Option<Duration>,
}

impl Status {
    /// Returns the status of a decision that took nothing, without the policies that clients must not see.
    pub(super) fn of(gate: &Gate, decision: &Decision) -> Self {
        let shown = decision.outcomes().iter().filter(|outcome| gate.responses.headers.shows(outcome));
        let of = |outcome| PolicyStatus::of(outcome, gate.responses.headers.unit(outcome));
        Self { policies: shown.map(of).collect() }
    }

    /// Returns the status as JSON: under `resources`, each policy by its name, with `limit`, `used` and `remaining` in
    /// units and `reset` in Unix time (seconds, rounded up), which slots do not have; of slots and bytes also `unit`, and of
    /// one by which the client is banned `banned`, the end of the ban.
    pub(super) fn to_json(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = String::from(r#"{"resources":{"#);
        for (index, status) in self.policies.iter().enumerate() {
            let PolicyStatus { policy, limit, used, remaining, reset_after, unit, banned_for } = status;
            let comma = if index == 0 { "" } else { "," };
            // A policy's name needs no escaping.
            write!(json, r#"{comma}"{policy}":{{"limit":{limit},"used":{used},"remaining":{remaining}"#)
                .expect("writing to a string cannot fail");
            for (name, left) in [("reset", reset_after), ("banned", banned_for)] {
                if let Some(left) = left {
                    let at = whole_seconds(now.saturating_add(*left));
                    write!(json, r#","{name}":{at}"#).expect("writing to a string cannot fail");
                }
            }
            if let Some(unit) = unit {
                write!(json, r#","unit":"{unit}""#).expect("writing to a string cannot fail");
            }
            json.push('}');
        }
        json.push_str("}}");
        json
    }
}

impl PolicyStatus {
    /// Returns the status of one policy by its outcome.
    fn of(outcome: &Outcome, unit: Option<&'static str>) -> Self {
        let (Advertised { q, .. }, r) = (Advertised::of(outcome.quota()), Left::units(outcome));
        let policy = outcome.policy().to_owned();
        // When slots are free again is not known.
        let reset_after = (!outcome.is_held()).then(|| outcome.reset_after());
        let banned_for = outcome.banned_for();
        Self { policy, limit: q, used: used(outcome, r), remaining: r, reset_after, unit, banned_for }
    }
}
