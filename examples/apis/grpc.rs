//! A tonic server with limits: a call that is denied fails with `RESOURCE_EXHAUSTED`, and its metadata has the wait. The
//! quota is 2 calls a second for each API key.
//!
//! The service is that of tonic-health, which needs no protoc. Add services of your own in the same way.
//!
//! ```text
//! $ cargo run -p tollgate-apis --example grpc &
//! $ cargo run -p tollgate-apis --example grpc -- client
//! call 1 is served
//! call 2 is served
//! ResourceExhausted: rate limit exceeded; retry in 491 ms
//! call 3 is served
//! without a key: PermissionDenied: The request does not identify its client.
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tollgate::policy::MissingKey;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn limits() -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new())
        // Around a tonic server no route has matched: `key::path()` is the method.
        .policy(Policy::new("methods", Quota::per_second(1_000)).key(key::path()))
        // Needs the feature `tonic`.
        .ip(Quota::per_second(100))
        .policy(Policy::new("calls", Quota::per_second(2)).key(key::header("x-api-key")).missing_key(MissingKey::Deny))
}

pub(crate) async fn serve(listener: TcpListener) -> Result<(), Error> {
    let (_, service) = tonic_health::server::health_reporter();
    Ok(Server::builder().layer(limits()).add_service(service).serve_with_incoming(TcpIncoming::from(listener)).await?)
}

/// Calls, and after a denial waits as long as its metadata says before it calls again.
///
/// # Errors
///
/// If a call fails in another way, or no wait can help.
async fn call(
    client: &mut HealthClient<Channel>,
    api_key: Option<&'static str>,
    mut print: impl FnMut(String),
) -> Result<(), Status> {
    loop {
        let mut request = Request::new(HealthCheckRequest::default());
        if let Some(api_key) = api_key {
            request.metadata_mut().insert("x-api-key", MetadataValue::from_static(api_key));
        }
        let Err(status) = client.check(request).await else { return Ok(()) };
        // It is -1 if no wait can help.
        let wait = status.metadata().get("grpc-retry-pushback-ms").and_then(|wait| wait.to_str().ok()?.parse().ok());
        let Some(wait) = wait else { return Err(status) };
        print(format!("{:?}: {}; retry in {wait} ms", status.code(), status.message()));
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

pub(crate) async fn client(server: SocketAddr, mut print: impl FnMut(String)) -> Result<(), Error> {
    let mut client = HealthClient::new(Endpoint::try_from(format!("http://{server}"))?.connect().await?);
    for number in 1..=3 {
        call(&mut client, Some("ada"), &mut print).await?;
        print(format!("call {number} is served"));
    }
    let Err(status) = call(&mut client, None, &mut print).await else { return Err("it has no key".into()) };
    print(format!("without a key: {:?}: {}", status.code(), status.message()));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = SocketAddr::from(([127, 0, 0, 1], 3000));
    match std::env::args().nth(1).as_deref() {
        Some("client") => client(address, |line| println!("{line}")).await,
        _ => serve(TcpListener::bind(address).await?).await,
    }
}
