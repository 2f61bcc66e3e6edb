//! Windows of many zones, as a second source has them, and what is true of all.

use std::thread;

use proptest::prelude::*;

use super::*;

/// Windows around changes of clocks from 2000 to 2023, as Python's zoneinfo has them, found minute by minute: zone,
/// unit, anchor, a time in the window, its start and its end, in seconds.
const WINDOWS: &str = include_str!("windows.txt");

const DAY: u64 = 86_400;

fn calendar(unit: &str, anchor: u8, zone: &str) -> Calendar {
    let calendar = match unit {
        "hour" => Calendar::hourly(zone),
        "day" => Calendar::daily(zone),
        "week" => Calendar::weekly(zone),
        _ => Calendar::monthly(zone),
    };
    let calendar = calendar.expect("the system has time zones: install tzdata");
    if anchor == 0 { calendar } else { calendar.anchor(anchor) }
}

/// The window that a second is in, in seconds.
fn seconds(calendar: Calendar, now: u64) -> (u64, u64) {
    let Window { start, end } = calendar.window_at(now * 1_000);
    assert!(start.is_multiple_of(60_000) && end.is_multiple_of(60_000), "{calendar} at {now}");
    (start / 1_000, end / 1_000)
}

#[test]
fn windows_are_those_of_a_second_source() {
    let mut zones = 0;
    for line in WINDOWS.lines() {
        let mut words = line.split(' ');
        let (zone, unit) = (words.next().expect("a zone"), words.next().expect("a unit"));
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        let [anchor, now, start, end] = numbers[..] else { panic!("{line}") };
        let calendar = calendar(unit, u8::try_from(anchor).expect("a day"), zone);
        assert_eq!(seconds(calendar, now), (start, end), "{line}");
        zones += 1;
    }
    assert_eq!(zones, 264);
}

#[test]
fn a_day_whose_midnight_is_repeated_or_skipped_is_one_and_a_skipped_day_is_none() {
    for (name, zone, now, start, hours) in [
        // From 00:01 on October 29 to 23:01 on the 28th.
        ("clocks went back over midnight", "America/St_Johns", 1_162_089_000, 1_162_089_000, 25),
        ("and again it was midnight", "America/St_Johns", 1_162_089_000 + 1_800, 1_162_089_000, 25),
        ("clocks went forward at midnight", "America/Sao_Paulo", 1_541_300_400, 1_541_300_400, 23),
        ("before that", "America/Sao_Paulo", 1_541_300_399, 1_541_300_400 - DAY, 24),
        ("before December 30, which there was not", "Pacific/Apia", 1_325_239_199, 1_325_239_200 - DAY, 24),
        ("after it", "Pacific/Apia", 1_325_239_200, 1_325_239_200, 24),
    ] {
        assert_eq!(seconds(calendar("day", 0, zone), now), (start, start + hours * 3_600), "{name}");
    }
}

#[test]
fn the_first_window_begins_with_the_epoch_and_beyond_the_calendar_they_are_as_long_as_usual() {
    let month = calendar("month", 1, "Europe/Berlin");
    assert_eq!(seconds(month, 0), (0, 31 * DAY - 3_600));
    assert_eq!(month.around(5).0[..2], [0, 0]);
    let end = month.window_at(u64::MAX / 4);
    assert!(end.start < u64::MAX / 4 && end.length() == 31 * DAY * 1_000);
    assert_eq!(calendar("hour", 0, "UTC").window_at(u64::MAX).end, u64::MAX);
}

#[test]
fn equal_calendars_are_one_whoever_makes_them() {
    let of_30 = || calendar("month", 30, "europe/BERLIN");
    let made: Vec<_> = (0..16).map(|_| thread::spawn(of_30)).collect();
    let first = calendar("month", 30, "Europe/Berlin");
    for other in made {
        let other = other.join().expect("it is made");
        assert!(other == first && std::ptr::eq(other.0, first.0));
    }
    for other in [calendar("month", 29, "Europe/Berlin"), calendar("month", 30, "Europe/Paris"), of_30().anchor(1)] {
        assert_ne!(other, first);
    }
    assert_eq!((first.name(), &*first.to_string()), ("month30@Europe/Berlin", "month from day 30 in Europe/Berlin"));
}

#[test]
fn zones_and_anchors_that_do_not_exist_are_errors() {
    for zone in
        ["Europe/Berlim", "", "../../etc/passwd", "+01:00", "CET-1CEST", "Etc/Unknown", "localtime", "right/UTC"]
    {
        let error = Calendar::daily(zone).expect_err(zone);
        assert!(error.is_invalid(), "{zone}: {error}");
        assert!(error.to_string().starts_with(&format!("time zone {zone:?} is not known to this system: ")), "{error}");
    }
    let wrong = |unit, day| calendar(unit, 0, "UTC").try_anchor(day).expect_err("no such day").to_string();
    assert_eq!(wrong("month", 0), "anchor 0 is no day of a month: use 1 to 31");
    assert_eq!(wrong("month", 32), "anchor 32 is no day of a month: use 1 to 31");
    assert_eq!(wrong("week", 8), "anchor 8 is no day of a week: use 1 for Monday to 7 for Sunday");
    assert_eq!(wrong("day", 1), "anchor 1 is for weeks and months, and the window is one day");
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
];

fn any_calendar() -> impl Strategy<Value = Calendar> {
    let units = prop_oneof![
        Just(("hour", 0)),
        Just(("day", 0)),
        (1..=7_u8).prop_map(|day| ("week", day)),
        (1..=31_u8).prop_map(|day| ("month", day)),
    ];
    (units, prop::sample::select(&ZONES[..])).prop_map(|((unit, anchor), zone)| calendar(unit, anchor, zone))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_have_no_gap_and_do_not_overlap(calendar in any_calendar(), now in 100_000_000_000..3_000_000_000_000_u64) {
        let Window { start, end } = calendar.window_at(now);
        prop_assert!(start <= now && now < end, "{calendar} at {now}: {start} to {end}");
        let around = calendar.around(now).0;
        prop_assert_eq!(&around[1..3], &[start, end]);
        prop_assert_eq!(calendar.window_at(end), Window { start: end, end: around[3] });
        prop_assert_eq!(calendar.window_at(start - 1), Window { start: around[0], end: start });
        // From another time, so that nothing is remembered.
        calendar.window_at(now / 2);
        prop_assert_eq!(calendar.window_at(start), Window { start, end });
        calendar.window_at(now / 2);
        prop_assert_eq!(calendar.window_at(end - 1), Window { start, end });
        prop_assert!((end - start).abs_diff(calendar.usual_ms()) <= calendar.usual_ms() * 3 / 4);
        prop_assert!(around[3] - end <= 2 * (end - start), "the next one is at most twice as long");
    }
}
