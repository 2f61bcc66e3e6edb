//! Runs that are about bans.

use fastrand::Rng;

use super::{Around, BanPlan, By, FIRST_COST, Plan, PolicyPlan, Process, Setting, Step, What};

impl Plan {
    /// Refusals for which clients are banned, alone or beside another policy, and bans that are lifted.
    pub(super) fn bans(&mut self, rng: &mut Rng) {
        self.setting.has_bans(rng);
        let (processes, users) = (self.setting.processes.len(), self.setting.users);
        let mut costs = FIRST_COST..;
        for ask in self.asks() {
            ask.cost = costs.next().unwrap_or(FIRST_COST);
            (ask.process, ask.user) = (rng.usize(..processes), ask.user % users);
        }
        for step in &mut self.steps {
            step.after_ms = [step.after_ms, rng.u64(..20), rng.u64(..60), rng.u64(..400)][rng.usize(..4)];
            if let What::Replace { process, .. } = &mut step.what {
                *process %= processes;
            }
        }
        for _ in 0..[0, 0, 1, 2][rng.usize(..4)] {
            let (process, user) = (rng.usize(..processes), rng.u8(..users));
            let place = rng.usize(..=self.steps.len());
            let lift = Step { after_ms: rng.u64(..200), what: What::Lift { process, user } };
            self.steps.insert(place, lift);
        }
    }
}

impl Setting {
    /// Has two processes, mostly, and a policy that bans.
    fn has_bans(&mut self, rng: &mut Rng) {
        (self.is_crowd, self.users) = (false, [1, 1, 2][rng.usize(..3)]);
        self.processes.iter_mut().for_each(|process| process.around = Around::Plain);
        if rng.u8(..4) > 0 {
            let other = Process { deny_cache: rng.bool(), ..self.processes[0].clone() };
            self.processes.resize(2, other);
        }
        if rng.bool() {
            self.processes.iter_mut().for_each(|process| process.deny_cache = true);
        }
        self.policies.truncate(rng.usize(1..3));
        let policy = self.policies[0].banning(rng);
        self.policies[0] = policy;
        if rng.u8(..8) == 0 {
            self.policies.truncate(1);
        }
    }
}

impl PolicyPlan {
    /// The policy with a ban, and a limit of a few requests.
    fn banning(&self, rng: &mut Rng) -> Self {
        let limit = rng.u64(1..5) * FIRST_COST;
        let (time_ms, growth) = (rng.u64(50..3_000), [100, 150, 200, 300][rng.usize(..4)]);
        let most_ms = if growth == 100 { time_ms } else { time_ms * rng.u64(1..6) };
        let (after, within_ms) = (rng.u32(2..6), rng.u64(300..6_000));
        let ban = BanPlan { after, within_ms, time_ms, growth, most_ms, extends: rng.u8(..3) == 0 };
        let policy = Self { limit, burst: limit, by: By::User, ban: Some(ban), ..self.clone() };
        let settles = rng.u8(..4) == 0;
        let (metered, successes) = (settles && self.metered, settles && self.successes);
        Self { metered, successes, refund_dropped: settles && self.refund_dropped, ..policy }
    }
}
