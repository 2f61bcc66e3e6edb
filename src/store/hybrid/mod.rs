//! Units admitted first and paid later, for processes far from their store.

mod admit;
mod balance;
mod balances;
mod change;
mod charge;
mod direct;
mod epoch;
mod ledger;
mod shared;
mod store;
mod ticking;
mod under_way;

pub use store::{HybridStore, HybridStoreBuilder};
