use super::*;
use tollgate::Key;

const SECOND: Duration = Duration::from_secs(1);

/// An entry of a limit a second, with ticks of a second.
fn entry(limit: u64, floor: u64) -> RatioCounter {
    let policy = "all".try_into().expect("a valid name");
    let counter = Counter::new(policy, Key::new("k", "all"), Quota::fixed_window(limit, SECOND));
    let mut entry = RatioCounter::new(0, &counter, SECOND);
    entry.follow(&Check::new(counter, 1).floor(floor), SECOND);
    entry
}

fn told(limit: u64, floor: u64, totals: [u64; 2]) -> RatioCounter {
    let mut entry = entry(limit, floor);
    entry.hear(totals, Instant::now() + 60 * SECOND);
    entry
}

fn keeps(entry: &RatioCounter) -> [f64; 2] {
    [0, 1].map(|kind: usize| entry.kinds[kind].keep)
}

/// Random numbers, which repeat.
fn draws(seed: u64) -> impl FnMut() -> f64 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || random.f64()
}

#[test]
fn the_requests_that_pass_stay_within_four_of_their_share() {
    for (totals, clients) in [(2_000, 2), (5_000, 5), (100_000, 2), (1_250, 3)] {
        let (mut entry, mut draw, mut passed) = (told(1_000, 0, [0, totals]), draws(7), vec![0.0; clients]);
        let (now, check, share) = (Instant::now(), Check::new(entry.counter.clone(), 1), keeps(&entry)[1]);
        for request in 0..100_000_u32 {
            let client = request as usize % clients;
            passed[client] += f64::from(entry.offer(&check, None, now, draw()));
            let error = passed.iter().sum::<f64>() - share * f64::from(request + 1);
            assert!(error.abs() <= 4.0, "{error}");
        }
        let fair = share * 100_000.0 / float(clients as u64);
        assert!(passed.iter().all(|passed| (passed - fair).abs() < fair / 10.0), "{passed:?} of {fair} each: in turn");
    }
}

#[test]
fn a_process_alone_leaves_the_reserve_of_its_tick() {
    let mut entry = entry(100, 20);
    let (ordinary, critical) = (Check::new(entry.counter.clone(), 1).floor(20), Check::new(entry.counter.clone(), 1));
    let mut taken = |check: &Check, ticks| (0..200).filter(|_| entry.takes(check, ticks)).count();
    assert_eq!([taken(&ordinary, 0.5), taken(&critical, 0.5)], [80, 20]);
    assert_eq!([taken(&critical, 1.5), taken(&critical, 9.0)], [50, 50], "a tick that is late has more, up to two");
}

#[test]
fn a_sample_is_exact_on_average() {
    let (mut draw, now) = (draws(11), Instant::now());
    for (limit, live, units) in [(1_000, 100, [1, 0]), (1_000, 100, [1, 3]), (100, 30, [0, 1]), (7, 2, [1, 0])] {
        let mut entry = entry(limit, 0);
        entry.kinds.iter_mut().zip(units).for_each(|(kind, units)| kind.last = units);
        assert!(!entry.is_exact(live, now));
        let mut sums = [0; 2];
        for _ in 0..200_000 {
            if let Some(offered) = entry.offered(live, now, &mut draw) {
                sums = [sums[0] + offered.ordinary, sums[1] + offered.critical];
            }
        }
        let is_close = |kind: usize| sums[kind].abs_diff(200_000 * units[kind]) <= 4_000 * units[kind];
        assert!(is_close(0) && is_close(1), "{sums:?} of {units:?}");
    }
}
