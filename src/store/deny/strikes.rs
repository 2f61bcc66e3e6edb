//! Strikes of checks that are refused from the cache.
//!
//! The store counts strikes, and a cached refusal does not reach it. So a strike is counted in the cached refusal, and
//! moves to the store with the next call for the same check. The strike that would begin a ban is never answered from
//! the cache: the store decides it, with those that were counted here. All that can get lost, which is what an entry
//! has when it is dropped or forgotten and what a failed call carried, delays a ban, and nothing counts twice.

use super::table::Cached;
use crate::store::Check;

/// Returns whether a check of a request has a ban.
pub(super) fn has_bans(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.ban.is_some())
}

/// Returns whether the store has to decide a check that the cache could refuse: one more strike would begin a ban of
/// its key, as far as this process knows, or it carries strikes that another cache has counted.
pub(super) fn is_for_the_store(check: &Check, cached: &Cached, now: u64) -> bool {
    match check.ban.as_deref() {
        Some(ban) if ban.carried > 0 => true,
        Some(ban) if check.strikes() && !cached.is_ban() => {
            cached.strikes(&ban.ban, now).saturating_add(1) >= cached.strikes_left
        }
        _ => false,
    }
}
