//! Slots of requests that are being served: who holds which, until when, and what their store has to know of it.
//!
//! Stores count slots, and know of no holders: a decision takes slots, and its receipt comes in here ([`SlotRenewer::hold`]).
//! What goes out is a [`SlotHold`]: as long as it lives its slots are renewed, so that they do not expire, and when it is
//! dropped they are released. Both are settlements of the store that took them.
//!
//! - `held.rs` is the book of what is held, and of what is to be sent about it: no store, no runtime.
//! - `renewer.rs` sends that, and follows the results.
//! - `timer.rs` calls all keepers of a runtime at each heartbeat.
//! - `guard.rs` is what users hold, [`SlotGuard`]; `unclaimed.rs` a decision whose caller may be gone.
//!
//! Invariants: slots are released once, as whoever releases them removes their ticket from the book; they are renewed as
//! long as there is a ticket, and no longer; a lock is never held while a store is called or a task is spawned.

mod guard;
mod held;
mod renewer;
#[cfg(test)]
mod tests;
mod timer;
mod unclaimed;

pub use guard::SlotGuard;
pub(crate) use guard::WeakSlots;
pub(in crate::store) use renewer::SlotHold;
pub(super) use renewer::SlotRenewer;
pub(super) use unclaimed::Unclaimed;
