//! Which requests can be decided by numbers this process knows.

use crate::store::Check;

/// Looks, reserves, queues, and checks that count in one place are for the store to decide.
pub(in crate::store) fn is_plain(checks: &[Check]) -> bool {
    let plain = |check: &Check| check.cost > 0 && check.floor == 0 && !check.counter.quota.facts().stands_in_line;
    let repeats = |(index, check): (usize, &Check)| {
        checks[..index].iter().any(|earlier| earlier.counter.shares_state(&check.counter))
    };
    !checks.is_empty() && checks.iter().all(plain) && !checks.iter().enumerate().any(repeats)
}
