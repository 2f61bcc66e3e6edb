//! A store on any database that can read and replace small values atomically.
//!
//! What a database has to do is a [`StateBackend`]: load the states of some counters, and commit new ones unless others
//! changed them meanwhile. A [`BackendStore`] makes a [`Store`](crate::Store) of it: the algorithms, costs, floors,
//! shadow mode, refunds, and one decision over several counters are this crate's.
//!
//! ```text
//! decide, settle, adjust, reset ─▶ Job ─▶ Queue: jobs over the same counters are combined ─▶ Round
//! Round: load ─▶ decide each job on the states that the earlier ones leave ─▶ commit ─▶ replies
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `traits` | what a database implements |
//! | `id`, `bytes` | the identity of a counter's state, and the format of the state |
//! | `job`, `decide` | what is wanted of a round, and deciding it: pure |
//! | `queue` | which jobs make up the next rounds: pure |
//! | `run`, `poll` | loading, committing, trying again, and their bounds in time |
//! | `store`, `builder` | the public store and its settings |
//!
//! A round is a task of its own, so no caller keeps another one waiting; one that needs no waiting is run by its caller
//! at once, so a database within the process needs no runtime.

mod builder;
mod bytes;
mod decide;
mod id;
mod job;
mod poll;
mod queue;
mod run;
mod store;
mod traits;

pub use builder::BackendStoreBuilder;
pub use id::StateId;
pub use store::BackendStore;
pub use traits::{Committed, Loaded, StateBackend, StateTx, Write};
