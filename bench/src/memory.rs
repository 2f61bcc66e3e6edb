//! The memory store beside `governor`'s keyed limiter: nanoseconds per check, bytes per key, a
//! flood of keys, and what a whole layer costs a request.

mod flood;
pub(crate) mod layer;
pub(crate) mod sides;
pub(crate) mod size;

use crate::table::{Figure, median, print, print_figures};
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
    if let Err(fault) = layer::run(scale.rounds, scale.requests, with_program) {
        eprintln!("{fault}");
        std::process::exit(1);
    }
}

/// Ratios of layers in process to what each is compared with.
pub(crate) fn layer_figures(names: &[&str], quick: bool) -> Result<Vec<Figure>, String> {
    let Scale { rounds, requests, .. } = Scale::new(quick);
    if names.is_empty() { Ok(Vec::new()) } else { layer::figures(names, rounds, requests) }
}

/// Time of a check over `governor`'s, over many keys, by threads.
pub(crate) fn check_figures(threads: &[usize], quick: bool) -> Vec<Figure> {
    let scale = Scale::new(quick);
    threads.iter().map(|threads| Figure::new("", ratios(&nanos(&scale, MANY, *threads)), None)).collect()
}

const MANY: usize = 100_000;

/// Nanoseconds per check of `governor` and of tollgate, round by round.
fn nanos(&Scale { rounds, checks, .. }: &Scale, keys: usize, threads: usize) -> [Vec<f64>; 2] {
    let load = Load { keys, threads, checks: checks / threads };
    let mut nanos_of = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        let nanos = [Governor::new(keys).nanos(load), Tollgate::new(keys).nanos(load)];
        for (values, nanos) in nanos_of.iter_mut().zip(nanos) {
            values.push(nanos);
        }
    }
    nanos_of
}

fn ratios([theirs, ours]: &[Vec<f64>; 2]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

fn time(scale: &Scale) {
    println!(
        "Nanoseconds per check, over `governor`'s keyed limiter (medians of {} rounds, interleaved). Both sides \
         hold a token bucket per key, all checks are admitted, and keys have the same text and are made before. \
         governor: `check_key(&String)`, its DashMap and its clock, which answers yes or no. tollgate: a clone of a \
         `Check` as a limiter makes it, decided by a `MemoryStore` on its clock, decision and receipt dropped.\n",
        scale.rounds
    );
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for keys in [1, MANY] {
        for threads in [1, 2] {
            let nanos_of = nanos(scale, keys, threads);
            let keys = if keys == 1 { "1 hot key".to_owned() } else { format!("{keys} keys, uniform") };
            let name = format!("a check in memory over governor, {keys}, threads: {threads}");
            figures.push(Figure::new(name, ratios(&nanos_of), None));
            let cells = nanos_of.map(|nanos| format!("{:.0}", median(nanos)));
            rows.push([keys, threads.to_string()].into_iter().chain(cells).collect());
        }
    }
    print(&["keys", "threads", "governor", "tollgate"], &rows);
    print_figures(&figures);
}
