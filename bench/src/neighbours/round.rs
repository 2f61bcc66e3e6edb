//! One side for one span, beside a neighbour.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tollgate::RateLimitLayer;
use tollgate::store::BreakerState;

use super::app::{App, Neighbour};
use super::client::Client;

const CLIENTS: usize = 16;
/// Between two requests of a client of a [`Load::Paced`].
const APART: Duration = Duration::from_millis(4);
/// How often the breaker is looked at.
const GRAIN: Duration = Duration::from_millis(1);

/// How the others ask.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Load {
    /// One request after the other.
    Full,
    /// 4,000 requests a second: workers are idle most of the time, so that nobody reads sockets and
    /// minds timers while the one who did so last works in line.
    Paced,
}

/// What became of the others.
#[derive(Clone, Copy)]
pub(super) struct Round {
    pub(super) requests: usize,
    pub(super) failed: usize,
    pub(super) opened: usize,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

impl Round {
    pub(super) async fn run(app: &App, neighbour: Neighbour, load: Load, span: Duration) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stalls = stall(app.address, neighbour, Arc::clone(&stop));
        let watches = watch(app.layer.clone(), Arc::clone(&stop));
        let (mut others, deadline) = (JoinSet::new(), Instant::now() + span);
        for client in 0..CLIENTS {
            others.spawn_on(ask(app.address, client, load, deadline), app.runtime.handle());
        }
        let (nanos, failed): (Vec<_>, Vec<_>) = others.join_all().await.into_iter().unzip();
        stop.store(true, Ordering::Relaxed);
        let threads = tokio::task::spawn_blocking(|| (stalls.join(), watches.join())).await.expect("joined");
        threads.0.expect("the neighbour is answered");
        Self::new(nanos.concat(), failed.iter().sum(), threads.1.expect("it watches"))
    }

    fn new(mut nanos: Vec<u64>, failed: usize, opened: usize) -> Self {
        nanos.sort_unstable();
        let count = nanos.len();
        let at = |part: usize| nanos[(count * part / 1_000).min(count - 1)] as f64 / 1e3;
        Self { requests: count, failed, opened, p50_us: at(500), p99_us: at(990), p999_us: at(999) }
    }
}

/// Asks until the deadline; returns what each request took, and how many failed. What a late answer
/// keeps from being sent counts from when it was due.
async fn ask(address: SocketAddr, client: usize, load: Load, deadline: Instant) -> (Vec<u64>, usize) {
    let mut client = Client::connect(address, "/", &format!("client-{client}")).await.expect("connected");
    let (mut nanos, mut failed, mut start) = (Vec::new(), 0, Instant::now());
    while start < deadline {
        let status = client.ask().await.expect("answered");
        failed += usize::from(status != 200);
        nanos.push(u64::try_from(start.elapsed().as_nanos()).expect("a request ends in time"));
        start = match load {
            Load::Full => Instant::now(),
            Load::Paced => wait_until(start + APART).await,
        };
    }
    (nanos, failed)
}

/// Waits for a moment; returns when it was, or the time now as timers count milliseconds.
async fn wait_until(due: Instant) -> Instant {
    if due <= Instant::now() {
        return due;
    }
    sleep_until(due.into()).await;
    Instant::now()
}

/// Asks for what stalls, one after the other. Its own answers do not matter.
fn stall(address: SocketAddr, neighbour: Neighbour, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        if neighbour.path.is_empty() {
            return;
        }
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = Client::connect(address, neighbour.path, "neighbour").await.expect("connected");
            while !stop.load(Ordering::Relaxed) {
                let _status = client.ask().await.expect("answered");
            }
        });
    })
}

/// Counts how often the breaker opens.
fn watch(layer: RateLimitLayer, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    thread::spawn(move || {
        let (mut opened, mut was_open) = (0, false);
        while !stop.load(Ordering::Relaxed) {
            let is_open = layer.clone().live().breaker_state() == BreakerState::Open;
            opened += usize::from(is_open && !was_open);
            was_open = is_open;
            thread::sleep(GRAIN);
        }
        opened
    })
}
