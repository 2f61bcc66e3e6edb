//! The table of crates/tollgate-ratio/docs/ratios.md.

use std::fmt::Write;

use crate::cases::{Case, below, changing, fair, few, steady, steps, troubled, unavailable};
use crate::fleet::{Plan, Run};
use crate::measure::{LAG, Measured, jain};

/// Returns all tables, for fleets of these sizes.
pub(crate) fn tables(processes: &[usize], seed: u64) -> String {
    let mut text = String::new();
    let most = processes.iter().copied().filter(|processes| *processes <= 100).max().unwrap_or(1);
    let limit_of = |processes: usize| if processes == 100 { 10_000 } else { 1_000 };
    text.push_str("| load (× limit) | processes, limit a second | 10 s means over limit, from second 4 | seconds 1, 2, 3, 4 | deviation of 1 s | calls a second and process | kB a second, all |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    let of_all = processes.iter().flat_map(|processes| steady(*processes, limit_of(*processes), seed));
    let others = troubled(most, limit_of(most), seed).into_iter().chain(changing(most, limit_of(most), seed));
    for case in of_all.chain(few(seed)).chain(others) {
        text.push_str(&row(&case, &case.measure()));
    }
    text.push_str("\n| load (× limit) | processes, limit a second | dropped from second 5 on |\n| --- | --- | --- |\n");
    let low = [10, 50].into_iter().flat_map(|limit| below(1, limit, seed));
    for case in processes.iter().flat_map(|processes| below(*processes, limit_of(*processes), seed)).chain(low) {
        let (Plan { processes, limit, .. }, measured) = (&case.plan, case.measure());
        let _ = writeln!(text, "| {} | {processes}; {limit} | {:.2}% |", case.name, 100.0 * measured.dropped);
    }
    text.push_str("\n| seconds | processes, limit a second | admitted over limit |\n| --- | --- | --- |\n");
    let plans = [steps(most, limit_of(most), seed), unavailable(most, limit_of(most), seed)];
    for (name, plan) in
        ["load of 2, 10, 0.5 and 3 × the limit, 10 s each", "no tally in seconds 11 to 30"].iter().zip(plans)
    {
        let seconds = join(&Measured::new(&plan, &plan.run()).seconds);
        let _ = writeln!(text, "| {name} | {}; {} | {seconds} |", plan.processes, plan.limit);
    }
    text.push_str("\n| fair, processes, limit a second | small callers admitted | large caller admitted | sum over limit | Jain's index of the small |\n| --- | --- | --- | --- | --- |\n");
    for processes in processes.iter().filter(|processes| **processes <= 100) {
        let plan = fair(*processes, limit_of(*processes), seed);
        text.push_str(&fairness(&plan, &plan.run()));
    }
    text
}

fn row(Case { name, plan, .. }: &Case, measured: &Measured) -> String {
    let Plan { processes, limit, .. } = plan;
    let Measured { seconds, means: [low, high], deviation, calls, bytes, .. } = measured;
    let first = join(&seconds[..=LAG]);
    let kilobytes = bytes / 1_000.0;
    format!(
        "| {name} | {processes}; {limit} | {low:.3}–{high:.3} | {first} | {deviation:.3} | {calls:.2} | {kilobytes:.1} |\n"
    )
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn fairness(plan: &Plan, run: &Run) -> String {
    let shares: Vec<f64> = run.callers.iter().map(|[offered, kept]| *kept as f64 / (*offered).max(1) as f64).collect();
    let small = run.callers[1..].iter().fold([0, 0], |sum, caller| [sum[0] + caller[0], sum[1] + caller[1]]);
    let [low, high] = Measured::new(plan, run).means;
    format!(
        "| {}; {} | {:.3} | {:.3} | {low:.3}–{high:.3} | {:.3} |\n",
        plan.processes,
        plan.limit,
        small[1] as f64 / small[0].max(1) as f64,
        shares[0],
        jain(&shares[1..]),
    )
}

fn join(seconds: &[f64]) -> String {
    seconds.iter().map(|second| format!("{second:.2}")).collect::<Vec<_>>().join(", ")
}
