//! A Redis that does not answer, and a flood.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use tokio::task::unconstrained;
use tollgate::store::{Ask, BreakerState, Store, StoreDecision};
use tollgate::{Error, Key, Limiter, RedisStore};

use crate::counted::layer;
use crate::rig::{check, left, ms, turn, workers};
use crate::support::proxy::Proxy;
use crate::support::server::RedisServer;
use crate::watch::Watch;

const FLOOD: usize = 150_000;
/// As documented.
const MAX_WAITING: usize = 65_536;
/// Calls of 128 checks at most that are in flight on a connection: the first four callers have one each.
const CALLS: usize = 4;
const BATCH: usize = 128;
/// All are asked within it, also by a build without optimisations, unless the machine is busy.
const BUDGET: Duration = ms(4_000);
/// What such a build needs to answer so many, and on a machine that stalls.
const GRACE: Duration = ms(1_500);
const BUSY_GRACE: Duration = ms(12_000);

type Asked = Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>;

/// Asks for all, none of which can be answered yet; returns who waits, since when, and how many do not. Some of the
/// others ask by a layer, too; returns how many of these are turned away at once.
async fn flood(store: &RedisStore, limiter: &Limiter) -> (Vec<(Instant, Asked)>, [usize; 2]) {
    let (mut waiting, mut refused, mut turned_away) = (Vec::new(), 0, 0);
    for number in 0..FLOOD {
        let mut asked: Asked = Box::pin(store.decide(&[check(&format!("flood-{number}"), 1)], Ask::default()).wait());
        let start = Instant::now();
        // A budget for each task's polls is not the point.
        let polled = unconstrained(poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx)))).await;
        match polled {
            Poll::Ready(answer) => {
                answer.expect_err("Redis is paused");
                refused += 1;
                if refused % 1_000 == 0 {
                    let turned = limiter.check(&Key::hashed("header x-api-key", "turned away")).now_or_never();
                    turned_away += usize::from(turned.is_some_and(|answer| answer.is_err()));
                }
            }
            Poll::Pending => waiting.push((start, asked)),
        }
        if number % 1_000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    (waiting, [refused, turned_away])
}

/// Returns how many waited at the same time at least: those that began so soon after each other that none was over.
fn at_once(waiting: &[(Instant, Asked)]) -> usize {
    let since = |last: Instant| waiting.partition_point(|(start, _)| *start + BUDGET * 3 / 4 <= last);
    waiting.iter().enumerate().map(|(place, (start, _))| place + 1 - since(*start)).max().unwrap_or(0)
}

/// Waits for each; returns the longest wait.
async fn drain(waiting: Vec<(Instant, Asked)>) -> Duration {
    let wait = |(start, asked): (Instant, Asked)| {
        tokio::spawn(async move {
            drop(asked.await);
            start.elapsed()
        })
    };
    let all = join_all(waiting.into_iter().map(wait)).await;
    all.into_iter().map(|took| took.expect("it ends")).max().unwrap_or_default()
}

#[test]
fn before_a_paused_redis_a_bounded_number_waits_and_four_calls_are_in_flight() {
    let (_turn, redis, runtime) = (turn(), RedisServer::start(), workers());
    let proxy = Proxy::to(redis.port());
    let store = runtime.block_on(RedisStore::builder().timeout(BUDGET).connect(&proxy.url())).expect("it connects");
    runtime.block_on(left(&store, "warm"));
    proxy.take_calls();
    redis.pause();
    let (watch, start) = (Watch::start(), Instant::now());
    let (layer, of_flood) = (layer(&store, 4_000), store.clone());
    let limiter = layer.clone().live().limiter();
    let asking = runtime.spawn(async move { flood(&of_flood, &limiter).await });
    let (waiting, [refused, turned_away]) = runtime.block_on(asking).expect("asking does not fail");
    // Nobody looks for the answers meanwhile.
    let flooding = start.elapsed();
    let (count, at_once) = (waiting.len(), at_once(&waiting));
    let longest = runtime.block_on(drain(waiting));
    let grace = if watch.stop().is_of_a_busy_machine() { BUSY_GRACE } else { GRACE };
    let calls = proxy.take_calls();
    println!(
        "a paused Redis: {count} wait ({at_once} at once) for {longest:?}, {refused} fail at once, calls {calls:?}"
    );
    redis.resume();
    // A machine so busy that most are late before all have asked turns few away.
    assert!(turned_away >= refused / 2_000, "{turned_away} were turned away at once, beside {refused}");
    assert_eq!(layer.live().breaker_state(), BreakerState::Closed, "who is turned away is no failure of Redis");
    assert!(at_once <= MAX_WAITING + CALLS * BATCH, "{at_once} wait at once");
    assert!(calls.iter().all(|&calls| calls <= CALLS), "calls on each connection: {calls:?}");
    assert!(longest < BUDGET.max(flooding) + grace, "{longest:?}");
    let start = Instant::now();
    while runtime.block_on(store.decide(&[check("after", 1)], Ask::default()).wait()).is_err() {
        assert!(start.elapsed() < ms(1_000), "Redis decides again");
    }
}
