//! Four requests to a bucket of three, on the Redis of a URL: it needs the module redis-cell.

use std::env;

use tollgate::{Error, Key, Limiter, Quota, RedisStore, Rule};
use tollgate_redis_cell::RedisCellStore;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let store = RedisCellStore::connect(RedisStore::connect(&url).await?).await?;
    let limiter = Limiter::try_new(store, [Rule::new("mail", Quota::per_minute(3))])?;
    for _ in 0..4 {
        let decision = limiter.check(&Key::new("user", "ada")).await?;
        match decision.retry_after() {
            Some(wait) => println!("denied: retry after {wait:?}"),
            None => println!("allowed: {} remaining", decision.outcomes()[0].remaining()),
        }
    }
    Ok(())
}
