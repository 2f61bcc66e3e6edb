//! What a decision costs in PostgreSQL beside Redis, on one machine:
//!
//! ```text
//! cargo run --release -p tollgate-postgres --example bench -- POSTGRES_URL REDIS_URL [SECONDS]
//! ```
//!
//! It prints the tables of docs/benchmarks.md. All requests are admitted. The database gets the schemas `bench_logged`
//! and `bench_unlogged`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, Quota, RedisStore};
use tollgate_sql::BackendStore;
use tollgate_sql::postgres::Postgres;

type BoxError = Box<dyn Error + Send + Sync>;

const ROUNDS: usize = 5;
const QUOTA: Quota = Quota::token_bucket(1_000_000, Duration::from_secs(3_600));
const BUDGET: Duration = Duration::from_secs(2);

/// A way to decide, and its name.
type Side = (&'static str, Arc<dyn Store>);

/// The figures of one round.
struct Figures {
    per_second: f64,
    p50: u32,
    p99: u32,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(postgres), Some(redis)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bench POSTGRES_URL REDIS_URL [SECONDS]".into());
    };
    let round = Duration::from_secs_f64(arguments.next().map_or(Ok(2.0), |seconds| seconds.parse())?);
    let sides: [Side; 4] = [
        ("Redis", Arc::new(RedisStore::builder().timeout(BUDGET).connect(&redis).await?)),
        ("PostgreSQL", Arc::new(store(&postgres, "logged", "").await?)),
        ("`synchronous_commit=off`", Arc::new(store(&postgres, "logged", "%20-c%20synchronous_commit%3Doff").await?)),
        ("`UNLOGGED`", Arc::new(store(&postgres, "unlogged", "").await?)),
    ];
    let run = fastrand::u32(..);
    println!("Medians of {ROUNDS} rounds of {round:?} a side, the sides in turn.\n");
    println!("| tasks | keys | store | decisions/s | p50 µs | p99 µs |\n| --- | --- | --- | --- | --- | --- |");
    for (tasks, keys) in [(1, 1), (1, 10_000), (64, 1), (64, 10_000)] {
        let mut rounds: [Vec<Figures>; 4] = Default::default();
        for number in 0..ROUNDS {
            // A single key is another one in each round, so that no quota is used up.
            let prefix = format!("{run}-{}", if keys == 1 { number } else { ROUNDS });
            for ((_, store), figures) in sides.iter().zip(&mut rounds) {
                figures.push(measure(store, tasks, (&prefix, keys), round).await?);
            }
        }
        for ((name, _), figures) in sides.iter().zip(rounds) {
            let [per_second, p50, p99] = medians(&figures);
            println!("| {tasks} | {keys} | {name} | {per_second:.0} | {p50:.0} | {p99:.0} |");
        }
    }
    Ok(())
}

/// A store in a schema of its own.
async fn store(url: &str, kind: &str, options: &str) -> Result<BackendStore<Postgres>, BoxError> {
    let mark = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{mark}options=-c%20search_path%3Dbench_{kind}{options}");
    let postgres = Postgres::builder(&url).timeout(BUDGET).connect_lazy()?;
    let client = postgres.pool().get().await?;
    client.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS bench_{kind}")).await?;
    drop(client);
    if kind == "unlogged" {
        postgres.migrate_unlogged().await?;
    } else {
        postgres.migrate().await?;
    }
    Ok(postgres.store()?)
}

/// Decides for so long, by so many tasks, on so many keys with this prefix.
async fn measure(
    store: &Arc<dyn Store>,
    tasks: usize,
    keys: (&str, usize),
    round: Duration,
) -> Result<Figures, BoxError> {
    let start = Instant::now();
    let running = (0..tasks).map(|_| tokio::spawn(task(Arc::clone(store), keys.0.to_owned(), keys.1, start + round)));
    let mut micros = Vec::new();
    for times in join_all(running).await {
        micros.extend(times??);
    }
    let took = start.elapsed();
    micros.sort_unstable();
    let quantile = |percent: usize| micros[(micros.len() - 1) * percent / 100];
    let count = u32::try_from(micros.len())?;
    Ok(Figures { per_second: f64::from(count) / took.as_secs_f64(), p50: quantile(50), p99: quantile(99) })
}

/// Decides one after the other; returns how many microseconds each took.
async fn task(store: Arc<dyn Store>, prefix: String, keys: usize, end: Instant) -> Result<Vec<u32>, tollgate::Error> {
    let policy = PolicyName::try_from("bench")?;
    let mut micros = Vec::new();
    while Instant::now() < end {
        let key = Key::new("user", format!("{prefix}-{}", fastrand::usize(..keys)));
        let check = [Check::new(Counter::new(policy.clone(), key, QUOTA), 1)];
        let start = Instant::now();
        let decided = store.decide(&check, Ask::default()).wait().await?;
        micros.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
        if !decided.decision.is_allowed() {
            return Err(tollgate::Error::invalid("a key of the benchmark is used up: use fewer seconds"));
        }
    }
    Ok(micros)
}

fn medians(rounds: &[Figures]) -> [f64; 3] {
    let facts: [fn(&Figures) -> f64; 3] =
        [|figures| figures.per_second, |figures| figures.p50.into(), |figures| figures.p99.into()];
    facts.map(|fact| {
        let mut values: Vec<f64> = rounds.iter().map(fact).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    })
}
