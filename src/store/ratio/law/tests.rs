use super::*;

/// Limits a second, with ticks of a second.
fn rate(limit: u64) -> Rate {
    Rate::new(&Quota::fixed_window(limit, Duration::from_secs(1)), Duration::from_secs(1))
}

#[test]
fn a_rate_is_the_part_of_a_limit_that_a_tick_has() {
    let tick = Duration::from_millis(100);
    assert_eq!(Rate::new(&Quota::per_second(1_000), tick).units(), 100);
    assert_eq!(Rate::new(&Quota::per_minute(1), tick).units(), 1, "rounded up");
    assert_eq!(Rate::new(&Quota::per_minute(1), tick).parts, (1 << POINT) / 600 + 1);
    assert_eq!(rate(1_000).left(&Quota::per_second(1_000), 700), 300);
    assert_eq!(Rate::new(&Quota::per_minute(600), tick).left(&Quota::per_minute(600), 1), 0);
}

#[test]
fn a_keep_is_a_share_whatever_the_totals() {
    for limit in [1, 1_000, 1 << 40] {
        for ordinary in [0, 1, 999, (1 << 52) - 1] {
            for critical in [0, 1, 999, (1 << 52) - 1] {
                for floor in [0, 1, limit] {
                    let keeps = keeps(rate(limit), [ordinary, critical], (floor, limit));
                    assert!(keeps.iter().all(|keep| *keep <= ALL), "{keeps:?}");
                    let admitted = [0, 1].map(|kind| kept(keeps[kind], [ordinary, critical][kind]));
                    assert!(admitted[0] + admitted[1] <= limit, "{admitted:?} of {limit}");
                }
            }
        }
    }
}

#[test]
fn the_reserve_is_left_to_critical_requests() {
    for (offered, admitted) in [
        ([9_000, 100], [800, 100]),
        ([9_000, 500], [500, 500]),
        ([9_000, 5_000], [0, 1_000]),
        ([500, 100], [500, 100]),
        ([900, 0], [800, 0]),
    ] {
        let keeps = keeps(rate(1_000), offered, (200, 1_000));
        // Rounded to the nearest: a keep is rounded down.
        let found = [0, 1].map(|kind: usize| (keeps[kind] * offered[kind] + (1 << 31)) >> 32);
        assert_eq!(found, admitted, "of {offered:?}");
    }
}

#[test]
fn what_is_admitted_stays_within_three_of_the_largest_costs_of_its_share() {
    let mut draws = Draws::new(1);
    for (costs, keep) in [[1, 1, 1, 5, 100], [1, 1, 1, 1, 1_000], [1; 5]]
        .into_iter()
        .flat_map(|costs| [20, 5, 2].map(|part| (costs, ALL / part)).into_iter().chain([(costs, ALL / 5 * 4)]))
    {
        let (mut error, mut sum, mut small) = (Deviation::default(), 0_i128, [0_u64; 2]);
        let largest = costs[4];
        for _ in 0..50_000 {
            let cost = costs[usize::try_from(draws.draw() % 5).expect("small")];
            let is_admitted = error.admits(keep, (cost, largest), draws.draw());
            // Not the error itself, which is bounded.
            sum += i128::from(keep * cost) - if is_admitted { i128::from(cost) << 32 } else { 0 };
            assert!(sum.abs() <= (3 * i128::from(largest)) << 32, "{} of {largest}", sum >> 32);
            if cost == 1 {
                small = [small[0] + 1, small[1] + u64::from(is_admitted)];
            }
        }
        let fair = kept(keep, small[0]);
        assert!(small[1].abs_diff(fair) <= fair / 10, "{small:?} at {costs:?}: as large ones");
    }
}

#[test]
fn requests_in_turn_are_dropped_alike() {
    for (clients, keep) in [(2, ALL / 2), (5, ALL / 5), (2, ALL / 100)] {
        let (mut error, mut draws, mut admitted) = (Deviation::default(), Draws::new(7), [0_u64; 5]);
        for request in 0..100_000 {
            admitted[request % clients] += u64::from(error.admits(keep, (1, 1), draws.draw()));
        }
        let fair = kept(keep, 100_000) / clients as u64;
        let is_fair = |units: &u64| units.abs_diff(fair) <= fair / 10;
        assert!(admitted[..clients].iter().all(is_fair), "{admitted:?} of {fair} each");
        assert!(admitted.iter().sum::<u64>().abs_diff(kept(keep, 100_000)) <= 3);
    }
}

#[test]
fn nothing_is_dropped_at_a_keep_of_all_and_nothing_admitted_at_0() {
    let (mut error, mut draws) = (Deviation::default(), Draws::new(3));
    assert!((0..1_000).all(|_| error.admits(ALL, (5, 5), draws.draw())));
    assert!((0..1_000).all(|_| !error.admits(0, (5, 5), draws.draw())));
    assert!((0..1_000).all(|_| error.admits(ALL, (5, 5), draws.draw())));
}

#[test]
fn a_slack_is_one_of_requests() {
    assert_eq!([slack(100, 1), slack(100, 0), slack(0, 1)], [44, 44, 4]);
    assert_eq!([slack(100_000, 1_000), slack(0, 50)], [44_000, 200]);
    assert_eq!(slack(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn a_level_admits_what_the_keep_does() {
    for (offered, keep) in [
        (&[50, 100, 5_000][..], ALL / 5),
        (&[1, 1, 1, 1, 1, 10], ALL / 2),
        (&[1; 40], ALL / 2),
        (&[1; 5], ALL / 5),
        (&[7], ALL / 100),
        (&[5, 5], 0),
        (&[u64::MAX; 64], ALL / 3),
    ] {
        let level = Level::new(offered, keep).expect("it drops some");
        let all: u128 = offered.iter().map(|units| u128::from(*units)).sum();
        let admitted: u128 = offered.iter().map(|units| u128::from(*units) * u128::from(level.keep(0, *units))).sum();
        let expected = all * u128::from(keep);
        // A keep is rounded down.
        assert!(admitted <= expected && expected - admitted <= all, "{admitted} of {expected}: {offered:?}");
    }
    assert!(Level::new(&[50, 100], ALL).is_none() && Level::new(&[], 0).is_none());
}

#[test]
fn one_that_was_offered_nothing_is_admitted_up_to_the_level() {
    let level = |offered: &[u64]| Level::new(offered, ALL / 2).expect("it drops some");
    assert_eq!([0, 3, 4].map(|before| level(&[1, 1, 10]).keep(before, 1)), [ALL, ALL, 0], "four units");
    assert_eq!([0, 1].map(|before| level(&[1, 1]).keep(before, 1)), [ALL / 2, 0], "half a unit");
    assert_eq!(level(&[1, 1]).keep(0, 2), ALL / 4);
}

#[test]
fn a_sample_is_exact_on_average() {
    let mut draws = Draws::new(11);
    for (limit, live, units) in [(1_000, 100, [1, 0]), (1_000, 100, [1, 3]), (100, 30, [0, 1]), (7, 2, [1, 0])] {
        let threshold = rate(limit).threshold(live);
        assert!(!threshold.is_below(units[0] + units[1]));
        let mut sums = [0; 2];
        for _ in 0..200_000 {
            let [ordinary, critical] = draws.sample(units, threshold).unwrap_or_default();
            sums = [sums[0] + ordinary, sums[1] + critical];
        }
        let is_close = |kind: usize| sums[kind].abs_diff(200_000 * units[kind]) <= 4_000 * units[kind];
        assert!(is_close(0) && is_close(1), "{sums:?} of {units:?}");
    }
}

#[test]
fn neighbouring_seeds_draw_differently_and_evenly() {
    let mut halves = 0;
    for seed in 0..10_000 {
        halves += Draws::new(seed).draw() >> 31;
    }
    assert!((4_800..5_200).contains(&halves), "{halves}");
}
