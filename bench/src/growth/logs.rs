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

/// A whole number of milliseconds for a unit of any limit, and so long that none comes back on the server meanwhile.
const WINDOW: Duration = Duration::from_secs(100_000);

/// The peer, then ours.
const QUOTAS: [fn(u64) -> Quota; 2] =
    [|limit| Quota::token_bucket(limit, WINDOW), |limit| Quota::sliding_log(limit, WINDOW)];

/// Adds the sides, of either quota one that is admitted and one that is refused.
fn sides(table: Table) -> Table {
    let [admitted, refused] = ["token bucket admitted", "token bucket refused"];
    let table = table.side(admitted, None).side(refused, None);
    table.side("sliding log admitted", Some(admitted)).side("sliding log refused", Some(refused))
}
