//! A page that shows what each algorithm allows and denies:
//!
//! ```text
//! cargo run --example playground -- [--addr ADDRESS] [--redis URL]
//! ```
//!
//! The page chooses a limit and a pattern of traffic. Clients in this process then send the same requests to each
//! algorithm, over HTTP and through a `RateLimitLayer` of its own, and the page draws the responses as they arrive.

mod clients;
mod run;
mod setup;

use std::error::Error;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tollgate::{MemoryStore, RedisStore};

use crate::run::Playground;

const USAGE: &str = "usage: playground [--addr ADDRESS] [--redis URL]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut addr = "127.0.0.1:3000".to_owned();
    let mut redis = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        match (&*flag, arguments.next()) {
            ("--addr", Some(value)) => addr = value,
            ("--redis", Some(value)) => redis = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    let listener = TcpListener::bind(&addr).await?;
    let address = listener.local_addr()?;
    let app = match &redis {
        Some(url) => {
            let store = RedisStore::builder().prefix("playground").lazy().connect(url).await?;
            Playground::new(store, "Redis", address).app()
        }
        None => Playground::new(MemoryStore::new(), "memory", address).app(),
    };
    println!("open http://{address}, store: {}", if redis.is_some() { "redis" } else { "memory" });
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
