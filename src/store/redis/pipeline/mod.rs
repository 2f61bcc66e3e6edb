//! From many callers to one call and back: who writes, who reads, and what becomes of requests that a server does not
//! decide.
//!
//! A [`Job`] comes in: a request over keys of one slot, and its timeout. It has an entry until it is over
//! (`entries.rs`). A caller that finds fewer than two rounds of calls in flight writes its own; otherwise it queues
//! (`queue.rs`, `pipe.rs`). One task a connection reads replies, hands them out, and sends what has queued as one round
//! (`task.rs`). So at low load a request leaves at once and alone, under load calls batch by themselves without a timer,
//! and no handler that blocks its thread holds up what others send.
//!
//! There is one connection for each runtime that asks (`server.rs`), and it ends with its runtime.
//!
//! | what | limit | beyond it |
//! | --- | --- | --- |
//! | requests that wait for a call | 65,536 | a decision fails at once |
//! | settlements on their way to a server | 4,096 | are not sent, and logged |
//! | rounds in flight on a connection | 2 | requests wait for the next reply |
//! | checks in a round | `Settings::batch_size` | requests wait for the next round |
//! | connections that were replaced, and late replies are read on | 4, for 10 s | the oldest is closed |
//!
//! What may have reached the server is not sent again, except after a reply that shows that it was not done. Every
//! decision ends at its timeout at the latest, as long as the runtime of its connection runs.

mod calls;
mod entries;
mod job;
#[cfg(test)]
mod models;
mod pipe;
mod queue;
mod resp;
mod server;
mod socket;
mod task;

/// What `queue` and `pipe` share threads by; the model checker has its own.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard};
    use std::task::Waker;

    /// Wakes the task, from a caller that may block its thread next. Tokio keeps the task that was woken last for the
    /// worker that woke it: another one after it makes it free to run on others.
    pub(super) fn wake(task: Waker) {
        task.wake();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async {});
        }
    }
}

pub(super) use calls::Settings;
pub(super) use job::{Job, JobReply, SettledReply, Timeout, stopped};
#[cfg(feature = "cluster")]
pub(super) use job::{Refused, Unsettled, Watch};
pub(super) use pipe::{Asking, NoReply};
pub(super) use server::Server;
