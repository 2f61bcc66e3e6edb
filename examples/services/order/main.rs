//! Where a rate limiter belongs among the layers of a service: tracing, CORS, compression, timeouts, authentication and
//! nested routers ([`app`]). docs/order.md explains it.
//!
//! `cargo run -p tollgate-services --example order` adds the layers with `Router::layer`. With `-- builder` it does so with a
//! `ServiceBuilder`; `-- around` shows what a layer around the whole router cannot do, and `-- setting` with `LIMITS=off` how a
//! setting switches limits off. With some headers and the log left out:
//!
//! ```text
//! $ cargo run -p tollgate-services --example order &
//! $ curl -si -H 'Authorization: Bearer ada' localhost:3000/api/report
//! HTTP/1.1 200 OK
//! ratelimit-policy: "user";q=20;w=60, "address";q=30;w=60
//! ratelimit: "user";r=19;t=57, "address";r=29;t=58
//! vary: accept-encoding
//! access-control-allow-origin: *
//! $ curl -si localhost:3000/api/report
//! HTTP/1.1 401 Unauthorized
//! ratelimit-policy: "address";q=30;w=60
//! ```

mod app;

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tollgate::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();
    let store = MemoryStore::new();
    let app = match std::env::args().nth(1).as_deref() {
        None | Some("router") => app::by_router(store),
        Some("builder") => app::by_builder(store),
        Some("around") => app::around(store),
        Some("setting") => app::by_setting(store, &std::env::var("LIMITS").unwrap_or_default()),
        Some(other) => return Err(format!("{other:?} is none of router, builder, around and setting").into()),
    };
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("try: curl -i -H 'Authorization: Bearer ada' http://{}/api/report", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
