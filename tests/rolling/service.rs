//! What a service does, whose build is `super::tollgate`.

use std::time::Duration;

use futures::future::join_all;

use super::tollgate::store::{Ask, Change, Check, Counter, Settlement, Store};
use super::tollgate::{Ban, Key, Quota, RedisStore};
use crate::{Kept, LIMIT};

const TASKS: usize = 32;
const REQUESTS: usize = 60;

/// Hardly a unit returns during a test.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

const QUOTAS: [Quota; 6] = [
    Quota::fixed_window(LIMIT, MONTH),
    Quota::sliding_log(LIMIT, Duration::from_secs(3_600)),
    Quota::sliding_window(LIMIT, MONTH),
    Quota::concurrency(LIMIT),
    Quota::token_bucket(LIMIT, MONTH),
    Quota::leaky_bucket(LIMIT, MONTH).queue(LIMIT - 1),
];

/// Of the others, what was replenished since is not refunded, or units behind which others wait.
const REFUNDED_WHOLE: usize = 4;

pub(crate) async fn connect(url: &str, functions: bool) -> RedisStore {
    let settings = RedisStore::builder().timeout(Duration::from_secs(10)).without_deny_cache();
    let settings = if functions { settings.functions() } else { settings };
    settings.connect(url).await.expect("the server was started")
}

/// Returns the units kept of each limit, and of all limits that requests take together. With `refunds`, one unit in ten is
/// refunded, where a refund is whole.
pub(crate) async fn load(store: &RedisStore, refunds: bool) -> Kept {
    let tasks = (0..TASKS).map(|_| tokio::spawn(ask(store.clone(), refunds)));
    let mut all = Kept::default();
    for kept in join_all(tasks).await {
        all += kept.expect("it ends");
    }
    all
}

async fn ask(store: RedisStore, refunds: bool) -> Kept {
    let mut kept = Kept::default();
    for request in 0..REQUESTS {
        let limit = request % (QUOTAS.len() + 1);
        let checks: Vec<_> = match QUOTAS.get(limit) {
            Some(quota) => vec![check("one", *quota)],
            None => QUOTAS.map(|quota| check("all", quota)).into(),
        };
        let decided = store.decide(&checks, Ask::default()).wait().await.expect("the server is up");
        if !decided.decision.is_allowed() {
            continue;
        }
        if refunds && limit < REFUNDED_WHOLE && request % 10 == 0 {
            store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(1))]).wait().await.expect("the server is up");
        } else {
            kept.0[limit] += 1;
        }
    }
    kept
}

/// Returns whether a third failure banned the client.
pub(crate) async fn strike(store: &RedisStore) -> bool {
    let ban = Ban::new(3, Duration::from_secs(3_600), MONTH);
    let change = store.adjust(&counter("banned", QUOTAS[0]), Change::Strike(ban)).wait().await;
    change.expect("the server is up").ban_began()
}

fn check(key: &str, quota: Quota) -> Check {
    Check::new(counter(key, quota), 1)
}

fn counter(key: &str, quota: Quota) -> Counter {
    Counter::new("policy".try_into().expect("a valid name"), Key::new("key", key), quota)
}
