//! Prints the ports of one server for each limit, and serves.

use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;

use actix_governor::governor::middleware::NoOpMiddleware;
use actix_governor::{Governor, GovernorConfigBuilder as Actix, PeerIpKeyExtractor};
use actix_web::{App, HttpServer, web};
use axum::{Router, routing::get};
use axum_governor::extractor::{Global, PeerIp};
use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota, nz};
use tokio::net::TcpListener;

/// A server behind actix-governor, and its port.
fn actix(builder: &mut Actix<PeerIpKeyExtractor, NoOpMiddleware>) -> io::Result<(u16, actix_web::dev::Server)> {
    let config = builder.finish().expect("neither is 0");
    let app = move || App::new().wrap(Governor::new(&config)).route("/", web::get().to(async || "hello"));
    let server = HttpServer::new(app).workers(1).bind("127.0.0.1:0")?;
    let port = server.addrs()[0].port();
    Ok((port, server.run()))
}

/// Serves behind axum-governor, and returns the port.
async fn axum_governor<K>(layer: GovernorLayer<K>) -> io::Result<u16>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
{
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).into_future());
    Ok(port)
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let (first, server) = actix(Actix::default().milliseconds_per_request(500).burst_size(3))?;
    let (second, other) = actix(Actix::default().requests_per_second(2).burst_size(3))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let ports = runtime.spawn(async {
        let by_peer = || GovernorConfigBuilder::default().with_extractor(PeerIp::default()).expect_connect_info();
        let quota = Quota::requests_per_second(nz!(2u32)).burst(nz!(3u32));
        let rate = by_peer().quota_default(quota).finish().expect("valid");
        let slow = by_peer().quota_default(Quota::seconds_per_request(nz!(2u32))).finish().expect("valid");
        let minute = Quota::seconds_per_request(nz!(60u32));
        let stack = by_peer().stack("all", Global, minute.burst(nz!(3u32))).stack("one", PeerIp::default(), minute);
        let stack = stack.finish().expect("valid");
        let layers = [rate, slow, stack].map(GovernorLayer::new);
        let mut ports = Vec::new();
        for layer in layers {
            ports.push(axum_governor(layer).await?);
        }
        Ok::<_, io::Error>(ports)
    });
    let ports = ports.await.expect("it does not panic")?;
    println!("{first} {second} {} {} {}", ports[0], ports[1], ports[2]);
    let (first, second) = tokio::join!(server, other);
    first.and(second)
}
