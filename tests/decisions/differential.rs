//! Random traces: memory and Redis answer alike, field by field, whatever the clock does and whatever becomes of quotas of
//! any size.
//!
//! Redis forgets keys by real time while the clock is the test's. So a trace ends before [`LIFE`], and the history of a key
//! ends, and that of another begins, where a state is written that may not live for so long. The memory store is a new one
//! for each trace: it would otherwise drop keys idle by a clock that then steps back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::join_all;
use tollgate::policy::Algorithm;
#[cfg(feature = "calendar")]
use tollgate::policy::Calendar;
use tollgate::store::{Ask, Change, Check, Mode, Receipt, Settlement, Store, StoreDecision};
use tollgate::{MemoryStore, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::clock::ManualClock;
use crate::support::server::RedisServer;
use crate::support::slow::many;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;
const DAY: u64 = 86_400 * S;
const TRILLION: u64 = 1_000_000_000_000;

/// How many decisions of each algorithm are compared.
const WANTED: [u64; 2] = [3_000, 100_000];
const MAX_TRACES: u64 = 400;
const LANES: usize = 64;
const STEPS: usize = 40;

/// What no state's time to live falls below, and no trace may take.
const LIFE: Duration = Duration::from_secs(5);

/// Windows that divide others and that do not, of both ticks.
const WINDOWS: [u64; 10] =
    [30 * S, 59_999_999, 60 * S, 61 * S, 601 * S, 3_600 * S, DAY, 30 * DAY, 366 * DAY, 69 * 365 * DAY];

/// Where the clock stands at first.
const START: u64 = 3_660 * DAY;

/// Both stores, on one clock, and how often what was compared.
struct Pair {
    clock: ManualClock,
    memory: MemoryStore,
    redis: RedisStore,
    server: RedisServer,
    compared: BTreeMap<&'static str, u64>,
}

impl Pair {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings =
            RedisStore::builder().without_deny_cache().clock(clock.reader()).timeout(Duration::from_secs(60));
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        Self { clock, memory: MemoryStore::new(), redis, server, compared: BTreeMap::new() }
    }

    /// Asks both stores the same requests, those of distinct keys, at once.
    async fn decide(&mut self, requests: &[Vec<Check>], told: &str) -> Vec<[StoreDecision; 2]> {
        let answers = join_all(requests.iter().map(|request| self.redis.decide(request, Ask::default()).wait())).await;
        let mut both = Vec::new();
        for (request, redis) in requests.iter().zip(answers) {
            let memory = self.memory.decide(request, Ask::default()).wait().await.expect("memory answers");
            let redis = redis.expect("the server answers");
            assert_eq!(whole(&memory), whole(&redis), "{told}: {request:#?}");
            for quota in request.iter().map(|check| check.counter.quota()) {
                self.count(quota.algorithm().as_str());
                if quota.limit() > TRILLION / 1_000 {
                    self.count("large");
                }
            }
            both.push([memory, redis]);
        }
        both
    }

    fn count(&mut self, what: &'static str) {
        *self.compared.entry(what).or_default() += 1;
    }

    fn has_enough(&self) -> bool {
        let wanted = many(WANTED);
        let of = |what| self.compared.get(what).copied().unwrap_or_default();
        Algorithm::ALL.iter().all(|algorithm| of(algorithm.as_str()) >= wanted)
            && ["large", "settled", "adjusted"].into_iter().all(|what| of(what) >= wanted / 10)
    }
}

/// All that a decision says, but for who made it.
fn whole(decided: &StoreDecision) -> impl PartialEq + std::fmt::Debug + '_ {
    let decision = &decided.decision;
    let taken: Vec<_> = decided.receipt.items().iter().map(|taken| (taken.units, taken.stamp)).collect();
    (decision.outcomes(), decision.is_allowed(), decision.retry_after(), decision.delay(), decision.binding(), taken)
}

/// One key, its quotas, and what it may give back.
struct Lane {
    key: String,
    quotas: Vec<Quota>,
    receipts: Vec<(Vec<Check>, [Receipt; 2])>,
}

impl Lane {
    fn new(rng: &mut Rng, key: usize) -> Self {
        let quotas = Algorithm::ALL.iter().map(|algorithm| any_quota(rng, *algorithm)).collect();
        Self { key: key.to_string(), quotas, receipts: Vec::new() }
    }

    /// One to three checks, now and then of one counter.
    fn request(&mut self, rng: &mut Rng) -> Vec<Check> {
        if one_in(rng, 15) {
            let index = rng.usize(..self.quotas.len());
            self.quotas[index] = with_units(rng, self.quotas[index]);
        }
        (0..*pick(rng, &[1, 2, 3, 3])).map(|_| self.check(rng)).collect()
    }

    fn check(&self, rng: &mut Rng) -> Check {
        let quota = *pick(rng, &self.quotas);
        let most = quota.capacity();
        let cost = match rng.u32(..8) {
            0 => *pick(rng, &[0, most, most + 1, u64::MAX]),
            1..4 => size(rng, most),
            _ => *pick(rng, &[1, 1, 1, 2, 3, 5]),
        };
        let floor = if one_in(rng, 6) { *pick(rng, &[1, 2, 3, 30, most / 2, u64::MAX]) } else { 0 };
        let mode = if one_in(rng, 6) { Mode::Shadow } else { Mode::Enforce };
        check(&self.key, quota, cost).floor(floor).mode(mode)
    }

    /// Keeps what was decided; returns whether all that it wrote lives for long enough.
    fn decided(&mut self, request: Vec<Check>, [memory, redis]: [StoreDecision; 2]) -> bool {
        let written =
            memory.decision.outcomes().iter().zip(memory.receipt.items()).filter(|(_, taken)| taken.units > 0);
        let lives = written.map(|(outcome, _)| outcome.reset_after()).all(|reset| reset >= LIFE);
        self.receipts.push((request, [memory.receipt, redis.receipt]));
        lives
    }

    /// Changes what a request took, or a counter, now and then; returns whether what was written lives for long enough.
    async fn change(&mut self, pair: &mut Pair, rng: &mut Rng, told: &str) -> bool {
        let quota = *pick(rng, &self.quotas);
        let (memory, redis, change) = match rng.u32(..100) {
            0..35 if !self.receipts.is_empty() => {
                let (request, [memory, redis]) = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
                let index = rng.usize(..request.len());
                let change = any_change(rng, *request[index].counter.quota());
                let changes = [Settlement::new(index, change)];
                pair.count("settled");
                (pair.memory.settle(memory, &changes), pair.redis.settle(redis, &changes), change)
            }
            35..41 => {
                let change = if one_in(rng, 6) { Change::Reset } else { any_change(rng, quota) };
                let counter = counter(&self.key, quota);
                pair.count("adjusted");
                let (memory, redis) = (pair.memory.adjust(&counter, change), pair.redis.adjust(&counter, change));
                let all = |one| vec![one];
                (memory.map(move |one| one.map(all)), redis.map(move |one| one.map(all)), change)
            }
            _ => return true,
        };
        let memory = memory.wait().await.expect("memory answers");
        assert_eq!(memory, redis.wait().await.expect("the server answers"), "{told}: {}: {change:?}", self.key);
        memory.iter().filter_map(|applied| applied.outcome.as_ref()).all(|outcome| outcome.reset_after() >= LIFE)
    }
}

async fn run_trace(pair: &mut Pair, rng: &mut Rng, told: &str) {
    let _: String = pair.server.ask(&["FLUSHALL"]);
    pair.memory = MemoryStore::builder().clock(pair.clock.reader()).build();
    let (since, mut now, mut keys) = (Instant::now(), START, LANES);
    let mut lanes: Vec<Lane> = (0..LANES).map(|lane| Lane::new(rng, lane)).collect();
    for step in 0..STEPS {
        now = later(rng, now);
        pair.clock.set(now);
        let told = format!("{told}, step {step}, at {now}");
        let requests: Vec<Vec<Check>> = lanes.iter_mut().map(|lane| lane.request(rng)).collect();
        let answers = pair.decide(&requests, &told).await;
        for ((lane, request), answer) in lanes.iter_mut().zip(requests).zip(answers) {
            if !lane.decided(request, answer) || !lane.change(pair, rng, &told).await {
                (*lane, keys) = (Lane::new(rng, keys), keys + 1);
            }
        }
        if since.elapsed() > LIFE / 4 * 3 {
            eprintln!("{told}: real time would overtake it");
            break;
        }
    }
}

fn any_change(rng: &mut Rng, quota: Quota) -> Change {
    let units = if one_in(rng, 30) { u64::MAX } else { size(rng, 2 * quota.capacity()) };
    match rng.u32(..5) {
        0 if quota.algorithm() == Algorithm::Concurrency => Change::Renew(units),
        0..3 => Change::Refund(units),
        _ => Change::Charge(units),
    }
}

/// A quota of any window; of several sizes.
fn any_quota(rng: &mut Rng, algorithm: Algorithm) -> Quota {
    #[cfg(feature = "calendar")]
    if algorithm == Algorithm::FixedWindow && rng.bool() {
        return Quota::calendar_window(rng.u64(1..=40), any_calendar(rng));
    }
    let window = Duration::from_micros(*pick(rng, &WINDOWS));
    let quota = Quota::try_new(algorithm, 1, window);
    with_units(rng, quota.or_else(|_| Quota::try_new(algorithm, 1, Duration::from_secs(60))).expect("of a minute"))
}

#[cfg(feature = "calendar")]
fn any_calendar(rng: &mut Rng) -> Calendar {
    let zone = *pick(rng, &["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]);
    let calendar = match rng.u32(..4) {
        0 => Calendar::hourly(zone),
        1 => Calendar::daily(zone),
        2 => Calendar::weekly(zone).map(|week| week.anchor(rng.u8(1..=7))),
        _ => Calendar::monthly(zone).map(|month| month.anchor(rng.u8(1..=31))),
    };
    calendar.expect("the system has time zones")
}

/// Another quota of the same window: small, or as large as can be, or in between.
fn with_units(rng: &mut Rng, quota: Quota) -> Quota {
    let (algorithm, is_small) = (quota.algorithm(), rng.bool());
    let limit = if is_small { rng.u64(1..=40) } else { size(rng, 1 << 49).max(1) };
    // A log of so many units would only be slow.
    let limit = if algorithm == Algorithm::SlidingLog { limit % 60 + 1 } else { limit };
    let of = |limit| match quota.calendar() {
        Some(calendar) => Quota::try_calendar_window(limit, calendar),
        None => Quota::try_new(algorithm, limit, quota.window()),
    };
    let quota = of(limit).unwrap_or_else(|_| of(largest(|limit| of(limit).is_ok())).expect("it is accepted"));
    let extra = if is_small { rng.u64(1..12) } else { size(rng, TRILLION).max(1) };
    let queue = |quota: Quota| quota.try_queue(extra)?.try_nodelay((1 + extra / 2).min(1 << 32));
    queue(quota).or_else(|_| quota.try_burst(extra)).unwrap_or(quota)
}

/// The largest number up to which a quota is accepted.
fn largest(accepted: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1_u64 << 53);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if accepted(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// A number of any size up to `most`, often near to it.
fn size(rng: &mut Rng, most: u64) -> u64 {
    let (less, bits) = (1 << rng.u32(..50), rng.u32(..20));
    match rng.u32(..4) {
        0 => most,
        1 => most - rng.u64(..=most.min(less) / 2),
        _ => rng.u64(..=most) >> bits,
    }
}

/// The clock stands, steps forward by some ticks or some of a window, or steps back.
fn later(rng: &mut Rng, now: u64) -> u64 {
    let window = *pick(rng, &WINDOWS[..8]);
    match rng.u32(..20) {
        0 => now - rng.u64(..window.min(3_600 * S)),
        1 => now - rng.u64(..10 * S),
        2 => now + rng.u64(..window),
        3..6 => now + rng.u64(..60 * S),
        6 | 7 => now + rng.u64(..10 * MS),
        8 => now.next_multiple_of(window),
        _ => now,
    }
}

fn one_in(rng: &mut Rng, many: u32) -> bool {
    rng.u32(..many) == 0
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

#[tokio::test]
async fn memory_and_redis_answer_alike() {
    let (mut pair, since) = (Pair::start().await, Instant::now());
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    let (mut rng, mut traces) = (Rng::with_seed(seed), 0);
    while traces < MAX_TRACES && !pair.has_enough() {
        run_trace(&mut pair, &mut rng, &format!("seed {seed}, trace {traces}")).await;
        traces += 1;
    }
    eprintln!("seed {seed}: {traces} traces in {:?}: {:?}", since.elapsed(), pair.compared);
    assert!(pair.has_enough(), "{:?}", pair.compared);
}
