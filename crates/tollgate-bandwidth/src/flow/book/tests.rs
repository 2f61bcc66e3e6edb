use futures::FutureExt;
use tokio::sync::oneshot;
use tollgate::policy::PolicyName;
use tollgate::store::Counter;
use tollgate::{Key, Limiter, MemoryStore, Outcome, Quota};

use super::*;

/// A check of ten units a second.
fn check() -> Check {
    let policy = PolicyName::try_from("bytes").expect("valid");
    Check::new(Counter::new(policy, Key::new("user", "ada"), Quota::per_second(10)), 0)
}

/// A decision without a store, which admits everything.
fn open() -> (Decision, Permit) {
    let decision = Decision::new([Outcome::allowed(&check(), 10)], Source::FailOpen);
    let limiter = Limiter::new(MemoryStore::new(), []);
    let permit = limiter.permit(&Key::new("user", "ada")).now_or_never().expect("at once");
    (decision, permit.expect("memory decides").1)
}

#[test]
fn where_everything_is_admitted_what_is_taken_needs_one_decision() {
    let mut book = Book::new(&[check()]);
    for units in [1_000_000, u64::MAX, u64::MAX - 5] {
        let want = Want { least: units, most: units, waits: Waits::ForQuota };
        let ticket = book.join(want, oneshot::channel().0);
        let called = book.call().expect("nothing is free");
        assert!(called <= 10, "{called}");
        book.decided(called, Ok(open()));
        assert_eq!(book.claim(ticket, units).expect("it is granted"), units);
        assert_eq!(book.free, 0);
    }
}

#[test]
fn those_who_leave_behind_others_do_not_pile_up() {
    let mut book = Book::new(&[check()]);
    let want = Want { least: 10, most: 10, waits: Waits::ForQuota };
    let stay = [(); 3].map(|()| book.join(want, oneshot::channel().0));
    for _ in 0..1_000 {
        let ticket = book.join(want, oneshot::channel().0);
        book.leave(ticket);
    }
    assert!(book.line.keys().eq(&stay));
}
