//! Drawing plans.

use fastrand::Rng;

use super::{
    Around, Ask, By, FIRST_COST, Handler, Lookup, Patience, Plan, PolicyPlan, Process, Rule, Setting, Step, What,
};

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let setting = Setting::draw(&mut rng);
        let count = if setting.is_crowd { rng.usize(20..60) } else { rng.usize(4..28) };
        let mut costs = FIRST_COST;
        let steps = (0..count).map(|_| setting.step(&mut rng, &mut costs)).collect();
        Self { seed, setting, steps }.focused()
    }
}

impl Setting {
    fn draw(rng: &mut Rng) -> Self {
        let nodes = if rng.u8(..3) == 0 { 3 } else { 1 };
        let processes: Vec<Process> = (0..rng.usize(1..3)).map(|_| Process::draw(rng)).collect();
        let is_crowd = processes.iter().any(|process| process.around != Around::Plain);
        let mut windows = vec![100, 300, 1_000, 2_500, 10_000, 61_000, 90_000];
        rng.shuffle(&mut windows);
        let count = if is_crowd { 1 } else { rng.usize(1..4) };
        let mut policies: Vec<PolicyPlan> = (0..count).map(|at| PolicyPlan::draw(rng, windows[at])).collect();
        // Nothing depends on it: without it, all seeds would be others.
        rng.u8(..8);
        if is_crowd {
            policies[0].by = if rng.bool() { By::User } else { By::Everybody };
            (policies[0].limit, policies[0].burst, policies[0].shadow) = (rng.u64(20..120), 130, false);
        }
        let (users, functions) = (rng.u8(1..4), rng.u8(..8) == 0);
        let (faults, loses_nothing) = ([0, 5, 25, 25][rng.usize(..4)], rng.u8(..3) == 0);
        let only_moves = nodes > 1 && !loses_nothing && rng.u8(..3) == 0;
        if only_moves {
            // Requests of two clients share calls, and each is over one key.
            policies.truncate(1);
            policies[0].by = By::User;
        }
        let users = if only_moves { 2 } else { users };
        Self { nodes, processes, policies, users, functions, is_crowd, faults, loses_nothing, only_moves }
    }

    /// How long after the one before a step is taken, in milliseconds.
    fn pause(&self, rng: &mut Rng) -> u64 {
        match rng.u8(..if self.is_crowd { 100 } else { 10 }) {
            0..=4 => 0,
            5..=7 => rng.u64(..20),
            8 => rng.u64(..200),
            9 => rng.u64(..3_000),
            _ => rng.u64(..4),
        }
    }

    fn step(&self, rng: &mut Rng, costs: &mut u64) -> Step {
        let after_ms = self.pause(rng);
        let is_fault = rng.u8(..100) < self.faults;
        let what = match rng.u8(..100) {
            _ if is_fault => What::Fault(self.fault(rng)),
            0..=91 => What::Ask(self.ask(rng, costs)),
            92..=95 => What::Heal,
            96..=97 => What::Replace { process: rng.usize(..self.processes.len()), percent: rng.u64(50..200) },
            _ if self.loses_nothing => What::Heal,
            _ => {
                let asks = (0..rng.usize(1..4)).map(|_| self.ask(rng, costs)).collect();
                What::Runtime { asks, lasts_ms: rng.u64(..30) }
            }
        };
        Step { after_ms, what }
    }

    fn ask(&self, rng: &mut Rng, costs: &mut u64) -> Ask {
        *costs += 1;
        let cost = if self.is_crowd { 1 } else { *costs - 1 };
        let patience = match rng.u8(..16) {
            _ if self.loses_nothing => Patience::Waits,
            0 => Patience::Leaves(rng.u64(..60)),
            1 => Patience::PollsOnce(rng.u64(..400)),
            2 => Patience::Idles(rng.u64(..400)),
            _ => Patience::Waits,
        };
        let lookup = match rng.u8(..8) {
            0 => Lookup::Fails,
            1 => Lookup::Hangs,
            _ => Lookup::Found(rng.u64(..40)),
        };
        let (process, user) = (rng.usize(..self.processes.len()), rng.u8(..self.users));
        Ask { process, user, cost, handler: Handler::draw(rng), patience, lookup }
    }
}

impl Process {
    fn draw(rng: &mut Rng) -> Self {
        let around = match rng.u8(..16) {
            0 => Around::Lease,
            1 => Around::Overdraft,
            _ => Around::Plain,
        };
        let rule = match rng.u8(..3) {
            0 => Rule::Fallback,
            1 => Rule::Allow,
            _ => Rule::Deny,
        };
        let budget_ms = [10, 20, 50, 100][rng.usize(..4)];
        let layer_budget_ms = [Some((budget_ms / 2).max(10)), None, None, None][rng.usize(..4)];
        let (pool_size, batch_size) = (rng.usize(1..4), [1, 2, 128][rng.usize(..3)]);
        Self { around, budget_ms, layer_budget_ms, rule, deny_cache: rng.bool(), pool_size, batch_size }
    }
}

impl PolicyPlan {
    fn draw(rng: &mut Rng, window_ms: u64) -> Self {
        // Those who queue are to be served before the end.
        let algorithm = rng.u8(1..if window_ms > 2_500 { 5 } else { 6 });
        let limit = rng.u64(2..10) * FIRST_COST;
        let by = match rng.u8(..6) {
            0 => By::Everybody,
            1 => By::Account,
            _ => By::User,
        };
        let (metered, successes) = (rng.u8(..3) == 0, rng.u8(..3) == 0);
        let (shadow, refund_dropped) = (rng.u8(..6) == 0, rng.u8(..4) == 0);
        let burst = limit + rng.u64(..4) * FIRST_COST;
        let (is_hourly, ban) = (false, None);
        Self { algorithm, limit, window_ms, burst, by, metered, successes, shadow, refund_dropped, is_hourly, ban }
    }
}

impl Handler {
    fn draw(rng: &mut Rng) -> Self {
        let some = |rng: &mut Rng| (0..rng.usize(1..3)).map(|_| rng.u64(1..20)).collect::<Vec<_>>();
        let charges = if rng.u8(..4) == 0 { some(rng) } else { Vec::new() };
        let refunds = if rng.u8(..4) == 0 { some(rng) } else { Vec::new() };
        let sleeps_ms = if rng.u8(..3) == 0 { rng.u64(1..150) } else { 0 };
        let blocks_ms = if rng.u8(..12) == 0 { rng.u64(1..300) } else { 0 };
        let (fails, goes_on) = (rng.u8(..4) == 0, rng.u8(..10) == 0);
        Self { charges, flushes: false, pause_ms: 0, refunds, sleeps_ms, blocks_ms, fails, goes_on }
    }
}
