//! Closures that dial, or ask for credentials, and never return or panic.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;
use tollgate::store::{Credentials, RedisStoreBuilder};

use super::rig::{RETURN, assert_returns, failure};
use crate::stores;
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
    let settings = || stores::settings().timeout(Duration::from_millis(100)).lazy();
    let dialing = settings().dial(move |_, _| {
        let first = first();
        async move {
            first.await;
            TcpStream::connect(("127.0.0.1", port)).await
        }
    });
    let logging_in = settings().credentials(move || {
        let first = before();
        async move {
            first.await;
            Ok::<_, Infallible>(Credentials::new("default", ""))
        }
    });
    [("dial", dialing), ("credentials", logging_in)]
}

#[tokio::test]
async fn one_that_never_returns_is_dropped_when_connecting_times_out() {
    let server = RedisServer::start();
    for place in 0..2 {
        // Each future has one.
        let alive = Arc::new(());
        let kept = Arc::clone(&alive);
        let endless = move || {
            let kept = Arc::clone(&kept);
            async move {
                let () = std::future::pending().await;
                drop(kept);
            }
        };
        let (name, settings) = settings(&server, endless).into_iter().nth(place).expect("there are two");
        let before = Arc::strong_count(&alive);
        let store = settings.connect_timeout(SHORT).connect(&server.url()).await.expect("the URL is one");
        let told = failure(&store).await;
        assert!(told.contains("Timeout"), "{name}: {told}");
        assert_eq!(Arc::strong_count(&alive), before + 1, "{name}: connecting goes on");
        sleep(SHORT).await;
        let is_gone = async {
            while Arc::strong_count(&alive) > before {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(RETURN, is_gone).await.unwrap_or_else(|_| panic!("{name}: its future is still there"));
    }
}

#[tokio::test]
async fn one_that_panics_fails_the_connection_with_its_message_and_is_called_again() {
    let (server, calls) = (RedisServer::start(), Arc::<AtomicU32>::default());
    let count = Arc::clone(&calls);
    let panics = move || {
        let call = count.fetch_add(1, Ordering::SeqCst);
        // No backtrace is printed, which may take longer than a decision.
        if call == 0 {
            resume_unwind(Box::new("the closure fell over"));
        }
        async move {
            if call == 1 {
                resume_unwind(Box::new("its future fell over"));
            }
        }
    };
    for (name, settings) in settings(&server, panics) {
        calls.store(0, Ordering::SeqCst);
        let store = settings.connect(&server.url()).await.expect("the URL is one");
        for message in ["the closure fell over", "its future fell over"] {
            let told = failure(&store).await;
            assert!(told.contains("Connection") && told.contains(message), "{name}: {told}");
        }
        assert_returns(&store).await;
    }
}
