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
use tollgate::store::{Ask, BanCheck, Change, Check, DenyCache, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Error, Quota, RedisStore, Source};

use super::stores::{connect, cut};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;
use crate::support::slow::many;

const HISTORIES: [u64; 2] = [4, 60];
const STEPS: usize = 300;

const S: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// What ends are rounded by.
const NEAR: Duration = Duration::from_millis(2);

/// They are in one policy, and share its ban.
const QUOTAS: [Quota; 2] = [Quota::fixed_window(2, MINUTE), Quota::token_bucket(3, MINUTE)];

/// What the oracle has seen, of all histories.
#[derive(Debug, Default)]
struct Seen {
    decisions: usize,
    failed: usize,
    cached: usize,
    bans: usize,
    refused: usize,
}

struct History {
    clock: ManualClock,
    processes: Vec<Arc<dyn Store>>,
    rng: Rng,
    key: String,
    ban: Ban,
    time: Duration,
    within: Duration,
    most: Duration,
    /// The fewest strikes that began a ban since the history began.
    least: usize,
    /// Strikes that no ban has used up: those that were seen, and those that a call may have been.
    strikes: VecDeque<Duration>,
    /// The ends of bans that were seen.
    ends: Vec<Duration>,
    /// Until when the key is surely banned.
    until: Duration,
    seen: Seen,
}

impl History {
    fn new(number: u64, clock: ManualClock, processes: Vec<Arc<dyn Store>>, seen: Seen) -> Self {
        let mut rng = Rng::with_seed(number);
        let within = S * [2, 10, 60, 600][rng.usize(..4)];
        let time = S * [30, 45, 120][rng.usize(..3)];
        let most = if rng.bool() { 4 * time } else { time };
        let (key, ban, least) = (format!("key-{number}"), Ban::new(1, within, time), usize::MAX);
        let (strikes, ends, until) = (VecDeque::new(), Vec::new(), Duration::ZERO);
        let mut history =
            Self { clock, processes, rng, key, ban, time, within, most, least, strikes, ends, until, seen };
        history.change();
        history
    }

    fn request(&mut self) -> Vec<Check> {
        let quotas: &[Quota] = [&QUOTAS[..1], &QUOTAS[..1], &QUOTAS[1..], &QUOTAS][self.rng.usize(..4)];
        let mut cost = || [0, 1, 1, 1, 1, 2][self.rng.usize(..6)];
        quotas.iter().map(|quota| check(&self.key, *quota, cost()).ban(BanCheck::new(self.ban))).collect()
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
                4..8 => self.together(server).await,
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
                cut(server);
            }
        };
        let (decisions, ()) = join(all, kill).await;
        // Those that began no ban may be the strikes of one that did.
        for ((_, checks), decision) in requests.iter().zip(&decisions) {
            self.note_strikes(checks, decision);
        }
        for decision in decisions.iter().flatten() {
            self.note_bans(decision);
        }
        self.seen.decisions += decisions.len();
        self.seen.failed += decisions.iter().filter(|decision| decision.is_err()).count();
        let cached = decisions.iter().flatten().filter(|decision| decision.source() == Source::DenyCache);
        self.seen.cached += cached.count();
    }

    fn note_strikes(&mut self, checks: &[Check], decision: &Result<Decision, Error>) {
        let now = self.clock.now();
        let strikes = match decision {
            Ok(decision) => {
                let is_served = decision.is_allowed() && now < self.until;
                assert!(!is_served, "{}: {decision:?} at {now:?} of a banned key", self.key);
                // A refusal by a ban that is known is none.
                let refused = decision.outcomes().iter().filter(|outcome| !outcome.is_allowed());
                let is_strike = |left: Option<Duration>| left.is_none_or(|left| !self.is_known(now + left));
                refused.filter(|outcome| is_strike(outcome.banned_for())).count()
            }
            // Nobody knows.
            Err(_) => checks.len(),
        };
        self.strikes.extend((0..strikes).map(|_| now));
    }

    fn note_bans(&mut self, decision: &Decision) {
        for outcome in decision.outcomes() {
            let Some(left) = outcome.banned_for() else { continue };
            assert!(left <= self.most + NEAR, "{}: {left:?} is longer than {:?}", self.key, self.most);
            assert!(!decision.is_allowed() && outcome.retry_after().is_none_or(|wait| wait >= left));
            self.seen.refused += 1;
            self.note_ban(left);
        }
    }

    fn is_known(&self, end: Duration) -> bool {
        self.ends.iter().any(|known| known.abs_diff(end) <= NEAR)
    }

    /// A key is banned for so long.
    fn note_ban(&mut self, left: Duration) {
        let (now, within, least) = (self.clock.now(), self.within, self.least);
        if self.is_known(now + left) {
            return;
        }
        self.strikes.retain(|strike| *strike + within > now);
        let strikes = self.strikes.len();
        assert!(strikes >= least, "{}: a ban at {now:?} after {strikes} strikes, and not {least}", self.key);
        self.strikes.drain(..least);
        self.ends.push(now + left);
        self.until = now + left;
        self.seen.bans += 1;
    }

    async fn lift(&mut self) {
        let lifted = self.process().adjust(&counter(&self.key, QUOTAS[0]), Change::Lift).wait().await;
        self.until = Duration::ZERO;
        drop(lifted);
    }

    /// A caller polls once and leaves.
    fn leave(&mut self) {
        let (store, checks) = (self.process(), self.request());
        let polled = store.decide(&checks, Ask::default()).wait().now_or_never();
        let decided = polled.unwrap_or_else(|| Err(Error::timeout("nobody waited")));
        let decision = decided.map(|decided| decided.decision);
        self.note_strikes(&checks, &decision);
        if let Ok(decision) = decision {
            self.note_bans(&decision);
        }
    }

    /// A failure, which is found after the fact.
    async fn strike(&mut self) {
        let applied = self.process().adjust(&counter(&self.key, QUOTAS[0]), Change::Strike(self.ban)).wait().await;
        self.strikes.push_back(self.clock.now());
        if let Ok(Some(left)) = applied.map(|applied| applied.banned_for) {
            self.note_ban(left);
        }
    }

    /// The number of strikes is changed live.
    fn change(&mut self) {
        let after = self.rng.u32(1..7);
        self.least = self.least.min(after as usize);
        let ban = Ban::new(after, self.within, self.time);
        self.ban = if self.most > self.time { ban.backoff(2.0, self.most) } else { ban };
    }
}

#[tokio::test]
async fn no_ban_in_redis_begins_too_early_or_lasts_too_long_whatever_becomes_of_calls() {
    let (server, mut seen, histories) = (RedisServer::start(), Seen::default(), many(HISTORIES));
    for seed in 0..histories {
        let clock = ManualClock::new();
        let mut processes = Vec::<Arc<dyn Store>>::new();
        for process in 0..=seed % 3 {
            let store = connect(RedisStore::builder().clock(clock.clone()).timeout(5 * S), &server).await;
            processes.push(match process {
                1 => Arc::new(LeaseStore::new(store)),
                2 => Arc::new(DenyCache::builder(store).clock(clock.clone()).build()),
                _ => Arc::new(store),
            });
        }
        let mut history = History::new(seed, clock, processes, seen);
        history.run((seed % 4 > 0).then_some(&server)).await;
        seen = history.seen;
    }
    println!("{seen:?}");
    assert!(seen.cached > seen.decisions / 20 && seen.bans as u64 > histories && seen.refused > seen.bans);
    // In a short run perhaps none is killed in time.
    assert!(seen.failed > 0 || histories < 20, "no connection was killed in time");
}
