//! A service with all kinds of layers in their order ([`app`]), and a loop of workers with back-pressure: limits by
//! address, both load shedders, authentication, and the limits of users.
//!
//! `cargo run -p tollgate-services --example stack` counts in memory; pass the URL of a Redis server to count there. With some
//! headers left out:
//!
//! ```text
//! $ cargo run -p tollgate-services --example stack &
//! mail 1 begins after 0.0 s
//! mail 2 begins after 0.6 s
//! mail 3 begins after 1.1 s
//! mail 4 begins after 1.7 s
//! mail 5 begins after 2.2 s
//! $ curl -si -X POST -H 'Authorization: Bearer ada' localhost:3000/charges
//! HTTP/1.1 200 OK
//! ratelimit: "user";r=599;t=60, "in-progress";r=9, "global";r=4999;t=1, "address";r=99;t=2
//! access-control-allow-origin: *
//!
//! charged
//! $ curl -si localhost:3000/reports
//! HTTP/1.1 401 Unauthorized
//! ratelimit-policy: "address";q=100;w=2
//! $ curl -si localhost:3000/healthz
//! HTTP/1.1 200 OK
//!
//! ok
//! ```

mod app;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Instant;

use tollgate::store::Store;
use tollgate::{Key, Limiter, MemoryStore, Quota, RedisStore, Rule};
use tollgate_shed::BackPressureLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Sends mails, of which at most two a second may begin, and two may be in progress. The loop takes the next one only
/// when it may begin: until then it stays in the queue, where another process may take it.
async fn send_mails(store: impl Store) -> Result<(), Error> {
    let rules = [Rule::new("mail", Quota::per_second(2).burst(1)), Rule::new("mail-at-once", Quota::concurrency(2))];
    let limits = BackPressureLayer::try_new(Limiter::try_new(store, rules)?, Key::new("job", "mail"))?;
    let start = Instant::now();
    let mut service = limits.layer(service_fn(|mail: u32| async move {
        println!("mail {mail} begins after {:.1} s", start.elapsed().as_secs_f32());
        Ok::<_, Infallible>(())
    }));
    for mail in 1..=5 {
        service.ready().await?.call(mail).await?;
    }
    Ok(())
}

async fn run(store: impl Store + Clone) -> Result<(), Error> {
    let mails = send_mails(store.clone());
    tokio::spawn(async move { mails.await.unwrap_or_else(|error| println!("no more mails: {error}")) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let address = listener.local_addr()?;
    println!("try: curl -i -X POST -H 'Authorization: Bearer ada' http://{address}/charges");
    axum::serve(listener, app::app(store, app::worker()).into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt::init();
    match std::env::args().nth(1).or_else(|| std::env::var("REDIS_URL").ok()) {
        Some(url) => run(RedisStore::builder().prefix("example-stack").connect(&url).await?).await,
        None => run(MemoryStore::new()).await,
    }
}
