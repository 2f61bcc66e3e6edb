//! Requests that are in flight together: as many are admitted as fit, and all that was changed adds up.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::case::Case;
use super::rows::{S, us};
use super::subject::{Checked, Stop, Subject, check};
use crate::core::{Algorithm, Outcome, Quota};
use crate::store::{Change, Settlement};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    as_many_as_fit_are_admitted_of_many_at_once,
    requests_that_share_a_limit_take_of_their_own_only_if_they_are_admitted,
    what_is_charged_and_refunded_at_once_adds_up,
];

/// An hour, so that nothing returns while a case runs.
const WINDOW: u64 = 3_600 * S;
const AT_ONCE: u64 = 200;
const LIMIT: u64 = 50;

/// A quota of each algorithm, which admits [`LIMIT`] requests at once.
fn quotas() -> impl Iterator<Item = Quota> {
    let each = Algorithm::ALL.iter().filter(|(name, algorithm)| *name == algorithm.name());
    let quotas = each.filter_map(|(_, algorithm)| Quota::try_new(*algorithm, LIMIT, us(WINDOW)).ok());
    quotas.map(|quota| quota.try_queue(LIMIT - 1).unwrap_or(quota))
}

/// Polls all futures until each is complete.
async fn all<F>(futures: impl Iterator<Item = F> + Send) -> Vec<F::Output>
where
    F: Future<Output: Send + Unpin> + Send,
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
}

async fn as_many_as_fit_are_admitted_of_many_at_once(on: &Subject) -> Checked {
    on.at(0)?;
    let mut left_out = None;
    for quota in quotas() {
        on.next_key();
        let one = on.check(quota, 1);
        let decided = all((0..AT_ONCE).map(|_| on.decide(std::slice::from_ref(&one)))).await;
        match decided.into_iter().collect::<Result<Vec<_>, Stop>>() {
            Ok(decided) => {
                let admitted = decided.iter().filter(|decided| decided.decision.is_allowed()).count() as u64;
                on.equal(admitted, LIMIT, || format!("admitted of {AT_ONCE} at once by {quota}"));
                on.remaining(0, quota, 0).await?;
            }
            Err(Stop::Unsupported(reason)) => left_out = Some(reason),
            Err(other) => return Err(other),
        }
    }
    left_out.map_or(Ok(()), |reason| Err(Stop::Unsupported(reason)))
}

async fn requests_that_share_a_limit_take_of_their_own_only_if_they_are_admitted(on: &Subject) -> Checked {
    on.at(0)?;
    for quota in quotas() {
        on.next_key();
        let own = |index: u64| check(&format!("own {index} of {quota}"), quota, 1);
        let requests: Vec<_> = (0..AT_ONCE).map(|index| [own(index), on.check(quota, 1)]).collect();
        let decided = all(requests.iter().map(|checks| on.decide(checks))).await;
        let decided = decided.into_iter().collect::<Result<Vec<_>, Stop>>()?;
        let admitted = decided.iter().filter(|decided| decided.decision.is_allowed()).count() as u64;
        on.equal(admitted, LIMIT, || format!("admitted of {AT_ONCE} at once by {quota}"));
        let looks: Vec<_> = (0..AT_ONCE).map(|index| [own(index).cost(0)]).collect();
        let left = all(looks.iter().map(|checks| on.decide(checks))).await;
        let left = left.into_iter().collect::<Result<Vec<_>, Stop>>()?;
        let of = |one: &crate::store::Decided| one.decision.outcomes().first().map_or(0, Outcome::remaining);
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
        let costs: Vec<u64> = (0..AT_ONCE).map(|_| rng.u64(1..4)).collect();
        let plans: Vec<_> = costs.iter().map(|cost| (*cost, rng.u64(..=*cost), rng.bool())).collect();
        let each = all(plans.iter().map(|plan| take_and_settle(on, quota, *plan))).await;
        let net = each.into_iter().sum::<Result<i128, Stop>>()?;
        let remaining = i128::from(quota.capacity()) - net;
        on.remaining(0, quota, u64::try_from(remaining).unwrap_or(0)).await?;
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
