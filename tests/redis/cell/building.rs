//! What the module cannot do is refused when a layer is built.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tollgate::policy::Count;
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::{Error, Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer};

use super::rig::{HOUR, THREE, by_user, server, store};

const SECOND: Duration = Duration::from_secs(1);

/// Checks that an error is about something that can never work, and says all of these.
#[track_caller]
fn assert_says<T>(built: Result<T, Error>, words: &[&str]) {
    let error = built.err().unwrap_or_else(|| panic!("it was built, but for {words:?}"));
    assert!(error.is_invalid(), "{error:#}");
    for word in words.iter().chain(&["RedisStore"]) {
        assert!(error.to_string().contains(word), "{error} does not say {word:?}");
    }
}

fn policy(quota: Quota) -> Policy {
    Policy::new("p", quota)
}

#[tokio::test]
async fn each_thing_it_cannot_do_is_an_error_that_says_what_to_change() {
    let server = server();
    let store = store(&server).await;
    let cases: [(Policy, &[&str]); 14] = [
        (policy(Quota::fixed_window(5, HOUR)), &["\"p\"", "fixed_window", "gcra"]),
        (policy(Quota::sliding_window(5, HOUR)), &["\"p\"", "sliding_window", "gcra"]),
        (policy(Quota::sliding_log(5, HOUR)), &["\"p\"", "sliding_log", "gcra"]),
        (policy(Quota::leaky_bucket(5, HOUR)), &["\"p\"", "leaky_bucket", "gcra"]),
        (policy(Quota::concurrency(5)), &["\"p\"", "concurrency", "gcra"]),
        (policy(Quota::token_bucket(5, Duration::from_millis(1_500))), &["\"p\"", "1.5s", "whole seconds"]),
        (policy(Quota::token_bucket(5, Duration::from_micros(10))), &["\"p\"", "10µs", "whole seconds"]),
        (policy(Quota::token_bucket(1_001, SECOND)), &["\"p\"", "1001", "at most 1000 a second"]),
        (policy(THREE).reserve(0.5, |_| false), &["\"p\"", "reserve"]),
        (policy(THREE).count(Count::failures()), &["\"p\"", "count"]),
        (policy(THREE).count(Count::all()), &["\"p\"", "count"]),
        (policy(THREE).metered(), &["\"p\"", "metered"]),
        (policy(THREE).refund_dropped(), &["\"p\"", "refund_dropped"]),
        (policy(THREE).shadow().metered(), &["\"p\"", "metered"]),
    ];
    for (policy, words) in cases {
        assert_says(RateLimitLayer::try_new(store.clone(), policy.clone()), words);
        assert_says(Limiter::try_new(store.clone(), [policy.rule().clone()]), words);
        assert_says(RateLimitLayer::composite(store.clone()).try_policies([policy.clone()]), words);
        assert!(RateLimitLayer::try_new(MemoryStore::new(), policy).is_ok(), "memory can do all");
    }
}

#[tokio::test]
async fn a_second_policy_stores_around_it_and_refunds_are_refused_however_they_come() {
    let server = server();
    let store = store(&server).await;
    let one = RateLimitLayer::new(store.clone(), by_user(THREE));
    assert_says(one.clone().try_policy(policy(THREE)), &["one policy", "\"p\""]);
    assert_says(one.try_policies([policy(THREE), Policy::new("q", THREE)]), &["one policy"]);
    let both = || [by_user(THREE), policy(THREE)];
    assert_says(RateLimitLayer::composite(store.clone()).try_policies(both()), &["one policy"]);
    assert_says(Limiter::try_new(store.clone(), both().map(|policy| policy.rule().clone())), &["one policy"]);

    let dynamic: Arc<dyn Store> = Arc::new(DenyCache::new(store.clone()));
    let _ = RateLimitLayer::new(Arc::clone(&dynamic), policy(THREE));
    assert_says(RateLimitLayer::try_new(dynamic, policy(Quota::fixed_window(5, HOUR))), &["fixed_window"]);
    // These give units back, or charge them later.
    let overdrawn = || LeaseStore::builder(store.clone()).overdraft(10).build();
    assert_says(RateLimitLayer::try_new(LeaseStore::new(store.clone()), policy(THREE)), &["leases"]);
    assert_says(RateLimitLayer::try_new(DenyCache::new(overdrawn()), policy(THREE)), &["leases"]);

    let (limiter, ada) = (Limiter::new(store, [policy(THREE).rule().clone()]), Key::new("user", "ada"));
    assert!(limiter.check(&ada).await.unwrap().is_allowed());
    assert_says(limiter.refund(&ada, 1).now_or_never().expect("nothing is asked of the server"), &["reset"]);
    assert_eq!(limiter.peek(&ada).await.unwrap().outcomes()[0].remaining(), 2);
    limiter.reset(&ada).await.unwrap();
    assert_eq!(limiter.peek(&ada).await.unwrap().outcomes()[0].remaining(), 3);
}
