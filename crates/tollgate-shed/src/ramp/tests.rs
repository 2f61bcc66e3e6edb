//! What a ramp makes of histories: steady ones, gaps, noise, and those of its own doing.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The progress after samples of one utilization for a time, from `start` on, a step apart.
fn steady(ramp: &Ramp, mut progress: Progress, from: f64, time: f64, step: f64, utilization: f64) -> Progress {
    let mut passed = 0.0;
    while passed <= time {
        progress = ramp.next(progress, secs(from + passed), utilization);
        passed += step;
    }
    progress
}

/// The shares of test traffic, reads and writes.
fn shares(ramp: &Ramp, progress: Progress) -> [f64; 3] {
    let level = ramp.level_at(progress);
    [Class::Test, Class::Read, Class::Write].map(|class| Ramp::share(level, class))
}

#[test]
#[allow(clippy::float_cmp, reason = "nothing and all are exact")]
fn bad_utilization_sheds_within_half_a_minute_and_all_within_two() {
    let ramp = Ramp::new();
    for utilization in [0.81, 0.9, 1.0, 5.0, f64::INFINITY] {
        for step in [0.5, 1.0, 8.0] {
            let after = |time| shares(&ramp, steady(&ramp, Progress::default(), 0.0, time, step, utilization));
            let what = format!("utilization {utilization}, samples {step} s apart");
            assert_eq!(after(30.0), [0.0; 3], "{what}");
            let first = after(30.0 + step);
            assert!(first[0] > 0.0 && first[2] == 0.0, "{what}: {first:?}");
            assert_eq!(after(39.0 + step)[0], 1.0, "{what}");
            assert_eq!(after(79.5 + step)[..2], [1.0; 2], "{what}");
            assert!(after(111.0)[2] < 1.0, "{what}");
            assert_eq!(after(120.0), [1.0; 3], "{what}");
        }
    }
}

#[test]
#[allow(clippy::float_cmp, reason = "nothing is exact")]
fn utilization_that_is_not_bad_never_sheds() {
    let ramp = Ramp::new();
    for utilization in [f64::NEG_INFINITY, -1.0, 0.0, 0.5, 0.7, 0.75, 0.8] {
        let progress = steady(&ramp, Progress::default(), 0.0, 3_600.0, 1.0, utilization);
        assert_eq!(shares(&ramp, progress), [0.0; 3], "{utilization}");
    }
}

#[test]
fn between_the_thresholds_nothing_changes_for_an_hour() {
    let ramp = Ramp::new();
    let half = steady(&ramp, Progress::default(), 0.0, 75.0, 1.0, 0.9);
    for utilization in [0.7, 0.75, 0.8, f64::NAN] {
        let later = steady(&ramp, half, 75.0, 3_600.0, 1.0, utilization);
        assert_eq!(later.bad_for, half.bad_for, "{utilization}");
    }
}

#[test]
#[allow(clippy::float_cmp, reason = "nothing is exact")]
fn writes_return_first_and_all_is_forgotten_after_the_recovery() {
    let ramp = Ramp::new();
    let all = steady(&ramp, Progress::default(), 0.0, 120.0, 1.0, 1.0);
    let good_for = |time: f64| steady(&ramp, all, 120.0, time, 1.0, 0.2);
    let [test, read, write] = shares(&ramp, good_for(10.0));
    assert!((0.8..1.0).contains(&write) && [test, read] == [1.0; 2], "{write}");
    let [test, read, write] = shares(&ramp, good_for(82.0));
    assert!(test == 1.0 && (0.9..1.0).contains(&read) && write == 0.0, "{read}");
    assert!(ramp.level_at(good_for(178.0)) > 0.0);
    assert_eq!(ramp.level_at(good_for(180.0)), 0.0);
    assert!(good_for(238.0).bad_for > Duration::ZERO);
    assert_eq!(good_for(240.0).bad_for, Duration::ZERO);
}

#[test]
fn utilization_that_flaps_moves_no_level_by_more_than_a_ninetieth_a_second() {
    let ramp = Ramp::new();
    let mut progress = Progress::default();
    let mut level = 0.0;
    for second in 0..2_000_u32 {
        let utilization = if second % 2 == 0 { 0.81 } else { 0.69 };
        progress = ramp.next(progress, secs(second.into()), utilization);
        let next = ramp.level_at(progress);
        assert!((next - level).abs() <= 1.0 / 90.0 + 1e-9, "second {second}");
        level = next;
    }
}

#[test]
#[allow(clippy::float_cmp, reason = "nothing is exact")]
fn one_bad_sample_after_an_hour_of_silence_sheds_nothing() {
    let ramp = Ramp::new();
    let first = ramp.next(Progress::default(), secs(1.0), 0.9);
    let later = ramp.next(first, secs(3_600.0), 1.0);
    assert_eq!((later.bad_for, ramp.level_at(later)), (GAP, 0.0));
    // But an hour of good utilization is one, also with no sample in between.
    let all = steady(&ramp, Progress::default(), 0.0, 200.0, 1.0, 1.0);
    assert_eq!(ramp.next(all, secs(3_800.0), 0.1).bad_for, Duration::ZERO);
}

#[test]
fn a_clock_that_steps_back_moves_nothing_and_counts_on_from_there() {
    let ramp = Ramp::new();
    let half = steady(&ramp, Progress::default(), 1_000.0, 75.0, 1.0, 0.9);
    for utilization in [0.0, 1.0] {
        let back = ramp.next(half, Duration::ZERO, utilization);
        assert_eq!(back.bad_for, half.bad_for, "{utilization}");
        assert_ne!(steady(&ramp, back, 0.0, 10.0, 1.0, utilization).bad_for, half.bad_for, "{utilization}");
    }
}

#[test]
fn settings_out_of_order_are_errors() {
    let ramp = Ramp::new();
    for (good, bad) in [(0.8, 0.7), (0.8, 0.8), (0.0, 0.5), (f64::NAN, 0.8), (0.7, f64::NAN), (0.7, f64::INFINITY)] {
        let error = ramp.try_thresholds(good, bad).expect_err("out of order").to_string();
        assert!(error.contains("are out of order: give good above 0 and below bad"), "{error}");
    }
    for (first, all) in [(0.0, 20.0), (0.5, 20.0), (30.0, 20.0), (30.0, 30.0), (30.0, 86_401.0)] {
        let error = ramp.try_after(secs(first), secs(all)).expect_err("out of order").to_string();
        assert!(error.starts_with("shedding from ") && error.contains("is out of order: give a first"), "{error}");
    }
    let told = "recovery 10s is faster than shedding, 120s: it would flap; give at least that";
    assert_eq!(ramp.try_recovery(secs(10.0)).expect_err("too fast").to_string(), told);
    assert!(ramp.try_recovery(secs(86_401.0)).is_err());
    assert!(ramp.try_after(secs(30.0), secs(300.0)).is_err(), "the recovery would be faster");
    assert!(ramp.try_recovery(secs(600.0)).and_then(|ramp| ramp.try_after(secs(30.0), secs(300.0))).is_ok());
}

proptest! {
    #[test]
    fn levels_and_shares_are_in_bounds_and_in_order(
        samples in prop::collection::vec((0_u64..20_000, prop_oneof![
            4 => 0.0..2.0_f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-5.0),
        ]), 0..200),
    ) {
        let ramp = Ramp::new();
        let mut now = Duration::from_secs(100);
        let history = samples.into_iter().map(|(step, utilization)| {
            // Some steps are backwards.
            now = (now + Duration::from_millis(step)).saturating_sub(Duration::from_secs(2));
            (now, utilization)
        });
        let level = ramp.level(history);
        prop_assert!((0.0..=1.0).contains(&level));
        let shares = [Class::Critical, Class::Write, Class::Read, Class::Test].map(|class| Ramp::share(level, class));
        prop_assert!(shares.is_sorted() && shares[0] == 0.0 && shares[3] <= 1.0, "{shares:?}");
    }
}

/// What a loop of shedding and utilization came to, over its last half.
struct Loop {
    least: f64,
    most: f64,
    mean: f64,
}

/// Runs requests of a second each at a load, as a part of the capacity, against a ramp that sheds them.
fn closed_loop(capacity: u32, load: f64, seed: u64) -> Loop {
    const STEPS: u32 = 20;
    const SECONDS: u32 = 1_200;
    let (ramp, mut rng, mut usage) = (Ramp::new(), Rng::with_seed(seed), Usage::default());
    let (mut progress, mut ends) = (Progress::default(), std::collections::VecDeque::new());
    let mut found = Loop { least: 1.0, most: 0.0, mean: 0.0 };
    for step in 0..SECONDS * STEPS {
        let now = Duration::from_secs(1) * step / STEPS;
        while ends.front().is_some_and(|end| *end <= step) {
            ends.pop_front();
            usage.add(-1.0, now);
        }
        if step % STEPS == 0 {
            let utilization = usage.take(now) / f64::from(capacity);
            progress = ramp.next(progress, now, utilization);
            let level = ramp.level_at(progress);
            if step >= SECONDS * STEPS / 2 {
                (found.least, found.most) = (found.least.min(level), found.most.max(level));
                found.mean += utilization / f64::from(SECONDS / 2);
            }
        }
        let level = ramp.level_at(progress);
        // Arrivals of many clients, each with a small chance.
        for _ in 0..4 * capacity / STEPS {
            if rng.f64() >= load / 4.0 {
                continue;
            }
            let class = [Class::Test, Class::Read, Class::Read, Class::Write, Class::Write][rng.usize(..5)];
            if rng.f64() >= Ramp::share(level, class) {
                usage.add(1.0, now);
                ends.push_back(step + STEPS);
            }
        }
    }
    found
}

#[test]
fn the_loop_of_shedding_and_utilization_comes_to_rest_between_the_thresholds() {
    for load in [0.9, 1.0, 1.2, 1.5, 2.0] {
        let Loop { least, most, mean } = closed_loop(500, load, 7);
        assert!(most - least <= 0.1, "load {load}: the level swings from {least} to {most}");
        assert!(least > 0.0 && (0.69..=0.81).contains(&mean), "load {load}: level {least}, utilization {mean}");
    }
    let Loop { most, .. } = closed_loop(500, 0.5, 7);
    assert!(most <= 0.0, "half of the capacity sheds nothing");
}

const S: Duration = Duration::from_secs(1);

/// The second from which changes are counted, each of them with its second, when the average is taken, and what it is.
type Averaged = (u32, &'static [(f64, u32)], u32, f64);

#[test]
fn the_average_weighs_each_number_by_its_time_also_over_a_clock_that_steps_back() {
    let rows: [Averaged; 4] = [
        // 1 for 1 s, 2 for 3 s, 1 for 4 s.
        (1, &[(1.0, 1), (1.0, 2), (-1.0, 5)], 9, 11.0 / 8.0),
        // 1 for 1 s, 0 for 99 s.
        (9, &[(1.0, 9), (-1.0, 10)], 109, 0.01),
        // A sample of no time is what is in progress now.
        (1, &[(1.0, 1), (1.0, 1), (1.0, 1)], 1, 3.0),
        // 2 for 7 s, 1 for 2 s.
        (10, &[(1.0, 10), (1.0, 5), (-1.0, 12)], 14, 16.0 / 9.0),
    ];
    for (from, changes, at, expected) in rows {
        let mut usage = Usage { last: S * from, ..Usage::default() };
        for (change, second) in changes {
            usage.add(*change, S * *second);
        }
        let found = usage.take(S * at);
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }
    let (mut whole, mut sum) = (Usage { last: S, ..Usage::default() }, 0.0);
    whole.add(1.0, S);
    let mut parts = whole;
    for second in 2..=7 {
        if second == 4 {
            whole.add(1.0, S * second);
            parts.add(1.0, S * second);
        }
        sum += parts.take(S * second);
    }
    assert!((whole.take(S * 7) - sum / 6.0).abs() < 1e-9, "samples in between change no sum");
}

#[test]
fn the_longest_times_and_most_requests_do_not_overflow() {
    let mut usage = Usage::default();
    for _ in 0..1_000 {
        usage.add(1.0, Duration::ZERO);
    }
    assert!((usage.take(Duration::MAX) / 1_000.0 - 1.0).abs() < 1e-9);
}
