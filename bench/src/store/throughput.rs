//! One policy, few and many requests in flight.

use std::sync::Arc;

use super::sides::{Incr, Multiplexed, Pooled, Stored};
use super::{DAY, LIMIT, QUOTA, pool};
use crate::effort::Effort;
use crate::load::{Entrant, Sample, interleave, ratios, typical};
use crate::plain::{Plain, keys, texts};
use crate::server::Server;
use crate::stores::{store, store_of_functions};
use crate::table::{Figure, Target, print, print_figures};

const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

const POOLED: usize = 0;
const MULTIPLEXED: usize = 1;
const INCR: usize = 2;
const STORE: usize = 3;
const FUNCTIONS: usize = 4;

/// Prints all, and returns the ratios that have a target.
pub(super) async fn run(effort: Effort, server: &Server) -> Vec<Figure> {
    let entrants = entrants(effort, server).await;
    for entrant in &entrants {
        entrant.warm(effort).await;
    }
    let mut ratios = Vec::new();
    for in_flight in IN_FLIGHT {
        let samples = interleave(effort, in_flight, &entrants).await;
        println!("One policy (token bucket), {in_flight} in flight:\n");
        print_samples(&entrants, &samples);
        ratios.extend(targets(in_flight, &samples));
    }
    println!("Ratios:\n");
    print_figures(&ratios);
    ratios.retain(|ratio| ratio.target.is_some());
    ratios
}

async fn entrants(effort: Effort, server: &Server) -> [Entrant; 5] {
    let keys: Arc<[_]> = keys("ip", effort.keys).into();
    let (plain, scripted) = (Plain::new(LIMIT, DAY), Arc::from(texts("gcrakeys", &keys)));
    let pooled = Pooled { pool: pool(server), plain: plain.clone(), texts: Arc::clone(&scripted) };
    let multiplexed = Multiplexed { connection: server.connection().await, plain, texts: scripted };
    let incr = Incr { connection: server.connection().await, texts: texts("incrkeys", &keys).into() };
    let stored = |store, keys, policy: &str| Stored {
        store,
        keys,
        quota: QUOTA,
        policy: policy.try_into().expect("a valid name"),
        allowed: true,
    };
    let functions = stored(store_of_functions(server).await, Arc::clone(&keys), "calls");
    let stored = stored(store(server).await, keys, "bench");
    [
        Entrant::new("a: pooled `get()` and `Script`", pooled),
        Entrant::new("b: one multiplexed connection and `Script`", multiplexed),
        Entrant::new("c: pipelined `INCR`", incr),
        Entrant::new("d: `RedisStore`", stored),
        Entrant::new("e: `RedisStore`, functions", functions),
    ]
}

fn print_samples(entrants: &[Entrant], samples: &[Vec<Sample>]) {
    let row = |(entrant, samples): (&Entrant, &Vec<Sample>)| {
        vec![
            entrant.name.clone(),
            format!("{:.0}", typical(samples, |sample| sample.per_second)),
            format!("{:.0}", typical(samples, |sample| sample.p50_us)),
            format!("{:.0}", typical(samples, |sample| sample.p99_us)),
            format!("{:.1}", typical(samples, |sample| sample.cpu_us)),
        ]
    };
    let rows: Vec<_> = entrants.iter().zip(samples).map(row).collect();
    print(&["side", "checks/s", "p50 µs", "p99 µs", "client CPU µs a check"], &rows);
}

/// What checks/s over one multiplexed connection have to be, by how many are in flight.
const TARGETS: [(usize, f64, f64); 3] = [(1, 1.0, 1.15), (64, 1.7, 2.2), (256, 2.0, 2.5)];

fn targets(in_flight: usize, samples: &[Vec<Sample>]) -> Vec<Figure> {
    let mut rows = Vec::new();
    for (ours, letter) in [(STORE, 'd'), (FUNCTIONS, 'e')] {
        let over = |side: usize, other: char, target: Option<Target>| {
            let name = format!("checks/s, {letter} over {other}, {in_flight} in flight");
            Figure::new(name, ratios(&samples[ours], &samples[side], |sample| sample.per_second), target)
        };
        let target = TARGETS.iter().find(|(at, ..)| *at == in_flight && ours == STORE);
        rows.push(over(POOLED, 'a', None));
        rows.push(over(MULTIPLEXED, 'b', target.map(|&(_, must, stretch)| Target::AtLeast { must, stretch })));
        rows.push(over(INCR, 'c', None));
        if in_flight == 1 {
            let p50 = ratios(&samples[ours], &samples[MULTIPLEXED], |sample| sample.p50_us);
            rows.push(Figure::new(format!("p50, {letter} over b, 1 in flight"), p50, None));
        }
    }
    let functions = ratios(&samples[FUNCTIONS], &samples[STORE], |sample| sample.per_second);
    rows.push(Figure::new(format!("checks/s, e over d, {in_flight} in flight"), functions, None));
    rows
}
