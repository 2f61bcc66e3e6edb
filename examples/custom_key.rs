//! A limit for each tenant, identified by the first label of the host: `acme.example.com` counts as `acme`.

use axum::http::request::Parts;
use axum::{Router, routing::get};
use tollgate::key::{self, Ambiguous};
use tollgate::policy::MissingKey;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};

fn tenant(parts: &Parts) -> Result<Option<Key>, Ambiguous> {
    // The host in its normal form, whatever its case; an error if the request names two.
    let host = key::host_name(parts)?;
    Ok(host.as_deref().and_then(|host| host.split_once('.')).map(|(tenant, _)| Key::new("tenant", tenant)))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let policy = Policy::new("tenant", Quota::per_minute(5)).key(tenant).missing_key(MissingKey::Deny);
    let app = Router::new().route("/", get(async || "hello\n")).layer(RateLimitLayer::new(MemoryStore::new(), policy));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("try: curl -i -H 'Host: acme.example.com' http://{}/", listener.local_addr()?);
    axum::serve(listener, app).await
}
