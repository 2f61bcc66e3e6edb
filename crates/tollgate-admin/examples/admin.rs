//! A service whose limits an operator changes while it serves.
//!
//! With some headers left out:
//!
//! ```text
//! $ cargo run -p tollgate-admin --example admin &    # or: -- redis://127.0.0.1:6379 [PORT]
//! listening on http://127.0.0.1:3000
//! $ curl -so /dev/null 'localhost:3000/?[1-2]' -H 'x-user: ada'; curl -si localhost:3000 -H 'x-user: ada'
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 30
//! ratelimit: "plan";r=0;t=30
//! $ curl -s -X PUT localhost:3000/admin/overrides -H 'x-operator: me' -H 'content-type: application/json' \
//!     -d '{"policy": "plan", "key": "ada", "effect": "exempt", "for_seconds": 60}'
//! [{"policy":"plan","key":"header x-user:ada","effect":"exempt","until_ms":1795841113949}]
//! $ curl -si localhost:3000 -H 'x-user: ada'
//! HTTP/1.1 200 OK
//!
//! hello
//! $ curl -s localhost:3000/admin/top -H 'x-operator: me'
//! [{"policy":"plan","key":"header x-user:ada","requests":3,"denied":1}]
//! ```

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_admin::{Admin, Top};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Policy::new("plan", Quota::per_minute(2)).key(key::header("x-user").plain());
    let (layer, admin) = match std::env::args().nth(1) {
        Some(url) => {
            let store = RedisStore::connect(&url).await?;
            (RateLimitLayer::new(store.clone(), plan), Admin::redis(store))
        }
        None => (RateLimitLayer::new(MemoryStore::new(), plan), Admin::local()),
    };
    // Who is denied most.
    let top = Top::new();
    let live = layer.on_decision(top.observer()).live();
    let admin = admin.layer("api", live.clone()).top(top);
    admin.start();
    // Behind a real guard, such as a token, and not on the port that clients reach.
    let is_operator = |parts: &http::request::Parts| parts.headers.contains_key("x-operator");
    let app = Router::new().route("/", get(async || "hello\n")).layer(live).nest("/admin", admin.router(is_operator));
    let port = std::env::args().nth(2).map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
