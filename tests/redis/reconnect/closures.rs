//! Closures that dial, or ask for credentials, and never return, panic, or block their thread.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tollgate::RedisStore;
use tollgate::store::{Credentials, RedisStoreBuilder};

use super::rig::{RETURN, assert_returns, failure};
use crate::support::server::RedisServer;

/// Longer than a decision may take, whatever a busy machine adds.
const WORK: Duration = Duration::from_millis(800);
/// A time to connect that a decision does not wait for.
const SHORT: Duration = Duration::from_millis(500);
/// Connecting may take longer than any closure blocks.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let store = settings.connect_timeout(SHORT).connect_lazy(&server.url()).expect("the URL is one");
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
        let store = settings.connect_lazy(&server.url()).expect("the URL is one");
        for message in ["the closure fell over", "its future fell over"] {
            let told = failure(&store).await;
            assert!(told.contains("Connection") && told.contains(message), "{name}: {told}");
        }
        assert_returns(&store).await;
    }
}

/// Checks that decisions fail within their budget while a closure keeps one of two threads.
async fn assert_blocks_nobody<F, T>(block: F)
where
    F: Fn(Duration) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (server, work) = (RedisServer::start(), Arc::<AtomicU64>::default());
    let millis = Arc::clone(&work);
    let first = move || block(Duration::from_millis(millis.load(Ordering::SeqCst)));
    for (name, settings) in settings(&server, first) {
        work.store(0, Ordering::SeqCst);
        let store = settings.connect_timeout(PATIENCE).connect(&server.url()).await.expect("the server was started");
        work.store(u64::try_from(WORK.as_millis()).expect("it is short"), Ordering::SeqCst);
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let one = async |store: RedisStore| failure(&store).await;
        let callers: Vec<_> = (0..8).map(|_| tokio::spawn(one(store.clone()))).collect();
        for caller in callers {
            caller.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        tokio::time::sleep(WORK).await;
        assert_returns(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_blocks_its_thread_keeps_no_decision_beyond_its_budget() {
    assert_blocks_nobody(|work| {
        std::thread::sleep(work);
        async {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_one_whose_future_blocks_its_thread() {
    assert_blocks_nobody(|work| async move { std::thread::sleep(work) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_blocks_for_minutes_keeps_half_of_the_threads_at_most() {
    let (server, is_blocked) = (RedisServer::start(), Arc::new(AtomicBool::new(true)));
    let (blocked, calls) = (Arc::clone(&is_blocked), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&calls);
    let block = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        while blocked.load(Ordering::SeqCst) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        async {}
    };
    for (name, settings) in settings(&server, block) {
        calls.store(0, Ordering::SeqCst);
        is_blocked.store(true, Ordering::SeqCst);
        let store = settings.connect_timeout(Duration::from_millis(50)).connect_lazy(&server.url());
        let store = store.expect("the URL is one");
        for _ in 0..20 {
            failure(&store).await;
        }
        assert_eq!(calls.load(Ordering::SeqCst), 2, "{name}: of four threads");
        is_blocked.store(false, Ordering::SeqCst);
        assert_returns(&store).await;
    }
}
