//! The memory store beside `governor`'s keyed limiter: nanoseconds per check, bytes per key, a
//! flood of keys, and what a whole layer costs a request.

mod flood;
pub(crate) mod layer;
pub(crate) mod sides;
pub(crate) mod size;

use crate::table::{Figure, Target, median, print, print_figures};
use sides::{Governor, Load, Side, Tollgate};

/// What is measured, and how much of it.
struct Scale {
    rounds: usize,
    checks: usize,
    requests: usize,
    flood: usize,
}

impl Scale {
    fn new(quick: bool) -> Self {
        if quick {
            Self { rounds: 7, checks: 200_000, requests: 50_000, flood: 10_000_000 }
        } else {
            Self { rounds: 9, checks: 2_000_000, requests: 300_000, flood: 10_000_000 }
        }
    }
}

pub(crate) fn run(args: &[String]) {
    if let Some(side) = args.iter().position(|arg| arg == "size").and_then(|place| args.get(place + 1)) {
        return size::print_of(side);
    }
    if let Some(layer) = args.iter().position(|arg| arg == "profile").and_then(|place| args.get(place + 1)) {
        let requests = args.last().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
        return layer::profile(layer, requests);
    }
    let scale = Scale::new(args.iter().any(|arg| arg == "--quick"));
    let with_program = args.iter().any(|arg| arg == "--tower-rate-limiter");
    if !args.iter().any(|arg| arg == "--layers") {
        time(&scale);
        size::run();
        flood::run(scale.flood);
    }
    layer::run(scale.rounds, scale.requests, with_program);
}

/// What has a target.
pub(crate) fn figures(quick: bool) -> Vec<Figure> {
    let scale = Scale::new(quick);
    let mut figures = time(&scale);
    figures.extend(layer::run(scale.rounds, scale.requests, false));
    figures
}

/// Prints all, and returns the ratios that have a target.
fn time(Scale { rounds, checks, .. }: &Scale) -> Vec<Figure> {
    println!(
        "Nanoseconds per check, over `governor`'s keyed limiter (medians of {rounds} rounds, interleaved). Both sides \
         hold a token bucket per key, all checks are admitted, and keys have the same text and are made before. \
         governor: `check_key(&String)`, its DashMap and its clock, which answers yes or no. tollgate: a clone of a \
         `Check` as a limiter makes it, decided by a `MemoryStore` on its clock, decision and receipt dropped.\n"
    );
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for keys in [1, 100_000] {
        for threads in [1, 2] {
            let load = Load { keys, threads, checks: checks / threads };
            let mut rounds_of = [const { Vec::new() }; 2];
            for _ in 0..*rounds {
                let nanos = [Governor::new(keys).nanos(load), Tollgate::new(keys).nanos(load)];
                for (values, nanos) in rounds_of.iter_mut().zip(nanos) {
                    values.push(nanos);
                }
            }
            let target = (keys > 1).then_some(Target::AtMost { must: 0.9, stretch: 0.75 });
            let keys = if keys == 1 { "1 hot key".to_owned() } else { format!("{keys} keys, uniform") };
            let ratios = rounds_of[1].iter().zip(&rounds_of[0]).map(|(ours, theirs)| ours / theirs).collect();
            let name = format!("a check in memory over governor, {keys}, threads: {threads}");
            figures.push(Figure::new(name, ratios, target));
            let cells = rounds_of.map(|nanos| format!("{:.0}", median(nanos)));
            rows.push([keys, threads.to_string()].into_iter().chain(cells).collect());
        }
    }
    print(&["keys", "threads", "governor", "tollgate"], &rows);
    print_figures(&figures);
    figures.retain(|figure| figure.target.is_some());
    figures
}
