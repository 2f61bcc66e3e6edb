//! Arbitrary heads of requests, for as long as there is time, and far too large ones, before an app with every kind of key.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use http::{Method, Request, Uri};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::key::KeyExtractor;
use tollgate::policy::MissingKey;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};

use super::keys::{KEYED, LONG, SHORT, assert_harmless, every_key};
use crate::rig::{send, with};
use crate::support::slow::many;
use crate::support::time::at;

/// How long heads are made up; the first rounds are made in any case.
const TIME: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];
const CASES: u32 = 64;
const ROUNDS: usize = 2_000;

/// Bytes of a header.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = SHORT.into_iter().chain(LONG.split(' ').map(str::as_bytes)).collect();
    let piece = || prop::sample::select(pieces.clone());
    let soup = vec(piece(), 0..24).prop_map(|pieces| pieces.concat());
    let may_be_sent = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 127);
    let bytes = vec(prop::num::u8::ANY.prop_filter("no byte of a header", may_be_sent), 0..120);
    let long = (piece(), 1..3_000_usize).prop_map(|(piece, times)| piece.repeat(times));
    let mixed = (soup.clone(), long, soup.clone()).prop_map(|(start, long, end)| [start, long, end].concat());
    prop_oneof![4 => soup, 2 => bytes, 1 => mixed]
}

/// A path and a query; those that are none stand for `/`.
fn uri() -> impl Strategy<Value = Vec<u8>> {
    let start: Vec<&[u8]> =
        vec![b"/", b"/users/", b"/files/", b"/?q=", b"/users/7?q=", b"*", b"http://a.example/", b"//"];
    (prop::sample::select(start), value()).prop_map(|(start, rest)| [start, &rest].concat())
}

/// A request from a peer, and how many seconds it comes after the one before.
fn head() -> impl Strategy<Value = (Request<String>, u64)> {
    let peers = ["10.0.0.1", "203.0.113.9", "fc00::9", "2001:db8::9", "::ffff:10.0.0.1"];
    let methods = [Method::GET, Method::POST, Method::OPTIONS, Method::from_bytes(b"BREW").expect("a token")];
    let from_peer =
        prop::sample::select(peers.map(|peer| from(peer.parse::<IpAddr>().expect("an address"), "/")).to_vec());
    let line = (prop::sample::select(KEYED.to_vec()), value());
    let head = (from_peer, prop::sample::select(methods.to_vec()), uri(), vec(line, 0..8), 0..200_u64);
    head.prop_map(|(mut request, method, uri, lines, after)| {
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(&uri[..]).unwrap_or_default();
        (lines.iter().fold(request, |request, (name, value)| with(request, name, value)), after)
    })
}

const HOUR: Duration = Duration::from_secs(3_600);
const QUOTAS: [Quota; 5] = [
    Quota::token_bucket(50, HOUR),
    Quota::fixed_window(50, HOUR),
    Quota::sliding_window(50, HOUR),
    Quota::sliding_log(50, HOUR),
    Quota::leaky_bucket(50, HOUR).queue(0),
];

/// A policy by each key, of all algorithms in turn.
fn every_policy() -> Vec<Policy> {
    let keys = every_key().into_iter().zip(QUOTAS.iter().cycle()).enumerate();
    let policies = keys.map(|(number, (key, quota))| {
        let rule = if number % 3 == 1 { MissingKey::Skip } else { MissingKey::Share };
        Policy::new(&format!("p{number}"), *quota).key(Arc::<dyn KeyExtractor>::from(key)).missing_key(rule)
    });
    policies.collect()
}

/// An app of a few routes behind a layer.
fn app(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Router {
    Router::new()
        .route("/", any(|| async { "hello" }))
        .route("/users/{id}", any(|| async { "hello" }))
        .route("/files/{*rest}", any(|| async { "hello" }))
        .layer(RateLimitLayer::composite(store).policies(policies))
}

/// A request from a peer.
pub(super) fn from(peer: impl Into<IpAddr>, uri: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    *request.uri_mut() = uri.parse().expect("a URI");
    request.extensions_mut().insert(SocketAddr::new(peer.into(), 4711));
    request
}

#[test]
fn no_head_makes_the_layer_panic_or_answer_anything_but_its_statuses() {
    // Fewer keys than there are heads, so that some are evicted and some refused.
    let clock = ManualClock::new();
    let app = app(MemoryStore::builder().capacity(2_000).clock(clock.clone()).build(), every_policy());
    let seconds = Cell::new(0);
    let mut seen = BTreeMap::new();
    let start = Instant::now();
    for round in 0..ROUNDS {
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let statuses = RefCell::new(&mut seen);
        let checked = TestRunner::new(config).run(&head(), |(request, after)| {
            assert_harmless(&request.clone().into_parts().0);
            seconds.set(seconds.get() + after);
            clock.set(at(seconds.get() * 1_000_000));
            let response = send(&app, request);
            let status = response.status().as_u16();
            prop_assert!([200, 404, 429].contains(&status), "status {}", status);
            let wait = response.headers().get("retry-after").map(|wait| wait.to_str().map(str::parse::<u64>));
            prop_assert!(wait.as_ref().is_none_or(|wait| matches!(wait, Ok(Ok(1..=7_200)))), "a wait of {:?}", wait);
            *statuses.borrow_mut().entry(status).or_insert(0_u32) += 1;
            Ok(())
        });
        checked.unwrap_or_else(|failure| panic!("{failure}"));
        if round >= 3 && start.elapsed() > many(TIME) {
            break;
        }
    }
    println!("heads by status: {seen:?} in {:?}", start.elapsed());
    assert!(seen.contains_key(&200) && seen.contains_key(&404) && seen.contains_key(&429), "{seen:?}");
}

/// Checks that a request from a client of this path, with such lines, is served in time, many times what the longest
/// takes: a walk over each byte for each byte takes longer. What it sent is not sent back.
#[track_caller]
fn serves(what: &str, uri: &str, name: &str, lines: &[impl AsRef<[u8]>]) {
    let app = app(MemoryStore::new(), every_policy());
    let request = lines.iter().fold(from([10, 0, 0, 1], uri), |request, line| with(request, name, line));
    let start = Instant::now();
    let response = send(&app, request);
    assert!(start.elapsed() < Duration::from_secs(2), "{what} took {:?}", start.elapsed());
    assert_eq!(response.status(), 200, "{what}");
    let size: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(size < 4_096, "{what}: {size} bytes of headers came back");
}

#[test]
fn a_head_that_is_far_too_large_is_one_request() {
    for (name, piece) in KEYED.iter().flat_map(|name| SHORT.map(|piece| (name, piece))) {
        let value = piece.repeat((64 << 10) / piece.len());
        for value in [value.clone(), [b"Bearer ", &value[..]].concat()] {
            serves(&format!("{name} of {}", piece.escape_ascii()), "/users/7?q=x", name, &[value]);
        }
    }
    let hops =
        ["", "v", "10.0.0.2", "[fc00::1]:443", "for=10.0.0.2;proto=https;by=_x", "for=\"[fc00::1]:443\"", "for=\"\\\""];
    for (name, hop) in KEYED.iter().flat_map(|name| hops.map(|hop| (name, hop))) {
        let line = vec![hop; 10_000].join(", ");
        serves(&format!("{name} of 10,000 times {hop}"), "/users/7?q=x", name, &[line]);
        serves(&format!("10,000 lines of {hop}"), "/users/7?q=x", name, &vec![hop; 10_000]);
    }
    let (long, slashes, many) = ("x/%7b%00".repeat(4_000), "/".repeat(60_000), "a=b&".repeat(10_000));
    for uri in [format!("/files/{long}"), format!("/files/{slashes}"), format!("/?q={long}"), format!("/?{many}q=x")] {
        serves(&uri[..20], &uri, "cookie", &["a=b; ".repeat(10_000) + "sid=x"]);
    }
}
