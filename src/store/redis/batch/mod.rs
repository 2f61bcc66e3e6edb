//! The way from many callers to one call and back: queues, calls in flight, and the tasks that
//! drive them.
//!
//! A `Job` comes in: a request on keys of one slot, its caller and its timeout. A caller
//! adds the job to the queue of a lane (`Lanes::push`) and waits on a oneshot channel. What goes
//! out is the part of the script's reply that belongs to the request, or one error shared by all
//! that failed together.
//!
//! All else belongs to no request and is done by tasks of the lane, so that a dropped request harms
//! no other:
//!
//! - connecting and giving up connections (`line.rs`),
//! - making calls of the queued jobs (`work.rs`) and reading replies (`receive.rs`),
//! - timeouts and retries (`clock.rs`).
//!
//! There is one lane for each calling runtime, up to a limit, so that normally no runtime waits for
//! another one; `turns.rs` ensures that no blocked worker thread of a runtime can keep its lane
//! from running.
//!
//! # The way of a job
//!
//! 1. It is queued, and a runner of the lane is woken unless the lane looks at the queue anyway.
//! 2. The runner takes as many jobs as a batch may have, leaving out those whose callers are gone.
//! 3. The batch is cut by slot; each part is encoded as one call and handed to the connection.
//! 4. The driver writes the call. From now on it may have taken effect, and is not sent again.
//! 5. The reply is read, and the next calls are written.
//! 6. It is checked against the requests of its call; each job completes with its part, which wakes its caller.
//!
//! A job leaves this way early when its caller's timeout ends (before step 4 it is dropped, after
//! that it stays to be completed late), when the connection is lost, or when the server refuses.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! | --- | --- | --- |
//! | jobs in the queue of a lane | 65,536 | a decision fails at once |
//! | borrowers of a lane | 4,096 | fail at once |
//! | settlements in flight to a server | 4,096 | are not sent, and logged |
//! | rounds in flight on a connection | 2 | jobs wait for the next reply |
//! | checks in a round | `Settings::batch_size` | jobs wait for the next round |
//! | retired connections of a lane | 4, for 10 s | the oldest is closed |
//! | runners of a lane | workers + 1, at most 32; 1 on a `current_thread` runtime | one of them will run |
//!
//! # Invariants
//!
//! A job that may have reached the server is not sent again, except after a reply that shows that
//! it did not run there (a redirection of a Redis Cluster, or a missing script). Every awaited job
//! completes with a response or an error, at its timeout at the latest, as long as its runtime
//! runs.
//!
//! The files know each other in one direction. From the bottom: `timeout`, `job`, `call`, `server`,
//! `connection`, `queue`, `turns`, `core`, `lane`, then the work on a lane (`line`, `receive`,
//! `clock`, `work`, `runner`), `lanes` and `direct`. Outside, only the other modules of the Redis
//! store use this one, by the re-exports below; nothing here knows policies or decisions.

mod call;
mod clock;
mod connection;
mod core;
mod direct;
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

/// The locks that `turns` uses; the model checker replaces them with its own.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

pub(super) use job::{Caller, Job, Late, NoReply, Response, Settled};
pub(super) use lane::{Settings, stopped};
pub(super) use lanes::{Lanes, Plan, no_runtime};
#[cfg(feature = "cluster")]
pub(super) use server::{Connecting, Redirected, Server};
pub(super) use timeout::{GRACE, Timeout};
