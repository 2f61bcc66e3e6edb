//! Checks, looks, resets and refunds.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::key::Lookup;
use tollgate::policy::TierLookup;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{
    Decision, Error, Key, Limiter, MemoryStore, OnFailure, Outcome, Policy, Quota, RateLimitLayer, Rule, key,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::doubles::unavailable;
use crate::support::time::memory;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);
const THREE: Quota = Quota::token_bucket(3, HOUR);

fn store() -> MemoryStore {
    memory(&ManualClock::new())
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::new(store(), rules)
}

fn both() -> Limiter {
    limiter([Rule::new("ten", TEN), Rule::new("three", THREE)])
}

fn ada() -> Key {
    Key::new("user", "ada")
}

/// What is answered at once.
#[track_caller]
fn now<T>(answer: impl Future<Output = Result<T, Error>>) -> T {
    answer.now_or_never().expect("an answer at once").expect("the store is there")
}

#[track_caller]
fn left(limiter: &Limiter, key: &Key, expected: &[u64]) {
    let look = now(limiter.peek(key));
    assert_eq!(look.outcomes().iter().map(Outcome::remaining).collect::<Vec<_>>(), expected);
}

#[test]
fn a_store_that_is_chosen_at_run_time_decides_from_its_box() {
    let chosen: Box<dyn Store> = Box::new(store());
    let limiter = Limiter::new(chosen, [Rule::new("three", THREE)]);
    assert!(now(limiter.check_n(&ada(), 2)).is_allowed());
    left(&limiter, &ada(), &[1]);
    now(limiter.refund(&ada(), 1));
    left(&limiter, &ada(), &[2]);
    now(limiter.reset(&ada()));
    left(&limiter, &ada(), &[3]);
}

#[test]
fn a_check_takes_from_every_policy_or_from_none() {
    let limiter = both();
    for (allowed, expected) in [(true, [9, 2]), (true, [8, 1]), (true, [7, 0]), (false, [7, 0]), (false, [7, 0])] {
        assert_eq!(now(limiter.check(&ada())).is_allowed(), allowed);
        left(&limiter, &ada(), &expected);
    }
    left(&limiter, &Key::new("user", "bob"), &[10, 3]);
}

#[test]
fn a_check_takes_the_cost_of_each_policy() {
    let limiter = limiter([Rule::new("ten", TEN).cost(4), Rule::new("three", THREE), Rule::new("none", TEN).cost(0)]);
    assert!(now(limiter.check(&ada())).is_allowed());
    left(&limiter, &ada(), &[6, 2, 10]);
}

#[test]
fn a_number_of_units_is_taken_from_every_policy_whatever_its_cost() {
    let limiter = limiter([Rule::new("ten", TEN).cost(4), Rule::new("three", THREE)]);
    assert!(now(limiter.check_n(&ada(), 2)).is_allowed());
    left(&limiter, &ada(), &[8, 1]);
    let refused = now(limiter.check_n(&ada(), 2));
    assert_eq!(refused.retry_after(), Some(HOUR / 3));
    assert!(now(limiter.check_n(&ada(), 0)).is_allowed());
    left(&limiter, &ada(), &[8, 1]);
    assert_eq!(now(limiter.check_n(&ada(), 4)).retry_after(), None, "no wait can help");
}

#[test]
fn a_look_takes_nothing_and_shows_every_rule_in_their_order() {
    let limiter = both();
    assert!(now(limiter.check_n(&ada(), 3)).is_allowed());
    for _ in 0..2 {
        let look = now(limiter.peek(&ada()));
        let [ten, three] = look.outcomes() else { panic!("two rules: {look:?}") };
        assert_eq!((ten.policy(), ten.limit(), ten.remaining(), ten.reset_after()), ("ten", 10, 7, HOUR));
        assert_eq!((three.policy(), three.limit(), three.remaining(), three.reset_after()), ("three", 3, 0, HOUR));
    }
}

#[test]
fn a_policy_in_shadow_is_counted_and_never_refuses() {
    let limiter = limiter([Rule::new("three", THREE).shadow()]);
    for allowed in [true, true, true, false, false] {
        let decision: Decision = now(limiter.check(&ada()));
        assert!(decision.is_allowed());
        assert_eq!(decision.outcomes()[0].is_allowed(), allowed);
    }
}

#[test]
fn a_reset_forgets_one_key_and_no_other() {
    let (limiter, bob) = (both(), Key::new("user", "bob"));
    assert!(now(limiter.check_n(&ada(), 3)).is_allowed() && now(limiter.check_n(&bob, 2)).is_allowed());
    now(limiter.reset(&ada()));
    left(&limiter, &ada(), &[10, 3]);
    left(&limiter, &bob, &[8, 1]);
}

#[test]
fn a_refund_gives_back_no_more_than_was_taken() {
    let limiter = both();
    assert!(now(limiter.check_n(&ada(), 3)).is_allowed());
    now(limiter.refund(&ada(), 1));
    left(&limiter, &ada(), &[8, 1]);
    now(limiter.refund(&ada(), u64::MAX));
    left(&limiter, &ada(), &[10, 3]);
    now(limiter.refund(&Key::new("user", "bob"), 5));
    left(&limiter, &Key::new("user", "bob"), &[10, 3]);
}

#[tokio::test]
async fn the_quota_of_a_key_is_looked_up() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let lookup = TierLookup::new(move |wanted: Lookup| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            Ok::<_, Infallible>(
                (*wanted.key() == ada() && wanted.text() == Some("ada")).then_some(Quota::fixed_window(20, HOUR)),
            )
        }
    });
    let limiter = limiter([Rule::new("ten", TEN).tier_lookup(lookup)]);
    assert!(limiter.check_n(&ada(), 15).await.unwrap().is_allowed());
    assert!(!limiter.check_n(&Key::new("user", "bob"), 15).await.unwrap().is_allowed());
    assert_eq!(limiter.peek(&ada()).await.unwrap().outcomes()[0].limit(), 20);
    limiter.refund(&ada(), 5).await.unwrap();
    assert_eq!(limiter.peek(&ada()).await.unwrap().outcomes()[0].remaining(), 10);
    limiter.reset(&ada()).await.unwrap();
    assert_eq!(limiter.peek(&ada()).await.unwrap().outcomes()[0].remaining(), 20);
    assert_eq!(lookups.load(Ordering::Relaxed), 2, "one for each key");
}

#[test]
fn a_rule_of_a_policy_has_its_cost_quota_and_mode_and_nothing_of_its_requests() {
    let policy = Policy::new("ten", TEN).cost(2).key(key::header("x-user")).methods([]).tier(|_| Some(THREE));
    let rules = [policy.rule().clone(), Policy::new("by", TEN).cost_by(|_| 9).shadow().rule().clone()];
    let limiter = limiter(rules);
    assert!(now(limiter.check(&ada())).is_allowed());
    left(&limiter, &ada(), &[8, 9]);
    assert!(now(limiter.check_n(&ada(), 8)).is_allowed());
    assert!(!now(limiter.check(&ada())).is_allowed());
}

#[test]
fn a_limiter_does_without_its_store_what_it_is_set_to() {
    let (policy, ada) = (Policy::new("user", THREE).key(key::header("x-user")), Key::hashed("header x-user", "ada"));
    let layer = RateLimitLayer::new(unavailable(), policy);
    let allows = |limiter: &Limiter| (0..4).map(|_| now(limiter.check(&ada)).is_allowed()).collect::<Vec<_>>();
    let fallback = Limiter::new(unavailable(), [Rule::new("user", THREE)]);
    assert_eq!(allows(&fallback), [true, true, true, false]);
    assert_eq!(allows(&fallback.clone().instances(NonZeroU32::new(3).expect("not 0"))), [true, false, false, false]);
    let open = layer.clone().live().limiter().on_failure(OnFailure::Allow);
    assert_eq!(allows(&open), [true; 4]);
    assert_eq!(allows(&open.allow_for(Duration::ZERO)), [true, true, true, false]);
    let denies = layer.clone().on_failure(OnFailure::Deny).live().limiter();
    assert!(denies.check(&ada).now_or_never().expect("an answer at once").is_err());
    assert!(denies.on_failure(OnFailure::Allow).check(&ada).now_or_never().expect("an answer at once").is_ok());
    assert_eq!(
        allows(&layer.clone().live().limiter()),
        [true, true, true, false],
        "a layer's own limiter is as it was"
    );
    assert_eq!(layer.clone().live().breaker_state(), layer.clone().live().limiter().breaker_state());
}

#[test]
fn a_layer_and_its_limiter_share_counters_where_the_key_is_the_same() {
    let layer = RateLimitLayer::new(store(), Policy::new("user", THREE).key(key::header("x-user").plain()));
    let (limiter, user) = (layer.clone().live().limiter(), Key::new("header x-user", "ada"));
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let service = layer.layer(inner);
    let send = || {
        let request = Request::builder().header("x-user", "ada").body(String::new()).expect("a request");
        service.clone().oneshot(request).now_or_never().expect("an answer at once").unwrap().status().as_u16()
    };
    assert_eq!(send(), 200);
    left(&limiter, &user, &[2]);
    assert!(now(limiter.check_n(&user, 2)).is_allowed());
    assert_eq!(send(), 429);
    now(limiter.refund(&user, 1));
    assert_eq!([send(), send()], [200, 429]);
    now(limiter.reset(&user));
    assert_eq!(send(), 200);
}
