//! Requests the inner store decides, and what is learnt from that.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::entry::Counted;
use super::epoch::marked;
use super::shared::Shared;
use crate::core::error::Kind;
use crate::store::{Answer, Check, Deadline, Decided, Store};
use crate::{Error, Outcome};

/// A request on its way to the inner store. Its keys admit nothing here meanwhile; dropped without
/// an answer, nothing is learnt.
struct Direct {
    shared: Arc<Shared>,
    checks: SmallVec<[Check; 2]>,
    /// What there is of each check's key.
    places: SmallVec<[Place; 2]>,
    sent: Instant,
    outcomes: Option<SmallVec<[Outcome; 2]>>,
}

/// What there is of a key while the inner store decides.
#[derive(Clone, Copy)]
struct Place {
    /// How often the key was reset.
    epoch: u64,
    held: Held,
}

#[derive(Clone, Copy)]
enum Held {
    /// Looks and queues need no entry.
    Unneeded,
    /// There is no room for an entry.
    Stray,
    Entry(Counted),
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
        if checks.iter().all(|check| check.cost == 0) {
            return ask(&*self.inner, checks, deadline);
        }
        let _ = self.runtime();
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
        let places = checks.iter().enumerate().map(|(index, check)| {
            let (quota, (hash, shard)) = (check.counter.quota, locked.of(index));
            let epoch = shard.epoch(hash, &check.counter);
            if check.cost == 0 || quota.facts().stands_in_line {
                return Place { epoch, held: Held::Unneeded };
            }
            let Some(entry) = shard.make(hash, &check.counter, now, self.fresh()) else {
                shard.strays += 1;
                return Place { epoch, held: Held::Stray };
            };
            owes |= entry.owes();
            entry.counter.quota = quota;
            Place { epoch: entry.epoch, held: Held::Entry(entry.enter()) }
        });
        let (shared, places) = (Arc::clone(self), places.collect());
        (Direct { shared, checks: checks.iter().cloned().collect(), places, sent: now, outcomes: None }, owes)
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
        let Decided { decision, receipt } = decided?;
        let _ = self.shared.inner_id.set(receipt.store());
        self.outcomes = Some(decision.outcomes().iter().cloned().collect());
        let mut places = self.places.iter();
        let receipt = receipt.each_taken(|taken| {
            taken.stamp = marked(taken.stamp, places.next().map_or(0, |place| place.epoch));
        });
        Ok(Decided { decision, receipt })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let mut locked = self.shared.shards.lock_all(&self.checks);
        for (index, (check, place)) in self.checks.iter().zip(&self.places).enumerate() {
            let (hash, shard) = locked.of(index);
            let counted = match place.held {
                Held::Unneeded => continue,
                Held::Stray => {
                    shard.strays -= 1;
                    None
                }
                Held::Entry(counted) => Some(counted),
            };
            let outcome = self.outcomes.as_ref().and_then(|outcomes| outcomes.get(index));
            let remaining = outcome.map_or(0, |outcome| if check.floor == 0 { outcome.remaining() } else { 0 });
            match (shard.find(hash, &check.counter), counted) {
                (Some(entry), Some(counted)) => {
                    let least = entry.leave(remaining);
                    if let (Some(least), Some(outcome)) = (least, outcome) {
                        entry.learn(outcome, least, self.shared.allowance, (self.sent, counted));
                    }
                }
                // What was learnt meanwhile does not know of it.
                (Some(entry), None) => entry.distrust(),
                (None, _) => {}
            }
        }
    }
}
