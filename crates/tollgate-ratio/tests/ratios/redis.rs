//! A tally in Redis: what processes report there is what all of them read, whatever becomes of the server.

use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate::test_util::ManualClock;
use tollgate::{Error, RedisStore};
use tollgate_ratio::{CounterId, MemoryTally, Offered, Report, Tally, Totals};

use crate::support::server::RedisServer;

/// A tick in which a busy machine gets things done. Reports have a quarter of it.
const LONG: Duration = Duration::from_secs(60);
/// How long a test tries again what a busy machine was too late for.
const MAX_TRIED: Duration = Duration::from_secs(60);
/// A budget that a busy machine does not use up.
const PATIENCE: Duration = Duration::from_secs(10);

fn id(number: u64) -> CounterId {
    let mut id = [0; CounterId::LENGTH];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    CounterId::from_bytes(id)
}

async fn connect(server: &RedisServer) -> RedisStore {
    RedisStore::builder().timeout(PATIENCE).connect(&server.url()).await.expect("the server is there")
}

fn number(of: &Totals, tick: Duration) -> u64 {
    u64::try_from(of.now.as_micros() / tick.as_micros()).expect("it is not so late")
}

/// Reads totals, and counts for nothing itself; so it is repeated if a busy machine has no reply in a quarter of a tick.
async fn look<const N: usize>(tally: &RedisStore, tick: Duration, counters: [u64; N]) -> Totals {
    let start = Instant::now();
    loop {
        let counters = counters.map(|counter| Offered::new(id(counter), 0, 0, 1_000));
        match tally.report(Report::new(tick, 0).live(false).counters(counters)).await {
            Err(error) if error.is_timeout() && start.elapsed() < MAX_TRIED => {}
            totals => return totals.expect("the server is there"),
        }
    }
}

/// A tick that does not end in the next seconds: of many, that of which most is left; and the number of the last one.
async fn long_tick(tally: &RedisStore) -> (Duration, u64) {
    let now = look(tally, LONG, []).await.now.as_secs();
    let longest = (30..=LONG.as_secs()).max_by_key(|tick| tick - now % tick).expect("there are some");
    assert!(longest - now % longest > 20, "{longest} s at {now} s");
    (Duration::from_secs(longest), now / longest - 1)
}

/// Both tallies, and what is random.
struct Pair {
    server: RedisServer,
    redis: RedisStore,
    memory: MemoryTally,
    clock: ManualClock,
    rng: Rng,
}

impl Pair {
    async fn start(seed: u64) -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::new());
        let (redis, memory) = (connect(&server).await, MemoryTally::with_clock(clock.clone()));
        Self { server, redis, memory, clock, rng: Rng::with_seed(seed) }
    }

    /// Sends a report to both, at the same time; returns what they agree on.
    async fn report(&self, report: Report) -> Result<Totals, Error> {
        let totals = self.redis.report(report.clone()).await?;
        self.clock.set(totals.now);
        let expected = self.memory.report(report.clone()).await?;
        assert_eq!(totals, expected, "{report:?}");
        Ok(totals)
    }

    /// Deletes all, after a report that may have been added or not.
    async fn clear(&self) {
        // By now it has been.
        let _ = look(&self.redis, LONG, []).await;
        let (): () = self.server.ask(&["FLUSHALL"]);
        self.memory.clear();
    }

    fn offered(&mut self, counters: Range<u64>) -> Offered {
        let ordinary = [self.rng.u64(0..2_000), 1 << 40][usize::from(self.rng.u8(..20) == 0)];
        let critical = self.rng.choice([0, 0, 17]).expect("there are some");
        let most = self.rng.choice([1_000, 1_000, 0, u64::MAX]).expect("there are some");
        Offered::new(id(self.rng.u64(counters)), ordinary, critical, most)
    }

    fn random(&mut self, tick: Duration, seen: u64) -> Report {
        let many = if self.rng.u8(..10) == 0 { 200 } else { self.rng.u64(0..12) };
        let mut counters: Vec<Offered> = (0..many).map(|_| self.offered(0..60)).collect();
        counters.sort_unstable_by_key(|offered| offered.id);
        counters.dedup_by_key(|offered| offered.id);
        self.rng.shuffle(&mut counters);
        let target = self.rng.choice([0, seen, seen.saturating_sub(1), seen + 5, 3]).expect("there are some");
        Report::new(tick, target).live(self.rng.u8(..5) > 0).counters(counters)
    }
}

#[tokio::test]
async fn redis_and_memory_add_random_reports_up_alike() {
    const TICK: Duration = Duration::from_millis(40);
    let mut pair = Pair::start(7).await;
    let (start, mut seen, mut compared, mut late, mut lasts, mut hot) = (Instant::now(), 0, 0, 0, 0, 0);
    while compared < 1_000 && start.elapsed() < Duration::from_secs(60) {
        let report = pair.random(TICK, seen);
        let target = report.target;
        match pair.report(report).await {
            Ok(totals) => {
                seen = number(&totals, TICK);
                compared += 1;
                lasts += u32::from(target + 1 == seen);
                hot = hot.max(totals.hot.len());
            }
            Err(_) => pair.clear().await,
        }
        if pair.rng.u8(..20) == 0 {
            // After some of them the hash of an older tick is still there, in the place of a new one.
            let pause = pair.rng.choice([5, 30, 60, 110, 120, 130, 200]).expect("there are some");
            tokio::time::sleep(Duration::from_millis(pause)).await;
            late += 1;
            pair.server.assert_every_key_expires();
        }
    }
    assert!(compared >= 300 && lasts > 20 && late > 5, "{compared} reports, {lasts} to the last tick, {late} pauses");
    assert!((32..=64).contains(&hot), "of two ticks: {hot}");
    tokio::time::sleep(4 * TICK + Duration::from_millis(10)).await;
    assert_eq!(pair.server.keys(), [""; 0]);
    let _ = look(&pair.redis, TICK, []).await;
    assert_eq!(pair.server.keys(), [""; 0], "a look writes none");
}

#[tokio::test]
async fn shards_are_added_up_as_one_tally() {
    let mut pair = Pair::start(3).await;
    let (tick, _) = long_tick(&pair.redis).await;
    for _ in 0..100 {
        let mut report = pair.random(tick, 0).shards(3);
        // Only the first shard knows whether a tick is over.
        report.target = 0;
        drop(pair.report(report).await.expect("the server is there"));
    }
    assert_eq!(pair.server.keys().len(), 3, "one of each shard");
}

#[tokio::test]
async fn a_full_tick_has_no_room_for_further_counters_and_goes_on_with_those_it_has() {
    let pair = Pair::start(1).await;
    let (tick, _) = long_tick(&pair.redis).await;
    let offered = |counters: Range<u64>| counters.map(|counter| Offered::new(id(counter), 5, 1, 100));
    let mut without_room = Vec::new();
    for part in (0..8).chain([0, 3]) {
        let report = Report::new(tick, 0).counters(offered(512 * part..512 * (part + 1)));
        let totals = pair.report(report).await.expect("the server is there");
        without_room.push(totals.counters.iter().filter(|units| units.is_none()).count());
    }
    assert_eq!(without_room, [0, 0, 512, 512, 512, 512, 512, 512, 0, 512], "of two fields each");
    let fields: u64 = pair.server.keys().iter().map(|key| pair.server.ask::<u64>(&["HLEN", key])).sum();
    assert!(fields <= 3_100, "{fields}");
}

#[tokio::test]
async fn stores_that_call_functions_report_to_the_tally_of_scripts() {
    let server = RedisServer::start();
    let functions = RedisStore::builder().functions().timeout(PATIENCE).connect(&server.url()).await.unwrap();
    let scripts = connect(&server).await;
    let (tick, last) = long_tick(&scripts).await;
    for (tally, units) in [(&scripts, 3), (&functions, 4)] {
        let report = Report::new(tick, last).counters([Offered::new(id(1), units, 0, 9)]);
        let _ = tally.report(report).await.expect("the server is there");
    }
    for tally in [&scripts, &functions] {
        let totals = look(tally, tick, [1]).await;
        assert_eq!((totals.live, totals.counters), (2, vec![Some([7, 0])]));
    }
}

#[tokio::test]
async fn a_report_counts_once_though_the_server_has_lost_its_scripts_and_from_the_next_one_on_though_it_lost_all() {
    let mut server = RedisServer::start();
    let tally = connect(&server).await;
    let (tick, last) = long_tick(&tally).await;
    for restarts in [false, true, false] {
        let (): () = server.ask(&["SCRIPT", "FLUSH"]);
        let report = Report::new(tick, last).counters([Offered::new(id(1), 3, 2, 100)]);
        let totals = tally.report(report).await.expect("the server is there");
        assert_eq!((totals.live, totals.counters), (1, vec![Some([3, 2])]));
        if restarts {
            server.kill();
            let start = Instant::now();
            let error = tally.report(Report::new(tick, 0)).await.expect_err("there is no server");
            assert!(!error.is_invalid() && start.elapsed() < PATIENCE / 2, "{error:#}");
            server.restart();
            let start = Instant::now();
            while tally.report(Report::new(tick, 0).live(false)).await.is_err() {
                assert!(start.elapsed() < PATIENCE);
            }
        } else {
            let (): () = server.ask(&["FLUSHALL"]);
        }
        let emptied = look(&tally, tick, [1]).await;
        assert_eq!((emptied.live, &emptied.counters[..], emptied.hot.len()), (0, &[Some([0, 0])][..], 0));
    }
}

#[tokio::test]
async fn what_cannot_be_reported_is_an_error_of_its_kind() {
    let server = RedisServer::start();
    let tally = connect(&server).await;
    let nowhere = RedisStore::builder().lazy().connect("redis://127.0.0.1:1").await.expect("the URL is one");
    let error = nowhere.report(Report::new(Duration::ZERO, 0)).await.expect_err("there is no such tick");
    assert!(error.is_invalid(), "it is not sent: {error}");

    for place in 0..3 {
        let _: String = server.ask(&["SET", &format!("tollgate:{{ratio-60000000-1-0}}:{place}"), "mine"]);
    }
    let error = tally.report(Report::new(LONG, 0)).await.expect_err("it cannot be added");
    assert!(error.is_store() && format!("{error:#}").contains("WRONGTYPE"), "{error:#}");
    assert_eq!(server.ask::<String>(&["GET", "tollgate:{ratio-60000000-1-0}:1"]), "mine");

    let short = Duration::from_millis(400);
    let _ = look(&tally, short, []).await;
    server.pause();
    let start = Instant::now();
    let error = tally.report(Report::new(short, 0)).await.expect_err("there is no reply");
    let waited = start.elapsed();
    server.resume();
    assert_eq!(error.to_string(), "Redis did not reply to a report within 100ms");
    assert!(error.is_timeout() && waited < PATIENCE / 2, "{waited:?}");
}
