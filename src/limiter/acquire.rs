//! Checks whose slots are held for as long as the work takes.

use super::Limiter;
use crate::core::{Decision, Error, Key};
use crate::store::SlotGuard;

impl Limiter {
    /// Takes the cost of every rule as [`check`](Self::check) does, and returns a guard that holds the slots among it.
    ///
    /// They are released when the guard is dropped, so keep it for as long as the work takes. Units that are no slots
    /// stay taken. Of a rule with a [concurrency](crate::Quota::concurrency), [`check`](Self::check) releases the slots
    /// before it returns.
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
