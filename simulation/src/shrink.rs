//! The least that still fails.

use crate::server::Vm;
use crate::world::plan::Plan;
use crate::world::{Report, run};

/// Runs a plan in a thread of its own; a panic is a violation.
///
/// # Panics
///
/// If no thread can be had.
pub fn run_apart(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Report {
    let (plan, vm) = (plan.clone(), vm.clone());
    let thread = std::thread::Builder::new().name(format!("seed {}", plan.seed));
    let thread = thread.spawn(move || run(&plan, &vm, keeps_lines)).expect("there is room for a thread");
    thread.join().unwrap_or_else(|panic| Report::of_panic(&*panic))
}

/// The shortest prefix of a plan that fails, without the steps that do not matter; `None` if it does not fail.
pub fn shrink(plan: &Plan, vm: &Vm) -> Option<Plan> {
    let fails = |plan: &Plan| !run_apart(plan, vm, false).violations.is_empty();
    let prefix = |length: usize| Plan { steps: plan.steps[..length].to_vec(), ..plan.clone() };
    let mut least = (0..=plan.steps.len()).map(prefix).find(fails)?;
    for place in (0..least.steps.len()).rev() {
        let mut without = least.clone();
        let removed = without.steps.remove(place);
        if let Some(next) = without.steps.get_mut(place) {
            next.after_ms += removed.after_ms;
        }
        if fails(&without) {
            least = without;
        }
    }
    Some(least)
}
