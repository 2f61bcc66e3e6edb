//! Runs that are about windows of a calendar.

use std::time::Duration;

use fastrand::Rng;

use super::{Around, FIRST_COST, Fault, Plan, PolicyPlan, What};

/// An hour ends so long after runs begin, in the zone of the calendar: in Kathmandu, a quarter past 22 UTC.
const END: Duration = Duration::from_secs(100);

const HOUR_MS: i64 = 3_600_000;

impl Plan {
    /// Hours of a time zone, one of which ends in the middle of it, and clocks that are set by hours.
    pub(super) fn hours(&mut self, rng: &mut Rng) {
        let setting = &mut self.setting;
        setting.is_crowd = false;
        setting.processes.iter_mut().for_each(|process| process.around = Around::Plain);
        setting.policies.truncate(rng.usize(1..3));
        let limit = rng.u64(2..8) * FIRST_COST;
        let policy = PolicyPlan { algorithm: 1, limit, is_hourly: true, ..setting.policies[0].clone() };
        setting.policies[0] = PolicyPlan { window_ms: HOUR_MS.unsigned_abs(), ..policy };
        let mut costs = FIRST_COST..;
        self.asks().for_each(|ask| ask.cost = costs.next().unwrap_or(FIRST_COST));
        let lasts: u64 = self.steps.iter().map(|step| step.after_ms).sum();
        let millis = u64::try_from(END.as_millis()).unwrap_or(u64::MAX);
        if let Some(first) = self.steps.first_mut() {
            first.after_ms += millis.saturating_sub(rng.u64(..=lasts + 20));
        }
        for step in &mut self.steps {
            if let What::Fault(Fault::Clock(millis)) = &mut step.what
                && rng.bool()
            {
                *millis += rng.i64(-5..=5) * HOUR_MS;
            }
        }
    }
}
