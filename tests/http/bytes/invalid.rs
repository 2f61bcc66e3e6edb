//! Options that make no sense with bytes.

use std::time::Duration;

use tollgate::{Ban, Count, MemoryStore, Over, Policy, Quota, RateLimitLayer};

const MINUTE: Quota = Quota::per_minute(1_000);

#[test]
fn what_cannot_limit_bytes_is_an_error_when_the_layer_is_built() {
    let bytes = |quota| Policy::new("bytes", quota).response_bytes(Over::Pace);
    let ban = Ban::new(3, Duration::from_secs(60), Duration::from_secs(60));
    let wrong = [
        (bytes(Quota::concurrency(5)), "a concurrency cannot limit bytes"),
        (bytes(Quota::leaky_bucket(5, Duration::from_secs(1)).queue(5)), "a leaky_bucket cannot limit bytes"),
        (bytes(MINUTE).cost(2), "leave out cost"),
        (bytes(MINUTE).cost_by(|_| 1), "leave out cost"),
        (bytes(MINUTE).count(Count::failures()), "leave out count"),
        (bytes(MINUTE).metered(), "leave out metered"),
        (bytes(MINUTE).refund_dropped(), "leave out refund_dropped"),
        (bytes(MINUTE).ban(ban), "leave out ban"),
        (bytes(MINUTE).ban_failures(ban, Count::failures()), "leave out ban"),
    ];
    for (policy, text) in wrong {
        let error = RateLimitLayer::try_new(MemoryStore::new(), policy).expect_err("it makes no sense");
        assert!(error.is_invalid() && error.to_string().contains(text), "{error}");
    }
    assert!(RateLimitLayer::try_new(MemoryStore::new(), bytes(MINUTE).shadow().unadvertised()).is_ok());
}
