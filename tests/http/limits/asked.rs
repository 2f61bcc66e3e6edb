//! Checks, looks, resets and refunds.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{
    AccessList, Decision, Error, Key, Limiter, Lookup, MemoryStore, Policy, Quota, RateLimitLayer, Status, TierLookup,
    key,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::clock::ManualClock;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);
const THREE: Quota = Quota::token_bucket(3, HOUR);

fn store() -> MemoryStore {
    MemoryStore::builder().with_clock(ManualClock::new().reader()).build()
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    Limiter::new(store(), policies)
}

fn both() -> Limiter {
    limiter([Policy::new("ten", TEN), Policy::new("three", THREE)])
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
    let status = now(limiter.status(key));
    assert_eq!(status.policies.iter().map(|policy| policy.remaining).collect::<Vec<_>>(), expected);
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
    let limiter =
        limiter([Policy::new("ten", TEN).cost(4), Policy::new("three", THREE), Policy::new("by", TEN).cost_by(|_| 9)]);
    assert!(now(limiter.check(&ada())).is_allowed());
    left(&limiter, &ada(), &[6, 2, 9]);
}

#[test]
fn a_number_of_units_is_taken_from_every_policy_whatever_its_cost() {
    let limiter = limiter([Policy::new("ten", TEN).cost(4), Policy::new("three", THREE)]);
    assert!(now(limiter.check_n(&ada(), 2)).is_allowed());
    left(&limiter, &ada(), &[8, 1]);
    let refused = now(limiter.check_n(&ada(), 2));
    assert_eq!(refused.retry_after(), Some(HOUR / 3));
    assert!(now(limiter.check_n(&ada(), 0)).is_allowed());
    left(&limiter, &ada(), &[8, 1]);
    assert_eq!(now(limiter.check_n(&ada(), 4)).retry_after(), None, "no wait can help");
}

#[test]
fn a_status_takes_nothing_and_has_the_numbers_of_the_headers() {
    let limiter = both();
    assert!(now(limiter.check_n(&ada(), 3)).is_allowed());
    let status = now(limiter.status(&ada()));
    assert_eq!(now(limiter.status(&ada())), status);
    let [ten, three] = &status.policies[..] else { panic!("two policies: {status:?}") };
    assert_eq!((ten.policy.as_str(), ten.limit, ten.used, ten.remaining), ("ten", 10, 3, 7));
    assert_eq!((three.policy.as_str(), three.limit, three.used, three.remaining), ("three", 3, 3, 0));
    assert_eq!((ten.reset_after, three.reset_after), (HOUR, HOUR));
}

#[test]
fn policies_that_clients_are_not_told_of_are_in_no_status() {
    let limiter =
        limiter([Policy::new("a", TEN).unadvertised(), Policy::new("b", TEN).shadow(), Policy::new("c", TEN)]);
    let Status { policies, .. } = now(limiter.status(&ada()));
    assert_eq!(policies.iter().map(|policy| policy.policy.as_str()).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn a_policy_in_shadow_is_counted_and_never_refuses() {
    let limiter = limiter([Policy::new("three", THREE).shadow()]);
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
    let limiter = limiter([Policy::new("ten", TEN).tier_lookup(lookup)]);
    assert!(limiter.check_n(&ada(), 15).await.unwrap().is_allowed());
    assert!(!limiter.check_n(&Key::new("user", "bob"), 15).await.unwrap().is_allowed());
    assert_eq!(limiter.status(&ada()).await.unwrap().policies[0].limit, 20);
    limiter.refund(&ada(), 5).await.unwrap();
    assert_eq!(limiter.status(&ada()).await.unwrap().policies[0].remaining, 10);
    limiter.reset(&ada()).await.unwrap();
    assert_eq!(limiter.status(&ada()).await.unwrap().policies[0].remaining, 20);
    assert_eq!(lookups.load(Ordering::Relaxed), 2, "one for each key");
}

#[test]
fn what_a_policy_says_of_requests_has_no_meaning_without_one() {
    let list = AccessList::default().key("ada");
    let policy = Policy::new("ten", TEN).key(key::header("x-user")).deny(list).methods([]).tier(|_| Some(THREE));
    let limiter = limiter([policy]);
    assert!(now(limiter.check_n(&ada(), 10)).is_allowed());
    assert!(!now(limiter.check(&ada())).is_allowed());
}

#[test]
fn a_layer_and_its_limiter_share_counters_where_the_key_is_the_same() {
    let layer = RateLimitLayer::new(store(), Policy::new("user", THREE).key(key::header("x-user").plain()));
    let (limiter, user) = (layer.limiter(), Key::new("header x-user", "ada"));
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let service = layer.layer(inner);
    let send = || {
        let request = Request::builder().header("x-user", "ada").body(()).expect("a request");
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
    left(&limiter, &Key::new("user", "ada"), &[3]);
}
