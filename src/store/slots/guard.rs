//! What holds slots outside of this crate.

use std::fmt;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::renewer::SlotHold;

/// Slots that may be released at any time.
pub(crate) type WeakSlots = SmallVec<[Weak<SlotHold>; 1]>;

/// Holds slots of a [`Quota::concurrency`](crate::Quota::concurrency) until it and all its clones are dropped.
///
/// [`Handle::slots`](crate::Handle::slots) returns that of a request, and [`Limiter::acquire`](crate::Limiter::acquire)
/// that of other work. It holds slots for at most [`hold_at_most`](crate::Quota::hold_at_most): then they are released,
/// and it holds nothing. The default holds nothing from the start.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("exports", Quota::concurrency(1))]);
/// let ada = Key::new("user", "ada");
///
/// let (decision, slots) = limiter.acquire(&ada).await?;
/// assert!(decision.is_allowed());
/// let (refused, _) = limiter.acquire(&ada).await?;
/// assert!(!refused.is_allowed());
///
/// drop(slots);
/// let (decision, _slots) = limiter.acquire(&ada).await?;
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "slots are released when their guard is dropped"]
pub struct SlotGuard {
    held: SmallVec<[Arc<SlotHold>; 1]>,
}

impl SlotGuard {
    /// Returns whether it has never held slots: none were taken, or the request had ended before it was made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A guard of what one decision took.
    pub(crate) fn new(held: Option<SlotHold>) -> Self {
        Self { held: held.map(Arc::new).into_iter().collect() }
    }

    /// Adds the slots of another guard.
    pub(crate) fn add(&mut self, other: Self) {
        self.held.extend(other.held);
    }

    /// Returns its slots without holding them.
    pub(crate) fn downgrade(&self) -> WeakSlots {
        self.held.iter().map(Arc::downgrade).collect()
    }

    /// Returns a guard of those slots that are still held.
    pub(crate) fn upgrade(slots: &WeakSlots) -> Self {
        Self { held: slots.iter().filter_map(Weak::upgrade).collect() }
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").field("is_empty", &self.is_empty()).finish()
    }
}
