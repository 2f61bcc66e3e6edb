//! Pipelined calls to a server, in which requests of many callers are batched.
//!
//! A [`Job`] is a request over keys of one slot, with its timeout. It has an entry until it is over (`entries.rs`). If
//! fewer than two rounds of calls are in flight, or at most four requests are in progress, the caller writes its own
//! call. Otherwise the request is queued (`queue.rs`, `pipe.rs`). One task per connection reads replies, hands them to
//! callers, and sends the queued requests as one round (`task.rs`). So at low load a request is sent at once and alone,
//! under load calls batch without a timer, and a handler that blocks its thread delays no other call.
//!
//! Each runtime that calls the server has its own connection, which ends with the runtime (`server.rs`).
//!
//! | bounded | limit | beyond it |
//! | --- | --- | --- |
//! | requests that wait for a call | 65,536 | a decision fails at once |
//! | settlements in progress for a server | 4,096 | are not sent, and logged |
//! | rounds in flight on a connection | 2, or 4 of one request each | requests wait for the next reply |
//! | checks in a round | `Settings::batch_size` | requests wait for the next round |
//! | replaced connections whose late replies are read | 4, for 10 s | the oldest is closed |
//!
//! A call that may have reached the server is not sent again, except after a reply that proves that it was not
//! executed. Every decision ends at its timeout at the latest, as long as the runtime of its connection runs.

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

// Separate from its users because the model checker replaces it.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard};
    use std::task::Waker;

    pub(super) fn wake(task: Waker) {
        task.wake();
        // Tokio keeps the task that was woken last for the worker that woke it, and the caller may block that worker
        // next. A second task takes that slot, so that other workers can run the first.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async {});
        }
    }
}

pub(super) use calls::Settings;
pub(super) use job::{IsReply, Job, JobReply, SettledReply, Timeout, stopped};
#[cfg(feature = "cluster")]
pub(super) use job::{NotGranted, Unsettled, Watch};
pub(super) use pipe::{Asking, NoReply};
pub(super) use server::Server;
