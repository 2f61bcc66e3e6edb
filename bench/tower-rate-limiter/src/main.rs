//! Serves one side of the benchmark `http`: takes the URL of a Redis, prints a port, and ends with
//! standard input. With `layer` instead of a URL it is one side of the benchmark `memory`.

mod layer;

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::Request;
use tower_rate_limiter::{KeyExtractor, RateLimitError, RateLimitLayer, RedisStore};

#[derive(Clone, Copy)]
struct ApiKey;

impl KeyExtractor for ApiKey {
    type Key = String;

    fn extract<B>(&self, request: &Request<B>) -> Result<String, RateLimitError> {
        let value = request.headers().get("x-api-key").and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or_else(|| RateLimitError::Key("missing".to_owned(), "no key".to_owned()))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = std::env::args().nth(1).expect("the URL of a Redis");
    if url == "layer" {
        return layer::run();
    }
    let client = redis::Client::open(url).expect("a URL");
    let store = RedisStore::new(client.get_multiplexed_async_connection().await.expect("connected"));
    let layer = RateLimitLayer::builder(ApiKey)
        .policy_name("api")
        .limit(1_000_000)
        .window(Duration::from_secs(3_600))
        .with_key_encoder(ToString::to_string)
        .with_store(store)
        .build()
        .expect("a limit");
    let router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("bound").port());
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    axum::serve(listener, router).await.expect("serves");
}
