//! A service whose limits an operator changes while it serves.
//!
//! ```text
//! cargo run -p tollgate-admin --example admin                      # or: -- redis://127.0.0.1:6379 [PORT]
//! curl -i localhost:3000/ -H 'x-user: ada'                         # 200 twice, then 429
//! curl -X PUT localhost:3000/admin/overrides -H 'x-operator: me' -H 'content-type: application/json' \
//!      -d '{"policy": "plan", "key": "ada", "effect": "exempt", "for_seconds": 60}'
//! curl -i localhost:3000/ -H 'x-user: ada'                         # 200 for a minute
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
    // Who is denied most: curl localhost:3000/admin/top -H 'x-operator: me'
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
