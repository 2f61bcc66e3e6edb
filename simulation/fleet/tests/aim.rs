//! The aim: under steady load, 10 s means are within 5% of the limit from the fourth second on.

use tollgate_fleet::cases::{below, fair, few, steady};
use tollgate_fleet::fleet::Plan;
use tollgate_fleet::load::Load;
use tollgate_fleet::measure::Measured;
use tollgate_fleet::table;

#[test]
fn steady_load_is_within_five_percent_after_three_seconds() {
    for processes in [1, 8, 100] {
        for case in steady(processes, 1_000, 7) {
            let measured = case.measure();
            let [low, high] = measured.means;
            assert!(low >= 0.95 && high <= 1.05, "{}, {processes}: {low:.3} to {high:.3}", case.name);
        }
    }
}

#[test]
fn few_requests_are_neither_starved_nor_too_many() {
    for case in few(7) {
        let Plan { processes, limit, cost, .. } = case.plan;
        let [low, high] = case.measure().means;
        let [least, most] = if limit / cost >= 100 { [0.92, 1.08] } else { [0.7, 1.4] };
        assert!(low >= least && high <= most, "{}, {processes}; {limit}: {low:.3} to {high:.3}", case.name);
    }
}

#[test]
fn nearly_nothing_is_dropped_below_the_limit() {
    for case in [8, 100].into_iter().flat_map(|processes| below(processes, 1_000, 7)) {
        let Measured { dropped, .. } = case.measure();
        assert!(dropped <= 0.01, "{}, {}: {dropped:.4}", case.name, case.plan.processes);
    }
}

#[test]
fn calls_do_not_depend_on_the_requests() {
    let calls = |times| Plan::new(8, 1_000, Load::Even(times), 7).run().calls;
    assert_eq!(calls(0.5), calls(20.0));
}

#[test]
fn small_callers_are_not_dropped_for_a_large_one() {
    let run = fair(8, 1_000, 7).run();
    let [offered, kept] = run.callers[1..].iter().fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    assert!(kept * 100 >= offered * 97, "{kept} of {offered}");
    assert!(run.callers[0][1] * 5 < run.callers[0][0], "{:?}", run.callers[0]);
}

#[test]
fn a_seed_repeats_itself() {
    assert_eq!(table::tables(&[8], 3), table::tables(&[8], 3));
}
