//! Random histories of several processes, in which nobody has too many and all come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Key, Limiter, OnFailure, Quota, RedisStore, Rule};

use crate::support::server::RedisServer;
use crate::support::slow::many;

const KEYS: usize = 8;
const LIMIT: u64 = 6;
/// A life in which a renewal can be lost with its connection, and once more, before the slots expire.
const LIFE: Duration = Duration::from_secs(8);

async fn process(server: &RedisServer) -> Limiter {
    let store = RedisStore::connect(&server.url()).await.expect("the server is up");
    let rule = Rule::new("streams", Quota::concurrency(LIMIT).slot_ttl(LIFE));
    Limiter::new(store, [rule]).on_failure(OnFailure::Deny)
}

fn key(number: usize) -> Key {
    Key::new("user", number.to_string())
}

/// How many are served at once, for each key.
type Served = Arc<[AtomicU64; KEYS]>;

#[track_caller]
fn begin(served: &Served, number: usize) {
    let others = served[number].fetch_add(1, Ordering::SeqCst);
    assert!(others < LIMIT, "{} are served at once", others + 1);
}

async fn client(limiter: Limiter, served: Served, until: Instant) -> u64 {
    let (mut rng, mut admitted) = (fastrand::Rng::new(), 0);
    while Instant::now() < until {
        let number = rng.usize(..KEYS);
        let key = key(number);
        if rng.u8(..4) == 0 {
            // It leaves at the first wait, or a little later.
            let mut asked = Box::pin(limiter.acquire(&key));
            let _ = asked.as_mut().now_or_never();
            if rng.bool() {
                sleep(Duration::from_micros(rng.u64(..2_000))).await;
            }
            continue;
        }
        let Ok((decision, slots)) = limiter.acquire(&key).await else { continue };
        if decision.is_allowed() {
            admitted += 1;
            begin(&served, number);
            let long = if rng.u8(..20) == 0 { 8_000 } else { 20 };
            sleep(Duration::from_millis(rng.u64(..long))).await;
            served[number].fetch_sub(1, Ordering::SeqCst);
        }
        drop(slots);
    }
    admitted
}

/// How many a key has left; none if the server does not reply in time.
async fn left(limiter: &Limiter, number: usize) -> u64 {
    limiter.peek(&key(number)).await.map_or(0, |look| look.outcomes()[0].remaining())
}

/// Waits for requests that outlive their clients: a runtime that stands still holds a slot for up to 17 s.
async fn until_none_is_served(served: &Served) {
    let start = Instant::now();
    while served.iter().any(|served| served.load(Ordering::SeqCst) > 0) {
        assert!(start.elapsed() < Duration::from_secs(60), "{served:?} are served for ever");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn history(mishap: impl AsyncFn(&RedisServer, &Limiter, &Served)) {
    let server = RedisServer::start();
    let processes = [process(&server).await, process(&server).await, process(&server).await];
    let (all_served, until) = (Served::default(), Instant::now() + Duration::from_secs(many([5, 14])));
    let mut clients = JoinSet::new();
    for number in 0..96 {
        clients.spawn(client(processes[number % 3].clone(), Arc::clone(&all_served), until));
    }
    while Instant::now() < until {
        mishap(&server, &processes[0], &all_served).await;
    }
    let admitted: u64 = clients.join_all().await.into_iter().sum();
    assert!(admitted > 100, "{admitted} were admitted");
    until_none_is_served(&all_served).await;
    let start = Instant::now();
    loop {
        let mut all = [0; KEYS];
        for (number, left_of) in all.iter_mut().enumerate() {
            *left_of = left(&processes[0], number).await;
        }
        if all == [LIMIT; KEYS] {
            return;
        }
        assert!(start.elapsed() < LIFE + LIFE / 8 + Duration::from_secs(3), "{all:?} are left");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A runtime that ends, stands still or is not driven any more while it holds a slot.
fn stray(limiter: &Limiter, served: &Served) {
    let mut rng = fastrand::Rng::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    let number = rng.usize(..KEYS);
    let (long, driven) = (Duration::from_millis(rng.u64(..7_000)), Duration::from_millis(rng.u64(..2_500)));
    let held = runtime.block_on(async {
        let (decision, slots) = limiter.acquire(&key(number)).await.ok()?;
        if !decision.is_allowed() {
            return None;
        }
        begin(served, number);
        sleep(driven).await;
        Some(slots)
    });
    let Some(slots) = held else { return };
    let mut runtime = Some(runtime);
    match rng.u8(..3) {
        0 => runtime = None,
        1 => runtime.iter().for_each(|runtime| runtime.block_on(async { std::thread::sleep(long) })),
        _ => {}
    }
    std::thread::sleep(long);
    served[number].fetch_sub(1, Ordering::SeqCst);
    let _entered = runtime.as_ref().map(|runtime| runtime.enter());
    drop(slots);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_never_serve_more_than_the_limit_and_all_slots_come_back_whatever_happens() {
    history(async |server, limiter, served| {
        // First, because slots are renewed on the runtime that takes the first one.
        sleep(Duration::from_millis(fastrand::u64(20..600))).await;
        match fastrand::u8(..3) {
            0 => drop(server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])),
            1 => {
                server.pause();
                sleep(Duration::from_millis(fastrand::u64(..400))).await;
                server.resume();
            }
            _ => {
                let (limiter, served) = (limiter.clone(), Arc::clone(served));
                std::thread::spawn(move || stray(&limiter, &served));
            }
        }
    })
    .await;
}
