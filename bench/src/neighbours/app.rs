//! What is served: something quick, and what stalls.

use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::routing::get;
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tollgate::store::Store;
use tollgate::{Key, Limiter, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, key};

/// What users are told apart by.
pub(super) const USER: &str = "x-api-key";

const WORKERS: usize = 4;
const AMPLE: Quota = Quota::per_minute(1_000_000);
/// How long a password is hashed, say.
const WORK: Duration = Duration::from_millis(150);
const LONG_WORK: Duration = Duration::from_millis(600);

/// One way to stall.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    pub(super) name: &'static str,
    /// What its client asks for; nobody asks for an empty path.
    pub(super) path: &'static str,
}

pub(super) const NEIGHBOURS: [Neighbour; 5] = [
    Neighbour { name: "none", path: "" },
    Neighbour { name: "a handler that blocks 150 ms", path: "/blocks" },
    Neighbour { name: "a handler that charges, then blocks 150 ms", path: "/charges" },
    Neighbour { name: "a handler that refunds, then blocks 600 ms", path: "/settles" },
    Neighbour { name: "two decisions polled once, and left for 600 ms", path: "/leaves" },
];

/// A server on a runtime of its own.
pub(super) struct App {
    pub(super) runtime: Runtime,
    pub(super) address: SocketAddr,
    pub(super) layer: RateLimitLayer,
}

impl App {
    pub(super) async fn start<S: Store>(store: impl AsyncFnOnce() -> S + Send + 'static) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        // The store's connections are those of this runtime.
        let started = thread::spawn(move || handle.block_on(async { serve(layer(store().await)).await }));
        let started = tokio::task::spawn_blocking(|| started.join().expect("served")).await;
        let (address, layer) = started.expect("served");
        Self { runtime, address, layer }
    }

    pub(super) fn stop(self) {
        self.runtime.shutdown_background();
    }
}

fn layer(store: impl Store) -> RateLimitLayer {
    let policy = Policy::new("user", AMPLE).key(key::header(USER)).metered();
    RateLimitLayer::new(store, policy).on_failure(OnFailure::Deny)
}

async fn serve(layer: RateLimitLayer) -> (SocketAddr, RateLimitLayer) {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/blocks", get(async || work(WORK)))
        .route("/charges", get(charges))
        .route("/settles", get(settles))
        .route("/leaves", get(leaves))
        .with_state(layer.clone().live().limiter())
        .layer(layer.clone());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, layer)
}

/// Keeps the thread.
fn work(time: Duration) -> &'static str {
    thread::sleep(time);
    "done"
}

async fn charges(Extension(limits): Extension<RateLimitHandle>) -> &'static str {
    limits.charge(1);
    // Sent, and not waited for.
    let _ = limits.flush().now_or_never();
    work(WORK)
}

async fn settles(Extension(limits): Extension<RateLimitHandle>) -> &'static str {
    limits.refund(1);
    work(LONG_WORK)
}

async fn leaves(State(limiter): State<Limiter>) -> &'static str {
    let keys = ["first", "second"].map(|name| Key::hashed(&format!("header {USER}"), name));
    let (mut first, mut second) = (pin!(limiter.check(&keys[0])), pin!(limiter.check(&keys[1])));
    tokio::select! {
        biased;
        _ = first.as_mut() => {}
        _ = second.as_mut() => {}
        () = ready(()) => {}
    }
    sleep(LONG_WORK).await;
    "done"
}
