//! Ratios that are computed from what all processes were offered: where it is reported, and its totals.

mod memory;
mod tally;

pub use memory::MemoryTally;
pub use tally::{CounterId, Offered, Report, Tally, Totals};
