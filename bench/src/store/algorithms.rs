//! Every algorithm, allowed and denied.

use std::sync::Arc;

use tollgate::{Key, Quota, RedisStore};

use super::sides::{Incr, Stored};
use super::{DAY, LIMIT};
use crate::effort::Effort;
use crate::load::{Entrant, interleave, ratios, typical};
use crate::plain::{keys, texts};
use crate::server::Server;
use crate::stores::{store, store_without_deny_cache};
use crate::table::{median, print};

const IN_FLIGHT: usize = 64;

/// Keys that are refused, and the limit that was taken from each.
const HOT: usize = 100;
const HOT_LIMIT: u64 = 100;

pub(super) async fn run(effort: Effort, server: &Server) {
    let entrants = entrants(effort, server).await;
    for entrant in &entrants {
        entrant.warm(effort).await;
    }
    let samples = interleave(effort, IN_FLIGHT, &entrants).await;
    println!("Every algorithm, {IN_FLIGHT} in flight; denied: {HOT} keys that have nothing left:\n");
    let row = |(entrant, of_side): (&Entrant, &Vec<_>)| {
        let ratio = median(ratios(of_side, &samples[0], |sample| sample.per_second));
        let (speed, p50) = (typical(of_side, |sample| sample.per_second), typical(of_side, |sample| sample.p50_us));
        vec![entrant.name.clone(), format!("{speed:.0}"), format!("{p50:.0}"), format!("{ratio:.2}")]
    };
    let rows: Vec<_> = entrants.iter().zip(&samples).map(row).collect();
    print(&["side", "checks/s", "p50 µs", "over c"], &rows);
}

async fn entrants(effort: Effort, server: &Server) -> Vec<Entrant> {
    let all: Arc<[Key]> = keys("ip", effort.keys).into();
    let hot: Arc<[Key]> = keys("ip", HOT).into();
    let incr = Incr { connection: server.connection().await, texts: texts("incrkeys", &all).into() };
    let mut entrants = vec![Entrant::new("c: pipelined `INCR`", incr)];
    let (store, asking) = (store(server).await, store_without_deny_cache(server).await);
    for (name, quota) in quotas(LIMIT) {
        entrants.push(Entrant::new(format!("{name}, allowed"), side(&store, &all, quota, true)));
    }
    for (name, quota) in quotas(HOT_LIMIT) {
        let denied = side(&asking, &hot, quota, false);
        denied.exhaust(HOT_LIMIT).await;
        entrants.push(Entrant::new(format!("{name}, denied"), denied));
    }
    entrants
}

fn side(store: &RedisStore, keys: &Arc<[Key]>, quota: Quota, allowed: bool) -> Stored {
    let policy = if allowed { "bench" } else { "empty" };
    Stored {
        store: store.clone(),
        keys: Arc::clone(keys),
        quota,
        policy: policy.try_into().expect("a valid name"),
        allowed,
    }
}

fn quotas(limit: u64) -> [(&'static str, Quota); 5] {
    [
        ("fixed window", Quota::fixed_window(limit, DAY)),
        ("sliding log", Quota::sliding_log(limit, DAY)),
        ("sliding window", Quota::sliding_window(limit, DAY)),
        ("token bucket", Quota::token_bucket(limit, DAY)),
        ("leaky bucket", Quota::leaky_bucket(limit, DAY).queue(limit - 1)),
    ]
}
