//! The advice in errors about a limit that is too large.

use std::time::Duration;

use super::Quota;
use crate::core::algorithm::Algorithm;

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

/// Returns what would work besides a limit of at most `most`; each suggestion was checked.
///
/// A shorter window is suggested for a rate only: elsewhere the limit would be a different one, and logs and windows
/// take no more over it.
pub(super) fn advice(algorithm: Algorithm, limit: u64, window: Duration, most: u64) -> String {
    let facts = algorithm.facts();
    if facts.returns_evenly {
        return same_rate(algorithm, limit, window);
    }
    let mut instead = facts.instead.iter().copied().filter(|name| takes(name, limit, window));
    match facts.longer {
        Some((name, longest)) if limit <= longest => format!(", or make it a {name}"),
        Some((name, longest)) if most < longest => format!(" ({longest} as a {name}){}", other(instead.next())),
        _ => other(instead.next()),
    }
}

fn other(name: Option<&str>) -> String {
    match name {
        Some(name) => format!(", or make it a {name}"),
        None => ", as no algorithm counts further over this window".to_owned(),
    }
}

/// Whether the algorithm of this name takes the limit.
fn takes(name: &str, limit: u64, window: Duration) -> bool {
    let named = Algorithm::EACH.iter().find(|algorithm| algorithm.name() == name);
    named.is_some_and(|algorithm| Quota::checked(*algorithm, limit, window).is_ok())
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
