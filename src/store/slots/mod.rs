//! Slots of requests in progress: holds, renewals and releases.
//!
//! Stores count slots, but know no holders. A decision takes slots, which [`SlotRenewer::hold`] turns into a
//! [`SlotHold`]. Until the hold is dropped its slots are renewed, so that they do not expire. The drop releases them.
//! Both are settlements of the store that took them.
//!
//! Invariants: slots are released once, because a release removes their hold. They are renewed as long as there is a
//! hold, and no longer. A store is never called with a lock held.

mod held;
mod renewer;
#[cfg(test)]
mod tests;

pub use renewer::SlotGuard;
pub(crate) use renewer::WeakSlots;
pub(super) use renewer::{SlotHold, SlotRenewer, Unclaimed};
