//! Random histories of bans: several processes on one store, each with what it caches.
//!
//! Requests come one by one and together, callers leave, connections are killed, bans are lifted and changed. An
//! oracle sees only what the processes are told, and knows how many strikes there can have been: each ban takes its
//! own out of one window, so none begins too early and no strike counts twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use futures::future::{join, join_all};
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, BanCheck, Change, Check, Counter, DenyCache, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Error, Key, MemoryStore, Outcome, Quota, RedisStore, Source};

use crate::support::server::RedisServer;
use crate::support::slow::many;

const HISTORIES: [u64; 2] = [4, 60];
const IN_MEMORY: [u64; 2] = [40, 1_000];
const STEPS: usize = 300;

const S: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// What ends are rounded by.
const NEAR: Duration = Duration::from_millis(2);

/// Two of them are in one policy, and share its ban.
const QUOTAS: [(&str, Quota); 3] = [
    ("login", Quota::fixed_window(2, MINUTE)),
    ("login", Quota::token_bucket(3, MINUTE)),
    ("other", Quota::sliding_window(6, MINUTE)),
];

/// What is known of one ban.
#[derive(Default)]
struct Known {
    /// Strikes that no ban has used up: those that were seen, and those that a call may have been.
    strikes: VecDeque<Duration>,
    /// The ends of bans that were seen.
    ends: Vec<Duration>,
    /// Until when the key is surely banned.
    until: Duration,
}

/// What the oracle has seen.
#[derive(Default)]
struct Seen {
    decisions: u64,
    failed: u64,
    cached: u64,
    bans: u64,
    refused: u64,
}

struct History {
    clock: ManualClock,
    processes: Vec<Arc<dyn Store>>,
    rng: Rng,
    key: String,
    ban: Ban,
    within: Duration,
    most: Duration,
    /// The fewest strikes that began a ban since the history began.
    least: usize,
    extends: bool,
    known: [Known; 2],
    seen: Seen,
}

impl History {
    fn new(seed: u64, clock: ManualClock, processes: Vec<Arc<dyn Store>>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let within = S * [2, 10, 60, 600][rng.usize(..4)];
        let (time, extends) = (S * [30, 45, 120][rng.usize(..3)], rng.u8(..4) == 0);
        let (after, grows) = (rng.u32(1..7), rng.bool());
        let most = if grows { 4 * time } else { time };
        let ban = Ban::new(after, within, time);
        let ban = if grows { ban.backoff(2.0, most) } else { ban };
        let ban = if extends { ban.extending() } else { ban };
        let (known, key) = ([Known::default(), Known::default()], format!("key-{seed}"));
        Self {
            clock,
            processes,
            rng,
            key,
            ban,
            within,
            most,
            least: after as usize,
            extends,
            known,
            seen: Seen::default(),
        }
    }

    fn counter(&self, place: usize) -> Counter {
        let (policy, quota) = QUOTAS[place];
        Counter::new(PolicyName::try_from(policy).expect("a valid name"), Key::new("user", self.key.clone()), quota)
    }

    fn request(&mut self) -> Vec<Check> {
        let places: &[usize] = [&[0][..], &[0], &[0], &[1], &[0, 1, 2], &[1, 0], &[2], &[0, 2]][self.rng.usize(..8)];
        let checks = places.iter().map(|place| (self.counter(*place), [0, 1, 1, 1, 1, 2][self.rng.usize(..6)]));
        checks.collect::<Vec<_>>().into_iter().map(|(of, cost)| self.banning(of, cost)).collect()
    }

    fn banning(&self, counter: Counter, cost: u64) -> Check {
        Check::new(counter, cost).ban(BanCheck::new(self.ban))
    }

    fn process(&mut self) -> Arc<dyn Store> {
        Arc::clone(&self.processes[self.rng.usize(..self.processes.len())])
    }

    async fn run(&mut self, server: Option<&RedisServer>) {
        for _ in 0..STEPS {
            self.clock.advance(Duration::from_millis([0, 0, 1, 30, 400, 1_500, 9_000, 120_000][self.rng.usize(..8)]));
            match self.rng.u8(..40) {
                0 | 8..12 => self.lift().await,
                1 => self.leave(),
                2 => self.strike().await,
                3 => self.change(),
                4 => self.wait_as_told().await,
                5..8 => self.together(server).await,
                _ => self.together(None).await,
            }
        }
    }

    /// Some requests at once, while connections are killed.
    async fn together(&mut self, server: Option<&RedisServer>) {
        let requests: Vec<_> = (0..self.rng.usize(1..5)).map(|_| (self.process(), self.request())).collect();
        let decide = async |(store, checks): &(Arc<dyn Store>, Vec<Check>)| {
            store.decide(checks, Ask::default()).wait().await.map(|decided| decided.decision)
        };
        let all = join_all(requests.iter().map(decide));
        let kill = async {
            if let Some(server) = server {
                tokio::task::yield_now().await;
                let _: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        };
        let (decisions, ()) = join(all, kill).await;
        for ban in 0..2 {
            // Those that began no ban may be the strikes of one that did.
            for ((_, checks), decision) in requests.iter().zip(&decisions) {
                self.note_strikes(ban, checks, decision);
            }
            for decision in decisions.iter().flatten() {
                self.note_bans(ban, decision);
            }
        }
        self.seen.decisions += decisions.len() as u64;
        self.seen.failed += decisions.iter().filter(|decision| decision.is_err()).count() as u64;
        let cached = decisions.iter().flatten().filter(|decision| decision.source() == Source::DenyCache);
        self.seen.cached += cached.count() as u64;
    }

    fn note_strikes(&mut self, ban: usize, checks: &[Check], decision: &Result<Decision, Error>) {
        let now = self.clock.now();
        let (known, extends) = (&mut self.known[ban], self.extends);
        let of = |check: &&Check| is_of(ban, check.counter.policy().as_str());
        let strikes = match decision {
            Ok(decision) => {
                let own = decision.outcomes().iter().filter(|outcome| is_of(ban, outcome.policy()));
                let is_served = decision.is_allowed() && own.clone().count() > 0 && now < known.until;
                assert!(!is_served, "{}: {decision:?} at {now:?} of a banned key", self.key);
                own.filter(|outcome| !outcome.is_allowed())
                    .filter(|outcome| known.is_strike(outcome, now, extends))
                    .count()
            }
            // Nobody knows.
            Err(_) => checks.iter().filter(of).count(),
        };
        known.strikes.extend((0..strikes).map(|_| now));
        if self.extends && decision.is_err() {
            known.ends.push(Duration::MAX);
        }
    }

    fn note_bans(&mut self, ban: usize, decision: &Decision) {
        let now = self.clock.now();
        for outcome in decision.outcomes().iter().filter(|outcome| is_of(ban, outcome.policy())) {
            let Some(left) = outcome.banned_for() else { continue };
            assert!(left <= self.most + NEAR, "{}: {left:?} is longer than {:?}", self.key, self.most);
            assert!(!decision.is_allowed() && outcome.retry_after().is_none_or(|wait| wait >= left));
            self.seen.refused += 1;
            self.note_end(ban, now, now + left);
        }
    }

    /// A key is banned until `end`.
    fn note_end(&mut self, ban: usize, now: Duration, end: Duration) {
        let (within, least, extends, name) = (self.within, self.least, self.extends, &self.key);
        let known = &mut self.known[ban];
        if known.is_known(end, now, extends) {
            known.until = if extends { end.max(known.until) } else { known.until };
            known.ends.extend(extends.then_some(end));
            return;
        }
        known.strikes.retain(|strike| *strike + within > now);
        let strikes = known.strikes.len();
        assert!(strikes >= least, "{name}: a ban at {now:?} after {strikes} strikes, and not {least}");
        known.strikes.drain(..least);
        known.ends.push(end);
        known.until = end;
        self.seen.bans += 1;
    }

    async fn lift(&mut self) {
        if self.extends {
            return;
        }
        let (store, counter) = (self.process(), self.counter(0));
        let lifted = store.adjust(&counter, Change::Lift).wait().await;
        self.known[0].until = Duration::ZERO;
        drop(lifted);
    }

    /// A caller polls once and leaves.
    fn leave(&mut self) {
        let (store, checks) = (self.process(), self.request());
        let polled = store.decide(&checks, Ask::default()).wait().now_or_never();
        let decision = match polled {
            Some(decided) => decided.map(|decided| decided.decision),
            None => Err(Error::timeout("nobody waited")),
        };
        (0..2).for_each(|ban| self.note_strikes(ban, &checks, &decision));
        if let Ok(decision) = decision {
            (0..2).for_each(|ban| self.note_bans(ban, &decision));
        }
    }

    /// A failure, which is found after the fact.
    async fn strike(&mut self) {
        let (store, counter) = (self.process(), self.counter(0));
        let applied = store.adjust(&counter, Change::Strike(self.ban)).wait().await;
        let now = self.clock.now();
        self.known[0].strikes.push_back(now);
        match applied.map(|applied| applied.banned_for) {
            Ok(Some(left)) => self.note_end(0, now, now + left),
            Err(_) if self.extends => self.known[0].ends.push(Duration::MAX),
            Ok(None) | Err(_) => {}
        }
    }

    /// The number of strikes is changed live.
    fn change(&mut self) {
        let after = self.rng.u32(1..7);
        self.least = self.least.min(after as usize);
        let ban = Ban::new(after, self.within, Duration::from_secs(30));
        let ban = if self.most > 30 * S { ban.backoff(2.0, self.most) } else { ban };
        self.ban = if self.extends { ban.extending() } else { ban };
    }

    /// Whoever waits as a store says is served, if nobody else comes.
    async fn wait_as_told(&mut self) {
        let store = self.process();
        let check = self.banning(self.counter(0), 1);
        for _ in 0..2 {
            let checks = std::slice::from_ref(&check);
            let decision = store.decide(checks, Ask::default()).wait().await.map(|decided| decided.decision);
            self.note_strikes(0, checks, &decision);
            let Ok(decision) = decision else { return };
            self.note_bans(0, &decision);
            if decision.source() != Source::Store {
                return;
            }
            let Some(wait) = decision.retry_after() else { return };
            self.clock.advance(wait);
            let decision = store.decide(checks, Ask::default()).wait().await.map(|decided| decided.decision);
            self.note_strikes(0, checks, &decision);
            let Ok(decision) = decision else { return };
            assert!(decision.is_allowed(), "{}: {decision:?} after {wait:?}", self.key);
        }
    }
}

impl Known {
    /// Whether a refusal may be a strike: not one by a ban that is known.
    fn is_strike(&self, outcome: &Outcome, now: Duration, extends: bool) -> bool {
        outcome.banned_for().is_none_or(|left| !self.is_known(now + left, now, extends))
    }

    /// Whether a ban until `end` was seen before. One that refusals extend is known by going on.
    fn is_known(&self, end: Duration, now: Duration, extends: bool) -> bool {
        self.ends.iter().any(|known| if extends { now < *known } else { known.abs_diff(end) <= NEAR })
    }
}

/// Whether the ban of a place is that of a policy.
fn is_of(ban: usize, policy: &str) -> bool {
    ban == usize::from(policy == "other")
}

fn told(what: &str, all: &[Seen]) {
    let sum = |of: fn(&Seen) -> u64| all.iter().map(of).sum::<u64>();
    let (decisions, failed, cached) = (sum(|seen| seen.decisions), sum(|seen| seen.failed), sum(|seen| seen.cached));
    let (bans, refused) = (sum(|seen| seen.bans), sum(|seen| seen.refused));
    println!("{what}: {decisions} decisions, {failed} failed, {cached} cached, {bans} bans, {refused} refused by them");
    assert!(cached > decisions / 20 && bans > all.len() as u64 && refused > bans, "{what}: too little was tried");
}

#[tokio::test]
async fn no_ban_of_processes_with_caches_begins_too_early_or_lasts_too_long() {
    let mut all = Vec::new();
    for seed in 0..many(IN_MEMORY) {
        let clock = ManualClock::new();
        let inner = MemoryStore::builder().clock(clock.clone()).build();
        let process = |_| {
            let cache = DenyCache::builder(inner.clone()).clock(clock.clone()).build();
            Arc::new(cache) as Arc<dyn Store>
        };
        let mut history = History::new(seed, clock.clone(), (0..=seed % 3).map(process).collect());
        history.run(None).await;
        all.push(history.seen);
    }
    told("in memory", &all);
}

#[tokio::test]
async fn no_ban_in_redis_begins_too_early_or_lasts_too_long_whatever_becomes_of_calls() {
    let (server, mut all) = (RedisServer::start(), Vec::new());
    for seed in 0..many(HISTORIES) {
        let clock = ManualClock::new();
        let mut processes = Vec::<Arc<dyn Store>>::new();
        for process in 0..=seed % 3 {
            let settings = RedisStore::builder().clock(clock.clone()).timeout(5 * S);
            let store = settings.connect(&server.url()).await.expect("the server was started");
            processes.push(match process {
                1 => Arc::new(LeaseStore::new(store)),
                2 => Arc::new(DenyCache::builder(store).clock(clock.clone()).build()),
                _ => Arc::new(store),
            });
        }
        let mut history = History::new(seed, clock, processes);
        history.run((seed % 4 > 0).then_some(&server)).await;
        all.push(history.seen);
    }
    told("in Redis", &all);
    let failed: u64 = all.iter().map(|seen| seen.failed).sum();
    // In a short run perhaps none is killed in time.
    assert!(failed > 0 || all.len() < 20, "no connection was killed in time");
}
