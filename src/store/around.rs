use smallvec::SmallVec;

use super::{Change, MaybeFuture, Receipt, ReceiptItem, Settlement, Settling};

/// `settle` receives what earlier checks of the request took, the item, and the change.
pub(super) fn settle_each(
    receipt: &Receipt,
    changes: &[Settlement],
    mut settle: impl FnMut(&[ReceiptItem], &ReceiptItem, Change) -> Settling,
) -> Settling {
    let each = changes.iter().map(|settlement| match settlement.bounded(receipt) {
        Some((taken, change)) => settle(settlement.before(receipt), taken, change),
        None => MaybeFuture::Ready(Ok(vec![settlement.nothing(receipt)])),
    });
    join(each.collect())
}

fn join(mut parts: SmallVec<[Settling; 1]>) -> Settling {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    if parts.iter().any(|part| matches!(part, MaybeFuture::Pending(_))) {
        return MaybeFuture::pending(async move {
            let mut applied = Vec::with_capacity(parts.len());
            for part in parts {
                applied.extend(part.wait().await?);
            }
            Ok(applied)
        });
    }
    let ready = parts.into_iter().filter_map(|part| match part {
        MaybeFuture::Ready(applied) => Some(applied),
        MaybeFuture::Pending(_) => None,
    });
    MaybeFuture::Ready(ready.collect::<Result<Vec<_>, _>>().map(|applied| applied.concat()))
}
