//! From many callers to a call and back: what waits for a server, the calls on their way, and whoever makes them.
//!
//! A caller puts a request into the queue of a lane and waits for its answer. All else is done by tasks of the
//! lane, and belongs to no request: connecting, making calls of what waits, sending and receiving, and ending the
//! wait of those who are late. There is a lane for each runtime that asks, so that no runtime has to wait for
//! another one; `turns.rs` sees to it that no task of a runtime can keep its lane from running.

mod ask;
mod call;
mod clock;
mod connection;
mod core;
mod job;
mod lane;
mod lanes;
mod line;
#[cfg(test)]
mod models;
mod queue;
mod receive;
mod runner;
#[cfg(test)]
mod samples;
mod server;
mod settling;
mod timeout;
mod turns;
mod work;

/// What [`turns`] locks with; a model checker has another one.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

pub(super) use job::{Caller, Job, Late, Response, Settled, Unanswered};
pub(super) use lane::{Settings, stopped};
pub(super) use lanes::{Lanes, Plan, no_runtime};
#[cfg(feature = "cluster")]
pub(super) use server::{Connecting, Redirected, Server};
pub(super) use timeout::{GRACE, Timeout};
