//! Tests of the breaker with fixed times, and against a model that keeps every outcome.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::shared::{MAX_IN_ROW, MAX_IN_WINDOW, WINDOW_MS};
use super::*;

/// A breaker that keeps every outcome of the window, and the phase in which each call was made.
#[derive(Default)]
struct BreakerModel {
    /// How often it opened or closed.
    phase: u64,
    /// When each outcome was reported since the window began, and whether it was a failure.
    window: Vec<(u64, bool)>,
    in_row: u64,
    failing_since: u64,
    /// While open: the number of probes, some of which have no outcome yet, and the time of the next probe.
    open: Option<(usize, usize, u64)>,
    /// The time at which a probe closed the breaker, and the number of probes until then.
    closed: Option<(u64, usize)>,
}

/// The wait of the next probe after this number of probes.
fn wait_after(probes: usize) -> u64 {
    [50, 100, 200, 400].get(probes).copied().unwrap_or(500)
}

impl BreakerModel {
    /// The phase of a call if it may be made now.
    fn acquire(&mut self, now: u64) -> Option<u64> {
        if let Some((probes, flying, due)) = &mut self.open {
            if now < *due {
                return None;
            }
            (*probes, *flying) = (*probes + 1, *flying + 1);
            *due = now + wait_after(*probes);
        }
        Some(self.phase)
    }

    /// Whether a reply closes the breaker, or a failure opens it or is the failure of a probe.
    fn report(&mut self, phase: u64, now: u64, failed: bool) -> bool {
        if phase != self.phase {
            return false;
        }
        if let Some((probes, flying, _)) = &mut self.open {
            *flying -= 1;
            if !failed {
                self.closed = Some((now, *probes));
                (self.phase, self.open, self.in_row) = (self.phase + 1, None, 0);
            }
            return true;
        }
        if self.window.first().is_some_and(|(start, _)| now - start >= WINDOW_MS) {
            self.window.clear();
        }
        if failed && self.in_row == 0 {
            self.failing_since = now;
        }
        if failed || !self.window.is_empty() {
            self.window.push((now, failed));
        }
        self.in_row = if failed { self.in_row + 1 } else { 0 };
        let failures = self.window.iter().filter(|(_, failed)| *failed).count() as u64;
        let rate = failures >= MAX_IN_WINDOW && 2 * failures >= self.window.len() as u64;
        let opens = failed && (self.in_row >= MAX_IN_ROW || rate);
        if opens {
            let again = self.closed.filter(|(at, _)| now - at < WINDOW_MS).map_or(0, |(_, probes)| probes);
            (self.phase, self.open) = (self.phase + 1, Some((again, 0, now + wait_after(again))));
            self.window.clear();
        }
        opens
    }

    fn gave_up(&mut self, phase: u64, due: u64) {
        if let Some((probes, flying, probe_at)) = self.open.as_mut().filter(|_| phase == self.phase) {
            (*probes, *flying, *probe_at) = (*probes - 1, *flying - 1, due.min(*probe_at));
        }
    }

    fn state(&self) -> BreakerState {
        match self.open {
            None => BreakerState::Closed,
            Some((_, 0, _)) => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_a_model_is_that_keeps_all_outcomes(
        start in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
        failing in 0.1..0.9_f64,
        longest in prop_oneof![Just(2_u64), Just(60), Just(500)],
        late in 0.0..0.5_f64,
        traced in vec((any::<u64>(), 0.0..1.0_f64, 0.0..1.0_f64, any::<prop::sample::Index>()), 1..250),
    ) {
        let (breaker, mut model, mut now) = (Breaker::new(), BreakerModel::default(), start);
        let mut calls: Vec<(CallPermit, u64)> = Vec::new();
        for (wait, chance, delay, which) in traced {
            now += wait % longest;
            let (permit, phase) = (breaker.acquire(|| now), model.acquire(now));
            prop_assert_eq!(permit.is_some(), phase.is_some(), "at {}", now);
            calls.extend(permit.zip(phase));
            // Some replies come later, in any order; some callers leave.
            if calls.is_empty() || delay < late {
                continue;
            }
            let (permit, phase) = calls.swap_remove(which.index(calls.len()));
            if chance > 0.95 {
                breaker.gave_up(permit, || now + FIRST_WAIT_MS);
                model.gave_up(phase, now + FIRST_WAIT_MS);
            } else if chance < failing {
                let before = breaker.failed(permit, now);
                prop_assert_eq!(before.is_some(), model.report(phase, now, true), "at {}", now);
            } else {
                prop_assert_eq!(breaker.succeeded(permit, || now), model.report(phase, now, false), "at {}", now);
            }
            let failing_since = (model.open.is_some() || model.in_row > 0).then_some(model.failing_since);
            prop_assert_eq!((breaker.state(), breaker.failing_since()), (model.state(), failing_since));
            let due = model.open.map_or(0, |(.., due)| due.saturating_sub(now));
            prop_assert_eq!(breaker.next_probe(now), Duration::from_millis(due));
        }
    }
}

#[test]
fn times_that_are_reported_in_another_order_are_of_one_window() {
    let breaker = Breaker::new();
    for now in [5_000, 4_999, 4_500, 5_001] {
        breaker.failed(breaker.acquire(|| now).expect("it is closed"), now);
        breaker.succeeded(breaker.acquire(|| now).expect("it is closed"), || now);
    }
    assert_eq!((breaker.recent().failed, breaker.recent().succeeded), (4, 4));
}
