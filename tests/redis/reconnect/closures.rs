//! Closures that dial, or ask for credentials, and never return or panic.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tollgate::RedisStore;
use tollgate::store::{Credentials, RedisStoreBuilder};

use super::rig::{RETURN, assert_returns, failure};
use crate::support::server::RedisServer;

/// A time to connect that a decision does not wait for.
const SHORT: Duration = Duration::from_millis(500);

/// Settings with a closure of either kind, which does something first: as it is called, and in its future.
fn settings<F, T>(server: &RedisServer, first: F) -> [(&'static str, RedisStoreBuilder); 2]
where
    F: Fn() -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (port, before) = (server.port(), first.clone());
    let dialing = RedisStore::builder().dial(move |_, _| {
        let first = first();
        async move {
            first.await;
            TcpStream::connect(("127.0.0.1", port)).await
        }
    });
    let logging_in = RedisStore::builder().credentials(move || {
        let first = before();
        async move {
            first.await;
            Ok::<_, std::convert::Infallible>(Credentials::new("default", ""))
        }
    });
    [("dial", dialing.without_deny_cache()), ("credentials", logging_in.without_deny_cache())]
}

/// One of a closure's futures that are there.
struct Alive(Arc<AtomicU32>);

impl Alive {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn one_that_never_returns_is_dropped_when_connecting_times_out() {
    let (server, futures) = (RedisServer::start(), Arc::<AtomicU32>::default());
    let count = Arc::clone(&futures);
    let endless = move || {
        let alive = Alive::new(&count);
        async move {
            let _alive = alive;
            pending::<()>().await;
        }
    };
    for (name, settings) in settings(&server, endless) {
        let store = settings.connect_timeout(SHORT).lazy().connect(&server.url()).await.expect("the URL is one");
        let told = failure(&store).await;
        assert!(told.contains("Timeout"), "{name}: {told}");
        assert_eq!(futures.load(Ordering::SeqCst), 1, "{name}: connecting goes on");
        let start = Instant::now();
        while futures.load(Ordering::SeqCst) > 0 {
            assert!(start.elapsed() < SHORT + RETURN, "{name}: its future is still there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn one_that_panics_fails_the_connection_with_its_message_and_is_called_again() {
    let (server, calls) = (RedisServer::start(), Arc::<AtomicU32>::default());
    let count = Arc::clone(&calls);
    let panics = move || {
        let call = count.fetch_add(1, Ordering::SeqCst);
        assert_ne!(call, 0, "the closure fell over");
        async move { assert_ne!(call, 1, "its future fell over") }
    };
    for (name, settings) in settings(&server, panics) {
        calls.store(0, Ordering::SeqCst);
        let store = settings.lazy().connect(&server.url()).await.expect("the URL is one");
        for message in ["the closure fell over", "its future fell over"] {
            let told = failure(&store).await;
            assert!(told.contains("Connection") && told.contains(message), "{name}: {told}");
        }
        assert_returns(&store).await;
    }
}
