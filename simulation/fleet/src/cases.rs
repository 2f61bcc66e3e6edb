//! The runs of the table.

use crate::faulty::Faults;
use crate::fleet::Plan;
use crate::load::Load;
use crate::measure::Measured;

/// A row: its name, and the runs it has by seed.
#[derive(Debug)]
pub(crate) struct Case {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// The run, with the first seed.
    pub(crate) plan: Plan,
    /// How many seeds it is run with.
    pub(crate) seeds: u64,
}

impl Case {
    fn new(name: &'static str, plan: Plan, seeds: u64) -> Self {
        Self { name, plan, seeds }
    }

    /// Runs it with all its seeds, and returns the worst of what was measured.
    pub(crate) fn measure(&self) -> Measured {
        let run = |seed: u64| {
            let plan = Plan { seed: self.plan.seed + seed, ..self.plan.clone() };
            Measured::new(&plan, &plan.run())
        };
        (1..self.seeds).map(run).fold(run(0), |all, one| all.or_worse(&one))
    }
}

/// Load that does not change, so that 10 s means are within 5% of the limit from the fourth second on.
pub(crate) fn steady(processes: usize, limit: u64, seed: u64) -> Vec<Case> {
    let seeds = if processes > 100 { 2 } else { 4 };
    let case = |name, load| Case::new(name, Plan::new(processes, limit, load, seed), seeds);
    vec![
        case("even × 5", Load::Even(5.0)),
        case("even × 1.5", Load::Even(1.5)),
        case("zipf × 5", Load::Zipf(5.0)),
        case("one process × 5", Load::One(5.0)),
    ]
}

/// Limits that few requests a second reach: because each costs much, or because they are low.
pub(crate) fn few(seed: u64) -> Vec<Case> {
    let case = |name, processes, (limit, cost), times| {
        let plan = Plan::new(processes, limit, Load::Even(times), seed);
        Case::new(name, Plan { cost, ..plan }, 4)
    };
    vec![
        case("even × 5, each costs 1,000", 8, (100_000, 1_000), 5.0),
        case("even × 2, each costs 1,000", 100, (100_000, 1_000), 2.0),
        case("even × 5, each costs 1,000", 100, (100_000, 1_000), 5.0),
        case("even × 5, each costs 1,000", 100, (20_000, 1_000), 5.0),
        case("even × 1.5", 1, (10, 1), 1.5),
        case("even × 1.5", 1, (50, 1), 1.5),
        case("even × 5", 8, (10, 1), 5.0),
        case("even × 1.5", 8, (10, 1), 1.5),
        case("even × 5", 8, (50, 1), 5.0),
        case("even × 1.5", 8, (50, 1), 1.5),
    ]
}

/// Load below the limit, of which nothing should be dropped.
pub(crate) fn below(processes: usize, limit: u64, seed: u64) -> Vec<Case> {
    let case = |name, times| Case::new(name, Plan::new(processes, limit, Load::Even(times), seed), 2);
    vec![case("even × 0.8", 0.8), case("even × 0.9", 0.9), case("even × 0.95", 0.95)]
}

/// A network that loses something, and processes that are replaced.
pub(crate) fn troubled(processes: usize, limit: u64, seed: u64) -> Vec<Case> {
    let plan = Plan::new(processes, limit, Load::Even(5.0), seed);
    let lost = |reports, replies| Plan { faults: Faults { reports, replies, unavailable: 0..0 }, ..plan.clone() };
    let churn = |churn| Plan { churn, ..plan.clone() };
    vec![
        Case::new("1% of processes replaced a second", churn(0.01), 2),
        Case::new("10% of processes replaced a second", churn(0.1), 2),
        Case::new("1% of reports lost", lost(0.01, 0.0), 2),
        Case::new("10% of reports lost", lost(0.1, 0.0), 2),
        Case::new("10% of replies lost", lost(0.0, 0.1), 2),
    ]
}

/// Load that changes: what ratios are not for, and how they do.
pub(crate) fn changing(processes: usize, limit: u64, seed: u64) -> Vec<Case> {
    let case = |name, load| Case::new(name, Plan::new(processes, limit, load, seed), 2);
    vec![
        case("× 5, another part to each process every second", Load::Bursty(5.0)),
        case("on × 5 for 5 s, off for 5 s", Load::OnOff(5.0, 5)),
        case("on × 5 for 2 s, off for 2 s", Load::OnOff(5.0, 2)),
        case("on × 5 for 1 s, off for 1 s", Load::OnOff(5.0, 1)),
    ]
}

/// Steps of load, every 10 s.
pub(crate) fn steps(processes: usize, limit: u64, seed: u64) -> Plan {
    let load = Load::Steps(vec![(10, 2.0), (10, 10.0), (10, 0.5), (10, 3.0)]);
    Plan { seconds: 40, ..Plan::new(processes, limit, load, seed) }
}

/// A tally that is unavailable for 20 s.
pub(crate) fn unavailable(processes: usize, limit: u64, seed: u64) -> Plan {
    let faults = Faults { unavailable: 10..30, ..Faults::default() };
    Plan { seconds: 40, faults, ..Plan::new(processes, limit, Load::Even(5.0), seed) }
}

/// A caller that sends 5 times the limit, beside 20 that send 2% of it each.
pub(crate) fn fair(processes: usize, limit: u64, seed: u64) -> Plan {
    Plan { fair: true, ..Plan::new(processes, limit, Load::Even(5.4), seed) }
}
