//! What a store around a store needs that decides by itself what the inner one covers, and how receipts are settled part
//! by part.
//!
//! Such a store has units that the inner one has charged already, or will be charged for. It
//! decides plain requests by these numbers, and passes all others on. The functions here determine which
//! requests are plain, and what such a store requires of the inner one.

use smallvec::SmallVec;

use super::{
    Answer, Applied, Capabilities, Change, Check, Receipt, Requirement, Settlement, Settles, Settling, Store, Taken,
};
use crate::core::Error;

/// Returns whether a request can be decided by numbers that this process has: each check takes
/// something, keeps no floor, has no ban, queues nowhere, holds no slot and counts alone at its counter. Looks,
/// reserves, bans, leaky queues, slots and checks that share a counter are for the inner store, and so is
/// a request without checks.
pub(super) fn is_plain(checks: &[Check]) -> bool {
    let plain = |check: &Check| {
        let is_counted = check.cost > 0 && check.floor == 0 && check.ban.is_none();
        is_counted && !check.counter.quota().facts().only_in_store()
    };
    let repeats = |(index, check): (usize, &Check)| {
        checks[..index].iter().any(|earlier| earlier.counter.shares_state(&check.counter))
    };
    !checks.is_empty() && checks.iter().all(plain) && !checks.iter().enumerate().any(repeats)
}

/// Returns the capabilities of an inner store that can also refund units of each policy, as the
/// store around it returns what it does not use.
///
/// # Errors
///
/// As [`Store::capabilities`].
pub(super) fn with_refunds(store: &dyn Store, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
    let refunding = requirements.iter().map(|one| Requirement { settles: Settles::ByOutcome, ..one.clone() });
    store.capabilities(&refunding.collect::<Vec<_>>())
}

/// Settles each part of what a store decided, and joins the results in the order of `changes`. `settle` receives the
/// parts that earlier checks of the request took, the part, and the change. A change that there is nothing to do for
/// comes to 0 units.
pub(super) fn settle_each(
    receipt: &Receipt,
    changes: &[Settlement],
    mut settle: impl FnMut(&[Taken], &Taken, Change) -> Settling,
) -> Settling {
    let each = changes.iter().map(|settlement| match settlement.of(receipt) {
        Some((taken, change)) => settle(settlement.before(receipt), taken, change),
        None => Answer::Ready(Ok(vec![settlement.nothing(receipt)])),
    });
    join(each.collect())
}

/// Joins results in their order, in one future that waits for one after the other if not all are ready. The first error
/// is that of all.
fn join(mut parts: SmallVec<[Settling; 1]>) -> Settling {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    if parts.iter().any(|part| matches!(part, Answer::Pending(_))) {
        return Answer::pending(async move {
            let mut applied = Vec::with_capacity(parts.len());
            for part in parts {
                applied.extend(part.wait().await?);
            }
            Ok(applied)
        });
    }
    let ready = parts.into_iter().filter_map(|part| match part {
        Answer::Ready(applied) => Some(applied),
        Answer::Pending(_) => None,
    });
    Answer::Ready(ready.collect::<Result<Vec<_>, _>>().map(|applied| applied.concat()))
}

/// Removes the outcomes of a settlement: what remains at the inner store is not all that remains,
/// as units are held here too.
pub(super) fn without_outcomes(settling: Settling) -> Settling {
    let strip =
        |applied: Vec<Applied>| applied.into_iter().map(|applied| Applied { outcome: None, ..applied }).collect();
    settling.map(move |applied| applied.map(strip))
}
