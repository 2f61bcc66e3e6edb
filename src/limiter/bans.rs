//! Bans by hand: strikes for work other than requests, and the end of a ban.

use super::Limiter;
use super::resolve::counter;
use crate::core::{Error, Key};
use crate::store::{Change, Store};
use crate::telemetry::log_ban;

impl Limiter {
    /// Counts a strike against a key, of every rule that has a [ban](crate::Rule::ban).
    ///
    /// It is for allowed work that has failed. It calls the store in the same way as [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// If no rule that the key is for has a ban: see [`check`](Self::check). If the store, or the lookup of the tier,
    /// fails for one of the rules. The strikes of the rules before that one count.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the strikes of rules before the current one count, and the current one's may.
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
                log_ban(rule.name(), || None, rule.mode(), applied.banned_for);
            }
        }
        Ok(())
    }

    /// Lifts the ban of a key, of every rule that has one.
    ///
    /// Strikes and the lengths of past bans are forgotten, too. Returns for how many rules the store had a ban or
    /// strikes of the key.
    ///
    /// Units that the key has taken stay taken: see [`reset`](Self::reset). It calls the store in the same way. Another
    /// process may have cached a denial, which it keeps for up to 1 s by default.
    ///
    /// # Errors
    ///
    /// If no rule that the key is for has a ban: see [`check`](Self::check). If the store, or the lookup of the tier,
    /// fails for one of the rules. The bans of the rules before that one are lifted.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the bans of rules before the current one are lifted, and the current one's may be.
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
