//! What requests wait when another request stalls: the same server with the same neighbour, over
//! `MemoryStore` and over `RedisStore`, in turn.
//!
//! The server has a runtime of four workers. Sixteen clients, tasks of the same runtime, ask one after
//! the other for what is limited and served at once, or 4,000 times a second with `--paced`; one more,
//! on a thread of its own, asks for what stalls, again and again. A request that the store could not
//! decide is answered with 503, and counts as failed. Percentiles are medians over the rounds.

mod app;
mod client;
mod round;

use std::time::Duration;

use tollgate::{MemoryStore, RedisStore};

use crate::server::Server;
use crate::table::{Figure, Target, median_of, print, print_figures};
use app::{App, NEIGHBOURS, Neighbour};
use round::{Load, Round};

/// A round and what comes with it: how long each side runs, and how often.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    span: Duration,
    load: Load,
}

const FULL: Plan = Plan { rounds: 7, span: Duration::from_secs(2), load: Load::Full };

/// What a neighbour, and what `RedisStore`, may add to the longest waits.
const TARGET: Target = Target::AtMost { must: 1.5, stretch: 1.0 };

/// A store by name, and the server over it.
struct Side {
    name: &'static str,
    app: App,
}

pub(crate) async fn run(flags: &[String]) {
    let (mut plan, mut redis_only) = (FULL, false);
    for flag in flags {
        match flag.as_str() {
            "--quick" => (plan.rounds, plan.span) = (3, Duration::from_millis(700)),
            "--paced" => plan.load = Load::Paced,
            "--redis" => redis_only = true,
            _ => crate::usage(),
        }
    }
    let redis = Server::start().await;
    let sides = sides(&redis, redis_only).await;
    println!("{} rounds of {:?} a side, the sides in turn; times in µs.\n", plan.rounds, plan.span);
    let measured = measure(&sides, plan).await;
    let mut rows = Vec::new();
    for (neighbour, of_sides) in NEIGHBOURS.into_iter().zip(&measured) {
        rows.extend(sides.iter().zip(of_sides).map(|(side, rounds)| row(neighbour, side, rounds)));
    }
    let ratios = ratios(&measured);
    print(&["neighbour", "store", "requests", "failed", "breaker opened", "p50", "p99", "p99.9"], &rows);
    print_figures(&ratios);
    for side in sides {
        side.app.stop();
    }
}

async fn sides(redis: &Server, redis_only: bool) -> Vec<Side> {
    let url = redis.url().to_owned();
    let store = async move || RedisStore::connect(&url).await.expect("connected");
    let mut sides = Vec::new();
    if !redis_only {
        sides.push(Side { name: "MemoryStore", app: App::start(async || MemoryStore::new()).await });
    }
    sides.push(Side { name: "RedisStore", app: App::start(store).await });
    sides
}

/// The rounds of each side beside each neighbour; all take turns.
async fn measure(sides: &[Side], plan: Plan) -> Vec<Vec<Vec<Round>>> {
    let mut measured = vec![vec![Vec::new(); sides.len()]; NEIGHBOURS.len()];
    for _ in 0..plan.rounds {
        for (neighbour, of_sides) in NEIGHBOURS.into_iter().zip(&mut measured) {
            for (side, rounds) in sides.iter().zip(of_sides) {
                rounds.push(Round::run(&side.app, neighbour, plan.load, plan.span).await);
            }
        }
    }
    measured
}

/// What a neighbour adds to the longest waits on Redis, and what Redis adds beside each neighbour.
fn ratios(measured: &[Vec<Vec<Round>>]) -> Vec<Figure> {
    let over = |these: &[Round], those: &[Round]| -> Vec<f64> {
        these.iter().zip(those).map(|(this, that)| this.p999_us / that.p999_us).collect()
    };
    let mut ratios = Vec::new();
    for (neighbour, of_sides) in NEIGHBOURS.iter().zip(measured) {
        let redis = of_sides.last().expect("Redis is always measured");
        if !neighbour.path.is_empty() {
            let alone = measured[0].last().expect("Redis is always measured");
            let name = format!("p99.9 on Redis, beside it over beside nobody: {}", neighbour.name);
            ratios.push(Figure::new(name, over(redis, alone), Some(TARGET)));
        }
        if let [memory, redis] = &of_sides[..] {
            let name = format!("p99.9, Redis over memory: {}", neighbour.name);
            ratios.push(Figure::new(name, over(redis, memory), Some(TARGET)));
        }
    }
    ratios
}

fn row(neighbour: Neighbour, side: &Side, rounds: &[Round]) -> Vec<String> {
    let sum = |figure: fn(&Round) -> usize| rounds.iter().map(figure).sum::<usize>().to_string();
    let typical = |figure: fn(&Round) -> f64| format!("{:.0}", median_of(rounds.iter().map(figure)));
    vec![
        neighbour.name.to_owned(),
        side.name.to_owned(),
        sum(|round| round.requests),
        sum(|round| round.failed),
        sum(|round| round.opened),
        typical(|round| round.p50_us),
        typical(|round| round.p99_us),
        typical(|round| round.p999_us),
    ]
}
