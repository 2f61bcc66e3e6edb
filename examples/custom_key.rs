//! A limit for each tenant, told by the first label of the host: `acme.example.com` counts as `acme`.

use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::{Router, routing::get};
use tollgate::{Key, MemoryStore, MissingKey, Policy, Quota, RateLimitLayer};

fn tenant(parts: &Parts) -> Option<Key> {
    let host = parts.headers.get(HOST)?.to_str().ok()?;
    let (tenant, _) = host.split_once('.')?;
    Some(Key::new("tenant", tenant.to_ascii_lowercase()))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let policy = Policy::new("tenant", Quota::per_minute(5)).key(tenant).missing_key(MissingKey::Deny);
    let app = Router::new().route("/", get(async || "hello\n")).layer(RateLimitLayer::new(MemoryStore::new(), policy));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("try: curl -i -H 'Host: acme.example.com' http://{}/", listener.local_addr()?);
    axum::serve(listener, app).await
}
