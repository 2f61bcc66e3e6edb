//! What a ramp makes of histories: steady ones, random ones, and those of its own doing.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
#[allow(clippy::float_cmp, reason = "nothing and all are exact")]
fn bad_utilization_sheds_within_half_a_minute_and_all_within_two() {
    let ramp = Ramp::new();
    for utilization in [0.81, 0.9, 1.0, 5.0, f64::INFINITY] {
        for step in [0.5, 1.0, 8.0] {
            let after = |time: f64| {
                let times = (0..).map(|sample| step * f64::from(sample)).take_while(|passed| *passed <= time);
                let level = ramp.level(times.map(|passed| (secs(passed), utilization)));
                [Class::Test, Class::Read, Class::Write].map(|class| Ramp::share(level, class))
            };
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
fn bad_utilization_is_forgotten_by_good_one_and_by_nothing_else() {
    for (what, parts, expected) in [
        ("not bad", &[(3_600, 0.8)][..], 0.0),
        ("negative", &[(3_600, f64::NEG_INFINITY)], 0.0),
        ("bad", &[(76, 0.9)], 0.5),
        ("then not good", &[(76, 0.9), (3_600, 0.7)], 0.5),
        ("then not bad", &[(76, 0.9), (3_600, 0.8)], 0.5),
        ("then unknown", &[(76, 0.9), (3_600, f64::NAN)], 0.5),
        ("good for 10 s", &[(200, 1.0), (10, 0.2)], 85.0 / 90.0),
        ("good for 178 s", &[(200, 1.0), (178, 0.2)], 1.0 / 90.0),
        ("good for 180 s", &[(200, 1.0), (180, 0.2)], 0.0),
        ("not all is forgotten", &[(200, 1.0), (238, 0.2), (30, 1.0)], 1.0 / 90.0),
        ("all is forgotten", &[(200, 1.0), (240, 0.2), (30, 1.0)], 0.0),
    ] {
        // Each for so many seconds.
        let samples = parts.iter().flat_map(|(seconds, utilization)| std::iter::repeat_n(*utilization, *seconds));
        let times = (0_u32..).map(|second| secs(second.into()));
        let level = Ramp::new().level(times.zip(samples));
        assert!((level - expected).abs() < 1e-9, "{what}: {level}");
    }
}

#[test]
fn settings_out_of_order_are_errors() {
    let ramp = Ramp::new();
    for (good, bad) in [(0.8, 0.7), (0.8, 0.8), (0.0, 0.5), (f64::NAN, 0.8), (0.7, f64::NAN), (0.7, f64::INFINITY)] {
        let error = ramp.try_thresholds(good, bad).expect_err("out of order").to_string();
        assert!(error.contains("are out of order: use good above 0 and below bad"), "{error}");
    }
    for (first, all) in [(0.0, 20.0), (0.5, 20.0), (30.0, 20.0), (30.0, 30.0), (30.0, 86_401.0)] {
        let error = ramp.try_after(secs(first), secs(all)).expect_err("out of order").to_string();
        assert!(error.starts_with("shedding from ") && error.contains("is out of order: use a first"), "{error}");
    }
    let told = "recovery 10s is faster than shedding, 120s: it would flap; give at least that";
    assert_eq!(ramp.try_recovery(secs(10.0)).expect_err("too fast").to_string(), told);
    assert!(ramp.try_recovery(secs(86_401.0)).is_err());
    assert!(ramp.try_after(secs(30.0), secs(300.0)).is_err(), "the recovery would be faster");
    assert!(ramp.try_recovery(secs(600.0)).and_then(|ramp| ramp.try_after(secs(30.0), secs(300.0))).is_ok());
}

proptest! {
    #[test]
    fn levels_move_slowly_by_times_that_pass_and_shares_are_in_bounds_and_in_order(
        samples in prop::collection::vec((0_u64..20_000, prop_oneof![
            4 => 0.0..2.0_f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-5.0),
        ]), 0..200),
    ) {
        let (ramp, mut now) = (Ramp::new(), Duration::from_secs(100));
        let (mut progress, mut level) = (Progress::default(), 0.0);
        for (step, utilization) in samples {
            // Some steps are backwards.
            let next = (now + Duration::from_millis(step)).saturating_sub(Duration::from_secs(2));
            let passed = next.saturating_sub(now).as_secs_f64();
            now = next;
            progress = ramp.next(progress, now, utilization);
            let moved = ramp.level_at(progress) - level;
            // After a silence no bad sample counts for more than 10 s.
            prop_assert!((-passed / 180.0 - 1e-9..=passed.min(10.0) / 90.0 + 1e-9).contains(&moved), "{moved}");
            level += moved;
            prop_assert!((0.0..=1.0).contains(&ramp.level_at(progress)));
            let shares = [Class::Critical, Class::Write, Class::Read, Class::Test].map(|class| Ramp::share(level, class));
            prop_assert!(shares.is_sorted() && shares[0] == 0.0 && shares[3] <= 1.0, "{shares:?}");
        }
    }
}

/// Runs requests of a second each at a load, as a part of the capacity, against a ramp that sheds them; returns the least
/// and the most level and the mean utilization of the last half.
fn closed_loop(load: f64) -> (f64, f64, f64) {
    const CAPACITY: u32 = 500;
    const STEPS: u32 = 20;
    const SECONDS: u32 = 1_200;
    let (ramp, mut rng, mut usage) = (Ramp::new(), Rng::with_seed(7), Usage::default());
    let (mut progress, mut ends) = (Progress::default(), std::collections::VecDeque::new());
    let (mut least, mut most, mut mean) = (1.0_f64, 0.0_f64, 0.0);
    for step in 0..SECONDS * STEPS {
        let now = Duration::from_secs(1) * step / STEPS;
        while ends.front().is_some_and(|end| *end <= step) {
            ends.pop_front();
            usage.add(-1.0, now);
        }
        if step % STEPS == 0 {
            let utilization = usage.take(now) / f64::from(CAPACITY);
            progress = ramp.next(progress, now, utilization);
            if step >= SECONDS * STEPS / 2 {
                (least, most) = (least.min(ramp.level_at(progress)), most.max(ramp.level_at(progress)));
                mean += utilization / f64::from(SECONDS / 2);
            }
        }
        // Arrivals of many clients, each with a small chance.
        for _ in 0..4 * CAPACITY / STEPS {
            let class = [Class::Test, Class::Read, Class::Read, Class::Write, Class::Write][rng.usize(..5)];
            if rng.f64() < load / 4.0 && rng.f64() >= Ramp::share(ramp.level_at(progress), class) {
                usage.add(1.0, now);
                ends.push_back(step + STEPS);
            }
        }
    }
    (least, most, mean)
}

#[test]
fn the_loop_of_shedding_and_utilization_comes_to_rest_between_the_thresholds() {
    for load in [0.9, 1.0, 1.2, 1.5, 2.0] {
        let (least, most, mean) = closed_loop(load);
        assert!(most - least <= 0.1, "load {load}: the level swings from {least} to {most}");
        assert!(least > 0.0 && (0.69..=0.81).contains(&mean), "load {load}: level {least}, utilization {mean}");
    }
    assert!(closed_loop(0.5).1 <= 0.0, "half of the capacity sheds nothing");
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
}
