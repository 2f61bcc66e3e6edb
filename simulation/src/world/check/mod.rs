//! What users must see.
//!
//! | what | where |
//! | --- | --- |
//! | never more is admitted in a window than the limit, and by a share than that | `limits` |
//! | what is taken at the end is what was admitted and not refunded, and at most what may have been sent | `end` |
//! | every caller is answered within its timeout, and by the store while nothing is wrong | `answers` |
//! | a wait that a refusal has is true, also of a cached one | `returns` |
//! | within two seconds of calm the store decides, slots are free and nothing is left | `end` |
//! | a banned client stays banned, for no longer than its policy says | `bans` |
//! | ratios keep a steady load to the limit, and end with their life | `ratios` |
//!
//! All of it is about what callers were told, and what the limiter itself says when it is asked at the end. Faults
//! may add nothing to what a server admits that keeps its data; one that has lost them, or whose clock stepped, begins anew.

mod answers;
mod bans;
mod end;
mod limits;
mod ratios;
mod returns;

use std::time::Duration;

use tokio::time::Instant;
use tollgate::Source;

use super::State;
use super::caller::Record;

/// What timers add, and their grain.
const TIMERS: Duration = Duration::from_millis(2);

/// For so long changes may be on their way while nothing is wrong.
const WAYS: Duration = Duration::from_millis(500);

/// For so long requests and changes may be on their ways for which nobody waits.
const STRAYS: Duration = Duration::from_secs(12);

impl State {
    /// Whether something else may have changed counters of a request within a span: another request, or a
    /// reset.
    fn is_touched(&self, of: &Record, from: Instant, to: Instant) -> bool {
        let policies = &self.plan.setting.policies;
        let shares = |user: u8| user == of.user || policies.iter().any(|policy| !policy.by_user);
        let returns = policies.iter().any(|policy| policy.successes || policy.refund_dropped);
        let is_whole = policies.len() == 1 || self.nodes.len() == 1;
        let touches = |other: &Record| {
            if other.place == of.place || other.began > to || !shares(other.user) {
                return false;
            }
            let is_of_store = matches!(other.source(), Some(Source::Store | Source::DenyCache));
            let (decided, ended) = (other.decided.unwrap_or(to), other.ended.unwrap_or(to));
            let until = match other.is_admitted {
                // What nobody waits for may yet be sent.
                _ if !is_of_store => ended + STRAYS,
                false if is_whole && policies[0].ban.is_none() => return false,
                true if returns || other.changed.is_some() => ended.max(other.changed.unwrap_or(ended)) + WAYS,
                _ => decided,
            };
            until >= from
        };
        let is_then = |at: &Instant| *at + WAYS >= from && *at <= to;
        self.records.iter().any(touches) || self.changes.iter().any(|(at, user)| is_then(at) && shares(*user))
    }
}
