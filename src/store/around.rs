//! What the stores have in common that admit by themselves what an inner store covers.

use super::{Answer, Applied, Change, Check, Receipt, Requirement, Settlement, Settles, Settling, Store, Taken};
use crate::core::Error;

/// Whether a request can be decided by numbers this process knows: looks, reserves, queues, and checks that count
/// in one place are for the inner store.
pub(super) fn is_plain(checks: &[Check]) -> bool {
    let plain = |check: &Check| check.cost > 0 && check.floor == 0 && !check.counter.quota.facts().stands_in_line;
    let repeats = |(index, check): (usize, &Check)| {
        checks[..index].iter().any(|earlier| earlier.counter.shares_state(&check.counter))
    };
    !checks.is_empty() && checks.iter().all(plain) && !checks.iter().enumerate().any(repeats)
}

/// Whether the inner store supports policies whose units also come back by what is around it.
pub(super) fn supports_refunds(store: &dyn Store, requirements: &[Requirement<'_>]) -> Result<(), Error> {
    let refunding = requirements.iter().map(|one| Requirement { settles: Settles::ByOutcome, ..one.clone() });
    store.supports(&refunding.collect::<Vec<_>>())
}

/// Settles each part of what a store around a store decided by itself; `settle` is given what the earlier checks
/// took as well.
pub(super) fn settle_each(
    receipt: &Receipt,
    changes: &[Settlement],
    mut settle: impl FnMut(&[Taken], &Taken, Change) -> Settling,
) -> Settling {
    let each = changes.iter().map(|settlement| match settlement.of(receipt) {
        Some((taken, change)) => settle(settlement.before(receipt), taken, change),
        None => Answer::Ready(Ok(vec![Applied::new(0, 0)])),
    });
    without_outcomes(join(each.collect()))
}

/// What becomes of all parts, in their order.
fn join(parts: Vec<Settling>) -> Settling {
    let is_ready = parts.iter().all(|part| matches!(part, Answer::Ready(_)));
    if !is_ready {
        return Answer::pending(async move {
            let mut applied = Vec::with_capacity(parts.len());
            for part in parts {
                applied.extend(part.wait().await?);
            }
            Ok(applied)
        });
    }
    let ready = parts.into_iter().map(|part| match part {
        Answer::Ready(applied) => applied,
        Answer::Pending(_) => unreachable!("all are ready"),
    });
    let applied = ready.collect::<Result<Vec<_>, _>>();
    Answer::Ready(applied.map(|applied| applied.into_iter().flatten().collect()))
}

/// Without what a look at the inner store tells, which is not all that is left.
pub(super) fn without_outcomes(settling: Settling) -> Settling {
    let strip =
        |applied: Vec<Applied>| applied.into_iter().map(|applied| Applied { outcome: None, ..applied }).collect();
    match settling {
        Answer::Ready(applied) => Answer::Ready(applied.map(strip)),
        Answer::Pending(pending) => Answer::pending(async move { pending.await.map(strip) }),
    }
}
