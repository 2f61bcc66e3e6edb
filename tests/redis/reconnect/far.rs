//! A server that is far away.

use std::time::{Duration, Instant};

use tollgate::RedisStore;

use super::rig::take;
use crate::support::proxy::Proxy;
use crate::support::server::RedisServer;

/// On the way there and back.
const DELAY: Duration = Duration::from_millis(260);

#[tokio::test]
async fn a_server_far_away_is_connected_to_with_the_default_timeouts() {
    let server = RedisServer::start();
    let proxy = Proxy::far(server.port(), DELAY);
    for settings in [RedisStore::builder(), RedisStore::builder().functions()] {
        let start = Instant::now();
        let store = settings.timeout(Duration::from_secs(5)).connect(&proxy.url()).await.expect("it answers");
        assert!(start.elapsed() >= 2 * DELAY, "connecting and loading take a way there and back each");
        drop(take(&store).await.expect("all is loaded"));
    }
}
