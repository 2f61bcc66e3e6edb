//! Random traces: memory and Redis answer alike, field by field.
//!
//! Redis forgets keys by real time while the clock is the test's. So every write here lives for
//! [`SHORTEST_LIFE`] at least: windows are as long, a unit of a bucket returns no sooner, and the
//! clock keeps away from the ends of fixed windows. Traces are short and each uses keys of its own;
//! one that real time has overtaken proves nothing and is thrown away. The memory store is a new one
//! for each trace: it would otherwise drop keys idle by a clock that then steps back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::join_all;
use tollgate::policy::Algorithm;
use tollgate::store::{Ask, BanCheck, Change, Check, Mode, Receipt, Settlement, Store, StoreDecision};
use tollgate::{Ban, MemoryStore, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::clock::ManualClock;
use crate::support::server::RedisServer;
use crate::support::slow::many;

const S: u64 = 1_000_000;
const DAY: u64 = 86_400 * S;

/// What no write's time to live falls below, and no trace may take.
const SHORTEST_LIFE: Duration = Duration::from_secs(10);

/// How many decisions of each algorithm are compared, together a hundred thousand where all are.
const ANY_WAY: [u64; 2] = [6_000, 60_000];
const FORWARD: [u64; 2] = [3_000, 20_000];
const EXTREME: [u64; 2] = [3_000, 20_000];

const MOST_TRACES: u64 = 400;
const LANES: usize = 64;
const STEPS: usize = 40;

/// Where the clock may stand: up to a third into a cell of this length, which divides all fixed windows.
const CELL: u64 = 30 * S;
const FIXED_WINDOWS: [u64; 6] = [30, 60, 90, 600, 86_400, 30 * 86_400];
const WINDOWS: [u64; 7] = [30, 59, 60, 61, 601, 86_400, 30 * 86_400];

/// Windows of which a state outlives the end by enough, or that end far from where the clock stands.
fn windows(algorithm: Algorithm) -> &'static [u64] {
    match algorithm {
        Algorithm::FixedWindow => &FIXED_WINDOWS,
        _ => &WINDOWS,
    }
}

/// Both stores, on one clock.
struct Pair {
    clock: ManualClock,
    memory: MemoryStore,
    redis: RedisStore,
    wanted: u64,
    decisions: BTreeMap<&'static str, u64>,
    /// How many of them were refused by a ban.
    banned: u64,
    _server: RedisServer,
}

impl Pair {
    async fn start(wanted: u64) -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let memory = MemoryStore::new();
        let settings =
            RedisStore::builder().without_deny_cache().clock(clock.reader()).timeout(Duration::from_secs(60));
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        Self { clock, memory, redis, wanted, decisions: BTreeMap::new(), banned: 0, _server: server }
    }

    /// Asks both stores the same requests, those of distinct keys, at once.
    async fn decide(&self, requests: &[Vec<Check>]) -> Vec<[StoreDecision; 2]> {
        let answers = join_all(requests.iter().map(|request| self.redis.decide(request, Ask::default()).wait())).await;
        let mut both = Vec::new();
        for (request, redis) in requests.iter().zip(answers) {
            let memory = self.memory.decide(request, Ask::default()).wait().await.expect("memory answers");
            both.push([memory, redis.expect("the server answers")]);
        }
        both
    }

    /// Settles in both; what becomes of the changes is the same.
    async fn settle(&self, [memory, redis]: [Receipt; 2], changes: &[Settlement]) {
        let memory = self.memory.settle(memory, changes).wait().await.expect("memory answers");
        let redis = self.redis.settle(redis, changes).wait().await.expect("the server answers");
        assert_eq!(memory, redis, "{changes:?}");
    }

    /// Lets settlements be made: the store keeps the order of what it is asked.
    async fn let_settlements_go(&self) {
        let look = check("nobody", Quota::per_second(1), 0);
        drop(self.redis.decide(&[look], Ask::default()).wait().await.expect("the server answers"));
    }

    async fn adjust(&self, key: &str, quota: Quota, change: Change) {
        let counter = counter(key, quota);
        let memory = self.memory.adjust(&counter, change).wait().await.expect("memory answers");
        let redis = self.redis.adjust(&counter, change).wait().await.expect("the server answers");
        assert_eq!(memory, redis, "{key}, {quota}: {change:?}");
    }

    async fn reset(&self, key: &str, quota: Quota) {
        let counter = counter(key, quota);
        self.memory.adjust(&counter, Change::Reset).wait().await.expect("memory answers");
        self.redis.adjust(&counter, Change::Reset).wait().await.expect("the server answers");
    }

    fn count(&mut self, requests: &[Vec<Check>]) {
        for check in requests.iter().flatten() {
            *self.decisions.entry(check.counter.quota().algorithm().as_str()).or_default() += 1;
        }
    }

    fn has_enough(&self) -> bool {
        let of = |algorithm: &Algorithm| self.decisions.get(algorithm.as_str()).copied().unwrap_or_default();
        Algorithm::ALL.iter().all(|algorithm| of(algorithm) >= self.wanted)
    }

    /// Fails unless enough was compared, and says how much.
    #[track_caller]
    fn assert_enough(&self, seed: u64, since: Instant) {
        eprintln!("seed {seed}: decisions compared in {:?}: {:?}", since.elapsed(), self.decisions);
        assert!(self.has_enough() && self.banned > 100, "{:?}, {} by a ban", self.decisions, self.banned);
    }
}

/// One key, its quotas, its ban, and what it may give back.
struct Lane {
    key: String,
    ban: Ban,
    quotas: Vec<Quota>,
    receipts: Vec<(Vec<Check>, [Receipt; 2])>,
}

/// What random requests are made of.
trait Course {
    fn quota(&self, rng: &mut Rng, algorithm: Algorithm) -> Quota;
    /// The same window with other units.
    fn other(&self, rng: &mut Rng, quota: Quota) -> Quota;
    fn later(&self, rng: &mut Rng, now: u64) -> u64;
    fn cost(&self, rng: &mut Rng, quota: Quota) -> u64;
    fn may_refund(&self, quota: Quota) -> bool;
    fn units(&self, rng: &mut Rng, quota: Quota) -> u64;
}

/// Runs traces until there are enough decisions.
async fn compare(course: &impl Course, wanted: u64, seed: u64) {
    let (mut pair, mut rng, since) = (Pair::start(wanted).await, Rng::with_seed(seed), Instant::now());
    for trace in 0..MOST_TRACES {
        if pair.has_enough() {
            break;
        }
        let told = format!("seed {seed}, trace {trace}");
        run_trace(course, &mut pair, &mut rng, &told).await;
    }
    pair.assert_enough(seed, since);
}

async fn run_trace(course: &impl Course, pair: &mut Pair, rng: &mut Rng, told: &str) {
    let since = Instant::now();
    pair.memory = MemoryStore::builder().clock(pair.clock.reader()).build();
    let mut lanes: Vec<Lane> = (0..LANES).map(|lane| Lane::new(course, rng, format!("{told} {lane}"))).collect();
    let mut now = 100_000 * CELL;
    for step in 0..STEPS {
        now = course.later(rng, now);
        pair.clock.set(now);
        let requests: Vec<Vec<Check>> = lanes.iter_mut().map(|lane| lane.request(course, rng)).collect();
        let answers = pair.decide(&requests).await;
        if since.elapsed() > SHORTEST_LIFE {
            eprintln!("{told}: overtaken by real time at step {step}");
            return;
        }
        for ((lane, request), answer) in lanes.iter_mut().zip(&requests).zip(answers) {
            assert_alike(&answer, || format!("{told}, step {step}, at {now}: {request:#?}"));
            let [memory, redis] = answer;
            pair.banned += u64::from(memory.decision.is_banned());
            lane.receipts.push((request.clone(), [memory.receipt, redis.receipt]));
        }
        pair.count(&requests);
        for lane in &mut lanes {
            lane.change(course, pair, rng).await;
        }
        pair.let_settlements_go().await;
    }
}

#[track_caller]
fn assert_alike([memory, redis]: &[StoreDecision; 2], told: impl Fn() -> String) {
    assert_eq!(memory.decision.outcomes(), redis.decision.outcomes(), "{}", told());
    let combined = |decided: &StoreDecision| {
        let decision = &decided.decision;
        (decision.is_allowed(), decision.retry_after(), decision.delay(), decision.binding().cloned())
    };
    assert_eq!(combined(memory), combined(redis), "{}", told());
    let taken = |decided: &StoreDecision| -> Vec<(u64, u64)> {
        decided.receipt.items().iter().map(|taken| (taken.units, taken.stamp)).collect()
    };
    assert_eq!(taken(memory), taken(redis), "{}", told());
}

impl Lane {
    fn new(course: &impl Course, rng: &mut Rng, key: String) -> Self {
        let quotas = Algorithm::ALL.iter().map(|&algorithm| course.quota(rng, algorithm)).collect();
        Self { key, ban: ban(rng), quotas, receipts: Vec::new() }
    }

    /// One to three checks, now and then of one counter.
    fn request(&mut self, course: &impl Course, rng: &mut Rng) -> Vec<Check> {
        if one_in(rng, 15) {
            let index = rng.usize(..self.quotas.len());
            self.quotas[index] = course.other(rng, self.quotas[index]);
        }
        if one_in(rng, 15) {
            self.ban = ban(rng);
        }
        (0..*pick(rng, &[1, 2, 3, 3])).map(|_| self.check(course, rng)).collect()
    }

    fn check(&self, course: &impl Course, rng: &mut Rng) -> Check {
        let quota = self.quotas[rng.usize(..self.quotas.len())];
        let cost = course.cost(rng, quota);
        let floor = if one_in(rng, 6) { *pick(rng, &[1, 2, 3, 30, u64::MAX]) } else { 0 };
        let mode = if one_in(rng, 6) { Mode::Shadow } else { Mode::Enforce };
        let check = check(&self.key, quota, cost).floor(floor).mode(mode);
        if one_in(rng, 3) { check.ban(self.ban_check(rng)) } else { check }
    }

    /// The ban of the key; now and then without strikes of the check.
    fn ban_check(&self, rng: &mut Rng) -> BanCheck {
        let ban = BanCheck::new(self.ban);
        if one_in(rng, 8) { ban.without_strikes() } else { ban }
    }

    /// Gives back of two requests as if they were parts of one.
    async fn change_many(&mut self, course: &impl Course, pair: &Pair, rng: &mut Rng) {
        let mut some = || self.receipts.swap_remove(rng.usize(..self.receipts.len()));
        let ((first, before), (second, after)) = (some(), some());
        let parts = |place: usize| {
            let taken = [&before[place], &after[place]].map(|receipt: &Receipt| receipt.items().iter().cloned());
            Receipt::new(before[place].store(), taken.into_iter().flatten())
        };
        let checks = before[0].items().len() + after[0].items().len();
        let quotas: Vec<Quota> = first.iter().chain(&second).map(|check| *check.counter.quota()).collect();
        if !quotas.iter().all(|quota| course.may_refund(*quota)) {
            return;
        }
        let each = (0..checks).rev().map(|check| {
            let change = Change::Refund(course.units(rng, quotas[0]));
            Settlement::new(check, change)
        });
        let changes: Vec<_> = each.collect();
        pair.settle([parts(0), parts(1)], &changes).await;
    }

    /// Gives back, adds or renews, on the receipt of some request or without one.
    async fn change(&mut self, course: &impl Course, pair: &Pair, rng: &mut Rng) {
        if one_in(rng, 4) && !self.receipts.is_empty() {
            let (request, receipts) = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
            let check = rng.usize(..request.len());
            let change = match &request[check].ban {
                Some(ban) if rng.bool() => Change::Strike(ban.ban),
                _ => change(course, rng, *request[check].counter.quota()),
            };
            pair.settle(receipts, &[Settlement::new(check, change)]).await;
        }
        if one_in(rng, 8) && self.receipts.len() > 1 {
            self.change_many(course, pair, rng).await;
        }
        let quota = self.quotas[rng.usize(..self.quotas.len())];
        if one_in(rng, 40) {
            pair.let_settlements_go().await;
            let change = change(course, rng, quota);
            pair.adjust(&self.key, quota, change).await;
        }
        if one_in(rng, 100) {
            pair.let_settlements_go().await;
            pair.adjust(&self.key, quota, Change::Lift).await;
        }
        if one_in(rng, 200) {
            pair.let_settlements_go().await;
            pair.reset(&self.key, quota).await;
        }
    }
}

fn change(course: &impl Course, rng: &mut Rng, quota: Quota) -> Change {
    let units = if one_in(rng, 30) { u64::MAX } else { course.units(rng, quota) };
    if quota.algorithm() == Algorithm::Concurrency && one_in(rng, 3) {
        return Change::Renew(units);
    }
    if course.may_refund(quota) && rng.bool() { Change::Refund(units) } else { Change::Charge(units) }
}

/// A ban of which each state outlives real time by enough: windows of strikes are two thirds of a cell longer than whole
/// cells, and the clock stands in the first third of one.
fn ban(rng: &mut Rng) -> Ban {
    let within = Duration::from_secs(CELL / S * *pick(rng, &[2, 2, 5, 2_880]) + 20);
    let time = Duration::from_secs(*pick(rng, &[60, 75, 600, 86_400]));
    let ban = Ban::new(*pick(rng, &[1, 2, 2, 3, 5]), within, time);
    let ban = if one_in(rng, 4) { ban.extending() } else { ban };
    let longest = time * *pick(rng, &[1, 3, 10, 366]);
    if rng.bool() { ban } else { ban.backoff(*pick(rng, &[1.0, 1.5, 2.0, 3.333, 100.0]), longest) }
}

fn one_in(rng: &mut Rng, many: u32) -> bool {
    rng.u32(..many) == 0
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

/// A quota with windows of a calendar in place of aligned ones, or the same one.
#[cfg(feature = "calendar")]
fn of_some_calendar(rng: &mut Rng, quota: Quota) -> Quota {
    use tollgate::policy::Calendar;
    if quota.algorithm() != Algorithm::FixedWindow || rng.bool() {
        return quota;
    }
    let zone = *pick(rng, &["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]);
    let calendar = match rng.u32(..4) {
        0 => Calendar::hourly(zone),
        1 => Calendar::daily(zone),
        2 => Calendar::weekly(zone).map(|week| week.anchor(rng.u8(1..=7))),
        _ => Calendar::monthly(zone).map(|month| month.anchor(rng.u8(1..=31))),
    };
    Quota::calendar_window(quota.limit(), calendar.expect("the system has time zones"))
}

#[cfg(not(feature = "calendar"))]
fn of_some_calendar(_: &mut Rng, quota: Quota) -> Quota {
    quota
}

/// Another limit over the same window as that of a quota.
fn with_limit(quota: Quota, limit: u64, extra: u64) -> Quota {
    match quota.calendar() {
        Some(calendar) => Quota::calendar_window(limit, calendar),
        None => quota_of(quota.algorithm(), limit, quota.window(), extra),
    }
}

fn quota_of(algorithm: Algorithm, limit: u64, window: Duration, extra: u64) -> Quota {
    let quota = Quota::try_new(algorithm, limit, window).expect("within the bounds");
    match algorithm {
        Algorithm::TokenBucket => quota.try_burst(extra.max(1)).expect("within the bounds"),
        Algorithm::LeakyBucket => quota.queue(extra).try_nodelay(1 + extra / 2).expect("within the bounds"),
        _ => quota,
    }
}

fn is_bucket(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

fn small_cost(rng: &mut Rng, quota: Quota) -> u64 {
    let most = quota.capacity();
    *pick(rng, &[0, 1, 1, 1, 1, 1, 2, 2, 3, 5, most, most + 1, u64::MAX])
}

/// Any small quota, and a clock that steps forward, stands, and steps back.
///
/// A refund may leave a bucket so little that Redis forgets it at once, and with it how far the
/// clock had come: see [`Forward`].
struct AnyWay;

impl Course for AnyWay {
    fn quota(&self, rng: &mut Rng, algorithm: Algorithm) -> Quota {
        let window = *pick(rng, windows(algorithm));
        let quota = quota_of(algorithm, 1, Duration::from_secs(window), 0);
        let quota = of_some_calendar(rng, quota);
        self.other(rng, quota)
    }

    fn other(&self, rng: &mut Rng, quota: Quota) -> Quota {
        let (algorithm, window) = (quota.algorithm(), quota.window());
        let most = if is_bucket(algorithm) { (window.as_secs() / SHORTEST_LIFE.as_secs()).min(40) } else { 40 };
        with_limit(quota, rng.u64(1..=most), rng.u64(..12))
    }

    fn later(&self, rng: &mut Rng, now: u64) -> u64 {
        let cell = now / CELL;
        let cell = match rng.u32(..20) {
            0 => cell - rng.u64(1..4),
            1 => cell - rng.u64(1..200),
            2 => cell + rng.u64(1..3_000),
            3 => cell + rng.u64(..40 * DAY / CELL),
            4..8 => cell + rng.u64(1..4),
            8..12 => cell,
            _ => return now,
        };
        cell * CELL + rng.u64(..CELL / 3)
    }

    fn cost(&self, rng: &mut Rng, quota: Quota) -> u64 {
        small_cost(rng, quota)
    }

    fn may_refund(&self, quota: Quota) -> bool {
        !is_bucket(quota.algorithm())
    }

    fn units(&self, rng: &mut Rng, _: Quota) -> u64 {
        rng.u64(..8)
    }
}

/// A clock that never steps back and stands on whole cells, as all of a bucket's times do: so that
/// buckets can be refunded too.
struct Forward;

impl Course for Forward {
    fn quota(&self, rng: &mut Rng, algorithm: Algorithm) -> Quota {
        let window = Duration::from_micros(60 * CELL * rng.u64(1..4));
        let quota = quota_of(algorithm, 1, window, 0);
        let quota = of_some_calendar(rng, quota);
        self.other(rng, quota)
    }

    fn other(&self, rng: &mut Rng, quota: Quota) -> Quota {
        let limit = *pick(rng, &[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30]);
        with_limit(quota, limit, rng.u64(..12))
    }

    fn later(&self, rng: &mut Rng, now: u64) -> u64 {
        let cells = match rng.u32(..10) {
            0 => rng.u64(..200),
            1..4 => rng.u64(1..6),
            _ => 0,
        };
        now + cells * CELL
    }

    fn cost(&self, rng: &mut Rng, quota: Quota) -> u64 {
        small_cost(rng, quota)
    }

    fn may_refund(&self, _: Quota) -> bool {
        true
    }

    fn units(&self, rng: &mut Rng, _: Quota) -> u64 {
        rng.u64(..8)
    }
}

/// The largest quotas there are, and costs of their size: lost bits would show.
///
/// The clock stays within a third of a cell, far less than such buckets need to empty.
struct Extreme;

/// The largest number up to which a quota is accepted.
fn largest(accepted: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1_u64 << 53);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if accepted(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// A large number not above `most`, often the largest.
fn near(rng: &mut Rng, most: u64) -> u64 {
    let less = 1 << rng.u32(..50);
    if one_in(rng, 3) { most } else { most - rng.u64(..=less.min(most / 2)) }
}

impl Course for Extreme {
    fn quota(&self, rng: &mut Rng, algorithm: Algorithm) -> Quota {
        let window = Duration::from_secs(*pick(rng, windows(algorithm)));
        let quota = quota_of(algorithm, 1, window, 0);
        let quota = of_some_calendar(rng, quota);
        self.other(rng, quota)
    }

    fn other(&self, rng: &mut Rng, quota: Quota) -> Quota {
        let (algorithm, window) = (quota.algorithm(), quota.window());
        if is_bucket(algorithm) && one_in(rng, 4) {
            // A small one, whose units return as slowly as they have to: see `SHORTEST_LIFE`.
            let most = window.as_secs() / SHORTEST_LIFE.as_secs();
            return quota_of(algorithm, rng.u64(1..=most.min(40)), window, rng.u64(..12));
        }
        // A log of so many units would only be slow.
        let most = if algorithm == Algorithm::SlidingLog {
            60
        } else {
            largest(|limit| Quota::try_new(algorithm, limit, window).is_ok())
        };
        let quota = with_limit(quota, near(rng, most).max(1), 1);
        match algorithm {
            Algorithm::TokenBucket => {
                let most = largest(|burst| quota.try_burst(burst.max(1)).is_ok());
                quota.burst(near(rng, most))
            }
            Algorithm::LeakyBucket => {
                let most = largest(|places| quota.try_queue(places).is_ok());
                quota.queue(near(rng, most))
            }
            _ => quota,
        }
    }

    fn later(&self, rng: &mut Rng, now: u64) -> u64 {
        let cell = now / CELL * CELL;
        if rng.bool() { now } else { cell + rng.u64(..CELL / 3) }
    }

    /// Most of the capacity at first, for what is kept to be long-lived.
    fn cost(&self, rng: &mut Rng, quota: Quota) -> u64 {
        let most = quota.capacity();
        match rng.u32(..8) {
            0 => most + 1,
            1 => 0,
            2 => most,
            _ => near(rng, most).max(most - most / 3).max(1),
        }
    }

    fn may_refund(&self, quota: Quota) -> bool {
        !is_bucket(quota.algorithm())
    }

    fn units(&self, rng: &mut Rng, quota: Quota) -> u64 {
        near(rng, quota.capacity()).max(quota.capacity() - quota.capacity() / 3)
    }
}

#[tokio::test]
async fn memory_and_redis_answer_alike_whichever_way_the_clock_steps() {
    compare(&AnyWay, many(ANY_WAY), 0x0074_6f6c_6c67).await;
}

#[tokio::test]
async fn memory_and_redis_refund_buckets_alike() {
    compare(&Forward, many(FORWARD), 0x6174_6500).await;
}

#[tokio::test]
async fn memory_and_redis_answer_alike_at_the_bounds_of_what_is_exact() {
    compare(&Extreme, many(EXTREME), 0x0065_6467_6500).await;
}
