//! Arbitrary heads of requests, for as long as there is time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::{Method, Request, Uri};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;

use super::keys::assert_harmless;
use super::rig::{app, every_policy, from};
use crate::rig::{send, with};
use crate::support::slow::many;
use crate::support::time::at;

/// How long heads are made up; the first rounds are made in any case.
const TIME: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];
const CASES: u32 = 64;
const ROUNDS: usize = 2_000;

const NAMES: [&str; 10] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cookie",
    "authorization",
    "host",
    "x-api-key",
    "x-user",
    "content-type",
    "origin",
];

/// What parsers look for, and what may come of it in a key.
const SHORT: [&[u8]; 35] = [
    b"for=", b"FOR =", b"by=", b"\"", b"\\", b"\\\"", b",", b", ", b";", b"=", b":", b"::", b"[", b"]", b"%", b"%00",
    b"%7b", b"%eth0", b"fc00::1", b"unknown", b"_x", b"Bearer ", b"bearer", b"Basic ", b"Og==", b"sid=", b"sid", b"{",
    b"}", b"|", b"#", b"+", b"\xff", b"\t", b" ",
];

/// Longer ones.
const LONG: [&[u8]; 11] = [
    b"proto=https",
    b"10.0.0.2",
    b"010.0.0.2",
    b"203.0.113.9:80",
    b"::ffff:10.0.0.1",
    b"[fc00::2]:1",
    b"YWRhOng=",
    b"}:p7:1t3600000m",
    b"tollgate:{",
    b"\xc3\xa9",
    b"999999999999999999999",
];

/// The head of a request, as bytes a server may have taken off the wire.
#[derive(Clone, Debug)]
struct Head {
    peer: IpAddr,
    method: Method,
    uri: Vec<u8>,
    lines: Vec<(&'static str, Vec<u8>)>,
    /// How long after the one before, in seconds.
    after: u64,
}

fn may_be_sent(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 127)
}

/// Bytes of a header.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let piece = || prop::sample::select([&SHORT[..], &LONG].concat());
    let soup = vec(piece(), 0..24).prop_map(|pieces| pieces.concat());
    let bytes =
        vec(any::<u8>(), 0..120).prop_map(|bytes| bytes.into_iter().filter(|byte| may_be_sent(*byte)).collect());
    let long = (piece(), 1..3_000_usize).prop_map(|(piece, times)| piece.repeat(times));
    let mixed = vec(prop_oneof![6 => soup.clone().boxed(), 1 => long.boxed()], 1..3).prop_map(|parts| parts.concat());
    prop_oneof![4 => soup.boxed(), 2 => bytes.boxed(), 1 => mixed.boxed()]
}

/// A path and a query; those that are none stand for `/`.
fn uri() -> impl Strategy<Value = Vec<u8>> {
    let start: Vec<&[u8]> =
        vec![b"/", b"/users/", b"/files/", b"/?q=", b"/users/7?q=", b"*", b"http://a.example/", b"//"];
    (prop::sample::select(start), value()).prop_map(|(start, rest)| [start, &rest].concat())
}

fn head() -> impl Strategy<Value = Head> {
    let peers: [IpAddr; 5] = ["10.0.0.1", "203.0.113.9", "fc00::9", "2001:db8::9", "::ffff:10.0.0.1"]
        .map(|peer| peer.parse().expect("an address"));
    let methods = [Method::GET, Method::POST, Method::OPTIONS, Method::from_bytes(b"BREW").expect("a token")];
    let line = (prop::sample::select(NAMES.to_vec()), value());
    (prop::sample::select(peers.to_vec()), prop::sample::select(methods.to_vec()), uri(), vec(line, 0..8), 0..200_u64)
        .prop_map(|(peer, method, uri, lines, after)| Head { peer, method, uri, lines, after })
}

impl Head {
    fn request(&self) -> Request<String> {
        let mut request = from(self.peer, "/");
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::try_from(&self.uri[..]).unwrap_or_default();
        self.lines.iter().fold(request, |request, (name, value)| with(request, name, value))
    }
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
        let checked = TestRunner::new(config).run(&head(), |head| {
            assert_harmless(&head.request().into_parts().0);
            seconds.set(seconds.get() + head.after);
            clock.set(at(seconds.get() * 1_000_000));
            let response = send(&app, head.request());
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
