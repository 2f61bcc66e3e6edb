//! A store on any database that can read and replace small values atomically.
//!
//! What a database has to do is a [`StateBackend`]: load the states of some counters, and commit new ones unless others
//! changed them meanwhile. A [`BackendStore`] makes a [`Store`](crate::Store) of it: the algorithms, costs, floors,
//! shadow mode, refunds, and one decision over several counters are this crate's.
//!
//! ```text
//! decide, settle, adjust ─▶ Job ─▶ Queue: which jobs share the next transaction ─▶ Transaction
//! Transaction: load ─▶ decide each job on the states that the earlier ones leave ─▶ commit ─▶ replies
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `traits` | what a database implements |
//! | `id`, `bytes` | the identity of a counter's state, and the format of the state |
//! | `job`, `decide` | what is wanted of a transaction, and deciding it: pure |
//! | `queue` | which jobs share the next transaction: pure |
//! | `run` | loading, committing, trying again, and their bounds in time |
//! | `store`, `builder` | the public store and its settings |
//!
//! A transaction is a task of its own, so no caller keeps another one waiting; one that need not wait is run by its
//! caller at once, so a database within the process needs no runtime.

mod builder;
mod bytes;
mod decide;
mod id;
mod job;
mod queue;
mod run;
mod store;
mod traits;

pub use builder::BackendStoreBuilder;
pub use id::StateId;
pub use store::BackendStore;
pub use traits::{Committed, Loaded, StateBackend, StateTx, Write};
