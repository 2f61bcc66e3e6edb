//! A tally that does not reply, loses its reports, or has false ones.

use std::slice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{BreakerState, Check, DenyCache};
use tollgate::{Key, Limiter, OnFailure, Quota, Rule, Source};
use tollgate_ratio::{CounterId, Offered, RatioStore, Report, Tally, Totals};
use tracing::Level;

use super::{Fleet, LIMIT, Switch, TICK, TallyFn, admits, all, counter, decide, load, offered};
use crate::support::log::Log;

#[tokio::test]
async fn the_last_ratio_holds_for_its_life_and_then_the_share_of_an_instance() {
    let fleet = Fleet::new(4);
    fleet.load(500, 5).await;
    fleet.tally.set_off(true);
    let admitted = fleet.load(500, 9).await;
    assert!(admitted.iter().all(|second| second.abs_diff(LIMIT) <= LIMIT / 10), "{admitted:?}");
    assert!(fleet.ratio().is_some());
    fleet.load(500, 2).await;
    assert_eq!((fleet.ratio(), fleet.stores[0].live()), (None, None));
    assert_eq!(decide(&fleet.stores[0], slice::from_ref(&fleet.check)).source(), Source::Fallback);
    let admitted = fleet.load(500, 5).await;
    assert!(admitted[1..].iter().all(|second| second.abs_diff(LIMIT) <= LIMIT / 10), "{admitted:?}");
    fleet.tally.set_off(false);
    let admitted = fleet.load(500, 14).await;
    let mean = admitted[4..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
    assert_eq!(fleet.stores[0].live(), Some(4));
}

#[tokio::test]
async fn before_the_first_totals_shares_are_admitted() {
    let tally = Switch::new();
    tally.set_off(true);
    let stores = [1, 2].map(|seed| tally.store(seed).instances(4.try_into().expect("not 0")).build());
    let admitted = load(&stores, &Check::new(all(), 1), 1_000, 5).await;
    // Two of four processes are there; buckets begin full.
    assert!(admitted[1..].iter().all(|second| second.abs_diff(LIMIT / 2) <= 4), "{admitted:?}");
}

#[tokio::test]
async fn the_task_ends_without_requests_and_with_the_last_clone() {
    let tally = Switch::new();
    let store = tally.stores(1).remove(0);
    load(slice::from_ref(&store), &Check::new(all(), 1), 100, 3).await;
    sleep(Duration::from_secs(65)).await;
    let reports = tally.reports().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(tally.reports().len(), reports, "60 ticks without requests");
    load(slice::from_ref(&store), &Check::new(all(), 1), 100, 3).await;
    assert!(tally.reports().len() > reports, "it begins anew");
    drop(store);
    sleep(2 * TICK).await;
    assert_eq!(Arc::strong_count(&tally.is_off), 1, "the task has dropped the tally");
}

#[tokio::test]
async fn a_tick_that_has_lost_reports_is_no_data() {
    for clear in [true, false] {
        let fleet = Fleet::new(8);
        fleet.load(250, 5).await;
        let begun = fleet.tally.clone();
        tokio::spawn(async move {
            begun.set_off(!clear);
            sleep(TICK * 5 / 2).await;
            begun.tally.clear();
            begun.set_off(false);
        });
        let admitted = fleet.load(250, 7).await;
        assert!(admitted.iter().all(|second| *second * 10 <= LIMIT * 13), "cleared: {clear}: {admitted:?}");
        assert_eq!(fleet.stores[0].live(), Some(8));
    }
}

#[tokio::test]
async fn a_fleet_that_halves_is_known_a_tick_later() {
    let tally = Switch::new();
    let mut stores = tally.stores(8);
    let check = Check::new(all(), 1);
    load(&stores, &check, 250, 5).await;
    stores.truncate(3);
    load(&stores, &check, 250, 4).await;
    assert!(stores.iter().all(|store| store.live() == Some(3)));
}

#[test]
fn a_runtime_that_has_ended_leaves_the_bound_of_a_tick() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let check = Check::new(all(), 1);
    let stores = runtime.block_on(async {
        let stores = Switch::new().stores(1);
        load(&stores, &check, 2_000, 5).await;
        stores
    });
    drop(runtime);
    let admitted = (0..10_000).filter(|_| decide(&stores[0], slice::from_ref(&check)).is_allowed()).count();
    assert!(admitted <= 500, "{admitted} in one tick of {LIMIT}");
}

/// What a tally does with a report.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Totals,
    /// The tally is off.
    Error,
    /// It comes a little after a quarter of a tick, or a little before.
    Late,
    Early,
    Never,
    Panic,
    /// Its clock leaps by nearly a tick with each report.
    Leap,
    /// Any numbers, of any length.
    Nonsense,
}

/// A tally that replies as a test says.
fn replying(tally: Switch, reply: Arc<Mutex<Reply>>, rng: Mutex<fastrand::Rng>) -> impl Tally {
    TallyFn(move |report| {
        let (tally, reply) = (tally.clone(), *reply.lock().expect("no test panicked"));
        let mut rng = rng.lock().expect("no test panicked").fork();
        if matches!(reply, Reply::Leap) {
            tally.ahead.fetch_add(990_000, Ordering::Relaxed);
        }
        let delay = match reply {
            Reply::Late => TICK * 26 / 100,
            Reply::Early => TICK * 24 / 100,
            Reply::Never => TICK * 1_000,
            _ => Duration::ZERO,
        };
        tally.set_off(matches!(reply, Reply::Error));
        assert!(!matches!(reply, Reply::Panic), "a tally that panics");
        async move {
            sleep(delay).await;
            let totals = tally.report(report).await?;
            Ok(if matches!(reply, Reply::Nonsense) { nonsense(&mut rng) } else { totals })
        }
    })
}

fn nonsense(rng: &mut fastrand::Rng) -> Totals {
    let mut number = || rng.choice([0, 1, 1 << 40, 1 << 52, u64::MAX, LIMIT]).expect("there are some");
    let totals = Totals::new(Duration::from_micros(number()), number());
    let totals = totals.counters((0..number() % 4).map(|_| Some([number(), number()])).collect());
    totals.hot((0..number() % 3).map(|_| (CounterId::new(&all()), [number(), number()])).collect())
}

#[tokio::test]
async fn whatever_a_tally_does_reports_go_on_and_a_few_ticks_later_it_is_forgotten() {
    const REPLIES: [Reply; 8] = [
        Reply::Totals,
        Reply::Error,
        Reply::Late,
        Reply::Early,
        Reply::Never,
        Reply::Panic,
        Reply::Leap,
        Reply::Nonsense,
    ];
    for seed in 0..6 {
        let (mut rng, tally, reply) =
            (fastrand::Rng::with_seed(seed), Switch::new(), Arc::new(Mutex::new(Reply::Totals)));
        let of = |rng: &mut fastrand::Rng| replying(tally.clone(), Arc::clone(&reply), Mutex::new(rng.fork()));
        let stores = [1, 2].map(|process| RatioStore::builder(of(&mut rng)).seed(seed + process).build());
        let check = Check::new(all(), 1);
        load(&stores, &check, 1_000, 4).await;
        let mut sum = 0;
        for second in 0..20 {
            let now = rng.choice(REPLIES).expect("there are some");
            *reply.lock().expect("no test panicked") = now;
            let what = format!("seed {seed}, second {second}: {now:?}");
            if rng.u8(..3) == 0 {
                let ahead = [Duration::from_millis(rng.u64(..4_000)), Duration::from_secs(3_600), Duration::ZERO];
                tally.set_ahead(rng.choice(ahead).expect("there are some"));
            }
            let before = tally.reports().len();
            sum += load(&stores, &check, 1_000, 1).await[0];
            let reports = tally.reports().len() - before;
            assert!(reports <= 24, "{what}: {reports} reports");
            assert!(stores[0].ratio(&all()).is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "{what}");
        }
        // Of five times the limit.
        assert!(sum / 20 <= 2 * LIMIT, "seed {seed}: {sum} in 20 s");
        *reply.lock().expect("no test panicked") = Reply::Totals;
        load(&stores, &check, 1_000, 6).await;
        let before = tally.reports().len();
        let admitted = load(&stores, &check, 1_000, 6).await;
        let reports = tally.reports().len() - before;
        assert!(is_limited(&admitted), "seed {seed}: {admitted:?}");
        assert!((6..=18).contains(&reports), "seed {seed}: {reports} of two processes in 6 ticks");
        assert_eq!(stores[0].live(), Some(2), "seed {seed}");
    }
}

#[tokio::test]
async fn a_false_report_holds_a_key_for_three_ticks_or_a_life_if_the_tally_fails_then() {
    for fails in [false, true] {
        let fleet = Fleet::new(2);
        fleet.load(100, 4).await;
        let counter = Offered::new(CounterId::new(&all()), u64::MAX, u64::MAX, u64::MAX);
        drop(fleet.tally.tally.report(Report::new(TICK, 0).counters([counter])).await.expect("it replies"));
        let mut admitted = fleet.load(100, 2).await;
        assert!(fleet.ratio().is_some_and(|ratio| ratio > 0.9), "it was read: {admitted:?}");
        fleet.tally.set_off(fails);
        admitted.extend(fleet.load(100, 14).await);
        // Then all that is offered, by shares if the tally fails.
        let held = if fails { 13 } else { 4 };
        assert!(admitted[2] == 0 && admitted[held..].iter().all(|second| *second == 200), "{fails}: {admitted:?}");
        assert!(fails || admitted.iter().filter(|second| **second < 100).count() <= 3, "{admitted:?}");
    }
}

#[tokio::test]
async fn a_closed_store_reports_once_more_and_admits_its_share() {
    let fleet = Fleet::new(2);
    fleet.load(500, 5).await;
    let before = fleet.tally.reports().len();
    fleet.stores[0].close().await;
    let last = fleet.tally.reports().split_off(before);
    let [report] = &last[..] else { panic!("{last:?}") };
    let is_last = report.counters[0].critical > 0 && !report.live;
    assert!(is_last, "what is left, of a process that has reported: {report:?}");
    let admitted = load(&fleet.stores[..1], &fleet.check, 500, 12).await;
    let share = LIMIT / 2;
    assert!(admitted[0] <= 2 * share, "its bucket begins full: {admitted:?}");
    assert!(admitted[1..].iter().all(|second| second.abs_diff(share) <= share / 10), "{admitted:?}");
    assert_eq!((fleet.ratio(), fleet.stores[0].live()), (None, None));
    fleet.stores[1].close().await;
    let reports = fleet.tally.reports().len();
    fleet.load(100, 3).await;
    assert_eq!(fleet.tally.reports().len(), reports);
}

/// Whether so much is admitted in each of some seconds as the limit says.
fn is_limited(seconds: &[u64]) -> bool {
    seconds.iter().all(|second| second.abs_diff(LIMIT) <= LIMIT / 10)
}

#[tokio::test]
async fn what_was_divided_among_callers_holds_for_a_life_too() {
    let tally = Switch::new();
    let store = tally.store(1).fair("all", "caller").build();
    let caller = Check::new(counter("caller", "large", Quota::per_second(1 << 20)), 1);
    let checks = [Check::new(all(), 1), caller];
    let admitted = async |each: u64, seconds: usize| {
        let of_step = |step: u64| if step.is_multiple_of(10) { each / 5 } else { 0 };
        offered(0..seconds, |step| [(0..of_step(step)).map(|_| admits(&store, &checks)).sum()]).await
    };
    // A hundred times the limit.
    admitted(100 * LIMIT, 5).await;
    tally.set_off(true);
    admitted(5, 15).await;
    tally.set_off(false);
    admitted(5, 2).await;
    assert_eq!(store.live(), Some(1), "the tally replies again");
    assert_eq!(admitted(5, 20).await, [100], "far below the limit");
}

#[tokio::test]
async fn an_outage_is_one_line_when_it_begins_one_when_the_life_ends_and_one_on_return() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let (tally, check) = (Switch::new(), Check::new(all(), 1));
    let stores = [tally.store(1).ttl(4 * TICK).build()];
    load(&stores, &check, 500, 4).await;
    // Off for a part of the life, and for longer.
    for (is_off, seconds, unavailable, available) in
        [(true, 2, 1, 0), (true, 8, 2, 0), (false, 5, 2, 1), (true, 2, 3, 1), (false, 5, 3, 2)]
    {
        tally.set_off(is_off);
        load(&stores, &check, 500, seconds).await;
        let logged = ["code=\"tally_unavailable\"", "code=\"tally_available\""].map(|code| log.count(code));
        assert_eq!(logged, [unavailable, available], "{}", log.text());
    }
}

#[tokio::test]
async fn a_layer_that_denies_without_its_store_denies_nothing_without_the_tally_and_nothing_is_cached() {
    let tally = Switch::new();
    let cache = DenyCache::new(tally.store(1).ttl(4 * TICK).build());
    let rule = Rule::new("all", Quota::per_second(100));
    let limiter = Limiter::new(cache.clone(), [rule]).on_failure(OnFailure::Deny);
    for is_off in [false, true] {
        tally.set_off(is_off);
        let mut allowed = 0;
        for step in 0..50 * 8 * 10 {
            let decision = limiter.check(&Key::new("k", "all")).await.expect("it decides, whatever the tally does");
            allowed += u32::from(decision.is_allowed());
            if step % 10 == 9 {
                sleep(TICK / 50).await;
            }
        }
        assert!((700..=1_600).contains(&allowed), "{allowed} of 4,000 in 8 s, off: {is_off}");
        assert_eq!((cache.denied_from_cache(), cache.len()), (0, 0), "off: {is_off}");
    }
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
}
