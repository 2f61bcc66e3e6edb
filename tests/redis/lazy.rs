//! Stores that connect with their first decision.

use futures::FutureExt;
use tollgate::RedisStore;

use super::stores::{PATIENCE, remaining, take, time_to_decide};
use crate::support::server::RedisServer;

#[test]
fn a_lazy_store_is_made_outside_a_runtime_and_asks_nothing_until_it_decides() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(PATIENCE)
        .lazy()
        .connect(&server.url())
        .now_or_never()
        .expect("it does not wait")
        .expect("the URL is one");
    let connections = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
    // Those by which the test asked before may not have ended yet; one of the store would stay.
    assert!((0..100).any(|_| connections() == 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one can be built");
    runtime.block_on(async {
        drop(take(&store, "ada", 1).await.expect("the first decision connects"));
        assert_eq!((remaining(&store, "ada").await, connections()), (49, 1));
    });
}

#[tokio::test]
async fn a_lazy_store_that_was_made_while_redis_was_away_decides_once_it_is_there() {
    let mut server = RedisServer::start();
    server.kill();
    for settings in [RedisStore::builder(), RedisStore::builder().functions()] {
        settings.connect(&server.url()).await.expect_err("it is away");
    }
    let store = RedisStore::builder().lazy().connect(&server.url()).await.expect("the URL is one");
    for _ in 0..3 {
        let error = take(&store, "ada", 1).await.expect_err("it is away");
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    }
    server.restart();
    let waited = time_to_decide(&store, "ada").await;
    assert!(waited.as_millis() < 1_000, "{waited:?}");
}
