//! Requests the inner store decides, and what is learnt from that.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::shared::Shared;
use crate::Algorithm;
use crate::error::Kind;
use crate::store::{Answer, Check, Deadline, Decided, Store};
use crate::{Error, Outcome};

/// A request on its way to the inner store. Its keys admit nothing here meanwhile; dropped without
/// an answer, nothing is learnt.
struct Direct {
    shared: Arc<Shared>,
    checks: SmallVec<[Check; 2]>,
    /// Whether each check's key has an entry; the keys of looks and queues need none.
    known: SmallVec<[Option<bool>; 2]>,
    sent: Instant,
    outcomes: Option<SmallVec<[Outcome; 2]>>,
}

/// How the inner store is asked.
pub(super) type Ask = fn(&dyn Store, &[Check], Deadline) -> Answer<Result<Decided, Error>>;

impl Shared {
    /// Has the inner store decide, after what is owed for the request's keys has been paid.
    pub(super) fn decide_there(
        self: &Arc<Self>,
        ask: Ask,
        checks: &[Check],
        deadline: Deadline,
    ) -> Answer<Result<Decided, Error>> {
        if checks.iter().all(|check| check.cost == 0) || self.runtime().is_none() {
            return ask(&*self.inner, checks, deadline);
        }
        let (direct, owes) = self.start(checks);
        if !owes {
            return match ask(&*self.inner, checks, deadline) {
                Answer::Ready(decided) => Answer::Ready(direct.learn(decided)),
                Answer::Pending(pending) => Answer::pending(async move { direct.learn(pending.await) }),
            };
        }
        let deadline = self.budget().map_or(deadline, |budget| deadline.earlier(Deadline::after(budget)));
        Answer::pending(async move {
            let paid = direct.pay();
            match deadline.instant() {
                Some(at) => timeout_at(at, paid).await.map_err(not_in_time)??,
                None => paid.await?,
            }
            // It keeps the deadline by itself, so that what comes later is given back.
            let decided = ask(&*direct.shared.inner, &direct.checks, deadline).wait().await;
            direct.learn(decided)
        })
    }

    /// One for all that a decision waits for: what is owed is paid in it, too.
    pub(super) fn budget(&self) -> Option<Duration> {
        self.inner.budget()
    }

    fn start(self: &Arc<Self>, checks: &[Check]) -> (Direct, bool) {
        let (now, mut owes) = (Instant::now(), false);
        let mut locked = self.shards.lock_all(checks);
        let known = checks.iter().enumerate().map(|(index, check)| {
            let quota = check.counter.quota;
            if check.cost == 0 || quota.algorithm() == Algorithm::LeakyBucket {
                return None;
            }
            let (hash, shard) = locked.of(index);
            let Some(entry) = shard.make(hash, &check.counter, now, self.fresh()) else {
                shard.strays += 1;
                return Some(false);
            };
            owes |= entry.owes();
            entry.direct += 1;
            entry.turns += 1;
            (entry.room, entry.counter.quota) = (0, quota);
            Some(true)
        });
        let (shared, known) = (Arc::clone(self), known.collect());
        (Direct { shared, checks: checks.iter().cloned().collect(), known, sent: now, outcomes: None }, owes)
    }
}

fn not_in_time(late: Elapsed) -> Error {
    Error::new(Kind::Timeout, "the debts of the request's keys were not paid in time").with_source(late)
}

impl Direct {
    /// Pays what is owed for its keys.
    async fn pay(&self) -> Result<(), Error> {
        for Check { counter, .. } in &self.checks {
            self.shared.pay(self.shared.shards.hash(counter), counter).await?;
        }
        Ok(())
    }

    /// Learns what remains when it is dropped, which is at once.
    fn learn(mut self, decided: Result<Decided, Error>) -> Result<Decided, Error> {
        if let Ok(decided) = &decided {
            let _ = self.shared.inner_id.set(decided.receipt.store());
        }
        self.outcomes = decided.as_ref().ok().map(|decided| decided.decision.outcomes().iter().cloned().collect());
        decided
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let mut locked = self.shared.shards.lock_all(&self.checks);
        for (index, check) in self.checks.iter().enumerate() {
            let Some(known) = self.known[index] else { continue };
            let (hash, shard) = locked.of(index);
            let Some(entry) = shard.find(hash, &check.counter).filter(|_| known) else {
                shard.strays -= usize::from(!known);
                continue;
            };
            // Several requests at once may be told in another order than they were decided in: the
            // least of what they are told is not more than the last of them left.
            let outcome = self.outcomes.as_ref().and_then(|outcomes| outcomes.get(index));
            let remaining = outcome.map_or(0, |outcome| if check.floor == 0 { outcome.remaining() } else { 0 });
            entry.seen = entry.seen.min(remaining);
            entry.direct -= 1;
            if let (0, Some(outcome)) = (entry.direct, outcome) {
                entry.learn(outcome, self.shared.allowance.min(entry.seen), self.sent);
            }
            if entry.direct == 0 {
                entry.seen = u64::MAX;
            }
        }
    }
}
