//! A tally that does not reply, loses its reports, or has false ones.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::store::Check;
use tollgate::{Error, Source};
use tollgate_ratio::{CounterId, Offered, Report, Tally, Totals};

use super::{LIMIT, Switch, TICK, all, decide, load};

#[tokio::test]
async fn the_last_ratio_holds_for_its_life_and_then_the_share_of_an_instance() {
    let tally = Switch::new();
    let stores = tally.stores(4);
    let check = Check::new(all(), 1);
    load(&stores, &check, 500, 5).await;
    tally.set_off(true);
    let admitted = load(&stores, &check, 500, 9).await;
    assert!(admitted.iter().all(|second| second.abs_diff(LIMIT) <= LIMIT / 10), "{admitted:?}");
    assert!(stores[0].ratio(&all()).is_some());
    load(&stores, &check, 500, 2).await;
    assert_eq!((stores[0].ratio(&all()), stores[0].live()), (None, None));
    assert_eq!(decide(&stores[0], std::slice::from_ref(&check)).source(), Source::Fallback);
    let admitted = load(&stores, &check, 500, 5).await;
    assert!(admitted[1..].iter().all(|second| second.abs_diff(LIMIT) <= LIMIT / 10), "{admitted:?}");
    tally.set_off(false);
    let admitted = load(&stores, &check, 500, 14).await;
    let mean = admitted[4..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
    assert_eq!(stores[0].live(), Some(4));
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
async fn an_emptied_tally_is_no_data() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    load(&stores, &Check::new(all(), 1), 1_000, 5).await;
    let before = stores[0].ratio(&all()).expect("it is known");
    for _ in 0..10 {
        tally.tally.clear();
        sleep(TICK / 10).await;
    }
    assert_eq!((stores[0].ratio(&all()), stores[0].live()), (Some(before), Some(2)));
}

#[tokio::test]
async fn a_false_report_holds_a_key_for_three_ticks_at_most() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    let check = Check::new(all(), 1);
    load(&stores, &check, 100, 4).await;
    let report = Report::new(TICK, 0).counters([Offered::new(CounterId::new(&all()), u64::MAX, u64::MAX, u64::MAX)]);
    drop(tally.tally.report(report).await.expect("it replies"));
    let admitted = load(&stores, &check, 100, 8).await;
    assert!(admitted.iter().filter(|second| **second < 100).count() <= 3, "{admitted:?}");
    assert!(admitted.iter().any(|second| *second < 100), "it was read: {admitted:?}");
    assert_eq!(admitted[4..], [200; 4], "of all that is offered");
}

#[tokio::test]
async fn a_false_report_holds_a_key_for_a_life_if_the_tally_fails_then() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    let check = Check::new(all(), 1);
    load(&stores, &check, 100, 4).await;
    let report = Report::new(TICK, 0).counters([Offered::new(CounterId::new(&all()), u64::MAX, u64::MAX, u64::MAX)]);
    drop(tally.tally.report(report).await.expect("it replies"));
    load(&stores, &check, 100, 2).await;
    assert!(stores[0].ratio(&all()).is_some_and(|ratio| ratio > 0.9), "it was read");
    tally.set_off(true);
    let admitted = load(&stores, &check, 100, 14).await;
    assert_eq!((admitted[0], &admitted[11..]), (0, &[200; 3][..]), "from then on by shares: {admitted:?}");
}

/// A tally that never replies, and how long it was waited for each time.
struct Unanswered(Arc<Mutex<Vec<Duration>>>);

struct Waiting(Arc<Mutex<Vec<Duration>>>, Instant);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().expect("no test panicked").push(self.1.elapsed());
    }
}

impl Tally for Unanswered {
    fn report(&self, _: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        let waiting = Waiting(Arc::clone(&self.0), Instant::now());
        Box::pin(async move {
            let _waiting = waiting;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_tally_that_does_not_reply_is_waited_for_a_quarter_of_a_tick() {
    tokio::time::pause();
    let waits = Arc::default();
    let store = tollgate_ratio::RatioStore::new(Unanswered(Arc::clone(&waits)));
    let admitted = load(std::slice::from_ref(&store), &Check::new(all(), 1), 1_000, 4).await;
    assert!(admitted[1..].iter().all(|second| second.abs_diff(LIMIT) <= 8), "{admitted:?}");
    let waits = waits.lock().expect("no test panicked");
    let is_quarter = |wait: &Duration| wait.abs_diff(TICK / 4) <= Duration::from_millis(2);
    assert!(waits.len() >= 3 && waits.iter().all(is_quarter), "{waits:?}");
}

#[tokio::test]
async fn a_clock_that_is_set_does_not_stop_reports() {
    let (hour, end) = (Duration::from_secs(3_600), Duration::from_micros(u64::MAX));
    for steps in [[hour, Duration::ZERO], [Duration::ZERO, hour], [end, Duration::ZERO]] {
        let tally = Switch::new();
        let stores = tally.stores(2);
        let check = Check::new(all(), 1);
        for ahead in steps {
            tally.set_ahead(ahead);
            load(&stores, &check, 1_000, 5).await;
            let before = tally.reports().len();
            let admitted = load(&stores, &check, 1_000, 4).await;
            let reports = tally.reports().len() - before;
            assert!((4..=12).contains(&reports), "{reports} of two processes in 4 ticks, {ahead:?} ahead");
            let is_limited = |second: &u64| second.abs_diff(LIMIT) <= LIMIT / 10;
            assert!(ahead == end || admitted.iter().all(is_limited), "{admitted:?}, {ahead:?} ahead");
        }
    }
}

/// A tally whose clock leaps by nearly a tick with each report.
struct Leaping(Switch);

impl Tally for Leaping {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        self.0.ahead.fetch_add(990_000, Ordering::Relaxed);
        self.0.report(report)
    }
}

#[tokio::test]
async fn a_tally_whose_clock_leaps_with_each_report_is_not_called_without_a_pause() {
    let tally = Switch::new();
    let store = tollgate_ratio::RatioStore::builder(Leaping(tally.clone())).seed(1).build();
    load(std::slice::from_ref(&store), &Check::new(all(), 1), 100, 5).await;
    let reports = tally.reports().len();
    assert!((3..=60).contains(&reports), "{reports} in 5 ticks");
}

#[tokio::test]
async fn the_task_ends_without_requests_and_with_the_last_clone() {
    let tally = Switch::new();
    let store = tally.stores(1).remove(0);
    load(std::slice::from_ref(&store), &Check::new(all(), 1), 100, 3).await;
    sleep(Duration::from_secs(65)).await;
    let reports = tally.reports().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(tally.reports().len(), reports, "60 ticks without requests");
    load(std::slice::from_ref(&store), &Check::new(all(), 1), 100, 3).await;
    assert!(tally.reports().len() > reports, "it begins anew");
    drop(store);
    sleep(2 * TICK).await;
    assert_eq!(Arc::strong_count(&tally.is_off), 1, "the task has dropped the tally");
}

#[tokio::test]
async fn a_closed_store_reports_once_more() {
    let tally = Switch::new();
    let store = tally.stores(1).remove(0);
    load(std::slice::from_ref(&store), &Check::new(all(), 1), 1_000, 3).await;
    let before = tally.reports().len();
    store.close().await;
    let last = tally.reports().split_off(before);
    let [report] = &last[..] else { panic!("{last:?}") };
    assert!(
        report.counters[0].critical > 0 && !report.live,
        "what is left, of a process that has reported: {report:?}"
    );
    let reports = tally.reports().len();
    load(std::slice::from_ref(&store), &Check::new(all(), 1), 100, 3).await;
    assert_eq!(tally.reports().len(), reports);
}

#[tokio::test]
async fn a_closed_store_admits_its_share() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    let check = Check::new(all(), 1);
    load(&stores, &check, 500, 5).await;
    stores[0].close().await;
    let admitted = load(&stores[..1], &check, 500, 12).await;
    let share = LIMIT / 2;
    assert!(admitted[0] <= 2 * share, "its bucket begins full: {admitted:?}");
    assert!(admitted[1..].iter().all(|second| second.abs_diff(share) <= share / 10), "{admitted:?}");
    assert_eq!((stores[0].ratio(&all()), stores[0].live()), (None, None));
}

#[tokio::test]
async fn a_tick_that_has_lost_reports_is_no_data() {
    for clear in [true, false] {
        let tally = Switch::new();
        let stores = tally.stores(8);
        let check = Check::new(all(), 1);
        load(&stores, &check, 250, 5).await;
        let begun = tally.clone();
        tokio::spawn(async move {
            begun.set_off(!clear);
            sleep(TICK * 5 / 2).await;
            begun.tally.clear();
            begun.set_off(false);
        });
        let admitted = load(&stores, &check, 250, 7).await;
        assert!(admitted.iter().all(|second| *second * 10 <= LIMIT * 13), "cleared: {clear}: {admitted:?}");
        assert_eq!(stores[0].live(), Some(8));
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
    let admitted = (0..10_000).filter(|_| decide(&stores[0], std::slice::from_ref(&check)).is_allowed()).count();
    assert!(admitted <= 500, "{admitted} in one tick of {LIMIT}");
}

#[tokio::test]
async fn what_was_divided_among_callers_holds_for_a_life_too() {
    let tally = Switch::new();
    let store = tally.store(1).fair("all", "caller").build();
    let caller = Check::new(super::counter("caller", "large", tollgate::Quota::per_second(1 << 20)), 1);
    let checks = [Check::new(all(), 1), caller];
    let admitted = async |each: u64, seconds: u64| {
        let (mut admitted, mut steps) = (0, super::Steps::new());
        for _ in 0..seconds * 5 {
            admitted += (0..each / 5).filter(|_| decide(&store, &checks).is_allowed()).count();
            for _ in 0..10 {
                steps.next().await;
            }
        }
        admitted
    };
    // A hundred times the limit.
    admitted(100 * LIMIT, 5).await;
    tally.set_off(true);
    admitted(5, 15).await;
    tally.set_off(false);
    admitted(5, 2).await;
    assert_eq!(store.live(), Some(1), "the tally replies again");
    assert_eq!(admitted(5, 20).await, 100, "far below the limit");
}

/// A tally that replies nonsense while it is told to, of any number and any length.
struct Nonsense(Switch, Arc<Mutex<Option<fastrand::Rng>>>);

impl Tally for Nonsense {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        let many = report.counters.len();
        let good = self.0.report(report);
        let mut rng = self.1.lock().expect("no test panicked");
        let Some(rng) = rng.as_mut() else { return good };
        let mut number = || rng.choice([0, 1, 1 << 40, 1 << 52, u64::MAX, LIMIT]).expect("there are some");
        let now = Duration::from_micros(number());
        let totals =
            Totals::new(now, number()).counters((0..number() % 4).map(|_| Some([number(), number()])).collect());
        let hot = (0..number() % 3).map(|_| (CounterId::new(&all()), [number(), number()])).collect();
        assert!(many <= 1);
        Box::pin(std::future::ready(Ok(totals.hot(hot))))
    }
}

#[tokio::test]
async fn nonsense_of_a_tally_ends_no_reports_and_is_forgotten_in_a_few_ticks() {
    for seed in 0..4 {
        let (tally, rng) = (Switch::new(), Arc::default());
        let settings = tollgate_ratio::RatioStore::builder(Nonsense(tally.clone(), Arc::clone(&rng))).seed(seed);
        let store = settings.build();
        let (stores, check) = (std::slice::from_ref(&store), Check::new(all(), 1));
        load(stores, &check, 1_000, 4).await;
        *rng.lock().expect("no test panicked") = Some(fastrand::Rng::with_seed(seed));
        for _ in 0..20 {
            load(stores, &check, 1_000, 1).await;
            assert!(store.ratio(&all()).is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "seed {seed}");
        }
        *rng.lock().expect("no test panicked") = None;
        let admitted = load(stores, &check, 1_000, 12).await;
        let is_limited = |second: &u64| second.abs_diff(LIMIT) <= LIMIT / 10;
        assert!(admitted[6..].iter().all(is_limited), "seed {seed}: {admitted:?}");
        assert_eq!(store.live(), Some(1), "seed {seed}");
    }
}

#[tokio::test]
async fn a_clock_that_steps_again_and_again_neither_stops_requests_nor_lets_all_pass() {
    for seed in 0..4 {
        let (tally, mut rng) = (Switch::new(), fastrand::Rng::with_seed(seed));
        let (stores, check) = (tally.stores(2), Check::new(all(), 1));
        load(&stores, &check, 1_000, 4).await;
        let mut all_admitted = 0;
        for _ in 0..30 {
            tally.set_ahead(Duration::from_millis(rng.u64(..4_000)));
            let admitted = load(&stores, &check, 1_000, 1).await;
            all_admitted += admitted[0];
        }
        // Of five times the limit.
        let bounds = LIMIT / 2..=LIMIT * 2;
        assert!(bounds.contains(&(all_admitted / 30)), "seed {seed}: {all_admitted} in 30 s");
        let admitted = load(&stores, &check, 1_000, 12).await;
        let is_limited = |second: &u64| second.abs_diff(LIMIT) <= LIMIT / 10;
        assert!(admitted[6..].iter().all(is_limited), "seed {seed}: {admitted:?}");
    }
}
