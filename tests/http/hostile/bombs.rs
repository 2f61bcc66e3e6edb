//! Heads that are far too large.

use std::time::{Duration, Instant};

use http::Request;
use tollgate::MemoryStore;

use super::heads::{KEYED, app, every_policy, from};
use crate::rig::{send, with};

/// Many times what the longest takes; a walk over each byte for each byte takes longer.
const BOUND: Duration = Duration::from_secs(2);

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
fn values_of_64_kib_are_one_request() {
    let fillings =
        ["a", "=", ";", ",", "\"", "\\", "\\\"", "{}", "%", "for=", "for=\"", "[::", "1.", ":", " ", "sid=;"];
    for (name, filling) in KEYED.iter().flat_map(|name| fillings.map(|filling| (name, filling))) {
        let value = filling.repeat((64 << 10) / filling.len());
        serves(&format!("{name} of {filling:?}"), with(get(), name, &value));
        serves(&format!("bearer {name} of {filling:?}"), with(get(), name, format!("Bearer {value}")));
    }
}

#[test]
fn thousands_of_lines_hops_and_parameters_are_one_request() {
    for (name, hop) in KEYED.map(|name| (name, "v")).into_iter().chain([
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-for", "[fc00::1]:443"),
        ("x-forwarded-for", ""),
        ("forwarded", "for=10.0.0.2;proto=https;by=_x"),
        ("forwarded", "for=\"[fc00::1]:443\""),
        ("forwarded", "for=\"\\\""),
        ("cookie", "a=b; sid=x"),
    ]) {
        serves(&format!("{name} of 10,000 times {hop}"), with(get(), name, vec![hop; 10_000].join(", ")));
        serves(&format!("10,000 lines of {hop}"), (0..10_000).fold(get(), |request, _| with(request, name, hop)));
    }
    serves("10,000 names", (0..10_000).fold(get(), |request, number| with(request, &format!("x-{number}"), "v")));
    let long = "x/%7b%00".repeat(4_000);
    for uri in [
        format!("/files/{long}"),
        format!("/files/{}", "/".repeat(60_000)),
        format!("/?q={long}"),
        format!("/?{}q=x", "a=b&".repeat(10_000)),
    ] {
        serves(&uri[..20], from([10, 0, 0, 1], &uri));
    }
}
