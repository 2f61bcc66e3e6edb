//! Runs that are about one thing: some seeds' plans, changed so that they meet it often.

use fastrand::Rng;

use super::{Around, Ask, By, FIRST_COST, Plan, PolicyPlan, Process, Step, What};

/// Of so many seeds one is of each kind.
const KINDS: u64 = 16;

impl Plan {
    /// The plan with what it is about by its seed, if it is about anything.
    pub(super) fn focused(mut self) -> Self {
        // As drawn, plans stay what they are.
        let rng = &mut Rng::with_seed(self.seed ^ 0xf0c0_5ed0);
        match self.seed % KINDS {
            0 => self.charges(rng),
            2 if rng.bool() => self.hours(rng),
            4 => self.bans(rng),
            8 => self.refusals(rng),
            10 => self.ratios(rng),
            12 => self.slots(rng),
            _ => {}
        }
        self
    }

    /// All requests, in order.
    pub(super) fn asks(&mut self) -> impl Iterator<Item = &mut Ask> {
        self.steps.iter_mut().flat_map(|step| match &mut step.what {
            What::Ask(ask) => std::slice::from_mut(ask),
            What::Runtime { asks, .. } => asks,
            _ => &mut [],
        })
    }

    /// Has one process ask in terms of one policy, with costs in any order.
    fn simplify(&mut self, rng: &mut Rng, policy: PolicyPlan) {
        let setting = &mut self.setting;
        setting.policies = vec![policy];
        setting.processes.truncate(1);
        setting.processes[0].around = Around::Plain;
        setting.is_crowd = false;
        let mut costs: Vec<u64> = (FIRST_COST..).take(self.asks().count()).collect();
        rng.shuffle(&mut costs);
        for (ask, cost) in self.asks().zip(costs) {
            (ask.process, ask.cost) = (0, cost);
        }
        for step in &mut self.steps {
            if let What::Replace { process, .. } = &mut step.what {
                *process = 0;
            }
        }
    }

    /// Refusals from memory, and resets that must end them.
    fn refusals(&mut self, rng: &mut Rng) {
        let drawn = &self.setting.policies[0];
        let limit = rng.u64(3..7) * FIRST_COST;
        let policy = PolicyPlan {
            algorithm: rng.u8(1..5),
            limit,
            burst: limit,
            window_ms: [1_000, 2_500, 10_000][rng.usize(..3)],
            by: By::User,
            metered: false,
            successes: false,
            shadow: false,
            refund_dropped: false,
            ..drawn.clone()
        };
        self.simplify(rng, policy);
        self.setting.processes[0] = Process { deny_cache: true, ..self.setting.processes[0].clone() };
        self.setting.users = 1;
        self.asks().for_each(|ask| ask.user = 0);
        for step in &mut self.steps {
            step.after_ms = step.after_ms.min(rng.u64(1..150));
        }
        for _ in 0..rng.usize(..3) {
            let place = rng.usize(..=self.steps.len());
            let reset = Step { after_ms: rng.u64(..50), what: What::Reset { process: 0, user: 0 } };
            self.steps.insert(place, reset);
        }
    }

    /// Slots that are held for longer than they live without renewals, with other quotas or alone.
    fn slots(&mut self, rng: &mut Rng) {
        let setting = &mut self.setting;
        setting.is_crowd = false;
        setting.processes.iter_mut().for_each(|process| process.around = Around::Plain);
        setting.policies.truncate(2);
        if rng.bool() {
            setting.policies.truncate(1);
        }
        let limit = rng.u64(2..6) * FIRST_COST;
        let window_ms = [2_000, 2_400, 4_000, 12_000][rng.usize(..4)];
        let by = if rng.bool() { By::User } else { By::Everybody };
        let drawn = setting.policies[0].clone();
        let policy = PolicyPlan { algorithm: 6, limit, burst: limit, window_ms, by, ..drawn };
        let policy = PolicyPlan { metered: false, successes: false, shadow: false, refund_dropped: false, ..policy };
        setting.policies[0] = policy;
        if rng.u8(..3) == 0 {
            // Nothing goes wrong, so each slot is told of.
            setting.faults = 0;
            self.steps
                .iter_mut()
                .filter(|step| matches!(step.what, What::Fault(_)))
                .for_each(|step| step.what = What::Heal);
        }
        let mut costs = FIRST_COST..;
        for ask in self.asks() {
            ask.cost = costs.next().unwrap_or(FIRST_COST);
            ask.handler.sleeps_ms = [0, rng.u64(..50), rng.u64(..6_000), rng.u64(..12_000)][rng.usize(..4)];
        }
        for step in &mut self.steps {
            step.after_ms = [step.after_ms, rng.u64(..800)][rng.usize(..2)];
        }
    }

    /// Charges beyond what a counter holds, and refunds after them.
    fn charges(&mut self, rng: &mut Rng) {
        let policy = PolicyPlan { metered: true, shadow: false, ..self.setting.policies[0].clone() };
        self.simplify(rng, policy);
        for ask in self.asks() {
            let handler = &mut ask.handler;
            if rng.u8(..3) == 0 {
                handler.charges = vec![rng.u64(500..4_000)];
                handler.refunds = if rng.bool() { vec![rng.u64(1..handler.charges[0])] } else { Vec::new() };
                handler.pause_ms = rng.u64(..200);
                handler.flushes = rng.bool();
            }
        }
    }
}
