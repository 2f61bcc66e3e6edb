//! Three limits as one decision in Redis: a request that one of them refuses takes nothing from the
//! others. Pass the URL of the server as the first argument or in `REDIS_URL`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{Quota, RateLimitLayer, RedisStore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1).or_else(|| std::env::var("REDIS_URL").ok());
    let url = given.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // Services on one Redis have prefixes of their own, so that they do not count together.
    let store = RedisStore::builder().prefix("example-composite").connect(url).await?;
    let layer = RateLimitLayer::composite(store)
        .ip(Quota::per_minute(300))
        .user(Quota::token_bucket(5_000, Duration::from_secs(3_600)).burst(200), key::header("x-api-key"))
        .route(Quota::fixed_window(50, Duration::from_secs(1)));
    let app = Router::new().route("/", get(async || "hello\n")).layer(layer);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("try: curl -i -H 'X-Api-Key: ada' http://{}/", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
