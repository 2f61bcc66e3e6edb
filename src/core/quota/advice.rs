//! What to do about a limit that is too large.

use std::time::Duration;

use super::bounds::MOST_LOGGED;
use super::{Algorithm, Quota};

/// Windows to count a rate over, longest first, as they are written in files.
const WINDOWS: [(&str, Duration); 8] = [
    ("60s", Duration::from_secs(60)),
    ("1s", Duration::from_secs(1)),
    ("100ms", Duration::from_millis(100)),
    ("10ms", Duration::from_millis(10)),
    ("1ms", Duration::from_millis(1)),
    ("100us", Duration::from_micros(100)),
    ("10us", Duration::from_micros(10)),
    ("1us", Duration::from_micros(1)),
];

/// What else would work than a limit of at most `most`; whatever it names has been tried.
///
/// A shorter window alone is no advice: it makes a limit another one, a log and a fixed window take no
/// more over it, and from 60 s down ticks are so much finer that the others take less.
pub(super) fn advice(algorithm: Algorithm, limit: u64, window: Duration, most: u64) -> String {
    let takes = |algorithm| Quota::checked(algorithm, limit, window).is_ok();
    let instead = |algorithms: &[Algorithm]| algorithms.iter().find(|other| takes(**other)).map(|other| other.name());
    let other = match algorithm {
        Algorithm::SlidingLog if limit <= MOST_LOGGED => Some("long_sliding_log"),
        Algorithm::SlidingLog => instead(&[Algorithm::SlidingWindow, Algorithm::FixedWindow]),
        Algorithm::SlidingWindow => instead(&[Algorithm::FixedWindow]),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => return same_rate(algorithm, limit, window),
        Algorithm::FixedWindow => None,
    };
    let long = algorithm == Algorithm::SlidingLog && most < MOST_LOGGED && limit > MOST_LOGGED;
    let long = if long { format!(" ({MOST_LOGGED} as a long_sliding_log)") } else { String::new() };
    match other {
        Some(name) => format!("{long}, or make it a {name}"),
        None => format!("{long}, as no algorithm counts further over this window"),
    }
}

/// About the same rate over a shorter window, if there is one.
fn same_rate(algorithm: Algorithm, limit: u64, window: Duration) -> String {
    let share = |shorter: Duration| u128::from(limit) * shorter.as_nanos() / window.as_nanos();
    let shorter = WINDOWS.iter().filter(|(_, shorter)| *shorter < window);
    let mut fitting = shorter.filter_map(|(text, shorter)| {
        let limit = u64::try_from(share(*shorter)).ok()?;
        Quota::checked(algorithm, limit, *shorter).is_ok().then_some((limit, text))
    });
    match fitting.next() {
        Some((limit, text)) => format!(", or about the same rate over a shorter window: {limit} over {text}"),
        None => ", as nothing counts a rate as high".to_owned(),
    }
}
