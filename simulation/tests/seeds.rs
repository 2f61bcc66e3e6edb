//! Seeds that once failed, by what they found; and that all do again what they did.

use tollgate_simulation::server::Vm;
use tollgate_simulation::shrink::run_apart;
use tollgate_simulation::world::plan::Plan;
#[cfg(tokio_unstable)]
use tollgate_simulation::world::plan::What;

/// Runs a seed; it must not fail any more.
#[track_caller]
fn passes(seed: u64) {
    let report = run_apart(&Plan::of(seed), &Vm::new(), false);
    assert!(report.violations.is_empty(), "scripts/simulate --seed {seed}: {:?}", report.violations);
    assert!(report.decisions > 0, "seed {seed} decides nothing");
}

#[test]
fn who_waits_for_a_slot_on_its_way_waits_no_longer_than_the_budget() {
    passes(5_002_548);
}

#[test]
fn settlements_wait_while_a_primary_is_not_asked() {
    passes(5_000_387);
}

#[test]
fn bytes_that_nothing_asked_for_give_no_caller_the_answer_to_another_one() {
    passes(5_000_085);
}

#[test]
fn a_script_that_is_forgotten_as_soon_as_it_is_loaded_is_loaded_again() {
    passes(5_001_265);
}

#[test]
fn a_server_that_forgets_what_it_is_checked_with_is_checked_again() {
    passes(5_002_622);
    passes(20_016_395);
}

#[test]
fn what_was_answered_before_a_connection_was_lost_is_given_back_if_it_is_late() {
    passes(100_098_173);
}

#[test]
fn a_connection_given_up_for_odd_answers_is_one_failure() {
    passes(100_198_635);
}

#[test]
fn a_ban_is_still_one_after_a_charge_in_shadow_mode() {
    passes(932);
}

#[test]
fn totals_that_a_new_counter_begins_with_hold_no_longer_than_others() {
    passes(61_034);
}

#[cfg(tokio_unstable)]
#[test]
fn a_seed_does_the_same_when_it_is_run_again() {
    let vm = Vm::new();
    let repeats = |plan: &Plan| plan.steps.iter().all(|step| !matches!(step.what, What::Runtime { .. }));
    for plan in (0..300).map(Plan::of).filter(repeats) {
        let seed = plan.seed;
        let (one, two) = (run_apart(&plan, &vm, true), run_apart(&plan, &vm, true));
        let lines = one.trace.lines().iter().zip(two.trace.lines());
        let differs = lines.enumerate().find(|(_, (one, two))| one != two);
        assert!(differs.is_none(), "seed {seed}: {differs:#?}");
        assert_eq!(one.trace.hash(), two.trace.hash(), "seed {seed}");
    }
}
