//! A reqwest client that obeys a server with a limit, and one that is paced so that it is never denied.
//!
//! `cargo run -p tollgate-client --example obey` starts a server that allows 3 requests per second, sends 6 with each
//! client, and prints what each client saw, and what the server did:
//!
//! ```text
//! RetryLayer:
//!   0.0 s: response 1 is 200 OK
//!   0.0 s: response 2 is 200 OK
//!   0.0 s: response 3 is 200 OK
//!          the server denies a request: retry-after: 1
//!   1.1 s: response 4 is 200 OK
//!   1.1 s: response 5 is 200 OK
//!   1.1 s: response 6 is 200 OK
//! RetryLayer around PaceLayer:
//!   0.0 s: response 1 is 200 OK
//!   0.5 s: response 2 is 200 OK
//!   1.0 s: response 3 is 200 OK
//!   1.5 s: response 4 is 200 OK
//!   2.0 s: response 5 is 200 OK
//!   2.5 s: response 6 is 200 OK
//! ```

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::Request as Incoming;
use axum::middleware::{Next, from_fn};
use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_client::{PaceLayer, RetryLayer};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let address = serve().await?;
    let reqwest = ServiceBuilder::new()
        .map_response(Response::from)
        .filter(|request: Request<Bytes>| reqwest::Request::try_from(request))
        .service(reqwest::Client::new());

    println!("RetryLayer:");
    send(ServiceBuilder::new().layer(RetryLayer::new()).service(reqwest.clone()), address).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    println!("RetryLayer around PaceLayer:");
    send(ServiceBuilder::new().layer(RetryLayer::new()).layer(PaceLayer::new()).service(reqwest), address).await
}

async fn send<S>(mut client: S, address: SocketAddr) -> Result<(), BoxError>
where
    S: Service<Request<Bytes>, Response = Response<reqwest::Body>, Error = BoxError>,
{
    let start = Instant::now();
    for number in 1..=6 {
        let request = Request::get(format!("http://{address}/")).body(Bytes::new())?;
        let response = client.ready().await?.call(request).await?;
        println!("  {:.1} s: response {number} is {}", start.elapsed().as_secs_f64(), response.status());
    }
    Ok(())
}

/// Starts a server that prints its denials.
async fn serve() -> Result<SocketAddr, BoxError> {
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_second(3)));
    let print = from_fn(|request: Incoming, next: Next| async {
        let response = next.run(request).await;
        if response.status() == 429 {
            let wait = response.headers()["retry-after"].to_str().unwrap_or_default().to_owned();
            println!("         the server denies a request: retry-after: {wait}");
        }
        response
    });
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits).layer(print);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}
