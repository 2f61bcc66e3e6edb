//! Checks, looks, resets and refunds; permits for any number of units, and layers that count something else than requests.

use std::num::NonZeroU32;
use std::time::Duration;

use futures::FutureExt;
use http::Response;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{
    Counters, Key, Limiter, LiveLayer, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key,
};
use tower::Layer;

use crate::rig::{self, Text, everybody, hello, left, now, of, request, responding};
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

#[test]
fn what_a_permit_has_not_spent_is_refunded_of_every_rule() {
    let rules = [Rule::new("ten", TEN), Rule::new("five", Quota::fixed_window(5, HOUR)).cost(4)];
    let limiter = Limiter::new(memory(&ManualClock::new()), rules);
    let counters = now(limiter.counters(&everybody()));
    assert_eq!(counters, now(limiter.clone().counters(&everybody())));
    assert_ne!(counters, now(limiter.counters(&Key::new("user", "bob"))));
    for (units, spent, expected) in [(3, 1, [9, 4]), (3, 0, [9, 4]), (3, 3, [6, 1]), (1, 9, [5, 0])] {
        let (decision, permit) = now(counters.permit(units));
        assert!(decision.is_allowed(), "the cost of a rule does not matter");
        drop(permit.spend_units(spent));
        assert_eq!(left(&limiter, &everybody()), expected, "{spent}");
    }
    let (decision, permit) = now(counters.permit(1));
    assert!(!decision.is_allowed());
    drop(permit.spend());
    assert_eq!(left(&limiter, &everybody()), [5, 0]);
}

/// Sends a request, whose handler passes on the counters that it has.
fn counters(layer: &LiveLayer) -> (Response<()>, Option<Counters>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let handler = responding(move |request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("it is there");
        sender.send(handle.counters()).expect("it is received");
        Response::new(Text::default())
    });
    let response = rig::send(&layer.layer(handler), request());
    (response.map(drop), receiver.try_recv().ok().flatten())
}

#[test]
fn a_layer_in_units_shows_them_and_its_service_takes_them() {
    let limits = rig::layer(["rows", "all"].map(|name| Policy::new(name, TEN))).in_units("rows").expect("valid");
    let (other, layer) = (limits.clone().live(), limits.without_handle().live());
    let (response, of_request) = counters(&layer);
    let policies = response.headers()["ratelimit-policy"].to_str().expect("text").to_owned();
    assert_eq!(policies.matches(";qu=\"rows\"").count(), 2, "{policies}");
    assert_eq!(left(&layer.limiter(), &everybody()), [10, 10], "a request takes none");

    let of_request = of_request.expect("both policies apply");
    let (decision, permit) = now(of_request.permit(7));
    assert!(decision.is_allowed());
    drop(permit.spend_units(6));
    assert_eq!(left(&layer.limiter(), &everybody()), [4, 4]);
    // Rules that are replaced hold for counters that are there, and not for those of another layer made of the same.
    let of_other = counters(&other).1.expect("both policies apply");
    assert_ne!(of_request, of_other);
    layer.replace_policies([Policy::new("all", Quota::fixed_window(100, HOUR))]).expect("it counts rows, too");
    assert!(now(of_request.permit(50)).0.is_allowed());
    assert!(!now(of_other.permit(50)).0.is_allowed());
    assert_eq!(of_request.checks().len(), 1);

    let of_requests = rig::layer([Policy::new("ten", TEN).metered()]).live();
    assert!(counters(&of_requests).1.is_none(), "a layer that counts requests has none");
}

#[test]
fn a_unit_with_other_letters_or_a_closure_that_refuses_without_one_is_an_error() {
    for unit in ["", "Rows", "content bytes", "a\"b"] {
        let error = rig::layer([]).in_units(unit).expect_err(unit);
        assert!(error.is_invalid() && error.to_string().contains("unit"), "{error}");
    }
    let error = rig::layer([]).deny_if(|_| None).expect_err("it counts requests");
    assert!(error.is_invalid() && error.to_string().contains("in_units"), "{error}");
}
