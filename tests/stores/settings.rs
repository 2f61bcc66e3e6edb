//! Settings at their extremes: each is an error when a store or layer is built, or it serves.

use std::convert::Infallible;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::{Request, Response};
use tollgate::key::Lookup;
use tollgate::policy::TierLookup;
use tollgate::store::{Ask, Check, DenyCache, LeaseStore, Store};
use tollgate::{Error, Key, Limiter, MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, Rule, key};
use tollgate_ratio::{MemoryTally, RatioStore};
use tollgate_shed::{FleetShedLayer, Ramp, WorkerShedLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::checks::check;
use crate::support::doubles::unavailable;

const TIMES: [Duration; 4] = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX), Duration::MAX];
const SIZES: [usize; 4] = [0, 1, usize::MAX / 2, usize::MAX];
const SHARES: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE, f64::MAX];

/// Builds with each value, and sends some requests where that is no error.
#[track_caller]
fn assert_each<V: Copy + Debug, T>(values: &[V], build: impl Fn(V) -> Result<T, Error>, send: impl Fn(&T)) {
    for value in values {
        let ended = catch_unwind(AssertUnwindSafe(|| match build(*value) {
            Ok(made) => (0..20).for_each(|_| send(&made)),
            Err(error) => assert!(error.is_invalid(), "{error}"),
        }));
        assert!(ended.is_ok(), "{value:?}");
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn decide(store: &impl Store) {
    let per_second = check("ada", Quota::per_second(100), 1);
    let refused = Check::new(check("bob", Quota::per_second(10), 1).counter, 11);
    for check in [per_second, refused] {
        drop(run(store.decide(&[check], Ask::default()).wait()));
    }
}

fn serve<L>(layer: &L)
where
    L: Layer<tower::util::BoxCloneService<Request<String>, Response<String>, Infallible>>,
    L::Service: tower::Service<Request<String>, Error = Infallible>,
{
    let hello = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let service = layer.layer(tower::util::BoxCloneService::new(hello));
    assert!(run(service.oneshot(Request::new(String::new()))).is_ok());
}

#[test]
fn stores_are_built_with_any_size_time_and_share_or_not_at_all() {
    assert_each(&SIZES, |size| Ok(MemoryStore::builder().capacity(size).build()), decide);
    assert_each(&SIZES, |size| LeaseStore::builder(MemoryStore::new()).capacity(size).try_build(), decide);
    assert_each(&SIZES, |size| LeaseStore::builder(MemoryStore::new()).overdraft(size as u64).try_build(), decide);
    assert_each(&SIZES, |size| DenyCache::builder(MemoryStore::new()).capacity(size).try_build(), decide);
    assert_each(&SIZES, |size| RatioStore::builder(MemoryTally::new()).capacity(size).try_build(), decide);
    assert_each(&SIZES, |size| RatioStore::builder(MemoryTally::new()).report(size).try_build(), decide);
    assert_each(&[0, 1, u8::MAX], |shards| RatioStore::builder(MemoryTally::new()).shards(shards).try_build(), decide);
    assert_each(&SHARES, |share| LeaseStore::builder(MemoryStore::new()).max_share(share).try_build(), decide);
    assert_each(&TIMES, |cap| DenyCache::builder(MemoryStore::new()).max_ttl(cap).try_build(), decide);
    assert_each(&TIMES, |tick| RatioStore::builder(MemoryTally::new()).tick(tick).try_build(), decide);
    assert_each(&TIMES, |life| RatioStore::builder(MemoryTally::new()).ttl(life).try_build(), decide);
    let many = NonZeroU32::MAX;
    assert_each(&[many], |many| RatioStore::builder(MemoryTally::new()).instances(many).try_build(), decide);
}

#[cfg(feature = "redis")]
#[test]
fn redis_stores_are_built_with_any_setting_or_not_at_all() {
    use futures::FutureExt;
    use tollgate::RedisStore;
    let nobody = |settings: tollgate::store::RedisStoreBuilder| {
        let _runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        settings
            .lazy()
            .connect("redis://127.0.0.1:1")
            .now_or_never()
            .expect("it does not wait")
            .map(|store| Limiter::new(store, [Rule::new("a", Quota::per_hour(1))]))
    };
    let ask = |limiter: &Limiter| drop(run(limiter.check(&Key::new("user", "ada"))));
    assert_each(&SIZES, |size| nobody(RedisStore::builder().pool_size(size)), ask);
    assert_each(&SIZES, |size| nobody(RedisStore::builder().batch_size(size)), ask);
    assert_each(&SIZES, |size| nobody(RedisStore::builder().deny_cache_capacity(size)), ask);
    assert_each(&TIMES, |time| nobody(RedisStore::builder().deny_cache_max_ttl(time)), ask);
    assert_each(&TIMES, |time| nobody(RedisStore::builder().timeout(time)), ask);
    assert_each(&TIMES, |time| nobody(RedisStore::builder().connect_timeout(time)), ask);
}

#[test]
fn layers_are_built_with_any_time_and_share_or_not_at_all() {
    let away = || RateLimitLayer::new(unavailable(), policy());
    assert_each(&TIMES, |time| Ok(away().timeout(time)), serve);
    assert_each(&TIMES, |time| Ok(away().on_failure(tollgate::OnFailure::Allow).allow_for(time)), serve);
    let headers =
        |most| RateLimitLayer::new(MemoryStore::new(), policy()).headers(RateLimitHeaders::both().jitter(most));
    assert_each(&TIMES, |most| Ok(headers(most)), serve);
    let one = |policy| RateLimitLayer::composite(MemoryStore::new()).try_policies([policy]);
    assert_each(&SIZES, |cost| one(policy().cost(cost as u64)), serve);
    assert_each(&SHARES, |share| policy().try_reserve(share, |_| true).and_then(one), serve);
    assert_each(&SIZES, |hops| one(policy().key(key::client_ip().trusted_hops(hops))), serve);
    let limiter = || Limiter::new(unavailable(), [Rule::new("a", Quota::per_hour(1))]);
    let ask = |limiter: &Limiter| drop(run(limiter.check(&Key::new("user", "ada"))));
    assert_each(&TIMES, |time| Ok(limiter().timeout(time)), ask);
    assert_each(&TIMES, |time| Ok(limiter().on_failure(tollgate::OnFailure::Allow).allow_for(time)), ask);
    let full = || WorkerShedLayer::measured("worker", || f64::NAN);
    assert_each(&TIMES, |time| Ok(full().min_retry_after(time)), serve);
    assert_each(&SHARES, |share| Ok(WorkerShedLayer::measured("worker", move || share)), serve);
    assert_each(&SHARES, |share| Ramp::new().try_thresholds(share, 1.0).map(|ramp| full().ramp(ramp)), serve);
    assert_each(&TIMES, |time| Ramp::new().try_after(time, time).map(|ramp| full().ramp(ramp)), serve);
    assert_each(&TIMES, |time| Ramp::new().try_recovery(time).map(|ramp| full().ramp(ramp)), serve);
    let fleet = |share| FleetShedLayer::try_new(MemoryStore::new(), "fleet", Quota::concurrency(10), share);
    assert_each(&SHARES, fleet, serve);
    assert_each(&TIMES, |time| fleet(0.5).map(|layer| layer.timeout(time)), serve);
}

#[test]
fn lookups_are_built_with_any_size_and_time() {
    let tiers = || TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(Some(Quota::per_second(10))) });
    let by_tier = |lookup| Ok(RateLimitLayer::new(MemoryStore::new(), policy().tier_lookup(lookup)));
    let keys = || key::lookup(key::global(), |_: Lookup| async { Ok::<_, Infallible>(Some(Key::new("user", "ada"))) });
    let by_key = |lookup| Ok(RateLimitLayer::new(MemoryStore::new(), policy().key(lookup)));
    assert_each(&SIZES, |size| by_tier(tiers().capacity(size)), serve);
    assert_each(&SIZES, |size| by_key(keys().capacity(size)), serve);
    assert_each(&SIZES, |size| by_tier(tiers().in_flight(size)), serve);
    assert_each(&SIZES, |size| by_key(keys().in_flight(size)), serve);
    for set in [TierLookup::ttl, TierLookup::timeout] {
        assert_each(&TIMES, |time| by_tier(set(tiers(), time)), serve);
    }
    assert_each(&TIMES, |time| by_key(keys().ttl(time)), serve);
    assert_each(&TIMES, |time| by_key(keys().timeout(time)), serve);
}

fn policy() -> Policy {
    Policy::new("all", Quota::per_second(10)).key(key::global())
}
