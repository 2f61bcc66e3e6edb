//! A simulated Redis: what tollgate sends to a server, answered as Redis 7.0 answers it.
//!
//! In come commands, by [`Node::execute`], with the time they come at; out come [`Reply`]s, and by
//! [`Node::take_calls`] the decisions and reports that were made. It runs the crate's own Lua in a [`Vm`], which
//! several nodes and runs share. It has no clock, no randomness and no connections: those are the caller's,
//! and [`read_command`] reads what comes over them.

mod arguments;
mod commands;
mod connection;
mod data;
mod failure;
mod fault;
mod hashes;
mod library;
mod lua;
mod node;
mod number;
mod protocol;
mod reply;
mod routing;
mod script;
mod scripting;
mod session;
mod slots;
mod structs;
mod structs_format;
mod table;
#[cfg(test)]
mod tests;
mod vm;

pub use fault::{Faults, ReadOnly};
pub use node::Node;
pub use protocol::{ProtocolError, read_command};
pub use reply::Reply;
pub use session::Session;
pub use slots::{SLOTS, SlotTable, slot_of};
pub use vm::Vm;

/// Which of the functions at the end of a script was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Any requests.
    Batch,
    /// One request of one check.
    Single,
    /// Requests of one check each, over keys that are all different.
    Singles,
    /// Any requests, with bans.
    Bans,
    /// A report to a tally.
    Ratio,
}

impl Entry {
    /// What reads such an argument of a decision: `lua/singles.lua` has rules of 37 bytes with a count behind each, and
    /// `lua/batch.lua` at least 2 bytes more for each rule behind them.
    pub(crate) fn of(packed: &[u8]) -> Self {
        match packed.first().map(|rules| usize::from(*rules)) {
            Some(1) if packed.len() == 39 && packed[38] == 1 => Self::Single,
            Some(rules) if packed.len() == 38 * rules + 1 => Self::Singles,
            _ => Self::Batch,
        }
    }
}

/// A script call that a server ran.
#[derive(Clone, Debug)]
pub struct Call {
    /// The server's time, in µs since the epoch.
    pub at_us: u64,
    /// What was called.
    pub entry: Entry,
    /// `KEYS`.
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`.
    pub args: Vec<Vec<u8>>,
    /// What the script returned.
    pub reply: Vec<u8>,
}
