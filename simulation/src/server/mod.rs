//! A simulated Redis: what tollgate sends to a server, answered as Redis 7.0 answers it.
//!
//! In come commands, by [`Node::execute`], with the time they come at; out come [`Reply`]s. It runs the crate's own
//! Lua in a [`Vm`], which several nodes and runs share. It has no clock, no randomness and no connections: those are
//! the caller's, and [`read_command`] reads what comes over them.

mod commands;
mod connection;
mod data;
mod failure;
mod fault;
mod hashes;
mod lua;
mod node;
mod protocol;
mod reply;
mod routing;
mod script;
mod scripting;
mod slots;
mod structs;
mod table;
mod vm;

pub use fault::{Faults, ReadOnly};
pub use node::{Node, Session};
pub use protocol::read_command;
pub use reply::Reply;
pub use slots::{SLOTS, SlotTable, slot_of};
pub use vm::Vm;
