use super::*;
use crate::core::{Key, Quota};

const QUOTA: Quota = Quota::per_hour(100);

fn taken(units: u64) -> ReceiptItem {
    let counter = Counter::new("policy".try_into().expect("a valid name"), Key::new("global", ""), QUOTA);
    ReceiptItem::new(counter, units, 1)
}

fn debt(units: u64) -> Debt {
    let (taken, policy) = (taken(units), Policy::new("policy", QUOTA).metered());
    let outcome = Outcome::allowed(&Check::new(taken.counter.clone(), units), 50);
    Debt::new(0, &policy, &outcome, StoreId::new(), &taken)
}

#[test]
fn nothing_overflows() {
    let mut debt = debt(1);
    debt.charge(u64::MAX);
    let (charged, _) = debt.due().expect("a charge");
    debt.charge(u64::MAX);
    debt.apply(charged, &[ChangeResult::new(1, 2)]);
    assert_eq!(debt.owed, u64::MAX);
    debt.refund(u64::MAX);
    assert_eq!((debt.owed, debt.parts.units()), (0, 2));
}

#[test]
fn a_stream_that_charges_every_chunk_keeps_few_parts_and_all_units() {
    let mut parts = DebtParts::new(StoreId::new(), &taken(1));
    for stamp in 1..10_000 {
        parts.add(2, stamp);
        parts.add(1, stamp);
    }
    assert_eq!((parts.units(), parts.each.len()), (1 + 3 * 9_999, MAX_PARTS));
}

#[test]
fn the_last_units_are_refunded_first_and_no_more_than_there_are() {
    let mut parts = DebtParts::new(StoreId::new(), &taken(2));
    parts.add(3, 2);
    parts.add(4, 3);
    let (receipt, changes) = parts.refund(5);
    let made: Vec<_> = changes.iter().map(|made| (made.check, made.change)).collect();
    assert_eq!(made, [(2, Change::Refund(4)), (1, Change::Refund(1))]);
    assert_eq!(receipt.items().iter().map(|part| part.units).collect::<Vec<_>>(), [2, 3, 4]);
    let (_, changes) = parts.refund(100);
    assert_eq!((changes.len(), parts.units(), parts.each.len()), (2, 0, 1));
}
