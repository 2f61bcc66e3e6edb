//! What is admitted of a load that does not change.

use tollgate::store::Check;
use tollgate::{Quota, Source};

use super::{Fleet, LIMIT, Switch, TICK, admits, all, counter, decide, load, offered};

#[tokio::test]
async fn a_steady_load_is_within_five_percent_after_three_ticks() {
    let fleet = Fleet::new(4);
    let admitted = fleet.load(500, 13).await;
    let mean = admitted[3..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
    assert!(admitted[0] <= 4 * 2 * LIMIT, "a burst and the limit in each process: {admitted:?}");
    assert!(fleet.stores.iter().all(|store| store.live() == Some(4)));
    let ratio = fleet.ratio().expect("it is known");
    assert!((ratio - 0.8).abs() < 0.02, "{ratio}");
    assert_eq!(decide(&fleet.stores[0], &[Check::new(all(), 1)]).source(), Source::Ratio);
}

#[tokio::test]
async fn nothing_is_dropped_below_the_limit() {
    let tally = Switch::new();
    let admitted = load(&tally.stores(4), &Check::new(all(), 1), 50, 12).await;
    assert_eq!(admitted, [200; 12]);
}

#[tokio::test]
async fn costs_are_admitted_by_their_units_also_where_a_process_has_few_requests_of_them() {
    for (processes, each, cost) in [(2, 200, 5), (20, 5, 1_000), (50, 1, 1_000)] {
        let tally = Switch::new();
        let stores = tally.stores(processes);
        // A fifth of what is offered.
        let limit = processes * each * cost / 5;
        let check = Check::new(counter("all", "all", Quota::per_second(limit)), cost);
        let mut sent = 0;
        let [admitted] = offered(4..24, |step| {
            let mut admitted = 0;
            while sent * 50 <= step * processes * each {
                let store = &stores[usize::try_from(sent % processes).expect("small")];
                admitted += cost * admits(store, std::slice::from_ref(&check));
                sent += 1;
            }
            [admitted]
        })
        .await;
        let mean = admitted / 20;
        assert!(mean.abs_diff(limit) * 10 <= limit, "{mean} of {limit}: {each} a tick of each of {processes}");
    }
}

#[tokio::test]
async fn critical_requests_are_dropped_only_if_they_alone_exceed_the_limit() {
    for (critical, expected) in [(100, [300, 100]), (300, [100, 300]), (600, [0, 400])] {
        let tally = Switch::new();
        let stores = tally.stores(1);
        // A fifth is reserved.
        let checks = [Check::new(all(), 1).floor(LIMIT / 5), Check::new(all(), 1)];
        let admitted = offered(4..14, |_| {
            let of = |kind: usize, requests| (0..requests).map(|_| admits(&stores[0], &checks[kind..=kind])).sum();
            [of(0, 1_000 / 50), of(1, critical / 50)]
        })
        .await;
        for (admitted, expected) in admitted.into_iter().zip(expected) {
            assert!((admitted / 10).abs_diff(expected) <= 20, "{critical} critical: {admitted} of {expected} a second");
        }
    }
}

/// Of all requests, and of a caller.
fn of_caller(limit: u64, caller: &str) -> [Check; 2] {
    let caller = counter("caller", caller, Quota::per_second(1 << 20));
    [Check::new(counter("all", "all", Quota::per_second(limit)), 1), Check::new(caller, 1)]
}

#[tokio::test]
async fn small_callers_are_not_dropped_for_a_large_one() {
    for is_fair in [true, false] {
        let tally = Switch::new();
        let builder = tally.store(1);
        let store = if is_fair { builder.fair("all", "caller") } else { builder }.build();
        let [small, large] = offered(4..14, |step| {
            let large = (0..40).map(|_| admits(&store, &of_caller(LIMIT, "large"))).sum();
            [admits(&store, &of_caller(LIMIT, &format!("small-{}", step % 10))), large]
        })
        .await;
        // 500 small requests, and 10 s of the limit for all.
        assert!(if is_fair { small >= 475 } else { small < 200 }, "fair: {is_fair}: {small} of 500");
        assert!((small + large).abs_diff(10 * LIMIT) <= LIMIT / 2, "{small} + {large}");
    }
}

#[tokio::test]
async fn many_callers_of_few_requests_are_not_starved() {
    for callers in [5, 40] {
        let tally = Switch::new();
        let stores: Vec<_> = (0..10).map(|seed| tally.store(seed).fair("all", "caller").build()).collect();
        // Of two requests one fits.
        let limit = 5 * callers;
        let [admitted] = offered(4..24, |step| {
            let sending = stores.iter().enumerate().filter(|_| step % 50 < callers);
            let caller = |place: usize| of_caller(limit, &format!("{place}-{}", step % 50));
            [sending.map(|(place, store)| admits(store, &caller(place))).sum()]
        })
        .await;
        assert!(admitted.abs_diff(20 * limit) <= 2 * limit, "{admitted} in 20 s of {limit}, {callers} callers each");
    }
}

#[tokio::test]
async fn small_callers_are_not_dropped_for_one_with_new_names() {
    let tally = Switch::new();
    let store = tally.store(1).fair("all", "caller").build();
    let [small, _] = offered(4..14, |step| {
        let admits = |caller: String| admits(&store, &of_caller(LIMIT, &caller));
        let small = (0..2).map(|request| admits(format!("small-{}", (2 * step + request) % 20))).sum();
        [small, (2..62).map(|request| admits(format!("{}-{}", step / 50, request % 15))).sum()]
    })
    .await;
    assert!(small >= 850, "{small} of 1,000 small requests");
}

#[tokio::test]
async fn the_wait_of_a_refusal_is_a_guess() {
    let fleet = Fleet::new(1);
    fleet.load(2_000, 4).await;
    let mut waits = [0; 4];
    for _ in 0..1_000 {
        let decision = decide(&fleet.stores[0], &[Check::new(all(), 1)]);
        if !decision.is_allowed() {
            assert!(decision.retry_is_guess());
            assert_eq!(decision.outcomes()[0].remaining(), 0);
            let wait = decision.retry_after().expect("it may be retried");
            assert_eq!(wait.subsec_nanos(), 0);
            waits[usize::try_from(wait.as_secs()).expect("short")] += 1;
        }
    }
    assert!(waits[0] == 0 && waits[1..].iter().all(|count| *count > 100), "spread over 1 to 3 ticks: {waits:?}");
}

#[tokio::test]
async fn no_refusal_has_units_left() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    // A tick has a tenth of the window.
    let window = counter("all", "all", Quota::fixed_window(10 * LIMIT, 10 * TICK));
    let check = Check::new(window, 1);
    load(&stores, &check, 2_000, 5).await;
    load(&stores, &check, 50, 4).await;
    assert_eq!(stores[0].ratio(&check.counter), Some(0.0));
    let decisions: Vec<_> = (0..6_000).map(|_| decide(&stores[0], std::slice::from_ref(&check))).collect();
    let refused: Vec<_> = decisions.iter().filter(|decision| !decision.is_allowed()).collect();
    assert!(refused.len() > 1_000, "{}: no more than the burst", refused.len());
    assert!(refused.iter().all(|decision| decision.outcomes()[0].remaining() == 0));
}
