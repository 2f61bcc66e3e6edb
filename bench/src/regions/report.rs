//! The tables.

use super::crdt;
use super::figures::{Figures, Span};
use super::load::LOADS;
use super::plan::Plan;
use super::sides::Side;
use super::sites::WAY;
use super::{INSTANCES, LIMIT, REGIONS};
use crate::table;
use crate::table::median_of;

/// The rounds of a side, each with the figures of all loads.
type Rounds = [[Figures; LOADS.len()]];

const EVEN: usize = 0;
const SKEWED: usize = 1;
const BELOW: usize = 2;

pub(super) fn print(plan: Plan, sides: &[Side], measured: &[Vec<[Figures; LOADS.len()]>]) {
    println!(
        "Medians of {} rounds of {} s, the sides in turn. {REGIONS} regions of {INSTANCES} processes; limit {LIMIT} \
         a second; a far Redis is {} ms away, each way.\n",
        plan.rounds,
        plan.seconds,
        WAY.as_millis()
    );
    let rows = || sides.iter().zip(measured);
    let mut steady: Vec<_> = rows().map(|(side, rounds)| row(*side, rounds)).collect();
    steady.push(paper());
    let [even, skewed, below] = LOADS.map(|load| load.name);
    let header = [
        "side",
        &format!("p50, p99 ms, {below}"),
        &format!("p50, p99 ms, {even}"),
        &format!("{even}, seconds 1 to 4"),
        even,
        skewed,
        "worst second",
        &format!("{below}, refused"),
        "calls a second, × 3 and × 0.9",
        "kB a second on the links",
        &format!("busiest server, {even}: calls a second, µs a request"),
    ];
    table::print(&header, &steady);
    let cut: Vec<_> = rows().filter_map(|(side, rounds)| cut_row(*side, rounds)).collect();
    let header = [
        "side",
        &format!("cut: p50, p99, longest ms, {even}"),
        even,
        "decided by shares",
        &format!("{below}, refused"),
        &format!("after: {even}"),
        "worst second",
        "longest ms",
        &format!("{below}, refused"),
    ];
    table::print(&header, &cut);
    for (side, rounds) in rows() {
        let by_share = typical(rounds, |loads| loads.iter().map(|load| load.steady.by_share).fold(0.0, f64::max));
        if by_share > 0.0 {
            println!("{}: {:.2}% were decided by shares without a cut.", side.name, by_share * 100.0);
        }
    }
}

fn typical(rounds: &Rounds, figure: impl Fn(&[Figures; LOADS.len()]) -> f64) -> f64 {
    median_of(rounds.iter().map(figure))
}

fn row(side: Side, rounds: &Rounds) -> Vec<String> {
    let steady = |load: usize, figure: fn(&Span) -> f64| typical(rounds, |loads| figure(&loads[load].steady));
    let waits = |load| format!("{}, {}", ms(steady(load, |span| span.p50_ms)), ms(steady(load, |span| span.p99_ms)));
    let start = [0, 1, 2, 3].map(|second| ratio(typical(rounds, |loads| loads[EVEN].start[second])));
    let worst = typical(rounds, |loads| loads[EVEN].steady.worst.max(loads[SKEWED].steady.worst));
    let calls = [EVEN, BELOW].map(|load| format!("{:.0}", typical(rounds, |loads| loads[load].calls)));
    let busiest = [
        format!("{:.0}", typical(rounds, |loads| loads[EVEN].busiest_calls)),
        format!("{:.1}", typical(rounds, |loads| loads[EVEN].busiest_us)),
    ];
    vec![
        side.name.to_owned(),
        waits(BELOW),
        waits(EVEN),
        start.join(", "),
        ratio(steady(EVEN, |span| span.admitted)),
        ratio(steady(SKEWED, |span| span.admitted)),
        ratio(worst),
        percent(steady(BELOW, |span| span.refused)),
        calls.join(", "),
        format!("{:.0}", typical(rounds, |loads| loads[EVEN].link_kb)),
        busiest.join(", "),
    ]
}

/// The row of replicated counters, which are not measured.
fn paper() -> Vec<String> {
    let calls = format!("{:.0}", crdt::messages());
    let [even, skewed] = [EVEN, SKEWED].map(|load| format!("≤ {:.2}", 1.0 + crdt::excess(LOADS[load], WAY)));
    let [zero, blank] = ["0", "–"].map(|text| move || text.to_owned());
    let name = "on paper: replicated counters (CRDT)".to_owned();
    vec![name, zero(), zero(), blank(), even.clone(), skewed, even, zero(), calls, blank(), blank()]
}

fn cut_row(side: Side, rounds: &Rounds) -> Option<Vec<String>> {
    side.has_link().then(|| {
        let span = |load: usize, part: usize, figure: fn(&Span) -> f64| {
            typical(rounds, |loads| loads[load].cut.as_ref().map_or(0.0, |spans| figure(&spans[part])))
        };
        let [p50, p99, longest]: [fn(&Span) -> f64; 3] =
            [|span| span.p50_ms, |span| span.p99_ms, |span| span.longest_ms];
        let waits = [p50, p99, longest].map(|figure| ms(span(EVEN, 0, figure)));
        vec![
            side.name.to_owned(),
            waits.join(", "),
            ratio(span(EVEN, 0, |span| span.admitted)),
            percent(span(EVEN, 0, |span| span.by_share)),
            percent(span(BELOW, 0, |span| span.refused)),
            ratio(span(EVEN, 1, |span| span.admitted)),
            ratio(span(EVEN, 1, |span| span.worst)),
            ms(span(EVEN, 1, longest)),
            percent(span(BELOW, 1, |span| span.refused)),
        ]
    })
}

fn ms(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(value: f64) -> String {
    format!("{:.1}%", value * 100.0)
}
