//! The way to a server: a queue, the calls on their way, and the connection, which belong to no
//! request.
//!
//! A caller puts a request into the queue and waits for its answer. All else is done by tasks of the
//! lane: connecting, making calls of what waits, sending and receiving, and ending the wait of those
//! who are late. There is a lane for each runtime that asks, so that no runtime has to wait for
//! another one; `turns.rs` sees to it that no task of a runtime can keep its lane from running.

mod alarm;
mod call;
mod clock;
mod connection;
mod core;
mod end;
mod job;
#[allow(clippy::module_inception, reason = "the folder is about it")]
mod lane;
mod lanes;
mod late;
mod line;
#[cfg(test)]
mod models;
mod one;
mod prepare;
mod queue;
mod receive;
mod runner;
#[cfg(test)]
mod samples;
mod server;
mod settings;
mod settling;
mod turns;

/// What [`turns`] locks with; a model checker has another one.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

pub(super) use call::no_decision;
pub(super) use end::stopped;
pub(super) use job::{Caller, Job, Late, Settled, Told, Unanswered};
pub(super) use lanes::{GRACE, no_runtime};
pub(in crate::store) use lanes::{Lanes, Plan};
#[cfg(feature = "cluster")]
pub(super) use server::Redirected;
pub(super) use server::{Connecting, Server};
pub(super) use settings::Settings;
