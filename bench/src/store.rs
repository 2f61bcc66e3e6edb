//! Checks through `RedisStore`, beside other ways to ask Redis.

mod algorithms;
mod policies;
pub(crate) mod sides;
mod throughput;

use std::time::Duration;

use tollgate::Quota;
use tollgate::deadpool_redis::{Manager, Pool, Runtime};

use crate::effort::Effort;
use crate::server::{Server, patient};
use crate::table::Figure;

const DAY: Duration = Duration::from_secs(86_400);

/// Large enough that no key runs out, over a window so long that no key expires meanwhile.
const LIMIT: u64 = 1_000;
const QUOTA: Quota = Quota::token_bucket(LIMIT, DAY);

/// Connections of the pool.
const POOL_SIZE: usize = 16;

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

/// What has a target.
pub(crate) async fn figures(effort: Effort) -> Vec<Figure> {
    throughput::run(effort, &Server::start().await).await
}

fn pool(server: &Server) -> Pool {
    let manager = Manager::new_with_config(server.url(), patient()).expect("a URL");
    Pool::builder(manager).max_size(POOL_SIZE).runtime(Runtime::Tokio1).build().expect("a pool")
}
