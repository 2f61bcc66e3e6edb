//! Connections that die without a word, as behind a firewall that forgets them.

use crate::proxy::Proxy;
use crate::rig::{assert_keeps, assert_returns, connect, failure, kept};
use crate::support::server::RedisServer;

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced_after_one_decision_and_closed() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = connect(&proxy.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    assert_eq!(before.0, 1);
    for _ in 0..3 {
        proxy.silence();
        let told = failure(&store).await;
        assert!(told.contains("Timeout") && told.contains("100ms"), "{told}");
        assert_returns(&store).await;
    }
    assert_keeps(&server, before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_on_a_silent_connection_make_one_new_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = connect(&proxy.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    proxy.silence();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn({
                let store = store.clone();
                async move { failure(&store).await }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no caller panics");
    }
    assert_returns(&store).await;
    assert_keeps(&server, before).await;
}
