//! One policy, few and many requests in flight.

use std::sync::Arc;

use super::sides::{Incr, Multiplexed, Pooled, Stored};
use super::{DAY, LIMIT, QUOTA, pool};
use crate::effort::Effort;
use crate::load::{Entrant, Sample, interleave, ratios, typical};
use crate::plain::{Plain, keys, texts};
use crate::server::Server;
use crate::stores::{store, store_of_functions};
use crate::table::{Ratio, Target, print, print_ratios};

const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

const POOLED: usize = 0;
const MULTIPLEXED: usize = 1;
const INCR: usize = 2;
const STORE: usize = 3;
const FUNCTIONS: usize = 4;

pub(super) async fn run(effort: Effort, server: &Server) {
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
    print_ratios(&ratios);
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

fn targets(in_flight: usize, samples: &[Vec<Sample>]) -> Vec<Ratio> {
    let mut rows = Vec::new();
    for (ours, letter) in [(STORE, 'd'), (FUNCTIONS, 'e')] {
        let over = |side: usize, other: char, targets: &[(usize, f64, f64)]| {
            let target = targets.iter().find(|(at, ..)| *at == in_flight);
            let target = target.map(|&(_, must, stretch)| Target::AtLeast { must, stretch });
            let name = format!("checks/s, {letter} over {other}, {in_flight} in flight");
            Ratio::new(name, ratios(&samples[ours], &samples[side], |sample| sample.per_second), target)
        };
        rows.push(over(POOLED, 'a', &[(1, 1.7, 1.9), (64, 4.4, 5.9), (256, 6.0, 8.0)]));
        rows.push(over(MULTIPLEXED, 'b', &[(64, 1.7, 2.2)]));
        rows.push(over(INCR, 'c', &[(64, 0.55, 0.75)]));
        if in_flight == 1 {
            let p50 = ratios(&samples[ours], &samples[MULTIPLEXED], |sample| sample.p50_us);
            let target = Target::AtMost { must: 1.15, stretch: 1.0 };
            rows.push(Ratio::new(format!("p50, {letter} over b, 1 in flight"), p50, Some(target)));
        }
    }
    let functions = ratios(&samples[FUNCTIONS], &samples[STORE], |sample| sample.per_second);
    rows.push(Ratio::new(format!("checks/s, e over d, {in_flight} in flight"), functions, None));
    rows
}
