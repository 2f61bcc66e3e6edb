//! Counts the refusals of one policy, the requests whose key was ambiguous for it, and those that it did not count.
//!
//! The name of the policy is the label of its handles, so each policy of a layer has its own.

use std::sync::OnceLock;

use metrics::{Counter, Label};

use super::names::{AMBIGUOUS_KEYS, BAN_REFUSALS, BANS, POLICIES_SKIPPED, POLICY_REFUSALS};
use crate::core::observer::{ObserveSkips, Skipped};
use crate::core::{Mode, Outcome, PolicyName};

/// The reasons for which a policy does not count a request, with their labels.
const REASONS: [(Skipped, &str); 3] =
    [(Skipped::KeyMissing, "key_missing"), (Skipped::List, "list"), (Skipped::Scope, "scope")];

/// The refusals of a policy. Its handles are registered with its first outcome, so that a policy which has not refused
/// yet is seen at 0.
#[derive(Default)]
pub(super) struct Refusals {
    /// Refusals in force.
    enforced: OnceLock<Counter>,
    /// Refusals that shadow mode turned into a log line.
    in_shadow: OnceLock<Counter>,
    /// Bans in force, if the policy has any: those that began, and refusals by them.
    bans: OnceLock<[Counter; 2]>,
    /// The same in shadow mode.
    bans_in_shadow: OnceLock<[Counter; 2]>,
    /// Requests whose key was ambiguous, refused or not.
    ambiguous: OnceLock<Counter>,
    /// Registered with the others; [`Skips`] counts.
    skipped: OnceLock<[Counter; 3]>,
}

/// The requests that a policy does not count. Its handles are registered with the first one.
#[derive(Debug)]
pub(super) struct Skips {
    policy: PolicyName,
    /// By the reasons, in the order of [`REASONS`].
    counters: OnceLock<[Counter; 3]>,
}

impl Skips {
    pub(super) fn new(policy: &PolicyName) -> Self {
        Self { policy: policy.clone(), counters: OnceLock::new() }
    }
}

impl ObserveSkips for Skips {
    fn skipped(&self, reason: Skipped) {
        let counters = REASONS.iter().zip(self.counters.get_or_init(|| skips(&self.policy)));
        for (_, counter) in counters.filter(|((known, _), _)| *known == reason) {
            counter.increment(1);
        }
    }
}

impl Refusals {
    /// Counts an outcome of the policy, if it is a refusal.
    pub(super) fn count(&self, outcome: &Outcome) {
        let handle = match outcome.mode() {
            Mode::Enforce => &self.enforced,
            Mode::Shadow => &self.in_shadow,
        };
        let (policy, mode) = (outcome.policy_name(), outcome.mode());
        let counter = handle.get_or_init(|| POLICY_REFUSALS.counter_of(labels(policy, mode)));
        if !outcome.is_allowed() {
            counter.increment(1);
        }
        if outcome.has_ban() {
            let [began, refused] = self.bans(policy, mode);
            began.increment(outcome.has_begun_ban().into());
            refused.increment(outcome.is_banned().into());
        }
        self.ambiguous(policy);
        self.skipped.get_or_init(|| skips(policy));
    }

    /// Counts a ban that began without a decision.
    pub(super) fn count_ban(&self, policy: &PolicyName, mode: Mode) {
        let [began, _] = self.bans(policy, mode);
        began.increment(1);
    }

    /// Returns the counters of bans that began and of refusals by them, registered if they are not yet.
    fn bans(&self, policy: &PolicyName, mode: Mode) -> &[Counter; 2] {
        let bans = match mode {
            Mode::Enforce => &self.bans,
            Mode::Shadow => &self.bans_in_shadow,
        };
        bans.get_or_init(|| [BANS, BAN_REFUSALS].map(|metric| metric.counter_of(labels(policy, mode))))
    }

    /// Counts a request whose key is ambiguous.
    pub(super) fn count_ambiguous(&self, policy: &PolicyName) {
        self.ambiguous(policy).increment(1);
    }

    /// Returns the counter of ambiguous keys, registered if it is not yet.
    fn ambiguous(&self, policy: &PolicyName) -> &Counter {
        self.ambiguous.get_or_init(|| AMBIGUOUS_KEYS.counter_of(vec![name(policy)]))
    }
}

/// Registers the counters of requests that a policy does not count.
fn skips(policy: &PolicyName) -> [Counter; 3] {
    REASONS
        .map(|(_, reason)| POLICIES_SKIPPED.counter_of(vec![name(policy), Label::from_static_parts("reason", reason)]))
}

fn name(policy: &PolicyName) -> Label {
    Label::new("policy", policy.as_str().to_owned())
}

fn labels(policy: &PolicyName, mode: Mode) -> Vec<Label> {
    let mode = match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
    };
    vec![name(policy), Label::from_static_parts("mode", mode)]
}
