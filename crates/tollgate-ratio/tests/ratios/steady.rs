//! What is admitted of a load that does not change.

use tollgate::Source;
use tollgate::store::Check;

use super::{LIMIT, Steps, Switch, TICK, all, counter, decide, load};
use tollgate::Quota;

#[tokio::test]
async fn a_steady_load_is_within_five_percent_after_three_ticks() {
    let tally = Switch::new();
    let stores = tally.stores(4);
    let admitted = load(&stores, &Check::new(all(), 1), 500, 13).await;
    let mean = admitted[3..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
    assert!(admitted[0] <= 4 * 2 * LIMIT, "a burst and the limit in each process: {admitted:?}");
    assert!(stores.iter().all(|store| store.live() == Some(4)));
    let ratio = stores[0].ratio(&all()).expect("it is known");
    assert!((ratio - 0.8).abs() < 0.02, "{ratio}");
    assert_eq!(decide(&stores[0], &[Check::new(all(), 1)]).source(), Source::Ratio);
}

#[tokio::test]
async fn nothing_is_dropped_below_the_limit() {
    let tally = Switch::new();
    let admitted = load(&tally.stores(4), &Check::new(all(), 1), 50, 12).await;
    assert_eq!(admitted, [200; 12]);
}

#[tokio::test]
async fn two_clients_in_turn_are_dropped_alike() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    load(&stores, &Check::new(all(), 1), 800, 4).await;
    let mut admitted = [0_u64; 2];
    let mut steps = Steps::new();
    for _ in 0..2_000 {
        for client in &mut admitted {
            for _ in 0..8 {
                *client += u64::from(decide(&stores[0], &[Check::new(all(), 1)]).is_allowed());
            }
        }
        steps.next().await;
    }
    let [first, second] = admitted;
    assert!(first.abs_diff(second) * 20 < first, "{admitted:?}");
}

#[tokio::test]
async fn costs_are_admitted_by_their_units() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    let admitted = load(&stores, &Check::new(all(), 5), 200, 13).await;
    let mean = 5 * admitted[3..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
}

#[tokio::test]
async fn costs_that_few_requests_of_a_process_have_are_admitted_by_their_units() {
    const COST: u64 = 1_000;
    for (processes, each) in [(20, 5), (50, 1)] {
        let tally = Switch::new();
        let stores = tally.stores(processes);
        // A fifth of what is offered.
        let limit = processes * each * COST / 5;
        let check = Check::new(counter("all", "all", Quota::per_second(limit)), COST);
        let (mut admitted, mut sent) = (0, 0);
        let mut steps = Steps::new();
        for step in 0..24 * 50 {
            while sent * 50 <= step * processes * each {
                let store = &stores[usize::try_from(sent % processes).expect("small")];
                let is_allowed = decide(store, std::slice::from_ref(&check)).is_allowed();
                admitted += if is_allowed && step >= 4 * 50 { COST } else { 0 };
                sent += 1;
            }
            steps.next().await;
        }
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
        let mut admitted = [0_u64; 2];
        let mut steps = Steps::new();
        for step in 0..14 * 50 {
            for (kind, requests) in [1_000 / 50, critical / 50].into_iter().enumerate() {
                for _ in 0..requests {
                    let is_allowed = decide(&stores[0], &checks[kind..=kind]).is_allowed();
                    admitted[kind] += u64::from(is_allowed && step >= 4 * 50);
                }
            }
            steps.next().await;
        }
        for (kind, expected) in expected.into_iter().enumerate() {
            let mean = admitted[kind] / 10;
            assert!(mean.abs_diff(expected) <= 20, "{critical} critical: {admitted:?}");
        }
    }
}

#[tokio::test]
async fn small_callers_are_not_dropped_for_a_large_one() {
    for (is_fair, least) in [(true, 95), (false, 0)] {
        let tally = Switch::new();
        let builder = tally.store(1);
        let builder = if is_fair { builder.fair("all", "caller") } else { builder };
        let store = builder.build();
        let (mut small, mut large) = (0, 0);
        let mut steps = Steps::new();
        for step in 0..14 * 50 {
            for request in 0..41 {
                let caller = if request == 40 { format!("small-{}", step % 10) } else { "large".to_owned() };
                let caller = counter("caller", &caller, Quota::per_second(1 << 20));
                let is_allowed = decide(&store, &[Check::new(all(), 1), Check::new(caller, 1)]).is_allowed();
                let count = if request == 40 { &mut small } else { &mut large };
                *count += u64::from(is_allowed && step >= 4 * 50);
            }
            steps.next().await;
        }
        // 500 small requests, and 10 s of the limit for all.
        assert!(small * 100 >= least * 500 && (is_fair || small < 200), "fair: {is_fair}: {small} of 500");
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
        let (mut admitted, mut steps) = (0, Steps::new());
        for step in 0..24 * 50 {
            for (place, store) in stores.iter().enumerate().filter(|_| step % 50 < callers) {
                let caller = counter("caller", &format!("{place}-{}", step % 50), Quota::per_second(1 << 20));
                let all = counter("all", "all", Quota::per_second(limit));
                let is_allowed = decide(store, &[Check::new(all, 1), Check::new(caller, 1)]).is_allowed();
                admitted += u64::from(is_allowed && step >= 4 * 50);
            }
            steps.next().await;
        }
        assert!(admitted.abs_diff(20 * limit) <= 2 * limit, "{admitted} in 20 s of {limit}, {callers} callers each");
    }
}

#[tokio::test]
async fn small_callers_are_not_dropped_for_one_with_new_names() {
    let tally = Switch::new();
    let store = tally.store(1).fair("all", "caller").build();
    let (mut small, mut steps) = (0, Steps::new());
    for step in 0..14 * 50 {
        for request in 0..62 {
            let caller = match request {
                0 | 1 => format!("small-{}", (2 * step + request) % 20),
                _ => format!("{}-{}", step / 50, request % 15),
            };
            let caller = counter("caller", &caller, Quota::per_second(1 << 20));
            let is_allowed = decide(&store, &[Check::new(all(), 1), Check::new(caller, 1)]).is_allowed();
            small += u64::from(request < 2 && is_allowed && step >= 4 * 50);
        }
        steps.next().await;
    }
    assert!(small >= 850, "{small} of 1,000 small requests");
}

#[tokio::test]
async fn the_wait_of_a_refusal_is_a_guess() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    load(&stores, &Check::new(all(), 1), 2_000, 4).await;
    let mut waits = [0; 4];
    for _ in 0..1_000 {
        let decision = decide(&stores[0], &[Check::new(all(), 1)]);
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
