use super::*;
use crate::core::{Counter, Key, Outcome, PolicyName, Quota, StoreId};
use crate::store::Receipt;

/// A check of ten units a second.
fn check() -> Check {
    let policy = PolicyName::try_from("bytes").expect("valid");
    Check::new(Counter::new(policy, Key::new("user", "ada"), Quota::per_second(10)), 0)
}

/// A decision without a store, which admits everything.
fn open() -> Decided {
    let decision = Decision::new([Outcome::allowed(&check(), 10)], Source::Open);
    Decided::new(decision, Receipt::new(StoreId::new(), []))
}

#[test]
fn where_everything_is_admitted_what_is_taken_needs_one_decision() {
    let (mut book, mut out, now) = (Book::new(&[check()]), Out::default(), Instant::now());
    for units in [1_000_000, u64::MAX, u64::MAX - 5] {
        let want = Want { least: units, most: units, waits: Waits::ForQuota };
        let _waiting = book.join(want, &mut out);
        let Step::Call(called) = book.step(now, &mut out) else { panic!("nothing is left") };
        assert!(called <= 10, "{called}");
        book.decided(called, Ok(open()), now, &mut out);
        let (_, grant) = out.grants.pop().expect("there is enough");
        assert_eq!(book.claim(grant.expect("it is admitted"), now, &mut out), Some(units));
        assert_eq!(book.available(), 0);
    }
}

#[test]
fn those_who_leave_behind_others_do_not_pile_up() {
    let (mut book, mut out) = (Book::new(&[check()]), Out::default());
    let want = Want { least: 10, most: 10, waits: Waits::ForQuota };
    let stays = [(); 3].map(|()| book.join(want, &mut out));
    for _ in 0..1_000 {
        drop(book.join(want, &mut out));
        book.left(Instant::now(), &mut out);
    }
    assert!(book.line.len() <= 10, "{}", book.line.len());
    assert_eq!(book.line.iter().filter(|waiter| !waiter.sender.is_closed()).count(), stays.len());
}
