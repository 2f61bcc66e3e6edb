//! Requests that are huge or garbled: served or refused, and never counted as another client.

use std::iter::repeat_n;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use tollgate::key::{self, ClientIp, KeyExtractor};
use tollgate::policy::AccessList;
use tollgate::{Policy, Quota};

use super::rig::{HOUR, Rig, Service, Text, and, expect, from, get, on_each_store, statuses};

const ONE: Quota = Quota::fixed_window(1, HOUR);
const MEGABYTE: usize = 1 << 20;

/// A victim's address, and a proxy that is trusted.
const VICTIM: &str = "203.0.113.9";
const PROXY: &str = "10.0.0.1";

fn service(key: impl KeyExtractor) -> Service {
    Rig::memory().service([Policy::new("policy", ONE).key(key)])
}

fn behind() -> ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

/// A request with a header of any bytes.
fn bytes(name: &'static str, value: &[u8]) -> Request<Text> {
    let mut request = get();
    let value = HeaderValue::from_bytes(value).expect("no control characters");
    request.headers_mut().insert(HeaderName::from_static(name), value);
    request
}

/// A request of the proxy for a chain of addresses.
fn chain(name: &'static str, value: &str) -> Request<Text> {
    and(from(PROXY), name, value)
}

/// Each of some different values has a counter of its own.
#[track_caller]
fn apart(key: impl KeyExtractor, name: &'static str, values: &[&[u8]]) {
    let service = service(key);
    for status in [200, 429] {
        for value in values {
            expect(&service, bytes(name, value), status);
        }
    }
}

/// What an attacker sends is not counted as the victim, who then has a request left.
#[track_caller]
fn spares_the_victim(client: ClientIp, attack: impl Fn() -> Request<Text>) {
    let service = service(client);
    expect(&service, attack(), 200);
    expect(&service, attack(), 429);
    expect(&service, chain("x-forwarded-for", VICTIM), 200);
}

#[test]
fn headers_of_a_megabyte_are_told_apart_to_the_last_byte() {
    let long = vec![b'x'; MEGABYTE];
    let (mut last, shorter) = (long.clone(), &long[1..]);
    last[MEGABYTE - 1] = b'y';
    let values = [&long[..], &last, shorter];
    apart(key::header("x-user"), "x-user", &values);
    apart(key::header("x-user").plain(), "x-user", &values);
    let bearer = values.map(|value| [b"Bearer ", value].concat());
    apart(key::bearer(), "authorization", &bearer.each_ref().map(Vec::as_slice));
    let cookie = values.map(|value| [b"other=1; session=", value].concat());
    apart(key::cookie("session"), "cookie", &cookie.each_ref().map(Vec::as_slice));
}

#[test]
fn values_that_are_no_utf8_are_told_apart() {
    let values: [&[u8]; 6] = [b"\xff", b"\xfe", b"\xff\xff", b"%FF", "\u{fffd}".as_bytes(), b""];
    apart(key::header("x-user"), "x-user", &values);
    apart(key::header("x-user").plain(), "x-user", &values);
}

#[tokio::test]
async fn garbled_keys_are_counted_in_redis_as_in_memory() {
    let long = vec![b'x'; 70_000];
    let values: [&[u8]; 6] = [b"\xff\xfe", b"{}", b"}:{", b"a b", b"a|b", &long];
    on_each_store(async |rig| {
        let service = rig.service([Policy::new("policy", ONE).key(key::header("x-user").plain())]);
        for status in [200, 429] {
            let sent = values.map(|value| bytes("x-user", value));
            assert_eq!(statuses(&service, sent).await, [status; 6], "{}", rig.name);
        }
    })
    .await;
}

#[test]
fn ten_thousand_hops_end_at_a_proxy_and_not_at_who_is_written_first() {
    let hops = |hop: &str| format!("{VICTIM}, {}", vec![hop; 10_000].join(", "));
    spares_the_victim(behind(), || chain("x-forwarded-for", &hops("10.0.0.2")));
    spares_the_victim(key::client_ip().trusted_hops(20_000), || chain("x-forwarded-for", &hops("10.0.0.2")));
    let elements = format!("for={VICTIM}, {}", vec!["for=10.0.0.2"; 10_000].join(", "));
    let service = service(behind().forwarded());
    expect(&service, chain("forwarded", &elements), 200);
    expect(&service, chain("forwarded", &elements), 429);
    expect(&service, chain("forwarded", &format!("for={VICTIM}")), 200);
}

#[test]
fn ten_thousand_lines_are_no_other_than_ten_thousand_hops() {
    let lines = || {
        let mut request = chain("x-forwarded-for", VICTIM);
        let more = repeat_n(HeaderValue::from_static("10.0.0.2"), 10_000);
        for hop in more {
            request.headers_mut().append("x-forwarded-for", hop);
        }
        request
    };
    spares_the_victim(behind(), lines);
}

#[test]
fn a_megabyte_of_commas_quotes_or_garbage_is_the_proxy() {
    for garbage in [",", "\"", "x", "[", "for=", "\\", "; "] {
        let value = format!("{VICTIM}, {}", garbage.repeat(MEGABYTE / garbage.len()));
        let service = service(behind());
        expect(&service, chain("x-forwarded-for", &value), 200);
        expect(&service, from(PROXY), 429);
        expect(&service, chain("x-forwarded-for", VICTIM), 200);
    }
}

#[test]
fn hops_that_are_no_utf8_are_the_proxy() {
    let mut garbled = from(PROXY);
    let value = HeaderValue::from_bytes(b"203.0.113.9, \xff\xfe").expect("no control characters");
    garbled.headers_mut().insert("x-forwarded-for", value);
    let service = service(behind());
    expect(&service, garbled, 200);
    expect(&service, from(PROXY), 429);
    expect(&service, chain("x-forwarded-for", VICTIM), 200);
}

#[test]
fn lists_are_not_fooled_by_garbled_addresses() {
    let policy = |list: AccessList| Policy::new("policy", ONE).key(behind()).allow(list);
    let service = Rig::memory().service([policy(AccessList::parse([VICTIM]).unwrap())]);
    for value in ["203.0.113.9, junk", "203.0.113.9x", "\"203.0.113.9\"", "203.0.113.9 ,;"] {
        let mut request = chain("x-forwarded-for", value);
        request.headers_mut().insert("x-user", HeaderValue::from_static(VICTIM));
        let _ = super::rig::now(&service, request);
        expect(&service, chain("x-forwarded-for", value), 429);
    }
    expect(&service, chain("x-forwarded-for", VICTIM), 200);
    expect(&service, chain("x-forwarded-for", VICTIM), 200);
}

#[test]
fn long_queries_and_paths_are_counted_by_all_of_them() {
    let to = |uri: String| Request::builder().uri(uri).body(Text::default()).expect("a request");
    let by_query = service(key::query("token"));
    let by_path = service(key::path());
    for status in [200, 429] {
        let long = "x".repeat(60_000);
        for last in ["a", "b", "%FF", "%"] {
            expect(&by_query, to(format!("/?q=1&token={long}{last}")), status);
        }
        for last in ["a", "b", "%C3%A9", "%25"] {
            expect(&by_path, to(format!("/{long}{last}")), status);
        }
    }
}

#[test]
fn a_content_type_that_is_garbled_is_no_grpc() {
    for (kind, is_grpc) in
        [(&b"application/grpc\xff"[..], false), (b"application/grpcx", false), (b"application/grpc", true)]
    {
        let service = service(key::global());
        let _ = super::rig::now(&service, get());
        let mut call = and(bytes("content-type", kind), "te", "trailers");
        (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
        let refused = super::rig::now(&service, call);
        assert_eq!(refused.status().as_u16(), if is_grpc { 200 } else { 429 }, "{kind:?}");
        assert_eq!(HeaderMap::contains_key(refused.headers(), "grpc-status"), is_grpc, "{kind:?}");
    }
}
