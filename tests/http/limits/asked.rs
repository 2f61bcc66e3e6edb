//! Checks, looks, resets and refunds.

use std::num::NonZeroU32;
use std::time::Duration;

use futures::FutureExt;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, Rule, key};
use tower::Layer;

use crate::rig::{self, hello, left, now, of};
use crate::support::doubles::unavailable;
use crate::support::time::memory;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);
const THREE: Quota = Quota::token_bucket(3, HOUR);

fn ten_and_three() -> Limiter {
    // A store may be chosen at run time.
    let chosen: Box<dyn Store> = Box::new(memory(&ManualClock::new()));
    Limiter::new(chosen, [Rule::new("ten", TEN), Rule::new("three", THREE)])
}

fn ada() -> Key {
    Key::new("user", "ada")
}

#[test]
fn a_check_takes_from_every_policy_or_from_none() {
    let limiter = ten_and_three();
    for (allowed, expected) in [(true, [9, 2]), (true, [8, 1]), (true, [7, 0]), (false, [7, 0]), (false, [7, 0])] {
        assert_eq!(now(limiter.check(&ada())).is_allowed(), allowed);
        assert_eq!(left(&limiter, &ada()), expected);
    }
    let look = now(limiter.peek(&ada()));
    let [ten, three] = look.outcomes() else { panic!("two rules: {look:?}") };
    assert_eq!((ten.policy(), ten.limit(), ten.reset_after()), ("ten", 10, HOUR));
    assert_eq!((three.policy(), three.limit(), three.reset_after()), ("three", 3, HOUR));
    assert_eq!(left(&limiter, &Key::new("user", "bob")), [10, 3]);
}

#[test]
fn a_check_takes_the_cost_of_each_rule_and_a_number_of_units_is_taken_whatever_that_is() {
    // Of a policy, a rule has nothing that is of requests.
    let of_policy = Policy::new("ten", TEN).cost(4).key(key::header("x-user")).methods([]).tier(|_| Some(THREE));
    let by_request = Policy::new("by", TEN).cost_by(|_| 9).shadow();
    let rules = [of_policy.rule().clone(), Rule::new("three", THREE), by_request.rule().clone()];
    let limiter = Limiter::new(memory(&ManualClock::new()), rules.into_iter().chain([Rule::new("none", TEN).cost(0)]));
    assert!(now(limiter.check(&ada())).is_allowed());
    assert_eq!(left(&limiter, &ada()), [6, 2, 9, 10]);
    assert!(now(limiter.check_n(&ada(), 2)).is_allowed());
    assert_eq!(now(limiter.check_n(&ada(), 2)).retry_after(), Some(HOUR * 2 / 3));
    assert!(now(limiter.check_n(&ada(), 0)).is_allowed());
    assert_eq!(left(&limiter, &ada()), [4, 0, 7, 8]);
    assert_eq!(now(limiter.check_n(&ada(), 4)).retry_after(), None, "no wait can help");
}

#[test]
fn a_store_that_is_chosen_at_run_time_decides_from_its_box() {
    let (limiter, bob) = (ten_and_three(), Key::new("user", "bob"));
    let check = |key: &Key, units| assert!(now(limiter.check_n(key, units)).is_allowed());
    check(&ada(), 3);
    check(&bob, 2);
    now(limiter.refund(&ada(), 1));
    assert_eq!(left(&limiter, &ada()), [8, 1]);
    now(limiter.refund(&ada(), u64::MAX));
    assert_eq!(left(&limiter, &ada()), [10, 3], "no more than was taken");
    check(&ada(), 3);
    now(limiter.reset(&ada()));
    assert_eq!((left(&limiter, &ada()), left(&limiter, &bob)), (vec![10, 3], vec![8, 1]), "no other key");
}

#[test]
fn a_limiter_does_without_its_store_what_it_is_set_to() {
    let (policy, ada) = (Policy::new("user", THREE).key(key::header("x-user")), Key::hashed("header x-user", "ada"));
    let layer = RateLimitLayer::new(unavailable(), policy);
    let of_layer = || layer.clone().live().limiter();
    for (limiter, allowed) in [
        (Limiter::new(unavailable(), [Rule::new("user", THREE)]), 3),
        (of_layer(), 3),
        (of_layer().instances(NonZeroU32::new(3).expect("not 0")), 1),
        (of_layer().on_failure(OnFailure::Allow), 5),
        (of_layer().on_failure(OnFailure::Allow).allow_for(Duration::ZERO), 3),
    ] {
        assert_eq!((0..5).filter(|_| now(limiter.check(&ada)).is_allowed()).count(), allowed, "{limiter:?}");
    }
    let denies = layer.on_failure(OnFailure::Deny).live().limiter();
    assert!(denies.check(&ada).now_or_never().expect("an answer at once").is_err());
    assert!(now(denies.on_failure(OnFailure::Allow).check(&ada)).is_allowed());
}

#[test]
fn a_layer_and_its_limiter_share_counters_where_the_key_is_the_same() {
    let layer = rig::layer([Policy::new("user", THREE).key(key::header("x-user").plain())]);
    let (limiter, user) = (layer.clone().live().limiter(), Key::new("header x-user", "ada"));
    let service = layer.layer(hello());
    let send = || rig::send(&service, of("ada")).status().as_u16();
    assert_eq!((send(), left(&limiter, &user)), (200, vec![2]));
    assert!(now(limiter.check_n(&user, 2)).is_allowed());
    assert_eq!(send(), 429);
    now(limiter.refund(&user, 1));
    assert_eq!([send(), send()], [200, 429]);
    now(limiter.reset(&user));
    assert_eq!(send(), 200);
}
