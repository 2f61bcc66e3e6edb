//! How the cost of a decision grows with its policies, on Redis.

use std::sync::Arc;

use super::IN_FLIGHT;
use super::layers::POLICIES;
use super::report::{Table, Unit};
use super::sides::{Incrs, Policies, name};
use crate::effort::Effort;
use crate::load::Entrant;
use crate::plain::{keys, texts};
use crate::server::Server;
use crate::stores::store;

const CLIENTS: usize = 10_000;

const STORE: &str = "RedisStore";
const INCR: &str = "INCR";

pub(super) async fn run(effort: Effort) -> Table {
    let effort = Effort { keys: CLIENTS, ..effort };
    let Effort { rounds, span, .. } = effort;
    let work = format!(
        "One unit of work is a decision on Redis: by `RedisStore` one of so many token buckets of one client, all of \
         which admit, and by `INCR` as many counters in one pipeline of one connection; either side reads and writes \
         as many keys, and sends nothing else for them (time over decisions, medians of {rounds} rounds of {span:?} a \
         side, interleaved; {IN_FLIGHT} in flight; {CLIENTS} clients, uniform)."
    );
    let table = Table::of("policies_redis", "policies", Unit::Microseconds, &POLICIES, work);
    let mut table = table.beside(INCR).side(STORE, Some(INCR));
    let server = Server::start().await;
    let mut rows = Vec::new();
    for policies in POLICIES {
        rows.push(sides(&server, policies).await);
    }
    for side in rows.iter().flatten() {
        side.warm(effort).await;
    }
    let held = server.size(&mut server.connection().await).await;
    assert_eq!(held, 2 * CLIENTS * POLICIES.iter().sum::<usize>(), "a key for each policy of each client");
    for round in 0..rounds {
        for (row, sides) in rows.iter().enumerate() {
            for (number, side) in sides.iter().enumerate() {
                let sample = side.measure(effort, IN_FLIGHT, round).await;
                table.note(number, row, 1e6 / sample.per_second);
            }
        }
    }
    table
}

async fn sides(server: &Server, policies: usize) -> [Entrant; 2] {
    let keys: Arc<[_]> = keys("ip", CLIENTS).into();
    let number = |policy: usize| format!("{policies:02}.{policy:02}");
    let names = (0..policies).map(|policy| name(&format!("bench.{}", number(policy)))).collect();
    let texts = (0..policies).map(|policy| {
        let policy = format!(":bench.{}:", number(policy));
        texts("incrkeys", &keys).iter().map(|text| text.replace(":bench:", &policy)).collect()
    });
    let incrs = Incrs { connection: server.connection().await, texts: texts.collect() };
    let policies = Policies { store: store(server).await, names, keys };
    [Entrant::new(INCR, incrs), Entrant::new(STORE, policies)]
}
