//! Slots of requests that are being served: who holds which, until when, and what their store has to know of it.
//!
//! Stores count slots, and know of no holders: a decision takes slots, and its receipt comes in here ([`SlotRenewer::hold`]).
//! What goes out is a [`SlotHold`]: as long as it lives its slots are renewed, so that they do not expire, and when it is
//! dropped they are released. Both are settlements of the store that took them.
//!
//! Invariants: slots are released once, as whoever releases them removes their hold; they are renewed as long as there is
//! a hold, and no longer; a store is never called with a lock held.

mod held;
mod renewer;
#[cfg(test)]
mod tests;

pub use renewer::SlotGuard;
pub(crate) use renewer::WeakSlots;
pub(super) use renewer::{SlotHold, SlotRenewer, Unclaimed};
