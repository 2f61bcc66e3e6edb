//! Bans by hand: strikes for work that is no request, and the end of a ban.

use super::Limiter;
use super::resolve::counter;
use crate::core::{Error, Key};
use crate::store::{Change, Store};

impl Limiter {
    /// Counts a strike against a key, of every rule that has a [ban](crate::Rule::ban): a failure of work that was
    /// admitted.
    ///
    /// It calls the store as [`reset`](Self::reset) does.
    ///
    /// # Errors
    ///
    /// If no rule that the key is for has a ban, as of [`check`](Self::check). If the store, or the lookup of the tier,
    /// fails for one of the rules; the strikes of those before it count.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the strikes of rules before the current one count, and that of the current one may.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// const HOUR: Duration = Duration::from_secs(3_600);
    /// let rule = Rule::new("login", Quota::per_hour(100)).ban(Ban::new(2, HOUR, HOUR));
    /// let limiter = Limiter::new(MemoryStore::new(), [rule]);
    /// let ada = Key::new("user", "ada");
    /// limiter.strike(&ada).await?;
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// limiter.strike(&ada).await?;
    /// assert!(limiter.check(&ada).await?.is_banned());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn strike(&self, key: &Key) -> Result<(), Error> {
        let limits = &*self.in_force.now();
        for (place, rule, ban) in self.banning(limits, key)? {
            let applied = limits.store.adjust(&counter(limits, place, key).await?, Change::Strike(ban)).wait().await?;
            if applied.ban_began() {
                limits.telemetry.banned(rule.name(), rule.mode());
            }
        }
        Ok(())
    }

    /// Lifts the ban of a key, of every rule that has one: its strikes and the lengths of its last bans are forgotten,
    /// too. Returns of how many rules the store had a ban or strikes of the key.
    ///
    /// Units that the key has taken stay taken: see [`reset`](Self::reset). It calls the store as that does. Another
    /// process may have cached a refusal, which it keeps for up to 1 s by default.
    ///
    /// # Errors
    ///
    /// If no rule that the key is for has a ban, as of [`check`](Self::check). If the store, or the lookup of the tier,
    /// fails for one of the rules; the bans of those before it are lifted.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the bans of rules before the current one are lifted, and that of the current one may
    /// be.
    pub async fn lift_ban(&self, key: &Key) -> Result<usize, Error> {
        let limits = &*self.in_force.now();
        let mut lifted = 0;
        for (place, ..) in self.banning(limits, key)? {
            let applied = limits.store.adjust(&counter(limits, place, key).await?, Change::Lift).wait().await?;
            lifted += usize::from(applied.units > 0);
        }
        Ok(lifted)
    }
}
