//! What a process reports at the end of its tick, and what the totals change.
//!
//! A counter that has more than half of a fair share of the rate, or that is hot, is reported exactly; others are
//! sampled, so that the sums are right on average and most keys are never sent. The heaviest come first; those that no
//! report has room for are limited by the share of this process until one has.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::entry::{Entry, Moment};
use super::law::Draws;
use super::shared::{Hot, Part, Shared};
use super::tally::{CounterId, MOST_UNITS, Offered, Totals};
use crate::core::PolicyName;

/// A counter that is to be reported.
struct Candidate {
    /// What was offered, as a part of the rate.
    weight: u64,
    hash: u64,
    offered: Offered,
}

/// How a report counts a tick that was much shorter or longer than others.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// As a whole one, as it stands for one.
    Whole,
    /// As it was: this process has already reported for the same tick.
    Exact,
}

/// Begins a tick in all parts at `now`, and returns what was offered in the last one.
pub(super) fn choose(shared: &Shared, now: Instant, scale: Scale) -> Vec<Offered> {
    let mut candidates = Vec::new();
    for mut part in shared.parts.each() {
        let Part { table, since, draws, .. } = &mut *part;
        let (moment, elapsed) = (shared.moment(now, *since), now.saturating_duration_since(*since));
        for entry in table.iter_mut() {
            entry.by_share = false;
            entry.roll(|units, first| match scale {
                Scale::Whole => whole((units, first), elapsed, moment.tick, draws),
                Scale::Exact => units,
            });
            candidates.extend(candidate(entry, shared.live(), &moment, draws));
        }
        *since = now;
    }
    candidates.sort_unstable_by_key(|candidate| (Reverse(candidate.weight), candidate.offered.id));
    let mut room = vec![shared.settings.report; usize::from(shared.settings.shards)];
    let mut chosen = Vec::with_capacity(candidates.len().min(shared.settings.report));
    for Candidate { hash, offered, .. } in candidates {
        let room = &mut room[usize::from(offered.id.shard(shared.settings.shards))];
        if *room > 0 {
            *room -= 1;
            chosen.push(offered);
        } else {
            let mut part = shared.parts.lock(hash);
            let entry = part.table.find_mut(hash, |entry| entry.id == offered.id);
            if let Some(entry) = entry {
                entry.by_share = true;
            }
        }
    }
    chosen
}

/// Returns a counter with what is reported of it, if it is.
fn candidate(entry: &Entry, live: u64, moment: &Moment, draws: &mut Draws) -> Option<Candidate> {
    let units = [0, 1].map(|kind| entry.kinds[kind].last[0].min(MOST_UNITS));
    let threshold = entry.rate.threshold(live);
    let all = units[0] + units[1];
    // Of an unknown number of processes, samples would be too few.
    let is_exact = live == 0 || entry.is_hot(moment) || threshold.is_below(all);
    let sent = match all {
        _ if is_exact && (all > 0 || entry.is_hot(moment)) => units,
        0 => return None,
        _ => draws.sample(units, threshold)?,
    };
    let offered = Offered::new(entry.id, sent[0], sent[1], entry.rate.units());
    Some(Candidate { weight: entry.rate.share_of(all), hash: crate::store::map::Entry::hash(entry), offered })
}

/// Returns what a whole tick would have offered, if much less or more time has elapsed.
///
/// Small differences are not scaled: what is counted late in one tick is missing in the next. Nor is the first request,
/// as it is what a process or a key begins with: scaled up, those that are used once in a while would count too often.
fn whole((units, first): (u64, u64), elapsed: Duration, tick: Duration, draws: &mut Draws) -> u64 {
    let (elapsed, tick) = (elapsed.as_micros(), tick.as_micros());
    if elapsed.abs_diff(tick) * 10 <= tick {
        return units;
    }
    let first = first.min(units);
    first.saturating_add(draws.scaled(units - first, tick, elapsed))
}

/// Begins the first tick of a task, before which no time was measured.
pub(super) fn begin(shared: &Shared, now: Instant) {
    for mut part in shared.parts.each() {
        part.table.iter_mut().for_each(Entry::begin);
        part.since = now;
    }
}

/// Sets the totals of what was reported, and of hot counters. Totals of a tick that is not complete change nothing.
pub(super) fn hear(shared: &Shared, reported: &[CounterId], totals: Totals, now: Instant) {
    if !shared.is_complete(totals.live) {
        return;
    }
    let mut hot = totals.hot;
    hot.sort_unstable();
    hot.dedup_by_key(|(id, _)| *id);
    let mut known: Vec<(CounterId, Option<[u64; 2]>)> = reported.iter().copied().zip(totals.counters).collect();
    known.sort_unstable();
    for mut part in shared.parts.each() {
        let moment = shared.moment(now, part.since);
        for entry in part.table.iter_mut() {
            let listed = hot.binary_search_by_key(&entry.id, |(id, _)| *id).ok().map(|place| Some(hot[place].1));
            let own = || known.binary_search_by_key(&entry.id, |(id, _)| *id).ok().map(|place| known[place].1);
            match listed.or_else(own) {
                Some(Some(totals)) => entry.hear(totals, &moment),
                Some(None) => entry.by_share = true,
                None => {}
            }
        }
    }
    shared.hot.store(std::sync::Arc::new(Hot { heard: Some(now), totals: hot }));
    shared.hear(now, totals.live);
}

/// Returns how many processes are known to report, 0 if none are, and of each policy the highest ratio of its keys.
pub(super) fn known(shared: &Shared, now: Instant) -> (u64, HashMap<PolicyName, f64>) {
    let mut highest = HashMap::new();
    for mut part in shared.parts.each() {
        let moment = shared.moment(now, part.since);
        for entry in part.table.iter_mut() {
            let ratio = entry.ratio(&moment).unwrap_or_default();
            match highest.get_mut(entry.counter.policy()) {
                Some(most) => *most = ratio.max(*most),
                None => drop(highest.insert(entry.counter.policy().clone(), ratio)),
            }
        }
    }
    (if shared.is_known(now) { shared.live() } else { 0 }, highest)
}
