//! The same spellings on sockets, by HTTP/1.1 and HTTP/2, and through nginx: an application behind a layer of
//! one request an hour serves no client twice.

mod http1;
mod http2;
mod server;

use tokio::runtime::Runtime;

use self::server::Server;
use crate::one_client::check::{Choices, Spelling};
use crate::one_client::random::{bytes, number, seed};
use crate::support::nginx::Nginx;
use crate::support::slow::many;

/// Requests of a kind over each protocol, to each server.
const REQUESTS: [usize; 2] = [60, 400];

/// Requests of every kind, each to some application with a key that fits it.
fn requests(seed: u64) -> impl Iterator<Item = (Spelling, usize)> {
    Server::kinds().flat_map(move |(kind, variants)| {
        (0..number("SOCKET_REQUESTS", many(REQUESTS))).map(move |number| {
            let bytes = bytes(seed, number);
            let (first, rest) = bytes.split_at(1);
            ((kind.spell)(&mut Choices::new(rest)), variants.start + Choices::new(first).below(variants.len()))
        })
    })
}

#[track_caller]
fn row(name: &str, port: impl FnOnce(&Server) -> u16, is_http2: bool) {
    let (runtime, seed) = (Runtime::new().expect("a runtime"), seed());
    let server = runtime.block_on(Server::start());
    let port = port(&server);
    let (mut admitted, mut refused, mut all) = (0, 0, 0);
    runtime.block_on(async {
        let mut client = http2::Client::new(port);
        for (spelling, variant) in requests(seed) {
            let status = if is_http2 {
                client.send(&spelling, variant).await
            } else {
                http1::send(port, &spelling, variant).await
            };
            all += 1;
            admitted += usize::from(status == Some(200));
            refused += usize::from(status == Some(429));
            server.check(|| format!("SEED={seed}, {name}: {spelling:?}"));
        }
    });
    println!("{name}: of {all} requests {admitted} were served, {refused} were refused (SEED={seed})");
    assert!(admitted > 50 && refused * 6 > admitted + refused, "too little was found out");
}

#[test]
fn no_client_is_served_twice_over_http1() {
    row("HTTP/1.1", |server| server.port, false);
}

#[test]
fn no_client_is_served_twice_over_http2() {
    row("HTTP/2", |server| server.port, true);
}

#[test]
fn no_client_is_served_twice_behind_nginx() {
    for (name, is_http2, normalizes) in [
        ("HTTP/1.1 to nginx", false, false),
        ("HTTP/2 to nginx", true, false),
        ("HTTP/1.1 to nginx, which normalizes", false, true),
        ("HTTP/2 to nginx, which normalizes", true, true),
    ] {
        let mut running = None;
        let port = |server: &Server| running.insert(Nginx::start(server.port)).port(is_http2, normalizes);
        row(name, port, is_http2);
    }
}
