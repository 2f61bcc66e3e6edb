//! Buckets of amounts that need more than 52 bits: memory and Redis take, refund and charge alike, whatever the clock
//! does and whatever becomes of the limit.
//!
//! Redis forgets keys by real time while the clock is the test's: a trace ends where its state may not live for
//! [`SHORTEST_LIFE`], as what follows would prove nothing.

use std::time::Duration;

use fastrand::Rng;
use tollgate::policy::Algorithm;
use tollgate::store::{Ask, Change, Receipt, Settlement, Store, StoreDecision};
use tollgate::{MemoryStore, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::clock::ManualClock;
use crate::support::server::{RedisServer, Session};

const S: u64 = 1_000_000;
const DAY: u64 = 86_400 * S;
const WINDOWS: [u64; 8] = [10 * S, 59_999_999, 60 * S, 61 * S, 3_600 * S, DAY, 366 * DAY, 69 * 365 * DAY];

const TRILLION: u64 = 1_000_000_000_000;
const SHORTEST_LIFE: i64 = 5_000;
const TRACES: usize = 400;
const STEPS: usize = 25;

/// A number of any size up to `most`.
fn up_to(rng: &mut Rng, most: u64) -> u64 {
    if rng.u8(..4) == 0 { most } else { (rng.u64(..=most) >> rng.u32(..20)).max(1) }
}

/// A bucket of any size; mostly of the largest.
fn quota(rng: &mut Rng, algorithm: Algorithm, window: u64) -> Quota {
    let largest = TRILLION >> if rng.u8(..4) == 0 { rng.u32(..40) } else { 0 };
    let quota =
        Quota::try_new(algorithm, up_to(rng, largest), Duration::from_micros(window)).expect("any limit is taken");
    let extra = up_to(rng, largest);
    let queue = |quota: Quota| quota.try_queue(extra)?.try_nodelay((1 + extra / 2).min(1 << 32));
    queue(quota).or_else(|_| quota.try_burst(extra)).unwrap_or(quota)
}

/// One key in both stores.
struct Pair {
    clock: ManualClock,
    memory: MemoryStore,
    redis: RedisStore,
    session: Session,
    _server: RedisServer,
    quota: Quota,
    receipts: Vec<[Receipt; 2]>,
    /// Whether there was a state.
    was_kept: bool,
    /// States that Redis kept as units and parts, and others.
    states: [usize; 2],
}

impl Pair {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings =
            RedisStore::builder().without_deny_cache().clock(clock.reader()).timeout(Duration::from_secs(60));
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        let (memory, quota, session) = (MemoryStore::new(), Quota::per_second(1), server.session());
        let (receipts, was_kept, states) = (Vec::new(), false, [0; 2]);
        Self { clock, memory, redis, session, _server: server, quota, receipts, was_kept, states }
    }

    async fn trace(&mut self, rng: &mut Rng, told: &str) {
        let algorithm = *rng.choice(&[Algorithm::TokenBucket, Algorithm::LeakyBucket]).expect("one of two");
        let window = *rng.choice(&WINDOWS).expect("a window");
        let _: String = self.session.ask(&["FLUSHALL"]);
        self.memory = MemoryStore::builder().clock(self.clock.reader()).build();
        self.receipts.clear();
        self.was_kept = false;
        let mut now = 100 * 366 * DAY / 10;
        for step in 0..STEPS {
            if step == 0 || rng.u8(..6) == 0 {
                self.quota = quota(rng, algorithm, window);
            }
            now = later(rng, now, window);
            self.clock.set(now);
            let told = format!("{told}, step {step}, {:?} at {now}", self.quota);
            match rng.u8(..8) {
                0 => self.adjust(rng, &told).await,
                1 | 2 if !self.receipts.is_empty() => self.settle(rng, &told).await,
                _ => self.decide(rng, &told).await,
            }
            if !self.is_kept() {
                return;
            }
        }
    }

    async fn decide(&mut self, rng: &mut Rng, told: &str) {
        let most = self.quota.capacity();
        let cost = [0, 1, most, most + 1, most / 2, up_to(rng, most), up_to(rng, most), u64::MAX][rng.usize(..8)];
        let floor = [0, 0, 0, 1, up_to(rng, most)][rng.usize(..5)];
        let checks = [check("ada", self.quota, cost).floor(floor)];
        let memory = self.memory.decide(&checks, Ask::default()).wait().await.expect("memory is there");
        let redis = self.redis.decide(&checks, Ask::default()).wait().await.expect("the server is up");
        assert_eq!(memory.decision.outcomes(), redis.decision.outcomes(), "{told}: {cost} above {floor}");
        let stamps =
            |decided: &StoreDecision| decided.receipt.items().iter().map(|taken| taken.stamp).collect::<Vec<_>>();
        if memory.decision.is_allowed() && cost > 0 {
            assert_eq!(stamps(&memory), stamps(&redis), "{told}");
            self.was_kept = true;
            self.receipts.push([memory.receipt, redis.receipt]);
        }
    }

    async fn settle(&mut self, rng: &mut Rng, told: &str) {
        let [memory, redis] = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
        let changes = [Settlement::new(0, change(rng, &self.quota))];
        let memory = self.memory.settle(memory, &changes).wait().await.expect("memory is there");
        let redis = self.redis.settle(redis, &changes).wait().await.expect("the server is up");
        assert_eq!(memory, redis, "{told}: {changes:?}");
    }

    async fn adjust(&mut self, rng: &mut Rng, told: &str) {
        let (counter, change) = (counter("ada", self.quota), change(rng, &self.quota));
        let memory = self.memory.adjust(&counter, change).wait().await.expect("memory is there");
        let redis = self.redis.adjust(&counter, change).wait().await.expect("the server is up");
        assert_eq!(memory, redis, "{told}: {change:?}");
        self.was_kept |= memory.units > 0;
    }

    /// Whether Redis has a state that it keeps for long enough, or never had one.
    fn is_kept(&mut self) -> bool {
        let [key] = &self.session.keys()[..] else { return !self.was_kept };
        let left: i64 = self.session.ask(&["PTTL", key]);
        assert_ne!(left, -1, "{key} never expires");
        self.states[usize::from(self.session.ask::<u64>(&["STRLEN", key]) == 21)] += 1;
        left > SHORTEST_LIFE
    }
}

fn change(rng: &mut Rng, quota: &Quota) -> Change {
    let units = [1, up_to(rng, quota.capacity()), up_to(rng, 2 * quota.capacity()), u64::MAX][rng.usize(..4)];
    if rng.bool() { Change::Refund(units) } else { Change::Charge(units) }
}

/// The clock stands, steps forward by some ticks or some of the window, or back.
fn later(rng: &mut Rng, now: u64, window: u64) -> u64 {
    match rng.u8(..8) {
        0 => now + rng.u64(..10_000),
        1 | 2 => now + rng.u64(..window / 4),
        3 => now + rng.u64(..window / 1_000),
        4 => now - rng.u64(..window.min(3_600 * S)),
        _ => now,
    }
}

#[tokio::test]
async fn memory_and_redis_count_large_amounts_alike() {
    let (mut pair, seed) = (Pair::start().await, 0x6c61_7267);
    let mut rng = Rng::with_seed(seed);
    for trace in 0..TRACES {
        pair.trace(&mut rng, &format!("seed {seed}, trace {trace}")).await;
    }
    let [wide, others] = pair.states;
    eprintln!("states of {wide} large levels and {others} others");
    assert!(wide > 1_000 && others > 1_000, "{wide} {others}");
}
