//! Units that are taken for work that may not begin: a permit refunds them unless it is spent.
//!
//! A key comes in, and a [`Permit`] goes out. It is for those who wait until the limits admit something, and only then
//! know whether there is anything to do.

use std::mem;

use smallvec::SmallVec;

use super::{DecidingStore, Limiter};
use crate::core::{Decision, Error, Key};
use crate::store::{Mode, Receipt, Settlement, SlotGuard, Store};

/// Changes to what one decision took.
type Changes = SmallVec<[Settlement; 2]>;

/// What one decision took, for something that has not begun. Unless it is spent, its units are refunded and its slots
/// released when it is dropped.
pub(crate) struct Permit {
    store: DecidingStore,
    /// There until it is settled.
    receipt: Option<Receipt>,
    slots: SlotGuard,
}

impl Permit {
    /// Begins what the units were taken for: they stay taken, and what this returns holds the slots.
    pub(crate) fn spend(mut self) -> SlotGuard {
        self.settle(|_| SmallVec::new());
        mem::take(&mut self.slots)
    }

    fn settle(&mut self, changes: impl FnOnce(&Receipt) -> Changes) {
        if let Some(receipt) = self.receipt.take() {
            let changes = changes(&receipt);
            drop(self.store.settle(receipt, &changes));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.settle(Settlement::refunds);
    }
}

impl Limiter {
    /// Takes the cost of every rule as [`check`](Self::check) does, for something that may not begin. A refusal comes with
    /// a permit for nothing.
    pub(crate) async fn take(&self, key: &Key) -> Result<(Decision, Permit), Error> {
        let (store, decided) = self.decide_owing(key, None).await?;
        let slots = SlotGuard::new(store.hold(&decided.receipt));
        Ok((decided.decision, Permit { store, receipt: Some(decided.receipt), slots }))
    }

    /// Returns an error if nobody can wait for what the rules in force admit of a key.
    ///
    /// # Errors
    ///
    /// If no rule is for the key, the store cannot refund, a rule would ban those who repeat their checks, or one can
    /// never be admitted.
    pub(crate) fn can_wait(&self, key: &Key) -> Result<(), Error> {
        let limits = &*self.in_force.now();
        let places = self.places(limits, key)?;
        for rule in places.iter().map(|place| &limits.rules[*place]) {
            let (name, cost, most) = (rule.name().as_str(), rule.units(), rule.quota().capacity());
            if rule.banning().is_some() {
                return Err(Error::invalid(format!("rule {name:?} bans keys that wait: leave out the ban")));
            }
            if cost > most && rule.mode() == Mode::Enforce {
                let text = format!("rule {name:?} costs {cost} and holds {most} at most: it would never be ready");
                return Err(Error::invalid(text));
            }
        }
        limits.supports_refunds(&places)
    }
}

impl Limiter {
    /// Takes the cost of every rule as [`check`](Self::check) does, and returns a guard that holds the slots among it.
    ///
    /// They are released when the guard is dropped, so keep it for as long as the work takes. Units that are no slots
    /// stay taken. Of a rule with a [concurrency](crate::Quota::concurrency), [`check`](Self::check) releases the slots
    /// before it returns. It does not wait for slots: [`until_ready`](Self::until_ready) does.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Cancellation
    ///
    /// As [`check`](Self::check); slots are released.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("exports", Quota::concurrency(2))]);
    /// let ada = Key::new("user", "ada");
    ///
    /// let (decision, slots) = limiter.acquire(&ada).await?;
    /// if decision.is_allowed() {
    ///     // Export, and only then:
    ///     drop(slots);
    /// }
    /// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, key: &Key) -> Result<(Decision, SlotGuard), Error> {
        self.decide_holding(key, None).await
    }
}
