//! What stores share that decide by themselves what an inner store covers: leases and hybrid
//! stores.
//!
//! Such a store has units that the inner one has charged already, or will be charged for. It
//! decides plain requests by these numbers, and passes all others on. The functions here determine which
//! requests are plain, what such a store requires of the inner one, and how its own receipts are
//! settled part by part.

use super::{Answer, Applied, Change, Check, Receipt, Requirement, Settlement, Settles, Settling, Store, Taken};
use crate::core::Error;

/// Returns whether a request can be decided by numbers that this process has: each check takes
/// something, keeps no floor, has no ban, queues nowhere, holds no slot and counts alone at its counter. Looks,
/// reserves, bans, leaky queues, slots and checks that share a counter are for the inner store, and so is
/// a request without checks.
pub(super) fn is_plain(checks: &[Check]) -> bool {
    let plain = |check: &Check| {
        let is_counted = check.cost > 0 && check.floor == 0 && check.ban.is_none();
        is_counted && !check.counter.quota.facts().only_in_store()
    };
    let repeats = |(index, check): (usize, &Check)| {
        checks[..index].iter().any(|earlier| earlier.counter.shares_state(&check.counter))
    };
    !checks.is_empty() && checks.iter().all(plain) && !checks.iter().enumerate().any(repeats)
}

/// Checks that the inner store supports the policies, and also refunds for each of them, as the
/// store around it returns what it does not use.
///
/// # Errors
///
/// As [`Store::supports`].
pub(super) fn supports_refunds(store: &dyn Store, requirements: &[Requirement<'_>]) -> Result<(), Error> {
    let refunding = requirements.iter().map(|one| Requirement { settles: Settles::ByOutcome, ..one.clone() });
    store.supports(&refunding.collect::<Vec<_>>())
}

/// Settles each part of what a store around a store decided by itself, and joins the results in the
/// order of `changes`. `settle` receives the parts that earlier checks of the request took, the
/// part, and the change. A change to a check that took nothing comes to 0 units.
///
/// The results have no outcomes, as this process does not see all that remains.
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

/// Joins results in their order: ready if all are, and else one future that waits for one after the
/// other. The first error is that of all.
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

/// Removes the outcomes of a settlement: what remains at the inner store is not all that remains,
/// as units are held here too.
pub(super) fn without_outcomes(settling: Settling) -> Settling {
    let strip =
        |applied: Vec<Applied>| applied.into_iter().map(|applied| Applied { outcome: None, ..applied }).collect();
    match settling {
        Answer::Ready(applied) => Answer::Ready(applied.map(strip)),
        Answer::Pending(pending) => Answer::pending(async move { pending.await.map(strip) }),
    }
}
