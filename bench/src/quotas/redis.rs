//! Calls, time and bytes of a request on Redis.

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;

use super::{Requests, kinds};
use crate::effort::Effort;
use crate::load::{Entrant, Keys, Side, interleave, ratios};
use crate::server::{SCRIPTS, Server};
use crate::stores::store;
use crate::table::{median, print};

/// The numbers of requests in flight.
const IN_FLIGHT: [usize; 2] = [1, 64];

impl Side for Requests {
    async fn check(&self, keys: Keys) {
        self.one(keys[0]).await;
    }
}

pub(super) async fn run(effort: Effort) {
    let Effort { rounds, span, keys, .. } = effort;
    let server = Server::start().await;
    let mut connection = server.connection().await;
    println!(
        "The same on Redis ({keys} keys; ratios are medians of {rounds} rounds of {span:?} a side, the sides in turn; \
         calls are those of scripts, for a request of one round; bytes are of `used_memory`, one request begun for \
         each key):\n"
    );
    let mut entrants = Vec::new();
    for (name, rule) in kinds() {
        entrants.push(Entrant::new(name, Requests::new(store(&server).await, rule, keys)));
    }
    for entrant in &entrants {
        entrant.warm(effort).await;
    }
    let mut rows: Vec<Vec<String>> = entrants.iter().map(|entrant| vec![entrant.name.clone()]).collect();
    for in_flight in IN_FLIGHT {
        let samples = interleave(effort, in_flight, &entrants).await;
        for ((entrant, of_side), row) in entrants.iter().zip(&samples).zip(&mut rows) {
            let ratio = median(ratios(of_side, &samples[0], |sample| 1.0 / sample.per_second));
            let calls = calls(effort, in_flight, &server, &mut connection, entrant).await;
            row.extend([format!("{calls:.2}"), format!("{ratio:.2}")]);
        }
    }
    for ((_, rule), row) in kinds().into_iter().zip(&mut rows) {
        server.flush(&mut connection).await;
        let before = server.used_memory(&mut connection).await;
        let requests = Requests::new(store(&server).await, rule, keys);
        let mut slots = Vec::with_capacity(keys);
        for key in requests.keys.iter() {
            slots.push(requests.limiter.acquire(key).await.expect("the key is valid"));
        }
        let bytes = (server.used_memory(&mut connection).await - before) / keys as f64;
        row.push(format!("{bytes:.0}"));
    }
    let header = [
        "quota",
        "calls a request, 1 in flight",
        "time over the token bucket",
        "calls a request, 64 in flight",
        "time over the token bucket",
        "bytes a key",
    ];
    print(&header, &rows);
}

/// Calls of scripts for a request, in one round.
async fn calls(
    effort: Effort,
    in_flight: usize,
    server: &Server,
    connection: &mut MultiplexedConnection,
    entrant: &Entrant,
) -> f64 {
    server.reset_stats(connection).await;
    let requests = entrant.measure(effort, in_flight, effort.rounds).await.count as f64;
    server.command_stats(connection, &SCRIPTS).await.0 / requests
}
