//! A clock that a test sets.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::store::Clock;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, OnFailure, Quota, Rule, Source};

use crate::support::doubles::unavailable;
use crate::support::time::memory;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ada() -> Key {
    Key::new("user", "ada")
}

#[test]
fn clones_show_one_time_which_only_the_test_moves() {
    let clock = ManualClock::new();
    let clone = clock.clone();
    clock.advance(Duration::from_micros(7));
    assert_eq!(clone.now(), ManualClock::EPOCH + Duration::from_micros(7));
    clone.set(secs(1_000));
    assert_eq!(clock.now(), secs(1_000), "it may step back");
    assert_eq!(ManualClock::EPOCH.as_secs() % (7 * 30 * 86_400), 0, "windows begin where it starts");
}

#[tokio::test]
async fn a_paused_clock_and_the_timers_move_each_other() {
    let (clock, start) = (ManualClock::paused(), Instant::now());
    assert_eq!(clock.now(), ManualClock::EPOCH);
    sleep(secs(5)).await;
    assert!(clock.now() >= ManualClock::EPOCH + secs(5));
    assert_eq!(clock.now(), ManualClock::EPOCH + start.elapsed());
    let timer = tokio::spawn(sleep(secs(60)));
    tokio::task::yield_now().await;
    let before = Instant::now();
    clock.advance(secs(60));
    timer.await.expect("it fires");
    assert!(before.elapsed() >= secs(60) && before.elapsed() < secs(61), "once");
}

#[test]
#[should_panic(expected = "timers are disabled")]
fn a_runtime_without_timers_cannot_be_paused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    drop(runtime.block_on(async { ManualClock::paused() }));
}

#[tokio::test]
async fn other_threads_move_the_time_of_the_paused_runtime_and_it_moves_on_from_where_it_is_set_back() {
    let (clock, start) = (ManualClock::paused(), Instant::now());
    let elsewhere = clock.clone();
    let moved = std::thread::spawn(move || elsewhere.set(ManualClock::EPOCH + secs(100)));
    moved.join().expect("it moves");
    assert_eq!((clock.now(), start.elapsed()), (ManualClock::EPOCH + secs(100), secs(100)));
    clock.set(ManualClock::EPOCH + secs(40));
    assert_eq!((clock.now(), start.elapsed()), (ManualClock::EPOCH + secs(40), secs(100)));
    clock.advance(secs(1));
    assert_eq!((clock.now(), start.elapsed()), (ManualClock::EPOCH + secs(41), secs(101)));
}

#[tokio::test]
async fn a_limiter_waits_by_a_paused_clock() -> Result<(), tollgate::Error> {
    let (clock, start) = (ManualClock::paused(), Instant::now());
    let limiter = Limiter::new(memory(&clock), [Rule::new("mail", Quota::fixed_window(1, secs(86_400)))]);
    for day in 0..3 {
        assert!(limiter.until_ready(&ada(), secs(86_401)).await?.0.is_allowed());
        // It waits a little longer than it has to, each time within its timeout.
        assert!((secs(86_400) * day..secs(86_402) * day + secs(1)).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn the_fallback_refills_by_a_paused_clock() -> Result<(), tollgate::Error> {
    let clock = ManualClock::paused();
    let day = secs(86_400);
    for quota in [Quota::token_bucket(1, day), Quota::fixed_window(1, day)] {
        let limiter = Limiter::new(unavailable(), [Rule::new("mail", quota)]).on_failure(OnFailure::Fallback);
        let verdict = async || limiter.check(&ada()).await.map(|decision| (decision.is_allowed(), decision.source()));
        assert_eq!(verdict().await?, (true, Source::Fallback));
        assert_eq!(verdict().await?, (false, Source::Fallback));
        clock.advance(day);
        assert_eq!(verdict().await?, (true, Source::Fallback));
    }
    Ok(())
}

#[test]
fn a_wall_clock_that_is_set_moves_on_with_the_clock_of_rates() {
    let clock = ManualClock::new();
    let shown = || (clock.now().abs_diff(ManualClock::EPOCH), Clock::wall(&clock));
    assert_eq!(shown(), (secs(0), ManualClock::EPOCH));
    clock.set_wall(secs(50));
    clock.advance(secs(7));
    assert_eq!(shown(), (secs(7), secs(57)));
    clock.set(ManualClock::EPOCH + secs(4));
    assert_eq!(shown(), (secs(4), secs(54)));
}
