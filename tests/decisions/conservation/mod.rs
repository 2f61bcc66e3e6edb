//! What requests owe at their end is what stores have of them, whatever happened in between.
//!
//! Random histories of requests that charge, refund, tell their real cost, do not count, queue and are
//! dropped, many at once. An oracle replays what is owed at last, alone: in the order and at the times in
//! which the store took it. What is left is never more than after the replay; and just that where no time
//! passed between taking and giving back. ARCHITECTURE.md says why.

mod cases;
mod crowd;
mod history;
mod oracle;
mod recorder;
mod requests;
mod slots;
