//! The tally in memory.

use tollgate::store::Counter;
use tollgate::test_util::ManualClock;
use tollgate_ratio::{CounterId, MemoryTally, Offered, Report, Tally, Totals};

use super::{TICK, all, counter};

fn tally() -> (MemoryTally, ManualClock) {
    let clock = ManualClock::new();
    (MemoryTally::with_clock(clock.clone()), clock)
}

async fn report(tally: &MemoryTally, target: u64, offered: &[(&Counter, [u64; 2])]) -> Totals {
    let counters =
        offered.iter().map(|(counter, units)| Offered::new(CounterId::new(counter), units[0], units[1], 100));
    tally.report(Report::new(TICK, target).counters(counters)).await.expect("it replies")
}

#[tokio::test]
async fn totals_are_those_of_the_last_complete_tick() {
    let (tally, clock) = tally();
    let other = counter("all", "other", *all().quota());
    for _ in 0..3 {
        let totals = report(&tally, 0, &[(&all(), [5, 2])]).await;
        assert_eq!((totals.live, totals.counters), (0, vec![Some([0, 0])]));
    }
    clock.advance(TICK);
    let totals = report(&tally, 0, &[(&other, [1, 0]), (&all(), [0, 0])]).await;
    assert_eq!((totals.now, totals.live), (clock.now(), 3));
    assert_eq!(totals.counters, [Some([0, 0]), Some([15, 6])]);
    clock.advance(TICK);
    let totals = report(&tally, 0, &[(&other, [0, 0])]).await;
    assert_eq!((totals.live, totals.counters), (1, vec![Some([1, 0])]));
    clock.advance(2 * TICK);
    let totals = report(&tally, 0, &[(&all(), [0, 0])]).await;
    assert_eq!((totals.live, totals.counters), (0, vec![Some([0, 0])]));
}

#[tokio::test]
async fn a_late_report_counts_in_the_last_tick_and_an_older_one_nowhere() {
    let (tally, clock) = tally();
    let tick = clock.now().as_secs();
    clock.advance(TICK);
    let totals = report(&tally, tick, &[(&all(), [7, 0])]).await;
    assert_eq!((totals.live, totals.counters), (1, vec![Some([7, 0])]));
    for target in [tick - 1, tick + 5, u64::MAX] {
        drop(report(&tally, target, &[(&all(), [1, 0])]).await);
    }
    let late = report(&tally, tick - 1, &[(&all(), [u64::MAX, 0])]).await;
    assert_eq!((late.live, late.counters), (1, vec![Some([7, 0])]), "it is replied to");
    clock.advance(TICK);
    let totals = report(&tally, 0, &[(&all(), [0, 0])]).await;
    assert_eq!((totals.live, totals.counters), (2, vec![Some([2, 0])]));
}
