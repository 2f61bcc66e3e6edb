//! Stores that come back, and what is counted of them.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tollgate::RedisStore;

use crate::stores::{take, time_to_decide};
use crate::support::server::RedisServer;

/// Limiting goes on within this time of a working server's return.
pub(crate) const RETURN: Duration = Duration::from_secs(1);
/// The default budget of a decision, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(400);

pub(crate) async fn connect(url: &str) -> RedisStore {
    RedisStore::builder().without_deny_cache().connect(url).await.expect("the server was started")
}

/// Checks that a decision fails in time; returns how, with all causes.
pub(crate) async fn failure(store: &RedisStore) -> String {
    let start = Instant::now();
    let error = take(store, "ada", 1).await.expect_err("there is nobody to decide");
    assert!(start.elapsed() < BOUND, "{error:#} took {:?}", start.elapsed());
    let kind = [("Connection", error.is_connection()), ("Timeout", error.is_timeout()), ("Store", error.is_store())];
    format!("{:?}: {error:#}", kind.into_iter().find_map(|(name, is_it)| is_it.then_some(name)))
}

/// Checks that decisions are made again, in time.
pub(crate) async fn assert_returns(store: &RedisStore) {
    let took = time_to_decide(store, "ada").await;
    assert!(took < RETURN, "it took {took:?}");
}

/// What a store keeps: connections on the server, but for the one that asks, and tasks of this runtime.
pub(crate) fn kept(server: &RedisServer) -> (usize, usize) {
    let list: String = server.ask(&["CLIENT", "LIST"]);
    (list.lines().count() - 1, Handle::current().metrics().num_alive_tasks())
}

/// A connection that went silent may still bring late answers for so long, and a little.
const LATE_ANSWERS: Duration = Duration::from_secs(12);

/// Checks that no more is kept than before, once what was given up has ended.
pub(crate) async fn assert_keeps(server: &RedisServer, before: (usize, usize)) {
    let (start, mut now) = (Instant::now(), kept(server));
    while now.0 > before.0 || now.1 > before.1 {
        assert!(start.elapsed() < LATE_ANSWERS, "connections and tasks: {before:?} before, {now:?} now");
        tokio::time::sleep(Duration::from_millis(5)).await;
        now = kept(server);
    }
}
