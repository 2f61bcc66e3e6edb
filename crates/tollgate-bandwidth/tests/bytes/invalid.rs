//! Options that make no sense with bytes.

use std::time::Duration;

use tollgate::policy::Count;
use tollgate::{Ban, Error, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

use crate::panics::assert_panics;

const MINUTE: Quota = Quota::per_minute(1_000);

fn limits(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

#[track_caller]
fn names(error: &Error, text: &str) {
    assert!(error.is_invalid() && error.to_string().contains(text), "{error}");
}

#[test]
fn what_cannot_limit_bytes_is_an_error_when_the_layer_is_built_and_when_policies_are_replaced() {
    let bytes = |quota| Policy::new("bytes", quota);
    let ban = Ban::new(3, Duration::from_secs(60), Duration::from_secs(60));
    let layer = BandwidthLayer::responses(limits(bytes(MINUTE)), OnLimit::Throttle);
    // A policy that comes back is checked again.
    let found = || layer.limits().find_policy("bytes").expect("it is there");
    let leaky = Quota::leaky_bucket(5, Duration::from_secs(1)).queue(5);
    let wrong = [
        (bytes(Quota::concurrency(5)), "a concurrency has no units that are taken by the number"),
        (bytes(leaky), "a leaky_bucket has no units that are taken by the number"),
        (bytes(MINUTE).cost(2), "remove cost"),
        (found().cost(7), "remove cost"),
        (bytes(MINUTE).cost_by(|_| 1), "remove cost"),
        (bytes(MINUTE).count(Count::failures()), "remove count"),
        (bytes(MINUTE).metered(), "remove metered"),
        (found().metered(), "remove metered"),
        (bytes(MINUTE).refund_dropped(), "remove refund_dropped"),
        (bytes(MINUTE).ban(ban.of_verified_keys()), "remove ban"),
    ];
    for (policy, text) in wrong {
        names(&layer.limits().replace_policies([policy.clone()]).expect_err("it makes no sense"), text);
        let Ok(limits) = RateLimitLayer::try_new(MemoryStore::new(), policy) else { continue };
        names(&BandwidthLayer::try_responses(limits.clone(), OnLimit::Throttle).expect_err("it makes no sense"), text);
        names(&BandwidthLayer::try_requests(limits, OnLimit::Abort).expect_err("it makes no sense"), text);
    }
    assert!(BandwidthLayer::try_requests(limits(bytes(MINUTE).shadow().unadvertised()), OnLimit::Throttle).is_ok());
    assert!(BandwidthLayer::try_requests(limits(bytes(MINUTE)).without_handle(), OnLimit::Abort).is_ok());
}

#[test]
fn a_constructor_panics_where_it_is_called_with_the_sentence_of_its_error() {
    let metered = || limits(Policy::new("a", MINUTE).metered());
    let abort = OnLimit::Abort;
    assert_panics(|| BandwidthLayer::requests(metered(), abort), BandwidthLayer::try_requests(metered(), abort));
    assert_panics(|| BandwidthLayer::responses(metered(), abort), BandwidthLayer::try_responses(metered(), abort));
}
