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

use super::State;
use super::caller::Record;

/// What timers add, and their grain.
const TIMERS: Duration = Duration::from_millis(2);

/// For so long changes may be on their way while nothing is wrong.
const WAYS: Duration = Duration::from_millis(500);

impl State {
    /// Whether something else may have changed counters of a request within a span: another request, a change of it
    /// itself, or a reset.
    fn is_touched(&self, of: &Record, but: [usize; 2], from: Instant, to: Instant) -> bool {
        let shares = |user: u8| user == of.user || self.plan.setting.policies.iter().any(|policy| !policy.by_user);
        let touches = |other: &Record| {
            let ended = other.ended.unwrap_or(to).max(other.changed.unwrap_or(other.began));
            let is_then = other.began <= to && ended + WAYS >= from;
            is_then && shares(other.user) && (!but.contains(&other.place) || other.changed.is_some())
        };
        let is_then = |at: &Instant| *at + WAYS >= from && *at <= to;
        self.records.iter().any(touches) || self.changes.iter().any(|(at, user)| is_then(at) && shares(*user))
    }
}
