//! What is kept, whatever clients send.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::{Ask, Store};
use tollgate::test_util::ManualClock;
use tollgate_test::StoreFn;

use super::rig::{MS, Rig, S};
use crate::support::checks::check;
use crate::support::slow::many;
use crate::support::time::at;

const QUOTA: Quota = Quota::token_bucket(1, Duration::from_secs(3_600));

/// A rig whose inner store refuses all, and keeps nothing.
fn full(capacity: usize) -> Rig<impl Store> {
    Rig::around(ManualClock::new(), StoreFn::new(|_| false), |settings| settings.capacity(capacity))
}

#[test]
fn keys_take_no_more_room_than_there_is_however_many_come() {
    let most = many([40_000, 1_000_000_u64]);
    for capacity in [1, 100, 4_000] {
        let rig = full(capacity);
        for number in 0..most / if capacity == 4_000 { 1 } else { 100 } {
            // All of them are live at first, then they outlive each other.
            rig.clock.set(at(number.saturating_sub(most / 2) * 10_000_000 / most));
            let _ = rig.decide(&[check(&number.to_string(), QUOTA, 1)], Ask::default());
        }
        let kept = rig.store.len();
        assert!(kept <= capacity && kept >= capacity / 2, "{kept} of {capacity}");
    }
}

#[test]
fn costs_and_keys_that_are_made_up_push_out_no_refusal_until_it_is_over() {
    let (rig, sliding) = (full(100), Quota::sliding_window(1_000_000, Duration::from_secs(60)));
    let _ = rig.asks(&[check("ada", QUOTA, 1)]);
    for number in 1..2_000 {
        let _ = rig.decide(&[check("bob", sliding, number)], Ask::default());
        let _ = rig.decide(&[check(&number.to_string(), QUOTA, 1)], Ask::default());
    }
    assert!(rig.store.len() <= 100);
    rig.clock.set(at(S - 1));
    let _ = rig.remembers(&[check("ada", QUOTA, 1)]);
    rig.clock.set(at(S + 130 * MS));
    let _ = rig.asks(&[check("eve", QUOTA, 1)]);
    let _ = rig.remembers(&[check("eve", QUOTA, 1)]);
}
