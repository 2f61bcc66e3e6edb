//! A store on any database that can read and replace small values atomically.
//!
//! What a database has to do is a [`StateBackend`]: load the states of some counters, and commit new ones unless others
//! changed them meanwhile. A [`BackendStore`] makes a [`Store`](crate::store::Store) of it: the algorithms, costs, floors,
//! shadow mode, refunds, and one decision over several counters are this crate's.
//!
//! ```text
//! decide, settle, adjust ─▶ TxJob ─▶ TxQueue: which jobs share the next transaction ─▶ Transaction
//! Transaction: load ─▶ decide each job on the states that the earlier ones leave ─▶ commit ─▶ replies
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `traits` | what a database implements, and the identity of a counter's state |
//! | `queue` | what is wanted of a transaction, and which jobs share the next one: pure |
//! | `decide` | deciding them, and the format of a state: pure |
//! | `run` | loading, committing, trying again, and their bounds in time |
//! | `store` | the public store and its settings |
//!
//! A transaction is a task of its own, so no caller keeps another one waiting; one that need not wait is run by its
//! caller at once, so a database within the process needs no runtime.

mod decide;
mod queue;
mod run;
mod store;
mod traits;

pub use store::{BackendStore, BackendStoreBuilder};
pub use traits::{Committed, Loaded, StateBackend, StateId, StateTx, Write};
