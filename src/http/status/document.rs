//! The document that tells a client what is left.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use crate::http::gate::Gate;
use crate::http::headers::{Advertised, Left, used, whole_seconds};
use crate::{Decision, Outcome};

/// What a client has left of each policy it may know of.
#[derive(Debug)]
pub(super) struct Status {
    /// One for each policy, in their order.
    policies: Vec<PolicyStatus>,
}

/// What a client has left of one policy, in the numbers of its headers.
#[derive(Debug)]
pub(super) struct PolicyStatus {
    /// The policy's name.
    policy: String,
    /// Units, as in `X-RateLimit-Limit`.
    limit: u64,
    /// Units that are not left, as in `X-RateLimit-Used`: those taken, and those a
    /// reserve keeps from this client.
    used: u64,
    /// Units left, as in `X-RateLimit-Remaining`.
    remaining: u64,
    /// Until all is there again, if nothing is taken.
    reset_after: Duration,
}

impl Status {
    /// The status by a look at what is left.
    pub(super) fn of(gate: &Gate, decision: &Decision) -> Self {
        let shown = decision.outcomes().iter().filter(|outcome| gate.responses.headers().shows(outcome));
        Self { policies: shown.map(PolicyStatus::of).collect() }
    }

    /// The status as JSON: under `resources`, each policy with `limit`, `used`, `remaining` and
    /// `reset` (Unix time in seconds, rounded up).
    pub(super) fn to_json(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = String::from(r#"{"resources":{"#);
        for (index, status) in self.policies.iter().enumerate() {
            let PolicyStatus { policy, limit, used, remaining, reset_after } = status;
            let comma = if index == 0 { "" } else { "," };
            let reset = whole_seconds(now.saturating_add(*reset_after));
            // A policy's name needs no escaping.
            write!(
                json,
                r#"{comma}"{policy}":{{"limit":{limit},"used":{used},"remaining":{remaining},"reset":{reset}}}"#
            )
            .expect("a string takes everything");
        }
        json.push_str("}}");
        json
    }
}

impl PolicyStatus {
    fn of(outcome: &Outcome) -> Self {
        let (Advertised { q, .. }, r) = (Advertised::of(outcome.quota()), Left::units(outcome));
        let (policy, reset_after) = (outcome.policy().to_owned(), outcome.reset_after());
        Self { policy, limit: q, used: used(outcome, r), remaining: r, reset_after }
    }
}
