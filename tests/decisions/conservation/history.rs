//! Random histories, many keys side by side, on one clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::StatusCode;
use tollgate::policy::{Algorithm, Count};
use tollgate::store::{Ask, Check, Store};
use tollgate::{MemoryStore, Quota, RateLimitLayer, RedisStore};

use super::oracle::{Left, replay};
use super::recorder::Recorder;
use super::requests::{Command, Open, policy, request};
use crate::support::clock::ManualClock;
use crate::support::server::RedisServer;
use crate::support::slow::many;

/// Charges, refunds, requests, responses and drops of each algorithm, on each kind of store.
const OPERATIONS: [u64; 2] = [4_000, 100_000];
const KEYS: usize = 64;
const STEPS: usize = 60;
/// Requests of one key at once.
const MAX_OPEN: usize = 6;
/// In case that what is awaited never happens.
const MAX_LOOKS: usize = 10_000;

const S: u64 = 1_000_000;
/// Redis forgets by its own clock: so no window ends soon.
const WINDOW: u64 = 3_600 * S;
const HOUR: Duration = Duration::from_micros(WINDOW);

struct History<S> {
    clock: ManualClock,
    recorder: Arc<Recorder<S>>,
    layers: Vec<RateLimitLayer>,
    rng: Rng,
    open: Vec<Vec<Open>>,
    operations: u64,
    /// Counters that were compared, and those of which all had to be equal.
    compared: [u64; 2],
    /// The clock stands while requests are open.
    is_still: bool,
    slack: Duration,
}

/// The quota, and how far times may be apart: Redis forgets what is nearly over by its own clock.
fn quota(algorithm: Algorithm, is_redis: bool) -> (Quota, Duration) {
    let slack = if is_redis { Duration::from_secs(10) } else { Duration::ZERO };
    let quota = match algorithm {
        Algorithm::FixedWindow => Quota::fixed_window(20, HOUR),
        Algorithm::SlidingLog => Quota::sliding_log(20, HOUR),
        Algorithm::SlidingWindow => Quota::sliding_window(20, HOUR),
        Algorithm::TokenBucket => Quota::token_bucket(20, HOUR).burst(30),
        // In Redis nobody's turn comes while the test runs.
        _ if is_redis => Quota::leaky_bucket(120, HOUR).queue(8),
        _ => Quota::leaky_bucket(3_600_000, HOUR).queue(8),
    };
    (quota, slack)
}

impl<S: Store> History<S> {
    fn new((quota, slack): (Quota, Duration), inner: S, clock: ManualClock, rng: Rng) -> Self {
        let recorder = Arc::new(Recorder::new(inner, clock.clone()));
        let policies = [policy(quota), policy(quota).count(Count::failures()), policy(quota).refund_dropped()];
        let layers = policies.map(|policy| RateLimitLayer::new(Arc::clone(&recorder), policy)).into();
        let open = (0..KEYS).map(|_| Vec::new()).collect();
        Self { clock, recorder, layers, rng, open, operations: 0, compared: [0; 2], is_still: false, slack }
    }

    /// One history of new keys.
    async fn run(&mut self, number: usize) {
        // Only of these is a queue compared exactly: there have to be enough of them.
        self.is_still = !number.is_multiple_of(3);
        self.recorder.lose_each(if self.rng.u32(..4) == 0 { 10 } else { 0 });
        for _ in 0..STEPS {
            for key in 0..KEYS {
                self.step(key, number);
            }
            self.quiet().await;
            if !self.is_still || self.open.iter().all(Vec::is_empty) {
                self.pass_time();
            }
        }
        for open in self.open.iter_mut().flat_map(std::mem::take) {
            drop(open.commands);
            open.served.abort();
        }
        self.quiet().await;
        self.compare().await;
    }

    /// Something happens to a key.
    fn step(&mut self, key: usize, number: usize) {
        let (open, rng) = (&mut self.open[key], &mut self.rng);
        self.operations += 1;
        open.retain(|open| !open.served.is_finished() || is_used_later(open, rng));
        // Of a few at once, some pass each other in most queues.
        let max_open = if self.is_still && key.is_multiple_of(2) { 1 } else { MAX_OPEN };
        if open.is_empty() || open.len() < max_open && rng.u32(..3) == 0 {
            let layer = self.layers[rng.usize(..self.layers.len())].clone();
            open.push(request(&layer, &format!("{number}-{key}"), rng.u64(1..4)));
            return;
        }
        let place = rng.usize(..open.len());
        let command = match rng.u32(..13) {
            0..3 => Command::Charge(rng.u64(..12)),
            3..5 => Command::Refund(rng.u64(..8)),
            5..8 => Command::Flush(rng.bool()),
            8..12 => {
                let status = if rng.bool() { StatusCode::OK } else { StatusCode::BAD_GATEWAY };
                Command::Answer(status, rng.bool().then(|| rng.u64(..12)))
            }
            _ => {
                open.swap_remove(place).served.abort();
                return;
            }
        };
        // A request that was refused meanwhile hears nothing.
        let _ = open[place].commands.send(command);
    }

    /// Lets the store answer all, and requests what follows from that.
    async fn quiet(&self) {
        let mut calm = 0;
        for _ in 0..MAX_LOOKS {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            calm = if self.recorder.in_flight() == 0 { calm + 1 } else { 0 };
            if calm == 3 {
                return;
            }
            if self.recorder.in_flight() > 0 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
        panic!("the store does not answer");
    }

    fn pass_time(&mut self) {
        let now = self.clock.now();
        let mut next = now + self.rng.u64(..WINDOW / 40);
        if self.rng.u32(..60) == 0 {
            next += WINDOW;
        }
        // Hours of the calendar's zone end in the middle of ours.
        let half = WINDOW / 2;
        let is_near_an_end = next % half > half / 10 * 8;
        if is_near_an_end && !self.slack.is_zero() {
            next += half - next % half;
        }
        self.clock.set(next);
    }

    /// Compares what is left of this history's keys with what a replay leaves.
    async fn compare(&mut self) {
        let now = self.clock.now();
        for book in self.recorder.take_books() {
            let look = [Check::new(book.counter.clone(), 0)];
            let looked = self.recorder.inner.decide(&look, Ask::default()).wait().await.expect("the store answers");
            let (left, alone) = (Left::of(&looked), replay(&book, now));
            let falls = matches!(book.counter.quota().algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
            let slack = if falls { self.slack } else { Duration::ZERO };
            assert!(left.reset + slack >= alone.reset, "{left:?}, alone {alone:?}: {book:?}");
            assert!(left.remaining <= alone.remaining || !slack.is_zero(), "{left:?}, alone {alone:?}: {book:?}");
            self.compared[0] += 1;
            if !falls || !book.is_late {
                assert!(left.reset <= alone.reset + slack, "{left:?}, alone {alone:?}: {book:?}");
                assert!(left.remaining == alone.remaining || !slack.is_zero(), "{left:?}, alone {alone:?}: {book:?}");
                self.compared[1] += 1;
            }
        }
    }
}

/// Whether the handle of a request that was answered is used, and may be again.
fn is_used_later(open: &Open, rng: &mut Rng) -> bool {
    let mut kept = open.handle.lock().expect("it is not poisoned");
    match kept.as_ref() {
        Some(handle) if rng.u32(..3) == 0 => handle.charge(rng.u64(..6)),
        Some(handle) if rng.u32(..3) == 0 => handle.refund(rng.u64(..6)),
        Some(handle) if rng.bool() => {
            let handle = handle.clone();
            tokio::spawn(async move { handle.flush().await });
        }
        _ => *kept = None,
    }
    kept.is_some()
}

async fn run<S: Store>(what: &str, quota: (Quota, Duration), name: &str, inner: S, clock: ManualClock) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("{what} on {name}: seed {seed}");
    let (start, mut history) = (Instant::now(), History::new(quota, inner, clock, Rng::with_seed(seed)));
    let (mut number, wanted) = (0, many(OPERATIONS));
    while history.operations < wanted {
        number += 1;
        history.run(number).await;
    }
    let [all, exact] = history.compared;
    println!("{} operations, {all} counters compared, {exact} exactly, in {:?}", history.operations, start.elapsed());
    assert!(all > wanted / 100 && exact > all / 4, "too little was compared");
}

async fn on_both(algorithm: Algorithm) {
    both(&format!("{algorithm:?}"), |is_redis| quota(algorithm, is_redis)).await;
}

/// A history of a quota in memory, and one in Redis.
async fn both(what: &str, quota: impl Fn(bool) -> (Quota, Duration)) {
    let clock = ManualClock::new();
    run(what, quota(false), "memory", MemoryStore::builder().clock(clock.reader()).build(), clock).await;
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().without_deny_cache().clock(clock.reader()).timeout(Duration::from_secs(60));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    run(what, quota(true), "Redis", store, clock).await;
}

#[tokio::test]
async fn a_fixed_window_has_what_is_owed() {
    on_both(Algorithm::FixedWindow).await;
}

/// Its hours begin half an hour apart from those of UTC.
#[cfg(feature = "calendar")]
#[tokio::test]
async fn a_calendar_window_has_what_is_owed() {
    let hour = tollgate::policy::Calendar::hourly("Asia/Kolkata").expect("the system has time zones");
    let slack = |is_redis| quota(Algorithm::FixedWindow, is_redis).1;
    both("a calendar window", |is_redis| (Quota::calendar_window(20, hour), slack(is_redis))).await;
}

#[tokio::test]
async fn a_sliding_log_has_what_is_owed() {
    on_both(Algorithm::SlidingLog).await;
}

#[tokio::test]
async fn a_sliding_window_has_what_is_owed() {
    on_both(Algorithm::SlidingWindow).await;
}

#[tokio::test]
async fn a_token_bucket_has_what_is_owed() {
    on_both(Algorithm::TokenBucket).await;
}

#[tokio::test]
async fn a_leaky_bucket_has_what_is_owed() {
    on_both(Algorithm::LeakyBucket).await;
}
