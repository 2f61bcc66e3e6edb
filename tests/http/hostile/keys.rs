//! Every key that reads what clients send, and words of what they send. The fuzz target shares this file.

use futures::FutureExt;
use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor};

/// `<kind>:<value>`: the longest kind here, and three values of at most 64 bytes each.
const LONGEST: usize = 256;

pub(crate) const KEYED: [&str; 8] =
    ["x-forwarded-for", "forwarded", "x-real-ip", "cookie", "authorization", "host", "x-api-key", "x-user"];

/// What parsers look for, and what may come of it in a key.
pub(crate) const SHORT: [&[u8]; 35] = [
    b"for=", b"FOR =", b"by=", b"\"", b"\\", b"\\\"", b",", b", ", b";", b"=", b":", b"::", b"[", b"]", b"%", b"%00",
    b"%7b", b"%eth0", b"fc00::1", b"unknown", b"_x", b"Bearer ", b"bearer", b"Basic ", b"Og==", b"sid=", b"sid", b"{",
    b"}", b"|", b"#", b"+", b"\xff", b"\t", b" ",
];
pub(crate) const LONG: &str =
    "proto=https 010.0.0.2 203.0.113.9:80 ::ffff:10.0.0.1 [fc00::2]:1 YWRhOng= }:p7:1t3600000m 999999999999999999999";

/// One of every key that reads what clients send.
pub(crate) fn every_key() -> Vec<Box<dyn KeyExtractor>> {
    let behind = || key::client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"]);
    vec![
        Box::new(key::client_ip()),
        Box::new(behind()),
        Box::new(behind().forwarded()),
        Box::new(behind().header("x-real-ip")),
        Box::new(key::client_ip().trusted_hops(3)),
        Box::new(key::client_ip().trusted_hops(usize::MAX).forwarded()),
        Box::new(key::peer_ip()),
        Box::new(key::header("x-api-key")),
        Box::new(key::header("x-user").plain()),
        Box::new(key::cookie("sid")),
        Box::new(key::cookie("sid").plain()),
        Box::new(key::bearer()),
        Box::new(key::basic_user()),
        Box::new(key::basic_user().plain()),
        Box::new(key::query("q")),
        Box::new(key::path()),
        Box::new(key::host()),
        Box::new(key::method()),
        Box::new(key::route()),
        Box::new(key::path_param("id")),
        Box::new(key::path_param("rest")),
        Box::new((behind(), key::query("q"), key::header("x-user").plain())),
    ]
}

/// Checks that every extractor makes text of a bounded length and harmless bytes of a head.
#[track_caller]
pub(crate) fn assert_harmless(parts: &Parts) {
    for (number, key) in every_key().iter().enumerate() {
        let found = key.extract(parts).wait().now_or_never();
        let text = match &found {
            Some(Extracted::Secret(secret)) => secret.key().as_str(),
            Some(Extracted::Key(key)) => key.as_str(),
            Some(Extracted::Missing | Extracted::Ambiguous) => "",
            other => panic!("key {number} answers {other:?}"),
        };
        let harmless = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !b"{}".contains(&byte);
        assert!(text.len() <= LONGEST && text.bytes().all(harmless), "key {number}: {text:?}");
    }
}
