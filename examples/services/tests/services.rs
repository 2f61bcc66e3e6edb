//! What the examples print is what their first lines say.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tollgate::MemoryStore;

#[path = "../../../tests/support/header.rs"]
mod header;
#[path = "../hyper.rs"]
#[allow(dead_code, reason = "its server is here")]
mod hyper_alone;
#[path = "../order/app.rs"]
#[allow(dead_code, reason = "tests of its other servers are in tests/http")]
mod order;
#[path = "../stack/app.rs"]
mod stack;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Serves until the test ends.
async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listener().await;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

#[tokio::test]
async fn hyper_prints_what_its_header_says() {
    let (listener, address) = listener().await;
    tokio::spawn(hyper_alone::serve(listener));
    header::holds(include_str!("../hyper.rs"), address).await;
}

#[tokio::test]
async fn order_prints_what_its_header_says() {
    header::holds(include_str!("../order/main.rs"), serve(order::by_router(MemoryStore::new())).await).await;
}

#[tokio::test]
async fn stack_prints_what_its_header_says() {
    let app = stack::app(MemoryStore::new(), stack::worker());
    header::holds(include_str!("../stack/main.rs"), serve(app).await).await;
}
