//! Keys that are made by hand, of the value of a request.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::request::Parts;
use http_body_util::BodyExt;
use tollgate::key::Lookup;
use tollgate::key::{self, KeyExtractor};
use tollgate::{Key, Policy, Quota};
use tower::ServiceExt;

use super::text;

fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("policy", Quota::per_hour(10)).key(key)
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(uri);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(()).expect("a request").into_parts().0
}

fn with(name: &str, value: &str) -> Parts {
    request("GET", "/", &[(name, value)])
}

fn from(peer: &str) -> Parts {
    let mut parts = request("GET", "/", &[]);
    let peer: IpAddr = peer.parse().expect("an address");
    parts.extensions.insert(ConnectInfo(SocketAddr::new(peer, 4_711)));
    parts
}

/// The key of these values is that of this request, and is parsed from its text.
#[track_caller]
fn row(key: &(impl KeyExtractor + Clone), values: &[&str], parts: &Parts) {
    let made = policy(key.clone()).key_of_parts(values).expect("a request has it");
    assert_eq!(made.as_str(), text(key, parts), "{values:?}");
    assert_eq!(made.to_string().parse::<Key>().expect("it is the text of a key"), made);
}

#[test]
fn the_key_of_a_value_is_that_of_a_request_with_it() {
    let long = "x".repeat(65);
    for value in ["ada", "", " a|b ", "{a}%", "Ada#1", &long] {
        row(&key::header("x-user"), &[value], &with("x-user", value));
        row(&key::header("x-user").plain().ignore_case(), &[value], &with("x-user", value));
        row(
            &key::header("x-user").normalize(|user| user.to_ascii_lowercase().into()),
            &[value],
            &with("x-user", value),
        );
        row(&key::header("x-user").normalize(|_| "one".as_bytes().into()), &[value], &with("x-user", value));
        let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        row(&key::query("user"), &[value], &request("GET", &format!("/?user={encoded}"), &[]));
        row(&key::query("user").ignore_case(), &[value], &request("GET", &format!("/?user={encoded}"), &[]));
        let encoded = encoded.replace('+', "%20");
        row(&key::cookie("user"), &[value], &with("cookie", &format!("user={encoded}")));
        row(&key::cookie("user").plain().ignore_case(), &[value], &with("cookie", &format!("user={encoded}")));
        let basic = format!("Basic {}", STANDARD.encode(format!("{value}:secret")));
        row(&key::basic_user(), &[value], &with("authorization", &basic));
        row(&key::basic_user().plain().ignore_case(), &[value], &with("authorization", &basic));
    }
    row(&key::bearer(), &["s3cret"], &with("authorization", "Bearer s3cret"));
    for path in ["/", "/a%62c", "/caf%c3%a9", "/a/"] {
        row(&key::path(), &[path], &request("GET", path, &[]));
    }
    for host in ["API.example.com.:80", "[2001:DB8::0]:443", "203.0.113.9"] {
        row(&key::host(), &[host], &with("host", host));
    }
    for method in ["GET", "HEAD", "DELETE", "get", "PURGE"] {
        row(&key::method(), &[method], &request(method, "/", &[]));
    }
    for address in ["203.0.113.9", "2001:db8:0:12ff::9", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9"] {
        row(&key::peer_ip(), &[address], &from(address));
        row(&key::client_ip().v6_prefix(64), &[address], &from(address));
    }
    row(&key::peer_ip(), &["2001:db8::/56"], &from("2001:db8::9"));
    row(&key::global(), &[""], &with("x-user", "ada"));
}

#[test]
fn the_key_of_the_parts_of_a_joined_key_is_that_of_a_request_with_them() {
    let parts = request("POST", "/a", &[("x-user", "ada"), ("host", "ACME")]);
    row(&(key::header("x-user"), key::method()), &["ada", "POST"], &parts);
    row(&(key::host(), key::header("x-user"), key::path()), &["acme", "ada", "/a"], &parts);
    row(&(key::host(), (key::header("x-user"), key::path())), &["acme", "ada", "/a"], &parts);
    for values in [&[][..], &["ada"], &["ada", "GET", "GET"]] {
        let error = policy((key::header("x-user"), key::method())).key_of_parts(values).unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    assert!(policy((key::header("x-user"), key::method())).key_of("ada").is_err());
}

#[test]
fn a_parameter_and_a_route_have_the_keys_of_requests_that_axum_routes() {
    let answer = async |request: axum::extract::Request, _: Next| {
        let parts = request.into_parts().0;
        [text(&key::path_param("id"), &parts), text(&key::route(), &parts)].join("\n")
    };
    for (path, id, route) in [("/users/A%2Fb", "A/b", "/users/{id}"), ("/users/7", "7", "/users/{id}")] {
        let app = Router::new().route("/users/{id}", get(|| async {})).layer(from_fn(answer));
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        let body = tokio_test::block_on(async { app.oneshot(request).await.expect("an answer").collect().await });
        let keys = [policy(key::path_param("id")).key_of(id), policy(key::route()).key_of(route)];
        let keys = keys.map(|key| key.expect("a request has it").to_string()).join("\n");
        assert_eq!(body.expect("a body").to_bytes(), keys);
    }
    assert_eq!(policy(key::route()).key_of("<unmatched>").unwrap().as_str(), "route:<unmatched>");
}

#[track_caller]
fn never(key: impl KeyExtractor, value: impl AsRef<[u8]>) {
    let error = policy(key).key_of(value).expect_err("no request has it");
    assert!(error.is_invalid(), "{error}");
    assert!(!error.to_string().contains("s3cret"), "it may be a secret: {error}");
}

#[test]
fn a_value_that_no_request_can_have_is_an_error() {
    never(key::header("x-user"), "s3cret\n");
    never(key::cookie("user"), b"s3cret\xff");
    never(key::query("user"), b"s3cret\xff");
    never(key::path_param("id"), b"s3cret\xff");
    never(key::basic_user(), "s3cret:x");
    never(key::bearer(), "s3cret s3cret");
    never(key::path(), "/a//b");
    never(key::path(), "abc");
    never(key::host(), "127.1");
    never(key::method(), "");
    never(key::method(), "G T");
    never(key::route(), "users/{id}");
    never(key::global(), "ada");
    for address in ["", "203.0.113", "203.0.113.9:80", "10.0.0.0/8", "ada"] {
        never(key::client_ip(), address);
        never(key::peer_ip(), address);
    }
}

#[test]
fn a_closure_s_key_is_an_error_that_says_to_make_it_as_the_closure_does() {
    let closure = || key::from_fn(|_| Key::new("user", "ada"));
    let lookup = key::lookup(key::bearer(), async |_: Lookup| Ok::<_, Infallible>(None::<Key>));
    let joined = [policy((closure(), key::method())), policy((key::method(), closure()))];
    let single = [policy(closure()), policy(key::extension(|name: &String| name.clone())), policy(lookup)];
    for (policies, values) in [(&single[..], &["ada"][..]), (&joined, &["GET", "GET"])] {
        for policy in policies {
            let error = policy.key_of_parts(values).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains("Key::new"), "{error}");
        }
    }
}

#[test]
fn a_key_that_is_shared_twice_is_what_it_is() {
    let twice = |key: Arc<dyn KeyExtractor>| -> Arc<dyn KeyExtractor> { Arc::new(key) };
    let joined = || -> Arc<dyn KeyExtractor> { Arc::new((key::header("x-user"), key::method())) };
    let made = |key| policy(key).key_of_parts(["ada", "GET"]).expect("it has two parts");
    assert_eq!(made(twice(joined())), made(joined()));
}
