//! What bytes cost: a chunk that is taken from a leased portion, and the calls to Redis of a whole body.

use std::time::Instant;

use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_bandwidth::Flow;

use crate::effort::Effort;
use crate::server::{SCRIPTS, Server};
use crate::stores::store;
use crate::table::{median_of, print};

const ROUNDS: usize = 9;
const CHUNK: u64 = 65_536;
const MB: u64 = 1_000_000;
const CHUNKS: u64 = 1_000_000;

pub(crate) async fn run(_: Effort) {
    chunks().await;
    bodies().await;
}

/// A quota that never binds here.
fn wide() -> Rule {
    Rule::new("bytes", Quota::fixed_window(1 << 48, std::time::Duration::from_secs(86_400)))
}

async fn flow(limiter: &Limiter) -> Flow {
    Flow::of(limiter, &Key::new("user", "ada")).await.expect("a flow")
}

/// Nanoseconds of one way to take a chunk.
async fn nanos(mut take: impl AsyncFnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CHUNKS {
        take().await;
    }
    start.elapsed().as_secs_f64() * 1e9 / CHUNKS as f64
}

async fn chunks() {
    println!("Nanoseconds a chunk of 64 KiB, on one thread (medians of {ROUNDS} rounds, the sides in turn):\n");
    let limiter = Limiter::new(MemoryStore::new(), [wide()]);
    let (key, mut sides) = (Key::new("user", "ada"), [const { Vec::new() }; 4]);
    for _ in 0..ROUNDS {
        let flow = flow(&limiter).await;
        sides[0].push(nanos(async || drop(limiter.check_n(&key, CHUNK).await)).await);
        sides[1].push(nanos(async || flow.try_acquire(CHUNK).expect("it is wide")).await);
        sides[2].push(nanos(async || flow.check(CHUNK).await.expect("it is wide")).await);
        sides[3].push(nanos(async || flow.acquire(CHUNK).await.expect("it is wide")).await);
    }
    let names = ["`Limiter::check_n`, in memory", "`Flow::try_acquire`", "`Flow::check`", "`Flow::acquire`"];
    let row = |(name, values): (&str, Vec<f64>)| vec![name.to_owned(), format!("{:.0}", median_of(values))];
    print(&["side", "ns"], &names.into_iter().zip(sides).map(row).collect::<Vec<_>>());
}

async fn bodies() {
    println!("\nCalls to Redis of one body, taken in chunks of 64 KiB as fast as the quota allows:\n");
    let server = Server::start().await;
    let mut connection = server.connection().await;
    let mut rows = Vec::new();
    for (size, quota) in [
        (10 * MB, Quota::per_second(MB)),
        (10 * MB, Quota::per_second(10 * MB)),
        (100 * MB, Quota::per_second(10 * MB)),
        (100 * MB, Quota::fixed_window(1_000 * MB, std::time::Duration::from_secs(3_600))),
    ] {
        let limiter = Limiter::new(store(&server).await, [Rule::new("bytes", quota)]);
        server.flush(&mut connection).await;
        server.reset_stats(&mut connection).await;
        let start = Instant::now();
        let flow = flow(&limiter).await;
        for _ in 0..size / CHUNK {
            flow.acquire(CHUNK).await.expect("the server is up");
        }
        let took = start.elapsed();
        let (passed, most) = (size / CHUNK * CHUNK, quota.capacity() as f64 + gained(&quota, took.as_secs_f64()));
        drop(flow);
        let (calls, _) = server.command_stats(&mut connection, &SCRIPTS).await;
        rows.push(vec![
            format!("{} MB at {} MB per {:?}", size / MB, quota.limit() / MB, quota.window()),
            (size / CHUNK).to_string(),
            format!("{calls:.0}"),
            format!("{:.2}", took.as_secs_f64()),
            format!("{:.1} %", 100.0 * passed as f64 / most),
        ]);
    }
    print(&["body", "chunks", "calls", "seconds", "passed, of what the quota admits"], &rows);
}

/// What a bucket gains in some seconds; a window gains nothing before its end.
fn gained(quota: &Quota, seconds: f64) -> f64 {
    if quota.window().as_secs() > 60 { 0.0 } else { quota.limit() as f64 * seconds / quota.window().as_secs_f64() }
}
