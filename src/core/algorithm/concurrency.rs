//! Concurrency: slots that requests hold while they are served, so that at most `limit` of them are at once.
//!
//! State: cohorts, oldest first, each with the time of its first slot and its number of slots. A slot that is taken
//! within an eighth of a TTL of the newest cohort joins it, so at most 9 cohorts count, however many slots there are. A
//! cohort counts for a TTL and that eighth, so a slot that is not renewed counts for at least its TTL, the window.
//!
//! A request fits if the slots that count, its cost and its floor are at most `limit`. The stamp is the exact time of
//! the cohort. A release names the cohort and lowers its count. A cohort that no longer counts releases nothing. A
//! renewal moves slots to the current cohort, and takes slots again that the state has lost, even beyond the limit.

use super::state::{Adjusted, Adjustment, CounterState, NEVER, QuotaParams, StateStatus, Step};

/// Parts of a TTL: one cohort takes slots for one part.
const PARTS: u64 = 8;

const MAX_HELD: u64 = 1 << 31;

/// Time of the first slot, and number of slots.
type Cohort = (u64, u32);

pub(super) fn decide(state: Option<&CounterState>, now: u64, rule: QuotaParams, cost: u64, floor: u64) -> Step {
    let QuotaParams { window, limit, .. } = rule;
    let (cohorts, found) = read(state, now, window);
    let part = window.div_ceil(PARTS);
    let life = part + window;
    let newest = cohorts.last().map_or(0, |newest| newest.0);
    let time = newest.max(now);
    let cohorts = live(cohorts, time, life);
    let held: u64 = cohorts.iter().map(|cohort| u64::from(cohort.1)).sum();
    let fits = cost == 0 || held + cost + floor <= limit;
    let taken = if fits { cost } else { 0 };
    let stamp = if !cohorts.is_empty() && time < newest + part { newest } else { time };
    let remaining = limit.saturating_sub(held + taken + floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = NEVER;
        if need + floor <= limit {
            wait = leaves(cohorts, (stamp, taken), held + taken + need + floor - limit) + life - now;
        }
    }
    let mut reset = 0;
    if taken > 0 {
        reset = stamp + life - now;
    } else if let Some(last) = cohorts.iter().rfind(|cohort| cohort.1 > 0) {
        reset = last.0 + life - now;
    }
    let state = (taken > 0).then(|| CounterState::Slots { cohorts: with(cohorts, stamp, taken) });
    Step { fits, remaining, wait, reset, delay: 0, stamp, state, found }
}

/// Releases the newest slots first, then takes slots up to twice the limit. A renewal does both, without that bound.
pub(super) fn adjust(state: Option<&CounterState>, now: u64, rule: QuotaParams, change: Adjustment) -> Adjusted {
    let QuotaParams { window, limit, .. } = rule;
    let Adjustment { refund, charge, stamp } = change;
    let (cohorts, _) = read(state, now, window);
    let part = window.div_ceil(PARTS);
    let life = part + window;
    let newest = cohorts.last().map_or(0, |newest| newest.0);
    let time = newest.max(now);
    let mut cohorts: Box<[Cohort]> = cohorts.into();
    let (mut refunded, mut held) = (0, 0);
    for (first, count) in cohorts.iter_mut().rev().filter(|cohort| cohort.0 + life > time) {
        if stamp == NEVER || stamp == *first {
            let back = (refund - refunded).min(u64::from(*count));
            *count -= slots(back);
            refunded += back;
        }
        held += u64::from(*count);
    }
    let most = if refund > 0 { MAX_HELD } else { 2 * limit };
    let charged = charge.min(most.saturating_sub(held));
    let units = if charge > 0 && refund == 0 { charged } else { refunded };
    if refunded == 0 && charged == 0 {
        return Adjusted { units, state: None };
    }
    if charged > 0 {
        let kept = live(&cohorts, time, life);
        let stamp = if !kept.is_empty() && time < newest + part { newest } else { time };
        cohorts = with(kept, stamp, charged);
    }
    let reset = cohorts.iter().rfind(|cohort| cohort.1 > 0).map_or(0, |last| (last.0 + life).saturating_sub(now));
    Adjusted { units, state: Some((CounterState::Slots { cohorts }, reset.max(window))) }
}

fn read(state: Option<&CounterState>, now: u64, window: u64) -> (&[Cohort], StateStatus) {
    match CounterState::read(state, now, window) {
        (Some(CounterState::Slots { cohorts }), found) => (cohorts, found),
        (_, found) => (&[], found),
    }
}

fn live(cohorts: &[Cohort], time: u64, life: u64) -> &[Cohort] {
    let idle = cohorts.iter().take_while(|cohort| cohort.1 == 0 || cohort.0 + life <= time).count();
    &cohorts[idle..]
}

/// Returns the time of the cohort whose end frees `enough` slots. The `taken` slots end last.
fn leaves(cohorts: &[Cohort], taken: (u64, u64), enough: u64) -> u64 {
    let mut left = 0;
    let first = cohorts.iter().find(|cohort| {
        left += u64::from(cohort.1);
        left >= enough
    });
    first.map_or(taken.0, |cohort| cohort.0)
}

fn with(cohorts: &[Cohort], stamp: u64, taken: u64) -> Box<[Cohort]> {
    match cohorts.split_last() {
        Some((last, before)) if last.0 == stamp => {
            before.iter().copied().chain([(stamp, last.1 + slots(taken))]).collect()
        }
        _ => cohorts.iter().copied().chain([(stamp, slots(taken))]).collect(),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "there are at most 2^31")]
fn slots(units: u64) -> u32 {
    units as u32
}

#[cfg(test)]
mod tests;
