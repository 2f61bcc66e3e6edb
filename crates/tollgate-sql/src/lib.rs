#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

// decide, settle, adjust ─▶ TxJob ─▶ TxQueue: which jobs share the next transaction ─▶ Transaction
// Transaction: load ─▶ decide each job on the states that the earlier ones leave ─▶ commit ─▶ replies
//
// A transaction is a separate task, so no caller delays another one. Its caller polls it first, so a database within
// the process needs no runtime.

#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
mod run;
mod store;
mod traits;

pub use store::{BackendStore, BackendStoreBuilder};
pub use traits::{Committed, Loaded, StateBackend, StateTx};
