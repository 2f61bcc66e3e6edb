//! Operations by key, on Redis and on stores around it, which say whether they found anything.

use std::sync::Arc;
use std::time::Duration;

use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, RedisStore, key};

use super::stores::PATIENCE;
use crate::support::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);

/// Stores by their names, each on counters of its own.
async fn stores(server: &RedisServer) -> Vec<(&'static str, Arc<dyn Store>)> {
    let redis = async |prefix: &str, by_functions: bool| {
        let settings = RedisStore::builder().timeout(PATIENCE).prefix(prefix);
        let settings = if by_functions { settings.functions() } else { settings };
        settings.connect(&server.url()).await.expect("the server was started")
    };
    let overdrawn = LeaseStore::builder(redis("overdrawn", false).await).overdraft(10).try_build();
    vec![
        ("memory", Arc::new(MemoryStore::new())),
        ("scripts", Arc::new(redis("scripts", false).await)),
        ("functions", Arc::new(redis("functions", true).await)),
        ("deny cache", Arc::new(DenyCache::new(redis("cached", false).await))),
        ("lease", Arc::new(LeaseStore::new(redis("lease", false).await))),
        ("overdrawn", Arc::new(overdrawn.expect("the settings are valid"))),
    ]
}

fn policies() -> [Policy; 3] {
    let by_user = |name, quota| Policy::new(name, quota).key(key::header("x-user"));
    [
        by_user("bucket", Quota::token_bucket(50, 30 * 24 * HOUR)),
        by_user("window", Quota::fixed_window(50, 30 * 24 * HOUR)).ban(Ban::new(1, HOUR, HOUR).of_verified_keys()),
        Policy::new("other", Quota::per_hour(50)).key(key::header("x-tenant")),
    ]
}

#[tokio::test]
async fn operations_find_what_there_is_and_say_where_there_is_nothing() {
    let server = RedisServer::start();
    for (name, store) in stores(&server).await {
        let limiter = RateLimitLayer::composite(store).policies(policies()).live().limiter();
        let [ada, bob] = ["ada", "bob"].map(|user| policies()[0].key_of(user).expect("a request has it"));
        for nobody in [&ada, &bob] {
            assert_eq!(limiter.reset(nobody).await.expect("the store resets"), 0, "{name}");
            assert_eq!(limiter.refund(nobody, 5).await.expect("the store refunds"), 0, "{name}");
            assert_eq!(limiter.lift_ban(nobody).await.expect("the store lifts"), 0, "{name}");
        }
        assert!(limiter.check_n(&ada, 10).await.expect("the store decides").is_allowed(), "{name}");
        assert_eq!(limiter.refund(&ada, 5).await.expect("the store refunds"), 2, "{name}");
        assert_eq!(limiter.lift_ban(&ada).await.expect("the store lifts"), 0, "{name}");
        limiter.strike(&ada).await.expect("the store strikes");
        assert!(limiter.check(&ada).await.expect("the store decides").is_banned(), "{name}");
        assert_eq!(limiter.lift_ban(&ada).await.expect("the store lifts"), 1, "{name}");
        assert_eq!(limiter.lift_ban(&ada).await.expect("the store lifts"), 0, "{name}");
        assert_eq!(limiter.reset(&ada).await.expect("the store resets"), 2, "{name}");
        assert_eq!(limiter.reset(&ada).await.expect("the store resets"), 0, "{name}");
        assert!(limiter.reset(&Key::new("user", "ada")).await.is_err_and(|error| error.is_invalid()), "{name}");
    }
}
