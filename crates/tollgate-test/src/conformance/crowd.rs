//! Concurrent requests: as many are allowed as fit, and all changes add up.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use fastrand::Rng;
use tokio::runtime::Handle;
use tollgate::Source;
use tollgate::policy::Algorithm;
use tollgate::store::{Change, Check, Counter, Settlement, Store, StoreDecision};
use tollgate::{MemoryStore, Outcome, Quota};

use super::rows::{S, us};
use super::subject::{Checked, Stop, Subject, counter, decide};

/// An hour, so that no unit returns while a case runs.
const WINDOW: u64 = 3_600 * S;
const AT_ONCE: u64 = 200;
const LIMIT: u64 = 50;

const TASKS: u64 = 16;
const EACH: u64 = 100;

fn quotas() -> impl Iterator<Item = Quota> {
    let quotas = Algorithm::ALL.iter().filter_map(|algorithm| Quota::try_new(*algorithm, LIMIT, us(WINDOW)).ok());
    quotas.map(|quota| quota.try_queue(LIMIT - 1).unwrap_or(quota))
}

async fn all<F, T>(futures: impl Iterator<Item = F> + Send) -> Result<Vec<T>, Stop>
where
    F: Future<Output = Result<T, Stop>> + Send,
    T: Send + Unpin,
{
    let mut pending: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut done = Vec::with_capacity(pending.len());
    poll_fn(move |cx| {
        pending.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Ready(output) => {
                done.push(output);
                false
            }
            Poll::Pending => true,
        });
        if pending.is_empty() { Poll::Ready(std::mem::take(&mut done)) } else { Poll::Pending }
    })
    .await
    .into_iter()
    .collect()
}

pub(super) async fn fits(on: &Subject) -> Checked {
    on.at(0)?;
    let mut left_out = Ok(());
    for (quota, has_own) in quotas().flat_map(|quota| [(quota, false), (quota, true)]) {
        let key = format!("{quota} {has_own}");
        let shared = Check::new(counter("shared", &key, quota), 1);
        let own = |index: u64| Check::new(counter("own", &format!("{index} {key}"), quota), 1);
        let of = |index| if has_own { vec![own(index), shared.clone()] } else { vec![shared.clone()] };
        let requests: Vec<_> = (0..AT_ONCE).map(of).collect();
        let decided = match all(requests.iter().map(|checks| on.decide(checks))).await {
            Err(stop @ Stop::LeftOut(_)) => {
                left_out = Err(stop);
                continue;
            }
            decided => decided?,
        };
        let admitted = decided.iter().filter(|decided| decided.decision.is_allowed()).count() as u64;
        on.equal(admitted, quota.capacity(), || format!("admitted of {AT_ONCE} at once by {quota}"));
        remaining(on, shared, 0).await?;
        let looks: Vec<_> = (0..AT_ONCE).filter(|_| has_own).map(|index| [own(index).cost(0)]).collect();
        let left = all(looks.iter().map(|checks| on.decide(checks))).await?;
        let taken: u64 = left.iter().map(|one| quota.capacity().saturating_sub(left_of(one))).sum();
        let expected = if has_own { quota.capacity() } else { 0 };
        on.equal(taken, expected, || format!("taken from the counters of all requests together by {quota}"));
    }
    left_out
}

async fn remaining(on: &Subject, check: Check, expected: u64) -> Checked {
    let quota = *check.counter.quota();
    let found = left_of(&on.decide(&[check.cost(0)]).await?);
    on.equal(found, expected, || format!("remaining of {quota}"));
    Ok(())
}

fn left_of(decided: &StoreDecision) -> u64 {
    decided.decision.outcomes().first().map_or(0, Outcome::remaining)
}

pub(super) async fn adds_up(on: &Subject, seed: u64) -> Checked {
    on.at(0)?;
    let mut rng = Rng::with_seed(seed);
    for quota in quotas() {
        let counter = counter("policy", &quota.to_string(), quota);
        let plans: Vec<_> = (0..AT_ONCE).map(|_| (rng.u64(1..4), rng.u64(..4), rng.bool())).collect();
        let each = all(plans.iter().map(|plan| take_and_settle(on, &counter, *plan))).await?;
        let left = i128::from(quota.capacity()) - each.iter().sum::<i128>();
        let left = u64::try_from(left).unwrap_or(0);
        let found = left_of(&on.decide(&[Check::new(counter, 0)]).await?);
        // On a running clock, parts of units return before their refund, which is rounded up: together less than one.
        let found = if on.clock.is_none() && found + 1 == left { left } else { found };
        on.equal(found, left, || format!("remaining of {quota}"));
    }
    Ok(())
}

async fn take_and_settle(
    on: &Subject,
    counter: &Counter,
    (cost, refund, charges): (u64, u64, bool),
) -> Result<i128, Stop> {
    let decided = on.decide(&[Check::new(counter.clone(), cost)]).await?;
    let taken: u64 = decided.receipt.items().iter().map(|taken| taken.units).sum();
    let change = if charges { Change::Charge(1) } else { Change::Refund(refund) };
    let applied = on.settle(decided, &[Settlement::new(0, change)]).await?;
    let changed: i128 = applied.iter().map(|applied| i128::from(applied.units)).sum();
    Ok(i128::from(taken) + if charges { changed } else { -changed })
}

/// While a store takes units in advance, they are neither in the counter nor with the callers that may spend them, so
/// requests on other threads may be denied. The remaining units are therefore taken one by one afterwards, and the sum
/// is compared. A store that takes nothing in advance leaves nothing. Without a runtime there are no tasks to compare.
pub(super) async fn tasks(on: &Subject) -> Checked {
    on.at(0)?;
    let limit = TASKS * EACH / 3;
    let quotas = [Quota::token_bucket(limit, us(10 * WINDOW)), Quota::fixed_window(limit, us(10 * WINDOW))];
    for quota in quotas.into_iter().filter(|_| Handle::try_current().is_ok()) {
        let check = Check::new(counter("policy", "tasks", quota), 1);
        remaining(on, check.clone(), limit).await?;
        let take = |times| take(Arc::clone(&on.store), check.clone(), times);
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(take(EACH))).collect();
        let (mut admitted, mut leased) = (0, 0);
        for task in tasks {
            let panicked = |error| Stop::Failed(format!("a decision panicked: {error}"));
            let (requests, by_lease) = task.await.map_err(panicked)??;
            (admitted, leased) = (admitted + requests, leased + by_lease);
        }
        let (later, by_lease) = take(limit).await?;
        on.equal(admitted + later, limit, || format!("admitted in {TASKS} tasks and {later} later by {quota}"));
        on.holds(later == 0 || leased + by_lease > 0, || {
            format!("{later} more of {quota} are admitted after {} requests in {TASKS} tasks", TASKS * EACH)
        });
        remaining(on, check, 0).await?;
    }
    Ok(())
}

async fn take(store: Arc<dyn Store>, check: Check, times: u64) -> Result<(u64, u64), Stop> {
    let (mut admitted, mut leased) = (0, 0);
    for _ in 0..times {
        let decision = decide(&*store, std::slice::from_ref(&check)).await?.decision;
        admitted += u64::from(decision.is_allowed());
        leased += u64::from(decision.is_allowed() && decision.source() == Source::Lease);
    }
    Ok((admitted, leased))
}

pub(super) async fn foreign(on: &Subject) -> Checked {
    on.at(0)?;
    let check = Check::new(counter("policy", "ada", Quota::token_bucket(LIMIT, us(WINDOW))), 1);
    let _kept = on.decide(std::slice::from_ref(&check)).await?;
    let taken = decide(&MemoryStore::new(), std::slice::from_ref(&check)).await?;
    on.settle(taken, &[Settlement::new(0, Change::Refund(1))]).await?;
    remaining(on, check, LIMIT - 1).await
}
