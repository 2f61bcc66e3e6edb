//! One policy, few and many requests in flight.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::cmd;

use super::sides::{Incr, Multiplexed, Pooled, Stored};
use super::{DAY, LIMIT, QUOTA};
use crate::effort::Effort;
use crate::load::{Entrant, Sample, interleave, ratios, typical};
use crate::plain::{Plain, keys, texts};
use crate::server::{Server, pool};
use crate::stores::{store, store_of_functions};
use crate::table::{Figure, print, print_figures};

const IN_FLIGHT: [usize; 5] = [1, 4, 16, 64, 256];

const POOLED: usize = 0;
const MULTIPLEXED: usize = 1;
const INCR: usize = 2;
const STORE: usize = 3;
const FUNCTIONS: usize = 4;

/// What a check is, by any of the sides.
const CALLS: [&str; 4] = ["evalsha", "eval", "fcall", "incr"];

/// Keys that each side checks before it is measured.
const TESTED: usize = 64;

/// Prints all.
pub(super) async fn run(effort: Effort, server: &Server) {
    let entrants = entrants(effort, server).await;
    start(effort, server, &entrants).await;
    let mut ratios = Vec::new();
    for in_flight in IN_FLIGHT {
        let samples = interleave(effort, in_flight, &entrants).await;
        println!("One policy (token bucket), {in_flight} in flight:\n");
        print_samples(&entrants, &samples);
        ratios.extend(ratios_of(in_flight, &samples));
    }
    println!("Ratios:\n");
    print_figures(&ratios);
}

pub(super) async fn figures(in_flight: &[usize], effort: Effort, server: &Server) -> Vec<Figure> {
    let [_, multiplexed, _, store, _] = entrants(effort, server).await;
    let entrants = [multiplexed, store];
    start(effort, server, &entrants).await;
    let mut figures = Vec::new();
    for in_flight in in_flight {
        eprintln!("checks through RedisStore, {in_flight} in flight");
        let [multiplexed, store] = &interleave(effort, *in_flight, &entrants).await[..] else { unreachable!() };
        let processor = ratios(store, multiplexed, |sample| sample.cpu_us);
        let rounds = ratios(store, multiplexed, |sample| sample.per_second);
        figures.push(Figure { rounds, processor, ..Figure::default() });
    }
    figures
}

/// Lets every side check all keys, after it was seen that a check is one call, and a key in Redis as long as that of the
/// other sides.
async fn start(effort: Effort, server: &Server, entrants: &[Entrant]) {
    let (mut connection, mut first) = (server.connection().await, None);
    for entrant in entrants {
        // The first call may load a script.
        entrant.walk(1, 1).await;
        let before = names(&mut connection).await;
        server.reset_stats(&mut connection).await;
        entrant.walk(TESTED, 1).await;
        let (calls, _) = server.command_stats(&mut connection, &CALLS).await;
        let added: Vec<_> = names(&mut connection).await.difference(&before).map(String::len).collect();
        let work = (calls, added.len(), added.iter().sum::<usize>());
        let expected = first.get_or_insert((TESTED as f64, TESTED - 1, work.2));
        assert!(
            work == *expected,
            "{} does other work: calls, keys and their bytes are {work:?}, not {expected:?}",
            entrant.name
        );
        entrant.warm(effort).await;
    }
}

/// Of all keys.
async fn names(connection: &mut MultiplexedConnection) -> HashSet<String> {
    cmd("KEYS").arg("*").query_async(connection).await.expect("KEYS answers")
}

async fn entrants(effort: Effort, server: &Server) -> [Entrant; 5] {
    let keys: Arc<[_]> = keys("ip", effort.keys).into();
    let plain = Plain::new(LIMIT, DAY);
    let pooled = Pooled { pool: pool(server.url()), plain: plain.clone(), texts: texts("poolkeys", &keys).into() };
    let connection = server.connection().await;
    let multiplexed = Multiplexed { connection, plain, texts: texts("gcrakeys", &keys).into() };
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

fn ratios_of(in_flight: usize, samples: &[Vec<Sample>]) -> Vec<Figure> {
    let mut rows = Vec::new();
    for (ours, letter) in [(STORE, 'd'), (FUNCTIONS, 'e')] {
        let mut over = |side: usize, other: char| {
            let name = format!("checks/s, {letter} over {other}, {in_flight} in flight");
            rows.push(Figure::new(name, ratios(&samples[ours], &samples[side], |sample| sample.per_second), None));
        };
        over(POOLED, 'a');
        over(MULTIPLEXED, 'b');
        over(INCR, 'c');
        if in_flight == 1 {
            let p50 = ratios(&samples[ours], &samples[MULTIPLEXED], |sample| sample.p50_us);
            rows.push(Figure::new(format!("p50, {letter} over b, 1 in flight"), p50, None));
        }
    }
    let functions = ratios(&samples[FUNCTIONS], &samples[STORE], |sample| sample.per_second);
    rows.push(Figure::new(format!("checks/s, e over d, {in_flight} in flight"), functions, None));
    rows
}
