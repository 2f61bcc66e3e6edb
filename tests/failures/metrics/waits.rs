//! What services with back-pressure report while they wait: each try that a limit refuses is a refusal, and one that no
//! limit is asked for is nothing.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::key::header;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_shed::BackPressureLayer;
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn each_try_of_a_service_that_waits_is_a_refusal_and_what_is_never_ready_is_none() {
    let watch = Watch::start();
    let store = RecordingStore::new(MemoryStore::builder().clock(ManualClock::paused()).build());
    let policy = |quota| Policy::new("mail", quota).key(header("x-job"));
    let limits = RateLimitLayer::new(store.clone(), policy(Quota::concurrency(1)));
    let layer = BackPressureLayer::new(limits.clone().live().limiter(), Key::hashed("header x-job", "mail"));
    let mut service = layer.layer(service_fn(async |job: u32| Ok::<_, Infallible>(job)));
    let (_held, guard) =
        limits.clone().live().limiter().acquire(&Key::hashed("header x-job", "mail")).await.expect("a decision");
    drop((watch.changes(), store.take()));
    assert!(tokio::time::timeout(20 * SECOND, service.ready()).await.is_err());
    let tries = store.take().iter().filter(|call| matches!(call, Recorded::Decide(_))).count();
    let changes = watch.changes();
    let refusals = changes.get("tollgate_policy_refusals_total{policy=mail,mode=enforce}").copied();
    assert!(tries > 5, "{tries} in 20 s");
    assert_eq!(refusals, i64::try_from(tries).ok(), "{changes:?}");

    let bans = policy(Quota::per_hour(1)).ban(Ban::new(2, SECOND, SECOND).of_verified_keys());
    limits.clone().live().replace_policies([bans]).expect("they are valid");
    // The try that was under way ends.
    assert!(tokio::time::timeout(5 * SECOND, service.ready()).await.is_err());
    drop((watch.changes(), store.take()));
    assert!(tokio::time::timeout(20 * SECOND, service.ready()).await.is_err());
    assert!(!store.take().iter().any(|call| matches!(call, Recorded::Decide(_))));
    let changes = watch.changes();
    assert!(!changes.keys().any(|series| series.contains("refusals") || series.contains("decisions")), "{changes:?}");
    drop(guard);
}
