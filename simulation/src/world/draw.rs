//! Draws plans: what each seed does. Of 16 seeds in a row, some are [about one thing](Plan::focused).

use std::time::Duration;

use fastrand::Rng;
use tollgate::policy::Algorithm;

use super::plan::{
    Around, Ask, BanPlan, Fault, Handler, Kinds, Mishap, Patience, Plan, PolicyPlan, Process, Rule, Setting, Step, What,
};

/// What the first request of a run costs, but in a crowd; each costs one more than the one before.
const FIRST_COST: u64 = 64;

/// A window that does not end in a run.
pub(super) const LONG_MS: u64 = 3_600_000;

/// When an hour ends in the zone of the calendar: a quarter past 22 UTC, in Kathmandu.
const HOUR_ENDS: Duration = Duration::from_secs(100);

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
];

/// One of some values.
fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Whether one of so many times.
fn once_in(rng: &mut Rng, times: u8) -> bool {
    rng.u8(..times) == 0
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let setting = Setting::draw(rng);
        let count = if setting.is_crowd() { rng.usize(20..60) } else { rng.usize(4..28) };
        let steps = (0..count).map(|_| setting.step(rng)).collect();
        Self { seed, setting, steps }.focused(rng)
    }

    /// The plan with what it is about, by its seed.
    fn focused(mut self, rng: &mut Rng) -> Self {
        match self.seed % 16 {
            0 => self.charges(rng),
            2 => self.hours(rng),
            4 => self.bans(rng),
            6 => self.outage(rng),
            8 => self.refusals(rng),
            10 => self.ratios(rng),
            12 => self.slots(rng),
            _ => {}
        }
        let mut costs = FIRST_COST..;
        if !self.setting.is_crowd() {
            self.asks().for_each(|ask| ask.cost = costs.next().unwrap_or(FIRST_COST));
        }
        self
    }

    /// All requests, in order.
    fn asks(&mut self) -> impl Iterator<Item = &mut Ask> {
        self.steps.iter_mut().flat_map(|step| match &mut step.what {
            What::Ask(ask) => std::slice::from_mut(ask),
            What::Runtime(asks, _) => asks,
            _ => &mut [],
        })
    }

    /// Has so many plain processes and policies, the first of which is changed.
    fn plain(&mut self, processes: usize, policies: usize, change: impl FnOnce(PolicyPlan) -> PolicyPlan) {
        let setting = &mut self.setting;
        let process = Process { around: Around::Plain, ..setting.processes[0].clone() };
        setting.processes.resize(processes, process);
        setting.processes.iter_mut().for_each(|process| process.around = Around::Plain);
        setting.policies.truncate(policies);
        setting.policies[0] = change(setting.policies[0].clone());
        let users = setting.users;
        self.asks().for_each(|ask| (ask.process, ask.user) = (ask.process % processes, ask.user % users));
        for step in &mut self.steps {
            if let What::Replace(process, _) = &mut step.what {
                *process %= processes;
            }
        }
    }

    /// Adds some steps at any places.
    fn add(&mut self, rng: &mut Rng, most: usize, what: impl Fn(&mut Rng) -> What) {
        for _ in 0..rng.usize(..=most) {
            let (place, after_ms) = (rng.usize(..=self.steps.len()), rng.u64(..200));
            self.steps.insert(place, Step { after_ms, what: what(rng) });
        }
    }

    /// Charges beyond what a counter holds, and refunds after them.
    fn charges(&mut self, rng: &mut Rng) {
        self.plain(1, 1, |policy| PolicyPlan { metered: true, shadow: false, ..policy });
        for ask in self.asks() {
            if once_in(rng, 3) {
                let charges = [rng.u64(2..100), rng.u64(500..4_000)][rng.usize(..2)];
                let refunds = if rng.bool() { rng.u64(1..charges) } else { 0 };
                ask.handler =
                    Handler { charges, refunds, flushes: rng.bool(), sleeps_ms: rng.u64(..200), ..Handler::default() };
            }
        }
    }

    /// Hours of a time zone, one of which ends in the middle of it, and clocks that are set by hours.
    fn hours(&mut self, rng: &mut Rng) {
        let policies = rng.usize(1..3);
        let (algorithm, window_ms) = (Algorithm::FixedWindow, LONG_MS);
        self.plain(1 + rng.usize(..2), policies, |policy| PolicyPlan {
            algorithm,
            window_ms,
            is_hourly: true,
            ..policy
        });
        self.setting.policies[1..].iter_mut().for_each(|policy| policy.window_ms = policy.window_ms.min(10_000));
        let lasts: u64 = self.steps.iter().map(|step| step.after_ms).sum();
        let ends_ms = u64::try_from(HOUR_ENDS.as_millis()).unwrap_or(u64::MAX);
        self.steps[0].after_ms += ends_ms.saturating_sub(rng.u64(..=lasts + 20));
        for step in &mut self.steps {
            if let What::Fault(Fault::Clock(millis)) = &mut step.what {
                *millis += rng.i64(-5..=5) * LONG_MS.cast_signed();
            }
        }
    }

    /// Refusals for which clients are banned, and bans that are lifted.
    fn bans(&mut self, rng: &mut Rng) {
        let (processes, policies, limit) = (1 + rng.usize(..2), rng.usize(1..3), rng.u64(1..5) * FIRST_COST);
        self.setting.users = one(rng, &[1, 1, 2]);
        let (time_ms, growth) = (rng.u64(50..3_000), one(rng, &[100, 150, 200, 300]));
        let most_ms = if growth == 100 { time_ms } else { time_ms * rng.u64(1..6) };
        let (after, within_ms, extends) = (rng.u32(2..6), rng.u64(300..6_000), once_in(rng, 3));
        let ban = Some(BanPlan { after, within_ms, time_ms, growth, most_ms, extends });
        self.plain(processes, policies, |policy| PolicyPlan { limit, burst: limit, by_user: true, ban, ..policy });
        for step in &mut self.steps {
            step.after_ms = [step.after_ms, rng.u64(..20), rng.u64(..60), rng.u64(..400)][rng.usize(..4)];
        }
        let users = self.setting.users;
        self.add(rng, 2, |rng| What::Lift(rng.usize(..processes), rng.u8(..users)));
    }

    /// A server that is away, for longer than a run of many small requests.
    fn outage(&mut self, rng: &mut Rng) {
        let (processes, limit) = (1 + rng.usize(..3), rng.u64(4..16) * FIRST_COST);
        self.setting.nodes = 1;
        self.plain(processes, 1, |policy| PolicyPlan { limit, burst: limit, shadow: false, ..policy });
        for step in &mut self.steps {
            if matches!(step.what, What::Fault(_)) {
                step.what = What::Heal;
            }
            step.after_ms = step.after_ms.min(rng.u64(1..100));
        }
        let away = Step { after_ms: 0, what: What::Fault(Fault::Restarts(0, rng.u64(500..4_000), true)) };
        self.steps.insert(rng.usize(..self.steps.len() / 2), away);
    }

    /// Cached refusals, and resets that must end them.
    fn refusals(&mut self, rng: &mut Rng) {
        let (limit, window_ms) = (rng.u64(3..7) * FIRST_COST, one(rng, &[1_000, 2_500, 10_000]));
        self.setting.users = 1;
        let metered = once_in(rng, 3);
        self.plain(1, 1, |policy| {
            let policy = PolicyPlan { limit, burst: limit, window_ms, by_user: true, ..policy }.for_taking();
            PolicyPlan { metered, ..policy }
        });
        self.setting.processes[0].deny_cache = true;
        for step in &mut self.steps {
            step.after_ms = step.after_ms.min(rng.u64(1..150));
        }
        self.add(rng, 2, |_| What::Reset(0, 0));
    }

    /// Processes with ratios, under a load around the limit.
    fn ratios(&mut self, rng: &mut Rng) {
        let tick_ms = one(rng, &[200, 500, 1_000]);
        self.plain(rng.usize(1..4), 1, |policy| {
            let (limit, algorithm) = (rng.u64(20..60) * 1_000 / tick_ms, one(rng, &ALGORITHMS[..3]));
            let (burst, window_ms, by_user) = (limit, 1_000, rng.bool());
            PolicyPlan { algorithm, limit, window_ms, burst, by_user, ..policy }.for_taking()
        });
        let process =
            Process { around: Around::Ratio(tick_ms), rule: Rule::Fallback, ..self.setting.processes[0].clone() };
        self.setting.processes.fill(process);
        self.asks().for_each(|ask| ask.cost = rng.u64(1..20));
        for step in &mut self.steps {
            if matches!(step.what, What::Replace(..)) {
                step.what = What::Heal;
            }
            step.after_ms = rng.u64(..tick_ms);
        }
    }

    /// Slots that are held for longer than they live without renewals.
    fn slots(&mut self, rng: &mut Rng) {
        let (limit, window_ms) = (rng.u64(2..6) * FIRST_COST, one(rng, &[2_000, 2_400, 4_000, 12_000]));
        let (processes, policies, by_user) = (1 + rng.usize(..2), rng.usize(1..3), rng.bool());
        self.plain(processes, policies, |policy| {
            let algorithm = Algorithm::Concurrency;
            PolicyPlan { algorithm, limit, burst: limit, window_ms, by_user, ..policy }.for_taking()
        });
        for ask in self.asks() {
            ask.handler.sleeps_ms = [0, rng.u64(..50), rng.u64(..6_000), rng.u64(..12_000)][rng.usize(..4)];
        }
        for step in &mut self.steps {
            step.after_ms = [step.after_ms, rng.u64(..800)][rng.usize(..2)];
            if once_in(rng, 3) && matches!(step.what, What::Fault(_)) {
                step.what = What::Heal;
            }
        }
    }
}

impl Setting {
    fn draw(rng: &mut Rng) -> Self {
        let nodes = one(rng, &[1, 1, 3]);
        let processes: Vec<Process> = (0..rng.usize(1..3)).map(|_| Process::draw(rng)).collect();
        let kinds = match rng.u8(..9) {
            0..=2 => Kinds::Delays,
            3 | 4 if nodes > 1 => Kinds::Moves,
            _ => Kinds::Any,
        };
        let mut windows = [100, 300, 1_000, 2_500, 10_000, LONG_MS];
        rng.shuffle(&mut windows);
        if rng.bool() {
            windows[0] = LONG_MS;
            windows[1..].iter_mut().for_each(|window| *window = (*window).min(10_001));
        }
        let mut policies: Vec<PolicyPlan> = (0..rng.usize(1..4)).map(|at| PolicyPlan::draw(rng, windows[at])).collect();
        let (faults, users) = (one(rng, &[0, 5, 25, 25]), rng.u8(1..4));
        let mut setting = Self { nodes, processes, policies: Vec::new(), users, faults, kinds };
        if setting.is_crowd() {
            policies.truncate(1);
            (policies[0].limit, policies[0].burst, policies[0].shadow) = (rng.u64(20..120), 130, false);
        } else if kinds == Kinds::Moves {
            // Requests of two clients share calls, and each is over one key.
            policies.truncate(1);
            (policies[0].by_user, setting.users) = (true, 2);
        }
        Self { policies, ..setting }
    }

    /// Whether requests are many and cost 1 each, as leases want it; else each has a cost of its own.
    pub fn is_crowd(&self) -> bool {
        self.processes.iter().any(|process| process.around != Around::Plain)
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let after_ms = match rng.u8(..if self.is_crowd() { 100 } else { 10 }) {
            0..=4 => 0,
            5..=7 => rng.u64(..20),
            8 => rng.u64(..200),
            9 => rng.u64(..3_000),
            _ => rng.u64(..4),
        };
        let is_fault = rng.u8(..100) < self.faults;
        let what = match rng.u8(..100) {
            _ if is_fault => What::Fault(Fault::draw(rng, self)),
            0..=91 => What::Ask(self.ask(rng)),
            92..=95 => What::Heal,
            96..=97 => What::Replace(rng.usize(..self.processes.len()), rng.u64(50..200)),
            _ if self.kinds == Kinds::Delays => What::Heal,
            _ => What::Runtime((0..rng.usize(1..4)).map(|_| self.ask(rng)).collect(), rng.u64(..30)),
        };
        Step { after_ms, what }
    }

    fn ask(&self, rng: &mut Rng) -> Ask {
        let patience = match rng.u8(..16) {
            _ if self.kinds == Kinds::Delays => Patience::Waits,
            0 => Patience::Leaves(rng.u64(..60)),
            1 => Patience::PollsOnce(rng.u64(..400)),
            2 => Patience::Idles(rng.u64(..400)),
            _ => Patience::Waits,
        };
        let (process, user) = (rng.usize(..self.processes.len()), rng.u8(..self.users));
        Ask { process, user, cost: 1, handler: Handler::draw(rng), patience }
    }
}

impl Process {
    fn draw(rng: &mut Rng) -> Self {
        let around = match rng.u8(..16) {
            0 => Around::Lease,
            1 => Around::Overdraft,
            _ => Around::Plain,
        };
        let rule = one(rng, &[Rule::Fallback, Rule::Allow, Rule::Deny]);
        let budget_ms = one(rng, &[10, 20, 50, 100]);
        let layer_budget_ms = if once_in(rng, 4) { Some((budget_ms / 2).max(10)) } else { None };
        let (pool_size, batch_size) = (rng.usize(1..4), one(rng, &[1, 2, 128]));
        let (instances, deny_cache) = (rng.u32(1..5), rng.bool());
        Self { around, budget_ms, layer_budget_ms, rule, instances, deny_cache, pool_size, batch_size }
    }
}

impl PolicyPlan {
    fn draw(rng: &mut Rng, window_ms: u64) -> Self {
        // Those who queue are to be served before the end.
        let algorithms = if window_ms > 2_500 { &ALGORITHMS[..4] } else { &ALGORITHMS };
        let (algorithm, limit) = (one(rng, algorithms), rng.u64(2..10) * FIRST_COST);
        Self {
            algorithm,
            limit,
            window_ms,
            burst: limit + rng.u64(..4) * FIRST_COST,
            by_user: !once_in(rng, 6),
            metered: once_in(rng, 3),
            successes: once_in(rng, 3),
            shadow: once_in(rng, 6),
            refund_dropped: once_in(rng, 4),
            is_hourly: false,
            ban: None,
        }
    }
}

impl PolicyPlan {
    /// The same, of which nothing is refunded or admitted beyond it.
    fn for_taking(self) -> Self {
        Self { metered: false, successes: false, shadow: false, refund_dropped: false, ..self }
    }
}

impl Handler {
    fn draw(rng: &mut Rng) -> Self {
        let mut some = |times: u8, most: u64| if once_in(rng, times) { rng.u64(1..most) } else { 0 };
        let (charges, refunds, sleeps_ms, blocks_ms) = (some(4, 30), some(4, 30), some(3, 150), some(12, 300));
        Self { charges, refunds, sleeps_ms, blocks_ms, flushes: false, fails: once_in(rng, 4) }
    }
}

/// The faults of each kind of runs, with how often each is drawn.
type Odds = &'static [(u32, fn(&mut Rng, usize) -> Fault)];

const DELAYS: Odds = &[
    (2, |rng, node| Fault::Next(node, Mishap::Late(rng.u64(1..2_000)))),
    (1, |rng, node| Fault::Next(node, Mishap::Pause(rng.u64(1..400)))),
    (1, |rng, node| Fault::Slow(node, rng.u64(1..300))),
    (2, |rng, node| Fault::Freezes(node, rng.u64(1..2_000))),
    (1, |_, node| Fault::FlushScripts(node)),
];

const ANY: Odds = &[
    (1, |_, node| Fault::Next(node, Mishap::CutBefore)),
    (1, |_, node| Fault::Next(node, Mishap::CutAfter)),
    (1, |_, node| Fault::Next(node, Mishap::Half)),
    (1, |_, node| Fault::Next(node, Mishap::Stray)),
    (1, |_, node| Fault::Next(node, Mishap::StrayBytes)),
    (1, |rng, node| Fault::Next(node, Mishap::Pause(rng.u64(1..400)))),
    (1, |rng, node| Fault::Next(node, Mishap::Late(rng.u64(1..2_000)))),
    (1, |rng, node| Fault::Slow(node, rng.u64(1..300))),
    (1, |rng, node| Fault::Freezes(node, rng.u64(1..2_000))),
    (1, |_, node| Fault::Cut(node)),
    (2, |rng, node| Fault::Restarts(node, rng.u64(..1_500), rng.bool())),
    (1, |_, node| Fault::Swallows(node)),
    (2, |rng, node| Fault::ReadOnly(node, rng.bool())),
    (1, |_, node| Fault::Loading(node)),
    (1, |_, node| Fault::OutOfMemory(node)),
    (1, |_, node| Fault::Busy(node)),
    (1, |_, node| Fault::FlushScripts(node)),
    (1, |rng, _| Fault::Clock(rng.i64(-5_000..5_000))),
    (1, |rng, _| Fault::Clock(rng.i64(-200..200))),
    (1, |rng, node| Fault::Evicts(node, rng.u8(..))),
    (1, |_, _| Fault::Password),
    (1, |rng, node| Fault::Demoted(node, rng.bool())),
];

const MOVES: Odds = &[
    (1, |_, node| Fault::FlushScripts(node)),
    (3, |rng, _| Fault::Moves(rng.u8(..))),
    (4, |rng, _| Fault::Migrates(rng.u8(..), rng.usize(..3))),
];

const OF_CLUSTERS: Odds =
    &[(1, |_, node| Fault::ClusterDown(node)), (1, |rng, node| Fault::FailsOver(node, rng.bool()))];

impl Fault {
    fn draw(rng: &mut Rng, setting: &Setting) -> Self {
        let odds = match (setting.kinds, setting.nodes) {
            (Kinds::Delays, _) => &[DELAYS][..],
            (Kinds::Moves, _) => &[MOVES],
            (Kinds::Any, 1) => &[ANY],
            (Kinds::Any, _) => &[ANY, MOVES, OF_CLUSTERS],
        };
        let sum: u32 = odds.iter().copied().flatten().map(|(odds, _)| odds).sum();
        let mut place = rng.u32(..sum);
        let found = odds.iter().copied().flatten().find(|(odds, _)| {
            let is_it = place < *odds;
            place = place.wrapping_sub(*odds);
            is_it
        });
        let node = rng.usize(..setting.nodes);
        found.map_or(Self::FlushScripts(node), |(_, fault)| fault(rng, node))
    }
}
