//! How the cost of a check grows with the units of a sliding log, beside a token bucket of the same limit.

mod memory;
mod redis;

use std::time::Duration;

use tollgate::Quota;

use super::report::Table;

pub(super) use self::memory::run as memory;
pub(super) use self::redis::run as redis;

/// The limits: as many units as a log holds.
const LIMITS: [usize; 4] = [10, 100, 1_000, 10_000];

/// The peer, then ours.
const QUOTAS: [fn(u64, Duration) -> Quota; 2] = [Quota::token_bucket, Quota::sliding_log];

/// Adds the sides, of either quota one that is admitted and one that is refused.
fn sides(table: Table) -> Table {
    let [admitted, refused] = ["token bucket admitted", "token bucket refused"];
    let table = table.beside(admitted).beside(refused);
    table.side("sliding log admitted", Some(admitted)).side("sliding log refused", Some(refused))
}
