//! Requests that are in flight together: as many are admitted as fit, and all that was changed adds up.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;

use super::case::Case;
use super::rows::{S, us};
use super::subject::{Checked, Stop, Subject, check};
use crate::core::decision::Source;
use crate::core::{Algorithm, Error, Outcome, Quota};
use crate::store::{Ask, Change, Check, Decided, Settlement, Store};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    as_many_as_fit_are_admitted_of_many_at_once,
    requests_that_share_a_limit_take_of_their_own_only_if_they_are_admitted,
    what_is_charged_and_refunded_at_once_adds_up,
    requests_in_tasks_of_their_own_take_as_much_as_there_is,
];

/// An hour, so that nothing returns while a case runs.
const WINDOW: u64 = 3_600 * S;
const AT_ONCE: u64 = 200;
const LIMIT: u64 = 50;

const TASKS: u64 = 16;
const EACH: u64 = 100;

/// A quota of each algorithm, which admits [`LIMIT`] requests at once.
fn quotas() -> impl Iterator<Item = Quota> {
    let each = Algorithm::ALL.iter().filter(|(name, algorithm)| *name == algorithm.name());
    let quotas = each.filter_map(|(_, algorithm)| Quota::try_new(*algorithm, LIMIT, us(WINDOW)).ok());
    quotas.map(|quota| quota.try_queue(LIMIT - 1).unwrap_or(quota))
}

/// Polls all futures until each is complete; returns what they did, or what failed.
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

/// Compares how many of many requests at once are admitted.
async fn admits_the_limit(on: &Subject, quota: Quota, requests: &[Vec<Check>]) -> Checked {
    let decided = all(requests.iter().map(|checks| on.decide(checks))).await?;
    let admitted = decided.iter().filter(|decided| decided.decision.is_allowed()).count() as u64;
    on.equal(admitted, LIMIT, || format!("admitted of {AT_ONCE} at once by {quota}"));
    Ok(())
}

async fn as_many_as_fit_are_admitted_of_many_at_once(on: &Subject) -> Checked {
    on.at(0)?;
    let mut left_out = Ok(());
    for quota in quotas() {
        on.next_key();
        let one = on.check(quota, 1);
        let requests: Vec<_> = (0..AT_ONCE).map(|_| vec![one.clone()]).collect();
        match admits_the_limit(on, quota, &requests).await {
            Err(stop @ Stop::Unsupported(_)) => left_out = Err(stop),
            other => {
                other?;
                on.remaining(one, 0).await?;
            }
        }
    }
    left_out
}

async fn requests_that_share_a_limit_take_of_their_own_only_if_they_are_admitted(on: &Subject) -> Checked {
    on.at(0)?;
    for quota in quotas() {
        on.next_key();
        let own = |index: u64| check(&format!("own {index} of {quota}"), quota, 1);
        let requests: Vec<_> = (0..AT_ONCE).map(|index| vec![own(index), on.check(quota, 1)]).collect();
        admits_the_limit(on, quota, &requests).await?;
        let looks: Vec<_> = (0..AT_ONCE).map(|index| [own(index).cost(0)]).collect();
        let left = all(looks.iter().map(|checks| on.decide(checks))).await?;
        let of = |one: &Decided| one.decision.outcomes().first().map_or(0, Outcome::remaining);
        let taken: u64 = left.iter().map(|one| LIMIT.saturating_sub(of(one))).sum();
        on.equal(taken, LIMIT, || format!("taken from the counters of all requests together by {quota}"));
    }
    Ok(())
}

async fn what_is_charged_and_refunded_at_once_adds_up(on: &Subject) -> Checked {
    on.at(0)?;
    let mut rng = on.random();
    for quota in quotas() {
        on.next_key();
        let plans: Vec<_> = (0..AT_ONCE).map(|_| (rng.u64(1..4), rng.u64(..4), rng.bool())).collect();
        let each = all(plans.iter().map(|plan| take_and_settle(on, quota, *plan))).await?;
        let remaining = i128::from(quota.capacity()) - each.iter().sum::<i128>();
        on.remaining(on.check(quota, 0), u64::try_from(remaining).unwrap_or(0)).await?;
    }
    Ok(())
}

/// Takes units, and refunds some of them or takes one more; returns how many are taken in the end.
async fn take_and_settle(on: &Subject, quota: Quota, (cost, refund, charges): (u64, u64, bool)) -> Result<i128, Stop> {
    let decided = on.decide(&[on.check(quota, cost)]).await?;
    let taken: u64 = decided.receipt.taken().iter().map(|taken| taken.units).sum();
    let change = if charges { Change::Charge(1) } else { Change::Refund(refund) };
    let applied = on.settle_all(decided, &[Settlement::new(0, change)]).await?;
    let changed: i128 = applied.iter().map(|applied| i128::from(applied.units)).sum();
    Ok(i128::from(taken) + if charges { changed } else { -changed })
}

/// While a store takes units in advance, they are neither in the counter nor with those who may spend them yet: requests
/// on other threads may be refused then. So what is left is taken one by one afterwards, and the sum is compared; a
/// store that takes nothing in advance leaves nothing. Without a runtime there are no tasks to compare.
async fn requests_in_tasks_of_their_own_take_as_much_as_there_is(on: &Subject) -> Checked {
    on.at(0)?;
    let limit = TASKS * EACH / 3;
    let quotas = [Quota::token_bucket(limit, us(10 * WINDOW)), Quota::fixed_window(limit, us(10 * WINDOW))];
    for quota in quotas.into_iter().filter(|_| Handle::try_current().is_ok()) {
        on.next_key();
        on.remaining(on.check(quota, 0), limit).await?;
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(take(on.store(), on.check(quota, 1), EACH))).collect();
        let (mut admitted, mut leased) = (0, 0);
        for task in tasks {
            let (requests, by_lease) =
                task.await.map_err(|error| Stop::Failed(format!("a decision panicked: {error}")))??;
            (admitted, leased) = (admitted + requests, leased + by_lease);
        }
        let (later, by_lease) = take(on.store(), on.check(quota, 1), limit).await?;
        on.equal(admitted + later, limit, || format!("admitted in {TASKS} tasks and {later} later by {quota}"));
        on.holds(later == 0 || leased + by_lease > 0, || {
            format!("{later} more of {quota} are admitted after {} requests in {TASKS} tasks", TASKS * EACH)
        });
        on.remaining(on.check(quota, 0), 0).await?;
    }
    Ok(())
}

/// Repeats a check so many times; returns how often it was admitted, and how often of these by units taken in advance.
async fn take(store: Arc<dyn Store>, check: Check, times: u64) -> Result<(u64, u64), Stop> {
    let (mut admitted, mut leased) = (0, 0);
    for _ in 0..times {
        let decided = store.decide(std::slice::from_ref(&check), Ask::default()).wait().await;
        let decision = decided.map_err(|error: Error| Stop::failed("a decision", &error))?.decision;
        admitted += u64::from(decision.is_allowed());
        leased += u64::from(decision.is_allowed() && decision.source() == Source::Lease);
    }
    Ok((admitted, leased))
}
