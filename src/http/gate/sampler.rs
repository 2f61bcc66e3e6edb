//! Logs refusals by policies: the first of a key is a line, of few keys in each period, and the others are counted.
//!
//! So a flood is few lines, whatever comes: a policy has at most 11 in 10 s. The count of a period is a line with the
//! next refusal of a later one, or when the policies are dropped. Keys are neither logged nor kept, only a hash of each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ahash::RandomState;
use smallvec::SmallVec;

use crate::core::{Key, Mode, Outcome, PolicyName};
use crate::http::policy::Policy;

/// How long refusals of a key are one line, in seconds.
const PERIOD: u64 = 10;

/// Of how many keys of a policy the first refusal in a period is a line.
const MOST_KEYS: usize = 10;

/// The refusals by the policies of a gate.
pub(crate) struct Sampler {
    /// Its seed is random, so that nobody can choose keys that are taken for one.
    hasher: RandomState,
    /// In the order of the policies.
    policies: Box<[Arc<OfPolicy>]>,
}

/// The refusals by one policy.
struct OfPolicy {
    name: PolicyName,
    mode: Mode,
    period: Mutex<Period>,
}

/// The refusals within a period.
#[derive(Default)]
struct Period {
    /// How many periods were before it.
    number: u64,
    /// The marks of the keys whose first refusal was a line.
    keys: SmallVec<[u64; MOST_KEYS]>,
    /// How many refusals were not a line.
    more: u64,
}

/// What becomes of a refusal.
#[derive(Debug, PartialEq, Eq)]
struct Noted {
    /// Whether it is a line.
    is_line: bool,
    /// How many refusals of an earlier period were not a line, and are still to be logged.
    before: u64,
}

impl Sampler {
    /// Creates the sampler of policies, which have refused nothing yet.
    pub(crate) fn of(policies: &[Policy]) -> Self {
        Self { hasher: RandomState::new(), policies: Box::default() }.renewed(policies)
    }

    /// Creates the sampler of policies that replace others: those of the same name and mode go on in their period.
    pub(crate) fn renewed(&self, policies: &[Policy]) -> Self {
        let continued = |policy: &Policy| {
            let (name, mode) = (policy.rule().name(), policy.rule().mode());
            let before = self.policies.iter().find(|before| before.name == *name && before.mode == mode);
            let new = || Arc::new(OfPolicy { name: name.clone(), mode, period: Mutex::default() });
            before.map_or_else(new, Arc::clone)
        };
        Self { hasher: self.hasher.clone(), policies: policies.iter().map(continued).collect() }
    }

    /// Returns the mark of a key, which refusals are logged by.
    pub(crate) fn mark(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Logs that the policy at a place refused the key of a mark, or, in shadow mode, would have, unless it is only
    /// counted.
    pub(crate) fn log(&self, place: usize, mark: u64, outcome: &Outcome) {
        let Some(policy) = self.policies.get(place) else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let noted = policy.note(mark, now.as_secs() / PERIOD);
        policy.log_more(noted.before);
        if noted.is_line {
            policy.log(outcome);
        }
    }
}

impl OfPolicy {
    /// Notes a refusal in the period of that number.
    fn note(&self, mark: u64, number: u64) -> Noted {
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = 0;
        // A thread may come late with the period before: else each such one would begin both again, with their lines.
        if number != period.number && number + 1 != period.number {
            before = period.more;
            *period = Period { number, ..Period::default() };
        }
        let is_line = period.keys.len() < MOST_KEYS && !period.keys.contains(&mark);
        if is_line {
            period.keys.push(mark);
        } else {
            period.more += 1;
        }
        Noted { is_line, before }
    }

    fn log(&self, outcome: &Outcome) {
        let (policy, retry_after) = (self.name.as_str(), outcome.retry_after());
        match self.mode {
            Mode::Enforce => tracing::info!(code = "refused", policy, ?retry_after, "a policy refused a request"),
            Mode::Shadow => tracing::info!(
                code = "shadow_refused",
                policy,
                ?retry_after,
                "a policy in shadow mode would refuse this request"
            ),
        }
    }

    /// Logs how many refusals were not a line, if there were any.
    fn log_more(&self, more: u64) {
        let policy = self.name.as_str();
        match self.mode {
            _ if more == 0 => {}
            Mode::Enforce => tracing::info!(code = "refused", policy, more, "a policy refused more requests"),
            Mode::Shadow => tracing::info!(
                code = "shadow_refused",
                policy,
                more,
                "a policy in shadow mode would have refused more requests"
            ),
        }
    }
}

impl Drop for OfPolicy {
    fn drop(&mut self) {
        let more = self.period.get_mut().unwrap_or_else(PoisonError::into_inner).more;
        self.log_more(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Quota;

    /// What a policy logged before the refusal of a key, and whether that is a line.
    fn note(sampler: &Sampler, key: &str, period: u64) -> (u64, bool) {
        let noted = sampler.policies[0].note(sampler.mark(&Key::new("user", key)), period);
        (noted.before, noted.is_line)
    }

    fn sampler() -> Sampler {
        Sampler::of(&[Policy::new("api", Quota::per_hour(1))])
    }

    #[test]
    fn the_first_of_a_key_is_a_line_and_the_others_are_counted() {
        let sampler = sampler();
        assert_eq!(note(&sampler, "ada", 7), (0, true));
        assert_eq!(note(&sampler, "ada", 7), (0, false));
        assert_eq!(note(&sampler, "bob", 7), (0, true));
        assert_eq!(note(&sampler, "ada", 7), (0, false));
        assert_eq!(sampler.policies[0].period.lock().unwrap().more, 2);
    }

    #[test]
    fn a_new_period_reports_the_one_before() {
        let sampler = sampler();
        for _ in 0..5 {
            note(&sampler, "ada", 7);
        }
        assert_eq!(note(&sampler, "ada", 8), (4, true));
        assert_eq!(note(&sampler, "ada", 8), (0, false));
        // A clock may be set back.
        assert_eq!(note(&sampler, "ada", 3), (1, true));
        assert_eq!(note(&sampler, "ada", 4), (0, true));
    }

    #[test]
    fn no_more_than_ten_keys_are_lines() {
        let sampler = sampler();
        let lines = (0..100).filter(|key| note(&sampler, &key.to_string(), 7).1).count();
        assert_eq!(lines, 10);
        assert_eq!(note(&sampler, "0", 8), (90, true));
    }
}
