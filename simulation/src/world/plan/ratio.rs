//! Runs that are about ratios.

use fastrand::Rng;

use super::{
    Around, Ask, By, Handler, Lookup, Patience, Plan, PolicyPlan, Process, RatioPlan, Rule, Setting, Step, What,
};

impl Plan {
    /// Processes that report what they are offered, once in each tick, under a load around the limits.
    pub(super) fn ratios(&mut self, rng: &mut Rng) {
        let tick_ms = [200, 500, 1_000][rng.usize(..3)];
        self.setting.has_ratios(rng, tick_ms);
        let (processes, drawn) = (self.setting.processes.len(), std::mem::take(&mut self.steps));
        for mut step in drawn {
            match &mut step.what {
                // A limit that is lower has no ratio.
                What::Replace { process, percent } => {
                    (*process, *percent) = (*process % processes, 100 + *percent % 100);
                }
                What::Ask(_) | What::Reset { .. } | What::Lift { .. } => step.what = What::Heal,
                What::Runtime { asks, .. } => asks.iter_mut().for_each(|ask| *ask = self.setting.request(rng)),
                What::Fault(_) | What::Heal => {}
            }
            step.after_ms = rng.u64(..tick_ms);
            self.steps.push(step);
            for _ in 0..rng.usize(..8) {
                let after_ms = [0, rng.u64(..20), rng.u64(..tick_ms / 2)][rng.usize(..3)];
                self.steps.push(Step { after_ms, what: What::Ask(self.setting.request(rng)) });
            }
        }
    }
}

impl Setting {
    /// Has several processes with ratios, and one or two policies that have some.
    fn has_ratios(&mut self, rng: &mut Rng, tick_ms: u64) {
        let plan =
            RatioPlan { tick_ms, life_ms: tick_ms * [2, 3, 10][rng.usize(..3)], shards: [1, 1, 1, 3][rng.usize(..4)] };
        let process = Process { around: Around::Ratio(plan), rule: Rule::Fallback, ..self.processes[0].clone() };
        self.processes = vec![process; rng.usize(1..4)];
        (self.is_crowd, self.users) = (true, rng.u8(1..4));
        self.policies.truncate(2);
        for (policy, window_ms) in self.policies.iter_mut().zip([1_000, 2_500]) {
            // A tick admits at least ten units.
            let limit = rng.u64(10..60) * window_ms / tick_ms;
            *policy = PolicyPlan {
                algorithm: rng.u8(1..4),
                limit,
                burst: limit,
                window_ms,
                by: if rng.bool() { By::User } else { By::Everybody },
                metered: false,
                successes: false,
                refund_dropped: false,
                ..policy.clone()
            };
        }
    }

    /// A request of some units.
    fn request(&self, rng: &mut Rng) -> Ask {
        let patience = match rng.u8(..16) {
            _ if self.loses_nothing => Patience::Waits,
            0 => Patience::PollsOnce(rng.u64(..400)),
            1 => Patience::Idles(rng.u64(..400)),
            _ => Patience::Waits,
        };
        let blocks_ms = if rng.u8(..64) == 0 { rng.u64(1..300) } else { 0 };
        let handler = Handler { sleeps_ms: [0, rng.u64(..50)][rng.usize(..2)], blocks_ms, ..Handler::default() };
        let (process, user) = (rng.usize(..self.processes.len()), rng.u8(..self.users));
        Ask { process, user, cost: rng.u64(1..20), handler, patience, lookup: Lookup::Found(0) }
    }
}
