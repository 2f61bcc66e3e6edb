use std::fmt;
use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{DecidingStore, Limiter};
use crate::core::{Decision, Error, Key, in_drop};
use crate::store::{Change, Mode, Receipt, Settlement, SlotGuard, Store};

type PermitChanges = SmallVec<[Settlement; 2]>;

/// Units for work that has not begun, from [`Limiter::permit`] or [`Counters::permit`](super::Counters::permit).
///
/// Unless it is [spent](Self::spend), its units are refunded and its slots released when it is dropped.
#[must_use = "units are refunded when their permit is dropped"]
pub struct Permit {
    store: DecidingStore,
    receipt: Option<Receipt>,
    slots: SlotGuard,
}

impl Permit {
    pub(crate) fn new(store: &DecidingStore, receipt: Receipt) -> Self {
        let slots = SlotGuard::new(store.hold(&receipt));
        Self { store: Arc::clone(store), receipt: Some(receipt), slots }
    }

    /// Begins the work: the units stay taken, and the returned guard holds the slots.
    pub fn spend(mut self) -> SlotGuard {
        self.settle(|_| SmallVec::new());
        mem::take(&mut self.slots)
    }

    /// Begins the work with `units` of each rule, and refunds the rest. The returned guard holds the slots.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let rows = Rule::new("rows", Quota::per_hour(1_000)).cost(100);
    /// let (limiter, ada) = (Limiter::new(MemoryStore::new(), [rows]), Key::new("user", "ada"));
    /// let (_, permit) = limiter.permit(&ada).await?;
    /// let _slots = permit.spend_units(30);
    /// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 970);
    /// # Ok(())
    /// # }
    /// ```
    pub fn spend_units(mut self, units: u64) -> SlotGuard {
        self.settle(|receipt| {
            let taken = receipt.items().iter().enumerate().filter(|(_, taken)| !taken.counter.quota().facts().held);
            let rest = taken.map(|(check, taken)| (check, taken.units.saturating_sub(units)));
            rest.filter(|(_, rest)| *rest > 0)
                .map(|(check, rest)| Settlement::new(check, Change::Refund(rest)))
                .collect()
        });
        mem::take(&mut self.slots)
    }

    fn settle(&mut self, changes: impl FnOnce(&Receipt) -> PermitChanges) {
        if let Some(receipt) = self.receipt.take() {
            let changes = changes(&receipt);
            drop(self.store.settle(receipt, &changes));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = in_drop(|| self.settle(Settlement::refunds));
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Limiter {
    /// Takes the cost of every rule for work that may not begin after all.
    ///
    /// It decides in the same way as [`check`](Self::check). The permit refunds the cost unless it is
    /// [spent](Permit::spend). A denial comes with a permit for nothing.
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check) and [`supports_permits`](Self::supports_permits).
    ///
    /// # Cancellation
    ///
    /// See [`check`](Self::check). Slots are released.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(10))]);
    /// let ada = Key::new("user", "ada");
    /// let (decision, permit) = limiter.permit(&ada).await?;
    /// assert_eq!((decision.is_allowed(), limiter.peek(&ada).await?.outcomes()[0].remaining()), (true, 9));
    ///
    /// // There is no mail: nothing was taken.
    /// drop(permit);
    /// assert_eq!(limiter.peek(&ada).await?.outcomes()[0].remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn permit(&self, key: &Key) -> Result<(Decision, Permit), Error> {
        self.supports_permits(key)?;
        let (store, decided) = self.decide_owing(key, None).await?;
        Ok((decided.decision, Permit::new(&store, decided.receipt)))
    }

    /// Checks that the rules in force can give [permits](Self::permit) for a key to callers that repeat their calls
    /// until they are allowed.
    ///
    /// # Errors
    ///
    /// If no rule is for the key: see [`check`](Self::check). If the store cannot refund units, a rule has a
    /// [ban](crate::Rule::ban), to which repeated calls would lead, or a rule costs more than its quota ever holds.
    pub fn supports_permits(&self, key: &Key) -> Result<(), Error> {
        let limits = &*self.in_force.now();
        let places = self.places(limits, key)?;
        for rule in places.iter().map(|place| &limits.rules[*place]) {
            let (name, cost, most) = (rule.name().as_str(), rule.units(), rule.quota().capacity());
            if rule.banning().is_some() {
                return Err(Error::invalid(format!("rule {name:?} bans keys that wait: remove the ban")));
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
    /// Takes the cost of every rule in the same way as [`check`](Self::check), and returns a guard that holds the
    /// slots.
    ///
    /// Slots are released when the guard is dropped, so keep it for as long as the work takes. Other units stay taken.
    /// [`check`](Self::check) would release the slots of a [concurrency](crate::Quota::concurrency) before it returns.
    /// This method does not wait for slots: [`until_ready`](Self::until_ready) does.
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check).
    ///
    /// # Cancellation
    ///
    /// See [`check`](Self::check). Slots are released.
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
