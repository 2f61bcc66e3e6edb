use tokio::sync::oneshot;
use tollgate::policy::PolicyName;
use tollgate::store::Counter;
use tollgate::{Key, Quota};

use super::*;

#[test]
fn those_who_leave_behind_others_do_not_pile_up() {
    let policy = PolicyName::try_from("bytes").expect("valid");
    let counter = Counter::new(policy, Key::new("user", "ada"), Quota::per_second(10));
    let mut book = Book::new(&[Check::new(counter, 0)]);
    let want = Want { least: 10, most: 10, waits: Waits::ForQuota };
    let stay = [(); 3].map(|()| book.join(want, oneshot::channel().0));
    for _ in 0..1_000 {
        let ticket = book.join(want, oneshot::channel().0);
        book.leave(ticket);
    }
    assert!(book.line.keys().eq(&stay));
}
