//! Random traces: memory and Redis answer alike, field by field, whatever the clock does and whatever becomes of quotas.
//!
//! Redis forgets keys by real time while the clock is the test's. So what is in Redis is looked at after each step: the
//! history of a key ends, and that of another begins, where a state is gone or may not live for [`SHORTEST_LIFE`], as what
//! follows would prove nothing. The memory store is a new one for each trace: it would otherwise drop keys idle by a clock
//! that then steps back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::join_all;
use tollgate::policy::Algorithm;
#[cfg(feature = "calendar")]
use tollgate::policy::Calendar;
use tollgate::store::{Ask, BanCheck, Change, ChangeResult, Check, Mode, Receipt, Settlement, Store, StoreDecision};
use tollgate::{Ban, MemoryStore, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::clock::ManualClock;
use crate::support::server::{RedisServer, Session};
use crate::support::slow::many;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;
const DAY: u64 = 86_400 * S;
const TRILLION: u64 = 1_000_000_000_000;

/// How many decisions of each algorithm are compared.
const WANTED: [u64; 2] = [3_000, 100_000];
const MOST_TRACES: u64 = 400;
const LANES: usize = 64;
const STEPS: usize = 40;

/// What no state's time to live falls below, and no step may take.
const SHORTEST_LIFE: Duration = Duration::from_secs(4);

/// Windows that divide others and that do not, of both ticks.
const WINDOWS: [u64; 10] =
    [30 * S, 59_999_999, 60 * S, 61 * S, 601 * S, 3_600 * S, DAY, 30 * DAY, 366 * DAY, 69 * 365 * DAY];

/// Where the clock stands at first.
const START: u64 = 3_660 * DAY;

/// Each key there is, and for how many milliseconds.
const LIVES: &str = "local lives = {}
for place, key in ipairs(redis.call('KEYS', '*')) do
  lives[place] = {key, redis.call('PTTL', key)}
end
return lives";

/// Both stores, on one clock.
struct Pair {
    clock: ManualClock,
    memory: MemoryStore,
    redis: RedisStore,
    session: Session,
    decisions: BTreeMap<&'static str, u64>,
    _server: RedisServer,
}

/// The states that a key has in Redis: those of quotas, that of its ban, and the shortest life of any.
#[derive(Default)]
struct Kept {
    states: usize,
    has_ban: bool,
    shortest: Option<i64>,
}

impl Pair {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings =
            RedisStore::builder().without_deny_cache().clock(clock.reader()).timeout(Duration::from_secs(60));
        let redis = settings.connect(&server.url()).await.expect("the server was started");
        let (memory, session) = (MemoryStore::new(), server.session());
        Self { clock, memory, redis, session, decisions: BTreeMap::new(), _server: server }
    }

    /// Asks both stores the same requests, those of distinct keys, at once.
    async fn decide(&mut self, requests: &[Vec<Check>], told: &str) -> Vec<[StoreDecision; 2]> {
        let answers = join_all(requests.iter().map(|request| self.redis.decide(request, Ask::default()).wait())).await;
        let mut both = Vec::new();
        for (request, redis) in requests.iter().zip(answers) {
            let memory = self.memory.decide(request, Ask::default()).wait().await.expect("memory answers");
            let redis = redis.expect("the server answers");
            assert_alike([&memory, &redis], || format!("{told}: {request:#?}"));
            for check in request {
                self.count(check.counter.quota().algorithm().as_str());
                if check.counter.quota().limit() > TRILLION / 1_000 {
                    self.count("large");
                }
            }
            if memory.decision.is_banned() {
                self.count("banned");
            }
            both.push([memory, redis]);
        }
        both
    }

    fn count(&mut self, what: &'static str) {
        *self.decisions.entry(what).or_default() += 1;
    }

    fn has_enough(&self) -> bool {
        let wanted = many(WANTED);
        let of = |what| self.decisions.get(what).copied().unwrap_or_default();
        Algorithm::ALL.iter().all(|algorithm| of(algorithm.as_str()) >= wanted)
            && ["large", "banned", "settled", "adjusted"].into_iter().all(|what| of(what) >= wanted / 10)
    }

    async fn settle(&mut self, [memory, redis]: [Receipt; 2], changes: &[Settlement], told: &str) -> Vec<ChangeResult> {
        let memory = self.memory.settle(memory, changes).wait().await.expect("memory answers");
        let redis = self.redis.settle(redis, changes).wait().await.expect("the server answers");
        assert_eq!(memory, redis, "{told}: {changes:?}");
        self.count("settled");
        memory
    }

    async fn adjust(&mut self, key: &str, quota: Quota, change: Change, told: &str) -> ChangeResult {
        let counter = counter(key, quota);
        let memory = self.memory.adjust(&counter, change).wait().await.expect("memory answers");
        let redis = self.redis.adjust(&counter, change).wait().await.expect("the server answers");
        assert_eq!(memory, redis, "{told}: {key}, {quota}: {change:?}");
        self.count("adjusted");
        memory
    }

    /// What Redis keeps of each key.
    fn kept(&self) -> HashMap<String, Kept> {
        let (lives, mut kept): (Vec<(String, i64)>, HashMap<String, Kept>) =
            (self.session.ask(&["EVAL", LIVES, "0"]), HashMap::new());
        for (name, life) in lives {
            assert_ne!(life, -1, "{name} never expires");
            let key = name.split(['{', '}']).nth(1).expect("the key is in braces").to_owned();
            let kept = kept.entry(key).or_default();
            // One that is gone meanwhile has a life of -2.
            kept.shortest = Some(kept.shortest.unwrap_or(i64::MAX).min(life));
            if name.ends_with(":1b") { kept.has_ban = true } else { kept.states += 1 }
        }
        kept
    }
}

#[track_caller]
fn assert_alike([memory, redis]: [&StoreDecision; 2], told: impl Fn() -> String) {
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

/// What a counter's state in Redis is known by, besides its key.
type Shape = (Algorithm, Duration, Option<String>);

fn shape(quota: Quota) -> Shape {
    (quota.algorithm(), quota.window(), quota.calendar().map(|calendar| calendar.to_string()))
}

/// One key, its quotas, its ban, and what it may give back.
struct Lane {
    key: String,
    ban: Ban,
    quotas: Vec<Quota>,
    receipts: Vec<(Vec<Check>, [Receipt; 2])>,
    /// What has to be in Redis, as it was written.
    written: HashSet<Shape>,
    has_ban: bool,
}

impl Lane {
    fn new(rng: &mut Rng, key: String) -> Self {
        let quotas = Algorithm::ALL.iter().map(|algorithm| any_quota(rng, *algorithm)).collect();
        Self { key, ban: any_ban(rng), quotas, receipts: Vec::new(), written: HashSet::new(), has_ban: false }
    }

    /// One to three checks, now and then of one counter.
    fn request(&mut self, rng: &mut Rng) -> Vec<Check> {
        if one_in(rng, 15) {
            let index = rng.usize(..self.quotas.len());
            self.quotas[index] = with_units(rng, self.quotas[index]);
        }
        if one_in(rng, 15) {
            self.ban = any_ban(rng);
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
        let check = check(&self.key, quota, cost).floor(floor).mode(mode);
        if !one_in(rng, 3) {
            return check;
        }
        let ban = BanCheck::new(self.ban);
        check.ban(if one_in(rng, 8) { ban.without_strikes() } else { ban })
    }

    fn decided(&mut self, request: &[Check], [memory, redis]: [StoreDecision; 2]) {
        let taken = memory.receipt.items().iter().filter(|taken| taken.units > 0);
        self.written.extend(taken.map(|taken| shape(*taken.counter.quota())));
        // A state that lives for so short may be gone before it is looked at; what is looked at then is one too few.
        self.receipts.push((request.to_vec(), [memory.receipt, redis.receipt]));
    }

    /// Refunds, charges or renews, on the receipt of some requests or without one.
    async fn change(&mut self, pair: &mut Pair, rng: &mut Rng, told: &str) {
        let quota = *pick(rng, &self.quotas);
        let change = match rng.u32(..100) {
            0..25 => return self.settle_one(pair, rng, told).await,
            25..35 => return self.refund_two(pair, rng, told).await,
            35..40 => any_change(rng, quota),
            40 => Change::Lift,
            41 => Change::Reset,
            _ => return,
        };
        let applied = pair.adjust(&self.key, quota, change, told).await;
        self.changed(quota, change, &applied);
    }

    async fn settle_one(&mut self, pair: &mut Pair, rng: &mut Rng, told: &str) {
        if self.receipts.is_empty() {
            return;
        }
        let (request, receipts) = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
        let index = rng.usize(..request.len());
        let quota = *request[index].counter.quota();
        let change = match &request[index].ban {
            Some(ban) if rng.bool() => Change::Strike(ban.ban),
            _ => any_change(rng, quota),
        };
        let applied = pair.settle(receipts, &[Settlement::new(index, change)], told).await;
        self.changed(quota, change, &applied[0]);
    }

    fn changed(&mut self, quota: Quota, change: Change, applied: &ChangeResult) {
        match change {
            Change::Lift => self.has_ban = false,
            Change::Reset => drop(self.written.remove(&shape(quota))),
            Change::Strike(_) => {}
            _ if applied.units > 0 || matches!(change, Change::Renew(_)) => drop(self.written.insert(shape(quota))),
            _ => {}
        }
    }

    /// Refunds of two requests as if they were parts of one, unless two are of one counter: what the first left of it may
    /// be gone for the second.
    async fn refund_two(&mut self, pair: &mut Pair, rng: &mut Rng, told: &str) {
        if self.receipts.len() < 2 {
            return;
        }
        let mut some = || self.receipts.swap_remove(rng.usize(..self.receipts.len()));
        let ((first, before), (second, after)) = (some(), some());
        let shapes: HashSet<_> = first.iter().chain(&second).map(|check| shape(*check.counter.quota())).collect();
        if shapes.len() < first.len() + second.len() {
            return;
        }
        let parts = |place: usize| {
            let taken = [&before[place], &after[place]].map(|receipt: &Receipt| receipt.items().iter().cloned());
            Receipt::new(before[place].store(), taken.into_iter().flatten())
        };
        let checks = before[0].items().len() + after[0].items().len();
        let each = (0..checks).rev().map(|check| Settlement::new(check, Change::Refund(rng.u64(..8))));
        let changes: Vec<_> = each.collect();
        let _ = pair.settle([parts(0), parts(1)], &changes, told).await;
    }

    /// Whether all that was written is there, for long enough.
    fn is_kept(&mut self, kept: Option<&Kept>) -> bool {
        let none = Kept::default();
        let Kept { states, has_ban, shortest } = kept.unwrap_or(&none);
        let lives = shortest.is_none_or(|life| life > i64::try_from(SHORTEST_LIFE.as_millis()).expect("it is short"));
        let is_whole = *states >= self.written.len() && (*has_ban || !self.has_ban);
        self.has_ban = *has_ban;
        lives && is_whole
    }
}

/// Runs one trace; returns how many histories of a key ended in it.
async fn run_trace(pair: &mut Pair, rng: &mut Rng, told: &str) -> usize {
    let _: String = pair.session.ask(&["FLUSHALL"]);
    pair.memory = MemoryStore::builder().clock(pair.clock.reader()).build();
    let (mut keys, mut now) = (LANES, START);
    let mut lanes: Vec<Lane> = (0..LANES).map(|lane| Lane::new(rng, lane.to_string())).collect();
    for step in 0..STEPS {
        now = later(rng, now);
        pair.clock.set(now);
        let (since, told) = (Instant::now(), format!("{told}, step {step}, at {now}"));
        let requests: Vec<Vec<Check>> = lanes.iter_mut().map(|lane| lane.request(rng)).collect();
        let answers = pair.decide(&requests, &told).await;
        for ((lane, request), answer) in lanes.iter_mut().zip(&requests).zip(answers) {
            lane.decided(request, answer);
        }
        let mut kept = pair.kept();
        for lane in &mut lanes {
            if lane.is_kept(kept.get(&format!("key:{}", lane.key))) {
                lane.change(pair, rng, &told).await;
            } else {
                (*lane, keys) = (Lane::new(rng, keys.to_string()), keys + 1);
            }
        }
        kept = pair.kept();
        for lane in &mut lanes {
            if !lane.is_kept(kept.get(&format!("key:{}", lane.key))) {
                (*lane, keys) = (Lane::new(rng, keys.to_string()), keys + 1);
            }
        }
        if since.elapsed() > SHORTEST_LIFE {
            eprintln!("{told}: overtaken by real time");
            break;
        }
    }
    keys - LANES
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

/// A ban of which most states outlive real time.
fn any_ban(rng: &mut Rng) -> Ban {
    let within = Duration::from_secs(*pick(rng, &[80, 170, 86_400]));
    let time = Duration::from_secs(*pick(rng, &[60, 75, 600, 86_400]));
    let ban = Ban::new(*pick(rng, &[1, 2, 2, 3, 5]), within, time);
    let ban = if one_in(rng, 4) { ban.extending() } else { ban };
    let longest = time * *pick(rng, &[1, 3, 10, 366]);
    if rng.bool() { ban } else { ban.backoff(*pick(rng, &[1.0, 1.5, 2.0, 3.333, 100.0]), longest) }
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
    let (mut rng, mut ended, mut traces) = (Rng::with_seed(seed), 0, 0);
    while traces < MOST_TRACES && !pair.has_enough() {
        ended += run_trace(&mut pair, &mut rng, &format!("seed {seed}, trace {traces}")).await;
        traces += 1;
    }
    eprintln!("seed {seed}: {traces} traces in {:?}, {ended} ended early: {:?}", since.elapsed(), pair.decisions);
    assert!(pair.has_enough(), "{:?}", pair.decisions);
}
