//! Heads that are far too large.

use std::time::{Duration, Instant};

use http::Request;
use tollgate::MemoryStore;

use super::rig::{app, every_policy, from};
use crate::rig::{send, with};

/// Many times what the longest takes; a walk over each byte for each byte takes longer.
const BOUND: Duration = Duration::from_secs(2);

const KEYED: [&str; 8] =
    ["x-forwarded-for", "forwarded", "x-real-ip", "cookie", "authorization", "host", "x-api-key", "x-user"];

fn get() -> Request<String> {
    from([10, 0, 0, 1], "/users/7?q=x")
}

/// Checks that a request is served in time, and that what it sent is not sent back.
#[track_caller]
fn serves(name: &str, request: Request<String>) {
    let app = app(MemoryStore::new(), every_policy());
    let start = Instant::now();
    let response = send(&app, request);
    assert!(start.elapsed() < BOUND, "{name} took {:?}", start.elapsed());
    assert_eq!(response.status(), 200, "{name}");
    let size: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(size < 4_096, "{name}: {size} bytes of headers came back");
}

#[test]
fn thousands_of_headers_are_one_request() {
    let unknown = (0..10_000).fold(get(), |request, number| with(request, &format!("x-{number}"), "v"));
    serves("10,000 names", unknown);
    for name in KEYED {
        let repeated = (0..10_000).fold(get(), |request, number| with(request, name, format!("v{number}")));
        serves(&format!("10,000 lines of {name}"), repeated);
    }
}

#[test]
fn values_of_64_kib_are_one_request() {
    let fillings =
        ["a", "=", ";", ",", "\"", "\\", "\\\"", "{}", "%", "for=", "for=\"", "[::", "1.", ":", " ", "sid=;"];
    for name in KEYED {
        for filling in fillings {
            let value = filling.repeat((64 << 10) / filling.len());
            serves(&format!("{name} of {filling:?}"), with(get(), name, &value));
            serves(&format!("bearer {name} of {filling:?}"), with(get(), name, format!("Bearer {value}")));
        }
    }
}

#[test]
fn chains_of_ten_thousand_hops_are_one_request() {
    for (name, hop) in [
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-for", "[fc00::1]:443"),
        ("x-forwarded-for", ""),
        ("forwarded", "for=10.0.0.2;proto=https;by=_x"),
        ("forwarded", "for=\"[fc00::1]:443\""),
        ("forwarded", "for=\"\\\""),
    ] {
        let line = vec![hop; 10_000].join(", ");
        serves(&format!("10,000 times {hop} in one line"), with(get(), name, &line));
        let lines = (0..10_000).fold(get(), |request, _| with(request, name, hop));
        serves(&format!("10,000 lines of {hop}"), lines);
    }
}

#[test]
fn long_paths_queries_and_cookies_are_one_request() {
    let long = "x/%7b%00".repeat(4_000);
    serves("a long path", from([10, 0, 0, 1], &format!("/files/{long}")));
    serves("a path of slashes", from([10, 0, 0, 1], &format!("/files/{}", "/".repeat(60_000))));
    serves("a long query", from([10, 0, 0, 1], &format!("/?q={long}")));
    serves("10,000 parameters", from([10, 0, 0, 1], &format!("/?{}q=x", "a=b&".repeat(10_000))));
    serves("10,000 cookies", with(get(), "cookie", format!("{}sid=x", "a=b; ".repeat(10_000))));
}
