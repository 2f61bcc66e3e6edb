//! Hosts that are written in another way, on real sockets where the version of HTTP matters.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::HeaderMap;
use http::header::HOST;
use tollgate::policy::MissingKey;
use tollgate::{Policy, key};

use super::rig::{ONE, app, expect, get, layer, list, with};

fn by_host() -> Policy {
    Policy::new("host", ONE).key(key::host())
}

/// An app on a socket that says the first `Host` it sees, until the test ends.
async fn served(policy: Policy) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = |headers: HeaderMap| async move { format!("host {:?}", headers.get(HOST)) };
    let app = Router::new().fallback(any(seen)).layer(layer(policy));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The response to bytes.
async fn send(server: SocketAddr, head: &str) -> String {
    let head = format!("{}\r\nConnection: close\r\n\r\n", head.replace('\n', "\r\n"));
    let exchange = move || {
        let mut stream = TcpStream::connect(server).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("a response");
        String::from_utf8(response).expect("text")
    };
    tokio::task::spawn_blocking(exchange).await.expect("it does not panic")
}

#[track_caller]
fn check(response: &str, status: u16) {
    assert!(
        response.starts_with(&format!("HTTP/1.1 {status} ")) || response.starts_with(&format!("HTTP/1.0 {status} ")),
        "{response}"
    );
}

#[tokio::test]
async fn a_made_up_host_in_the_request_line_starts_no_counter_of_its_own() {
    let server = served(by_host()).await;
    let first = send(server, "GET http://junk1/ HTTP/1.1\nHost: acme").await;
    check(&first, 200);
    assert!(
        first.contains("host Some(\"acme\")"),
        "the application reads another host than the request line's: {first}"
    );
    check(&send(server, "GET http://junk2/ HTTP/1.1\nHost: acme").await, 429);
    check(&send(server, "GET http://junk3/ HTTP/1.1\nHost: acme").await, 429);
}

#[tokio::test]
async fn a_host_in_the_request_line_that_is_the_same_is_no_other() {
    let server = served(by_host()).await;
    check(&send(server, "GET / HTTP/1.1\nHost: acme").await, 200);
    check(&send(server, "GET http://ACME.:80/ HTTP/1.1\nHost: acme").await, 429);
}

#[tokio::test]
async fn two_hosts_are_not_without_limit() {
    let server = served(by_host()).await;
    check(&send(server, "GET / HTTP/1.1\nHost: acme\nHost: junk1").await, 200);
    check(&send(server, "GET / HTTP/1.1\nHost: acme\nHost: junk2").await, 429);
    check(&send(server, "GET / HTTP/1.1\nHost: acme\nHost: ACME").await, 200);
    check(&send(server, "GET / HTTP/1.1\nHost: acme").await, 429);
}

#[tokio::test]
async fn a_host_that_is_malformed_is_not_without_limit() {
    for hosts in [
        ["acme:8x", "acme:9x"],
        ["acme..", "acme..."],
        ["a@acme", "b@acme"],
        ["ac%6de", "ac%6De"],
        ["", ":80"],
        ["127.1", "0x7f.1"],
    ] {
        let server = served(by_host()).await;
        check(&send(server, &format!("GET / HTTP/1.1\nHost: {}", hosts[0])).await, 200);
        check(&send(server, &format!("GET / HTTP/1.1\nHost: {}", hosts[1])).await, 429);
    }
}

#[tokio::test]
async fn a_request_without_any_host_has_no_key() {
    let server = served(by_host().missing_key(MissingKey::Deny)).await;
    check(&send(server, "GET / HTTP/1.0").await, 403);
}

#[test]
fn a_host_in_another_spelling_is_the_same_host() {
    for (one, other) in
        [("acme", "ACME"), ("acme", "acme."), ("acme:80", "acme:8080"), ("[2001:db8::1]", "[2001:DB8:0::1]:443")]
    {
        let app = app(by_host());
        expect(&app, with(get("/"), "host", one), 200);
        expect(&app, with(get("/"), "host", other), 429);
    }
}

#[test]
fn an_authority_and_a_host_that_differ_are_refused_where_a_key_is_needed() {
    let app = app(by_host().missing_key(MissingKey::Deny));
    expect(&app, with(get("https://acme/"), "host", "other"), 400);
    expect(&app, with(get("https://acme/"), "host", "acme:443"), 200);
    expect(&app, get("https://acme/"), 429);
}

#[test]
fn a_denied_host_is_refused_wherever_and_however_it_is_written() {
    let app = app(by_host().deny(list(["acme"])));
    for host in ["acme", "ACME.:80"] {
        expect(&app, with(get("/"), "host", host), 403);
    }
    for host in ["acme", "ACME.:80", "acme..", "a@acme", "acme:8x", "ac%6De"] {
        expect(&app, with(with(get("/"), "host", "other"), "host", host), 400);
        expect(&app, with(get("http://other/"), "host", host), 400);
    }
    expect(&app, with(get("http://acme/"), "host", "other"), 400);
    expect(&app, with(get("/"), "host", "other"), 200);
}

#[test]
fn an_allowed_host_cannot_be_claimed_beside_another_one() {
    let app = app(by_host().allow(list(["status"])));
    expect(&app, with(get("http://status/"), "host", "acme"), 200);
    expect(&app, with(get("http://status/"), "host", "acme"), 429);
    expect(&app, with(get("/"), "host", "status"), 200);
    expect(&app, with(get("/"), "host", "status"), 200);
}

#[test]
fn a_pair_with_an_uncertain_host_starts_no_counter_of_its_own() {
    let app = app(Policy::new("pair", ONE).key((key::host(), key::method())));
    expect(&app, with(get("http://junk1/"), "host", "acme"), 200);
    expect(&app, with(get("http://junk2/"), "host", "acme"), 429);
}

#[test]
fn a_denied_host_is_not_reached_by_what_some_take_for_it() {
    let app = app(by_host().deny(list(["acme"])));
    expect(&app, with(get("/"), "host", "acme"), 403);
    let odd = [
        "acme..", "acme:8x", "u@acme", "%61cme", "acme/x", "acme?x", "acme#x", "acme, b:", "b:, acme", "acme b",
        "acme\\x", "[acme]", "acme%20",
    ];
    for host in odd.into_iter().chain(["http://acme/", "acme:x@b"]) {
        expect(&app, with(get("/"), "host", host), 400);
    }
}
