//! Keys that are made by hand, of the value of a request.

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use tollgate::Key;
use tollgate::key::{self, KeyExtractor, Lookup};

use super::rig::{Text, by, get, of, policy, with};

/// The key of these values is that of this request, and is parsed from its text.
#[track_caller]
fn row(key: &(impl KeyExtractor + Clone), values: &[&str], request: Request<Text>) {
    let made = policy(key.clone()).key_of_parts(values).expect("a request has it");
    assert_eq!(made.as_str(), of(key, request), "{values:?}");
    assert_eq!(made.to_string().parse::<Key>().expect("it is the text of a key"), made);
}

fn method(method: &str) -> Request<Text> {
    Request::builder().method(method).body(Text::default()).expect("a request")
}

#[test]
fn the_key_of_a_value_is_that_of_a_request_with_it() {
    let (header, query, cookie) = (|| key::header("x-user"), || key::query("user"), || key::cookie("user"));
    let long = "x".repeat(65);
    for value in ["ada", "", " a|b ", "{a}%", "Ada#1", &long] {
        let values = &[value][..];
        let lowered = header().normalize(|user| user.to_ascii_lowercase().into());
        let constant = header().normalize(|_| "one".as_bytes().into());
        for key in [header(), header().plain().ignore_case(), lowered, constant] {
            row(&key, values, with("x-user", values));
        }
        let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        for key in [query(), query().ignore_case()] {
            row(&key, values, get(&format!("/?user={encoded}")));
        }
        let line = format!("user={}", encoded.replace('+', "%20"));
        for key in [cookie(), cookie().plain().ignore_case()] {
            row(&key, values, with("cookie", &[&line]));
        }
        let line = format!("Basic {}", STANDARD.encode(format!("{value}:secret")));
        for key in [key::basic_user(), key::basic_user().plain().ignore_case()] {
            row(&key, values, with("authorization", &[&line]));
        }
    }
    row(&key::bearer(), &["s3cret"], with("authorization", &["Bearer s3cret"]));
    for path in ["/", "/a%62c", "/caf%c3%a9", "/a/"] {
        row(&key::path(), &[path], get(path));
    }
    for host in ["API.example.com.:80", "[2001:DB8::0]:443", "203.0.113.9"] {
        row(&key::host(), &[host], with("host", &[host]));
    }
    for name in ["GET", "HEAD", "DELETE", "get", "PURGE"] {
        row(&key::method(), &[name], method(name));
    }
    for address in ["203.0.113.9", "2001:db8:0:12ff::9", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9"] {
        row(&key::peer_ip(), &[address], by(address, get("/")));
        row(&key::client_ip().v6_prefix(64), &[address], by(address, get("/")));
    }
    row(&key::peer_ip(), &["2001:db8::/56"], by("2001:db8::9", get("/")));
    row(&key::global(), &[""], get("/"));
}

#[test]
fn the_key_of_the_parts_of_a_joined_key_is_that_of_a_request_with_them() {
    let request = || {
        let mut request = with("x-user", &["ada"]);
        request.headers_mut().insert("host", "ACME".parse().expect("a host"));
        request
    };
    let (header, host) = (|| key::header("x-user"), key::host);
    row(&(header(), key::method()), &["ada", "GET"], request());
    row(&(host(), header(), key::path()), &["acme", "ada", "/"], request());
    row(&(host(), (header(), key::path())), &["acme", "ada", "/"], request());
    for values in [&[][..], &["ada"], &["ada", "GET", "GET"]] {
        let error = policy((header(), key::method())).key_of_parts(values).unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    assert!(policy((header(), key::method())).key_of("ada").is_err());
    // One that is shared twice is what it is.
    let twice = |key: Arc<dyn KeyExtractor>| -> Arc<dyn KeyExtractor> { Arc::new(key) };
    let joined = || -> Arc<dyn KeyExtractor> { Arc::new((header(), key::method())) };
    let made = |key| policy(key).key_of_parts(["ada", "GET"]).expect("it has two parts");
    assert_eq!(made(twice(joined())), made(joined()));
}

#[test]
fn a_value_that_no_request_can_have_is_an_error() {
    for (policy, value) in [
        (policy(key::header("x-user")), &b"s3cret\n"[..]),
        (policy(key::cookie("user")), b"s3cret\xff"),
        (policy(key::query("user")), b"s3cret\xff"),
        (policy(key::path_param("id")), b"s3cret\xff"),
        (policy(key::basic_user()), b"s3cret:x"),
        (policy(key::bearer()), b"s3cret s3cret"),
        (policy(key::bearer()), b"s3cret,x"),
        (policy(key::path()), b"/a//b"),
        (policy(key::path()), b"/a%00"),
        (policy(key::path()), b"abc"),
        (policy(key::host()), b"127.1"),
        (policy(key::method()), b"G T"),
        (policy(key::route()), b"users/{id}"),
        (policy(key::global()), b"ada"),
        (policy(key::client_ip()), b"203.0.113.9:80"),
        (policy(key::peer_ip()), b"10.0.0.0/8"),
        (policy(key::peer_ip()), b""),
    ] {
        let error = policy.key_of(value).expect_err("no request has it");
        assert!(error.is_invalid(), "{error}");
        assert!(!error.to_string().contains("s3cret"), "it may be a secret: {error}");
    }
}

#[test]
fn a_closure_s_key_is_an_error_that_says_to_make_it_as_the_closure_does() {
    let closure = || key::from_fn(|_| Key::new("user", "ada"));
    let lookup = key::lookup(key::bearer(), async |_: Lookup| Ok::<_, Infallible>(None::<Key>));
    for (policy, values) in [
        (policy(closure()), &["ada"][..]),
        (policy(key::extension(|name: &String| name.clone())), &["ada"]),
        (policy(lookup), &["ada"]),
        (policy((closure(), key::method())), &["GET", "GET"]),
        (policy((key::method(), closure())), &["GET", "GET"]),
    ] {
        let error = policy.key_of_parts(values).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("Key::new"), "{error}");
    }
}
