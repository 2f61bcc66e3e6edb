//! The memory store beside `governor`'s keyed limiter: nanoseconds per check, bytes per key, a
//! flood of keys, and what a whole layer costs a request.

mod flood;
pub(crate) mod layer;
pub(crate) mod sides;
pub(crate) mod size;

use crate::table::{median, print};
use sides::{Governor, Load, Plain, Side, Tollgate};

const ROUNDS: usize = 9;

/// What is measured, and how much of it.
struct Scale {
    rounds: usize,
    checks: usize,
    requests: usize,
    flood: usize,
}

pub(crate) fn run(args: &[String]) {
    if let Some(side) = args.iter().position(|arg| arg == "size").and_then(|place| args.get(place + 1)) {
        return size::print_of(side);
    }
    if let Some(layer) = args.iter().position(|arg| arg == "profile").and_then(|place| args.get(place + 1)) {
        let requests = args.last().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
        return layer::profile(layer, requests);
    }
    let scale = if args.iter().any(|arg| arg == "--quick") {
        Scale { rounds: 7, checks: 200_000, requests: 50_000, flood: 10_000_000 }
    } else {
        Scale { rounds: ROUNDS, checks: 2_000_000, requests: 300_000, flood: 10_000_000 }
    };
    let with_program = args.iter().any(|arg| arg == "--tower-rate-limiter");
    if args.iter().any(|arg| arg == "--layers") {
        return layer::run(scale.rounds, scale.requests, with_program);
    }
    time(&scale);
    size::run();
    flood::run(scale.flood);
    layer::run(scale.rounds, scale.requests, with_program);
}

fn time(Scale { rounds, checks, .. }: &Scale) {
    println!(
        "Nanoseconds per check, over `governor`'s keyed limiter (medians of {rounds} rounds, interleaved). Both sides \
         hold a token bucket per key, all checks are admitted, and keys have the same text and are made before. \
         governor: `check_key(&String)`, its DashMap and its clock, which answers yes or no. tollgate: a `Check` made \
         of a cloned `Key` and policy name, decided by a `MemoryStore` on its clock, decision and receipt dropped. At \
         once: `decide_now` of a `PlainCheck`, without a receipt, as layers ask where nothing is ever settled.\n"
    );
    let mut rows = Vec::new();
    for keys in [1, 100_000] {
        for threads in [1, 2] {
            let load = Load { keys, threads, checks: checks / threads };
            let mut rounds_of = [const { Vec::new() }; 5];
            for _ in 0..*rounds {
                let (theirs, ours) = (Governor::new(keys).nanos(load), Tollgate::new(keys).nanos(load));
                let plain = Plain::new(keys).nanos(load);
                let values = [theirs, ours, ours / theirs, plain, plain / theirs];
                for (values, value) in rounds_of.iter_mut().zip(values) {
                    values.push(value);
                }
            }
            let [theirs, ours, ratio, plain, plain_ratio] = rounds_of.map(median);
            let keys = if keys == 1 { "1 hot key".to_owned() } else { format!("{keys}, uniform") };
            let cells = [format!("{theirs:.0}"), format!("{ours:.0}"), format!("{ratio:.2}")];
            let plain = [format!("{plain:.0}"), format!("{plain_ratio:.2}")];
            let targets = ["≤ 0.85", "≤ 0.7"].map(str::to_owned);
            rows.push([keys, threads.to_string()].into_iter().chain(cells).chain(targets).chain(plain).collect());
        }
    }
    print(&["keys", "threads", "governor", "tollgate", "ratio", "must", "stretch", "at once", "ratio"], &rows);
}
