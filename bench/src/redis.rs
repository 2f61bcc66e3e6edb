//! What a decision costs the server: microseconds from `INFO commandstats`, bytes from
//! `used_memory`, as ratios to a plain `INCR`, a plain script or a plain hash.

mod batch;
mod bytes;
mod flood;
mod time;

use std::time::Duration;

use tollgate::store::{Ask, Check, Store};
use tollgate::{Quota, RedisStore};

use crate::effort::Effort;
use crate::server::Server;
use crate::stores::store_without_deny_cache;
use crate::table::Figure;

const MINUTE: Duration = Duration::from_secs(60);

/// So long that nothing comes back while it is measured.
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) async fn run(effort: Effort) {
    let server = Server::start().await;
    let mut connection = server.connection().await;
    let store = store_without_deny_cache(&server).await;
    time::run(effort, &server, &mut connection, &store).await;
    batch::run(effort, &server, &mut connection).await;
    bytes::run(effort, &server, &mut connection, &store).await;
    bytes::logs(&server, &mut connection, &store).await;
}

/// Server time of a decision in a full batch, over a plain script.
pub(crate) async fn figure(effort: Effort) -> Figure {
    let server = Server::start().await;
    batch::figure(effort, &server, &mut server.connection().await).await
}

fn quotas(limit: u64, window: Duration) -> Vec<(&'static str, Quota)> {
    vec![
        ("fixed window", Quota::fixed_window(limit, window)),
        ("sliding log", Quota::sliding_log(limit, window)),
        ("sliding window", Quota::sliding_window(limit, window)),
        ("token bucket (GCRA)", Quota::token_bucket(limit, window)),
        ("leaky bucket, queue", Quota::leaky_bucket(limit, window).queue(99)),
    ]
}

async fn decide(store: &RedisStore, check: Check, allowed: bool) {
    let decided = store.decide(&[check], Ask::default()).wait().await.expect("decided");
    assert_eq!(decided.decision.is_allowed(), allowed, "{:?}", decided.decision);
}

fn text(prefix: &str, number: usize) -> String {
    format!("{prefix}.{number:05}")
}
