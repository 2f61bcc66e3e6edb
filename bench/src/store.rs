//! Checks through `RedisStore`, beside other ways to ask Redis.

mod algorithms;
mod policies;
pub(crate) mod sides;
mod throughput;

use std::time::Duration;

use tollgate::Quota;

use crate::effort::Effort;
use crate::server::Server;
use crate::table::Figure;

const DAY: Duration = Duration::from_secs(86_400);

/// Large enough that no key runs out, over a window so long that no key expires meanwhile.
const LIMIT: u64 = 1_000;
const QUOTA: Quota = Quota::token_bucket(LIMIT, DAY);

pub(crate) async fn run(effort: Effort) {
    let server = Server::start().await;
    let Effort { rounds, span, keys, .. } = effort;
    println!(
        "Medians of {rounds} rounds of {span:?} a side, the sides in turn; {keys} keys drawn uniformly; \
         ratios are taken round by round.\n"
    );
    throughput::run(effort, &server).await;
    policies::run(effort, &server).await;
    algorithms::run(effort, &server).await;
}

/// Checks/s of `RedisStore` over those of one multiplexed connection and `Script`, by how many are in flight.
pub(crate) async fn figures(in_flight: &[usize], effort: Effort) -> Vec<Figure> {
    if in_flight.is_empty() { Vec::new() } else { throughput::figures(in_flight, effort, &Server::start().await).await }
}
