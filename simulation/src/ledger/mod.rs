//! What was really taken, as the script calls show that the servers ran.
//!
//! A [`Ledger`] is told every call in the order in which they ran. It reads what was asked and answered,
//! byte by byte as `lua/wire.lua` says, and keeps a model of each counter, written from the definitions of
//! the algorithms and sharing nothing with the crate: sums of what was taken, by time. What an answer says
//! must be what the models say: which checks fit, what was found, the state that is told, and how many units
//! a change came to. So a script that lets too much through, that refuses what fits, that takes from one
//! check of a refused request, or that gives back what was not taken, is found at its first wrong answer.

mod aligned;
mod answer;
mod banned;
mod bans;
mod book;
mod clock;
mod counter;
mod dated;
mod decide;
mod event;
mod falling;
mod held;
mod log;
mod memory;
mod reports;
mod settle;
#[cfg(test)]
mod tests;
mod wire;

pub use book::{Ledger, Totals};
pub use event::{Algorithm, BanTerms, Event, Remaining, Rule, What, Windows};
pub use reports::{Name, Part, Reports, Sent, Told, Units};
pub use wire::{Wish, wishes};
