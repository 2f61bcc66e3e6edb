//! Outcome of one policy for one request.
//!
//! Times are kept in microseconds, rounded up, so that a client that waits for the advertised time is allowed.
//! Arithmetic returns them in ticks ([`Measures`]).

use std::time::Duration;

use crate::core::{Check, Counter, Key, Limit, Mode, Overridden, PolicyName, Quota, algorithm};

const NO_WAIT: u64 = u64::MAX;

/// Value of `wait_us` if the end of a slot is unknown: requests mostly end long before their slots expire.
const GUESS: u64 = 1_000_000;

/// The outcome of one policy for one request.
///
/// With the feature `serde` it is serialized as part of a [`Decision`](crate::Decision#serialization).
///
/// # Examples
///
/// A store of your own returns one for each check:
///
/// ```
/// use std::time::Duration;
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Check, Counter};
/// use tollgate::{Decision, Key, Outcome, Quota, Source};
///
/// let (policy, key) = (PolicyName::try_from("mail")?, Key::new("user", "ada"));
/// let check = Check::new(Counter::new(policy, key, Quota::per_hour(100)), 1);
///
/// let second = Duration::from_secs(1);
/// let outcome = Outcome::denied(&check, 0, Some(36 * second)).with_reset_after(3_600 * second);
/// assert_eq!((outcome.policy(), outcome.limit(), outcome.remaining()), ("mail", 100, 0));
///
/// let decision = Decision::new([outcome], Source::Store);
/// assert!(!decision.is_allowed());
/// assert_eq!(decision.retry_after(), Some(36 * second));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    counter: Counter,
    pub(super) mode: Mode,
    pub(super) allowed: bool,
    pub(super) remaining: u64,
    /// Microseconds until the request fits, or, if it fits and nothing remains, until a unit returns; [`NO_WAIT`] if no
    /// wait can help.
    pub(super) wait_us: u64,
    /// Microseconds until untouched state allows a full capacity.
    reset_us: u64,
    /// Microseconds until the turn of an allowed request, or until the end of the ban.
    delay_us: u64,
    standing: Standing,
    mark: Mark,
    pub(super) hidden: bool,
    overridden: bool,
    /// Length of the window that counts, if a calendar's; else 0.
    minutes: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NoBan,
    Free,
    Banned,
}

/// Properties that exclude each other: one byte, because outcomes are in every decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    None,
    BanBegan,
    Guessed,
}

impl Outcome {
    /// Creates an outcome in which the check fits, with `remaining` units left for requests like it.
    ///
    /// It resets immediately, unless [`with_reset_after`](Self::with_reset_after) sets another time.
    pub fn allowed(check: &Check, remaining: u64) -> Self {
        let hidden = check.is_only_for_ban();
        Self { remaining, hidden, ..Self::unused(check) }
    }

    #[inline]
    fn unused(check: &Check) -> Self {
        Self {
            counter: check.counter.clone(),
            mode: check.mode,
            allowed: true,
            remaining: 0,
            wait_us: 0,
            reset_us: 0,
            delay_us: 0,
            standing: Standing::NoBan,
            mark: Mark::None,
            hidden: false,
            overridden: check.overridden != Overridden::No,
            minutes: 0,
        }
    }

    /// Creates an outcome in which the check does not fit before `retry_after`, rounded up to microseconds. With `None`
    /// it never fits.
    pub fn denied(check: &Check, remaining: u64, retry_after: Option<Duration>) -> Self {
        let wait_us = retry_after.map_or(NO_WAIT, micros);
        Self { allowed: false, wait_us, ..Self::allowed(check, remaining) }
    }

    /// Sets the time until all units are available again if none are taken, rounded up to microseconds.
    ///
    /// If the check fits and nothing remains, that is the wait for a unit too, less the time that the others take where
    /// units return one by one.
    pub fn with_reset_after(self, reset_after: Duration) -> Self {
        let (quota, reset_us) = (self.counter.quota(), micros(reset_after));
        let wait_us = match (self.allowed, self.remaining) {
            (true, 0) if quota.facts().held => reset_us.min(GUESS),
            (true, 0) if quota.facts().returns_evenly => {
                let others = quota.window().as_micros() * u128::from(quota.capacity() - 1) / u128::from(quota.limit());
                reset_us.saturating_sub(u64::try_from(others).unwrap_or(u64::MAX))
            }
            (true, 0) => reset_us,
            _ => self.wait_us,
        };
        Self { wait_us, reset_us, ..self }
    }

    /// Marks the time to retry as a [guess](Self::retry_is_guess): the request may be denied then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::policy::PolicyName;
    /// use tollgate::store::{Check, Counter};
    /// use tollgate::{Key, Outcome, Quota};
    ///
    /// let (policy, key) = (PolicyName::try_from("mail")?, Key::new("user", "ada"));
    /// let check = Check::new(Counter::new(policy, key, Quota::per_hour(100)), 1);
    /// assert!(Outcome::denied(&check, 0, Some(Duration::from_secs(1))).guessed().retry_is_guess());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn guessed(self) -> Self {
        Self { mark: Mark::Guessed, ..self }
    }

    /// Returns the outcome of a check whose key is banned for `left`, rounded up to microseconds: it does not fit, and
    /// nothing remains.
    ///
    /// The wait is the longer one of the ban and the check.
    pub fn banned(self, left: Duration) -> Self {
        let banned_us = micros(left).max(1);
        // Because a peek may fit with nothing left, `wait_us` is then the wait for a unit.
        let wait_us = if self.allowed && self.remaining > 0 { banned_us } else { self.wait_us.max(banned_us) };
        let reset_us = self.reset_us.max(banned_us);
        let (delay_us, standing, hidden) = (banned_us, Standing::Banned, false);
        Self { allowed: false, remaining: 0, wait_us, reset_us, delay_us, standing, hidden, ..self }
    }

    pub(crate) fn with_ban(self, began: bool) -> Self {
        let standing = if self.is_banned() { Standing::Banned } else { Standing::Free };
        Self { standing, mark: if began { Mark::BanBegan } else { self.mark }, ..self }
    }

    pub(crate) fn to_hidden(&self) -> Self {
        Self { hidden: true, ..self.clone() }
    }

    /// Turns the outcome of a peek into a denial until `retry_after`, or for good with `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Outcome;
    ///
    /// /// Refuses what fewer than ten units are left for.
    /// fn needs_ten(look: &Outcome) -> Outcome {
    ///     if look.remaining() < 10 { look.to_denied(Some(look.reset_after())) } else { look.clone() }
    /// }
    /// # let _ = needs_ten;
    /// ```
    pub fn to_denied(&self, retry_after: Option<Duration>) -> Self {
        Self { allowed: false, wait_us: retry_after.map_or(NO_WAIT, micros), ..self.clone() }
    }

    pub(super) fn with_limit(&self, limit: Limit) -> Self {
        let counter = Counter::from_limit(limit, self.counter.key().clone());
        Self { counter, ..self.clone() }
    }

    pub(crate) fn with_more(&self, units: u64, owed: u64) -> Self {
        if self.is_banned() {
            return self.clone();
        }
        let remaining = self.remaining.saturating_add(units).min(self.counter.quota().capacity()).saturating_sub(owed);
        let wait_us = if remaining > 0 && self.allowed { 0 } else { self.wait_us };
        Self { remaining, wait_us, ..self.clone() }
    }

    /// `balance` of the `taken` units stay taken. If a charge leaves nothing, the wait is the time until the reset, an
    /// upper bound, because the exact wait is unknown here.
    pub(crate) fn settled(&self, taken: u64, balance: u64) -> Self {
        if self.is_banned() {
            return self.clone();
        }
        let remaining = if balance <= taken {
            self.remaining.saturating_add(taken - balance).min(self.counter.quota().capacity())
        } else {
            self.remaining.saturating_sub(balance - taken)
        };
        let wait_us = match remaining {
            0 if self.remaining == 0 => self.wait_us,
            0 => self.reset_us,
            _ => 0,
        };
        Self { remaining, wait_us, ..self.clone() }
    }

    /// Takes the remaining units and times of a later peek, unless the key was banned: then nothing was taken.
    pub(crate) fn after(&self, look: &Self) -> Self {
        if self.is_banned() {
            return self.clone();
        }
        let Self { remaining, reset_us, minutes, .. } = *look;
        let wait_us = if remaining == 0 { look.wait_us } else { 0 };
        Self { remaining, wait_us, reset_us, minutes, ..self.clone() }
    }

    pub(crate) fn from_measures(check: &Check, measures: &Measures) -> Self {
        let quota = check.counter.quota();
        let tick = quota.tick().micros();
        let wait_us = match measures.wait {
            algorithm::NEVER => NO_WAIT,
            1.. if quota.facts().held => GUESS,
            wait => wait.saturating_mul(tick),
        };
        let minutes = quota.calendar().map_or(0, |_| measures.window.saturating_mul(tick) / 60_000_000);
        Self {
            allowed: measures.fits,
            remaining: measures.remaining,
            wait_us,
            reset_us: measures.reset.saturating_mul(tick),
            delay_us: measures.delay.saturating_mul(tick),
            hidden: check.is_only_for_ban(),
            minutes: u16::try_from(minutes).unwrap_or(0),
            ..Self::unused(check)
        }
    }

    pub(crate) fn name_and_quota(&self) -> &Limit {
        self.counter.limit()
    }

    pub(crate) fn policy_name(&self) -> &PolicyName {
        self.counter.policy()
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        self.counter.policy().as_str()
    }

    /// Returns the key that was counted, as it is in the store. Secrets are hashed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(100))]);
    /// let decision = limiter.check(&Key::new("user", "ada")).await?;
    /// assert_eq!(decision.outcomes()[0].key().as_str(), "user:ada");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &Key {
        self.counter.key()
    }

    /// Returns `true` if an [override](crate::overrides::Override) changed the quota or mode, or denies the request.
    pub fn is_overridden(&self) -> bool {
        self.overridden
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Returns the quota that applied: the quota of the policy, or of the client's tier.
    pub fn quota(&self) -> &Quota {
        self.counter.quota()
    }

    /// Returns the mode of the policy: enforced or shadow.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns `true` if the policy is in shadow mode.
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Returns `true` if this policy allows the request, even if it is in shadow mode and others decide.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Returns the limit of the quota, in units per window.
    pub fn limit(&self) -> u64 {
        self.counter.quota().limit()
    }

    /// Returns the number of further requests at cost 1 that would be allowed immediately after this one.
    ///
    /// Units of a reserve are left out if the request may not use them. A cached denial has the number of the original
    /// denial, and 0 for policies that are not known to deny.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time until this policy allows the same request, or `None` if it does, or never will. For a
    /// concurrency it is a [guess](Self::retry_is_guess), 1 s.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.allowed { None } else { self.wait() }
    }

    /// Returns `true` if [`retry_after`](Self::retry_after) is a guess. It is unknown when the requests that hold slots
    /// of a [concurrency](crate::Quota::concurrency) end, and which requests a `RatioStore` drops.
    pub fn retry_is_guess(&self) -> bool {
        let is_of_ban = self.is_banned() && self.wait_us <= self.delay_us;
        !self.allowed && (self.is_held() || self.mark == Mark::Guessed) && self.wait_us != NO_WAIT && !is_of_ban
    }

    /// Returns `true` if the key is banned.
    pub fn is_banned(&self) -> bool {
        self.standing == Standing::Banned
    }

    /// Returns the time until the ban of the key ends, or `None` if the key is not banned.
    pub fn banned_for(&self) -> Option<Duration> {
        self.is_banned().then(|| Duration::from_micros(self.delay_us))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.counter.quota().facts().held
    }

    /// Returns the time until all units are available again, if none are taken.
    ///
    /// For a concurrency, this requires that no request renews its slots.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_us)
    }

    pub(crate) fn window_minutes(&self) -> u16 {
        self.minutes
    }

    pub(crate) fn with_window_minutes(self, minutes: u16) -> Self {
        Self { minutes, ..self }
    }

    /// Returns the length of the window that counts. For a [calendar](crate::Quota::calendar) it is the length of this
    /// very window, such as 28 days in February, else the window of the quota.
    ///
    /// Outcomes of a custom store that decides without an [`Evaluation`](crate::store::Evaluation) have the window of
    /// the quota.
    pub fn window(&self) -> Duration {
        match self.minutes {
            0 => self.counter.quota().window(),
            minutes => Duration::from_secs(60 * u64::from(minutes)),
        }
    }

    /// Returns the time that the allowed request has to wait for its turn in this policy. Zero unless the quota is a
    /// queueing leaky bucket, and the request is not among those that start immediately.
    pub fn delay(&self) -> Duration {
        if self.is_banned() { Duration::ZERO } else { Duration::from_micros(self.delay_us) }
    }

    pub(crate) fn has_ban(&self) -> bool {
        self.standing != Standing::NoBan
    }

    pub(crate) fn has_begun_ban(&self) -> bool {
        self.mark == Mark::BanBegan
    }

    /// Returns the time until a unit can be taken: zero if one remains, `None` if no wait can help. Unlike
    /// [`retry_after`](Self::retry_after), a check that fits has it, too, because it may have taken the last unit.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(1))]);
    /// let decision = limiter.check(&Key::new("user", "ada")).await?;
    /// let last = &decision.outcomes()[0];
    /// assert!(last.retry_after().is_none() && last.wait().is_some_and(|wait| !wait.is_zero()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self) -> Option<Duration> {
        (self.wait_us != NO_WAIT).then(|| Duration::from_micros(self.wait_us))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Measures {
    pub(crate) fits: bool,
    pub(crate) remaining: u64,
    /// Until the check fits, or [`NEVER`](algorithm::NEVER) if no wait can help.
    pub(crate) wait: u64,
    pub(crate) reset: u64,
    pub(crate) window: u64,
    pub(crate) delay: u64,
}

/// Rounds up.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Counter, Key};

    #[test]
    fn of_a_store_of_ones_own_the_wait_for_a_unit_is_known_by_the_reset() {
        let minute = Duration::from_secs(60);
        let wait = |quota, remaining, seconds| {
            let policy = PolicyName::try_from("api").expect("it is valid");
            let check = Check::new(Counter::new(policy, Key::new("user", "ada"), quota), 0);
            let outcome = Outcome::allowed(&check, remaining).with_reset_after(Duration::from_secs(seconds));
            outcome.wait().expect("a wait helps").as_secs()
        };
        let bucket = Quota::token_bucket(10, minute);
        assert_eq!([wait(bucket, 0, 60), wait(bucket, 0, 65), wait(bucket, 1, 54), wait(bucket, 0, 0)], [6, 11, 0, 0]);
        assert_eq!([wait(Quota::fixed_window(10, minute), 0, 40), wait(Quota::concurrency(10), 0, 40)], [40, 1]);
    }

    #[test]
    fn a_ban_stays_whatever_is_settled_later() {
        let (minute, policy) = (Duration::from_secs(60), PolicyName::try_from("login").expect("it is valid"));
        let check = Check::new(Counter::new(policy, Key::new("user", "ada"), Quota::fixed_window(10, minute)), 1);
        let (banned, look) = (Outcome::allowed(&check, 7).banned(minute), Outcome::allowed(&check, 9));
        for outcome in [banned.settled(1, 0), banned.settled(0, 3), banned.after(&look), banned.with_more(5, 0)] {
            let told = (outcome.remaining(), outcome.banned_for(), outcome.retry_after());
            assert_eq!(told, (0, Some(minute), Some(minute)));
        }
    }
}
