//! Slots at random: what a store counts is what live bodies and guards hold, at every pause, and nothing at last.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep};
use tollgate::body::ResponseBody;
use tollgate::store::{DenyCache, LeaseStore, SlotGuard, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore, Rule, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::server::RedisServer;
use crate::support::slow::many;
use crate::support::time::memory;

const LIFE: Duration = Duration::from_secs(2);
const STREAMS: Quota = Quota::concurrency(30).slot_ttl(LIFE);
const OTHERS: Quota = Quota::concurrency(25).slot_ttl(LIFE);
const USERS: [&str; 2] = ["ada", "bob"];

/// What holds slots.
enum Holder {
    Body(ResponseBody<Full<Bytes>>),
    Guard(SlotGuard),
}

/// A request that was admitted.
struct Live {
    user: usize,
    cost: u64,
    holder: Holder,
}

/// Layers of two processes that share a store, and what their requests hold.
struct World {
    layers: [RateLimitLayer; 2],
    observers: [Limiter; 2],
    live: Vec<Live>,
    refused: u64,
    /// How long a store may take until all that was sent is counted.
    most: Duration,
}

impl World {
    fn new<S: Store + Clone>(stores: [S; 2], most: Duration) -> Self {
        let cost = |parts: &Parts| parts.headers["x-cost"].to_str().expect("text").parse().expect("a number");
        let policies = || {
            let streams = Policy::new("streams", STREAMS).key(key::header("x-user").plain()).cost_by(cost);
            [streams, Policy::new("others", OTHERS)]
        };
        let observers = [("streams", STREAMS), ("others", OTHERS)]
            .map(|(name, quota)| Limiter::new(stores[0].clone(), [Rule::new(name, quota)]));
        let layers = stores.map(|store| RateLimitLayer::composite(store).policies(policies()));
        Self { layers, observers, live: Vec::new(), refused: 0, most }
    }

    /// Sends a request; if it leaves, it does so after one poll.
    async fn start(&mut self, rng: &mut Rng, leaves: bool) {
        let (user, cost) = (rng.usize(..USERS.len()), rng.u64(0..5));
        let request = Request::get("/").header("x-user", USERS[user]).header("x-cost", cost);
        let request = request.body(String::new()).expect("a request");
        let service = self.layers[rng.usize(..2)].layer(service_fn(async |request: Request<String>| {
            let mut response = Response::new(Full::from("hello"));
            let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives it");
            response.extensions_mut().insert(handle.slots());
            Ok::<_, Infallible>(response)
        }));
        let calling = service.oneshot(request);
        if leaves {
            return drop(calling.now_or_never());
        }
        let (mut parts, body) = calling.await.expect("the service never fails").into_parts();
        if parts.status == StatusCode::TOO_MANY_REQUESTS {
            self.refused += 1;
            return;
        }
        let guard: SlotGuard = parts.extensions.remove().expect("the service gives it");
        let holder = if rng.bool() { Holder::Body(body) } else { Holder::Guard(guard) };
        self.live.push(Live { user, cost, holder });
    }

    async fn end(&mut self, rng: &mut Rng) {
        if self.live.is_empty() {
            return;
        }
        match self.live.swap_remove(rng.usize(..self.live.len())).holder {
            Holder::Body(body) if rng.bool() => drop(body.collect().await.expect("it never fails")),
            Holder::Guard(guard) => drop([guard.clone(), guard]),
            holder @ Holder::Body(_) => drop(holder),
        }
    }

    /// What is held of a user's streams, or of the others.
    fn held(&self, user: Option<usize>) -> u64 {
        let of_user = self.live.iter().filter(|live| user.is_none_or(|user| live.user == user));
        of_user.map(|live| if user.is_some() { live.cost } else { 1 }).sum()
    }

    async fn counted(&self, user: Option<usize>) -> u64 {
        let (observer, limit, key) = match user {
            Some(user) => (&self.observers[0], STREAMS.limit(), Key::new("header x-user", USERS[user])),
            None => (&self.observers[1], OTHERS.limit(), Key::new("global", "")),
        };
        limit - observer.peek(&key).await.expect("the store is there").outcomes()[0].remaining()
    }

    async fn check(&self, seed: u64) {
        for user in [Some(0), Some(1), None] {
            let (start, held) = (Instant::now(), self.held(user));
            loop {
                let counted = self.counted(user).await;
                assert!(counted >= held, "seed {seed}: {counted} are counted of {user:?}, {held} are held");
                if counted == held {
                    break;
                }
                assert!(start.elapsed() < self.most, "seed {seed}: {counted} are counted of {user:?}, {held} are held");
                sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Makes steps at random, with a check after each few.
    async fn live(&mut self, seed: u64, steps: u32, longest: Duration) {
        let mut rng = Rng::with_seed(seed);
        for step in 0..steps {
            match rng.u8(..10) {
                0..=3 => self.start(&mut rng, false).await,
                4 => self.start(&mut rng, true).await,
                5..=7 => self.end(&mut rng).await,
                8 => sleep(longest.mul_f64(rng.f64())).await,
                _ if step % 5 == 0 => self.live.clear(),
                _ => self.check(seed).await,
            }
        }
        self.check(seed).await;
        self.live.clear();
        self.check(seed).await;
    }
}

#[tokio::test]
async fn memory_and_stores_around_it_count_what_bodies_and_guards_hold_for_many_lives() {
    let clock = ManualClock::paused();
    let mut refused = 0;
    for seed in 0..many([60, 2_000]) {
        let store = memory(&clock);
        let mut world = match seed % 3 {
            0 => World::new([store.clone(), store], Duration::ZERO),
            1 => World::new(
                [(); 2].map(|()| Arc::new(DenyCache::builder(store.clone()).clock(clock.clone()).build())),
                Duration::ZERO,
            ),
            _ => World::new(
                [(); 2].map(|()| LeaseStore::builder(store.clone()).clock(clock.clone()).build()),
                Duration::ZERO,
            ),
        };
        world.live(seed, 200, LIFE / 2).await;
        refused += world.refused;
    }
    assert!(refused > 20, "{refused} were refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_counts_what_bodies_and_guards_of_two_processes_hold_for_several_lives() {
    let redis = RedisServer::start();
    for seed in 0..many([1, 20]) {
        let _: String = redis.ask(&["FLUSHALL"]);
        let connect = async || RedisStore::builder().timeout(Duration::from_secs(10)).connect(&redis.url()).await;
        let stores = [connect().await.expect("Redis is there"), connect().await.expect("Redis is there")];
        let mut world = World::new(stores, Duration::from_secs(1));
        world.live(seed, many([400, 1_000]), Duration::from_millis(100)).await;
    }
}
