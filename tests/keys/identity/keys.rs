//! The other keys of a request's head.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor, Lookup};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_test::send;

use super::{head, text};

#[track_caller]
fn row(key: &impl KeyExtractor, header: &str, lines: &[impl AsRef<[u8]>], expected: &str) {
    assert_eq!(text(key, &head(header, lines)), expected);
}

fn asks(uri: &str) -> Parts {
    Request::builder().uri(uri).body(()).expect("a request").into_parts().0
}

fn basic(credentials: impl AsRef<[u8]>) -> [String; 1] {
    [format!("Basic {}", STANDARD.encode(credentials))]
}

#[test]
fn a_cookie_is_found_among_others() {
    let id = key::cookie("id").plain();
    row(&id, "cookie", &["id=a"], "cookie id:a");
    row(&id, "cookie", &["x=1; id=a; y=2"], "cookie id:a");
    row(&id, "cookie", &["x=1", "id=a"], "cookie id:a");
    row(&id, "cookie", &["x=1;id = a ;y"], "cookie id:a");
    row(&id, "cookie", &["id=a; id=a"], "cookie id:a");
    row(&id, "cookie", &["id=\"a\""], "cookie id:a");
    row(&id, "cookie", &["id=a=b"], "cookie id:a=b");
    row(&id, "cookie", &["id="], "cookie id:");
    row(&id, "cookie", &["x; id"], "cookie id:");
    row(&id, "cookie", &[b"x=\xff; id=a"], "cookie id:a");
    row(&id, "cookie", &["ID=a; idx=b; xid=c"], "missing");
    row(&id, "cookie", &["\";=,"], "missing");
    row(&id, "x-cookie", &["id=a"], "missing");
}

#[test]
fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
    let token = Key::hashed("bearer", "abc.def").to_string();
    row(&key::bearer(), "authorization", &["Bearer abc.def"], &token);
    row(&key::bearer(), "authorization", &["bEARER \t abc.def "], &token);
    row(&key::bearer(), "authorization", &["Bearer"], Key::hashed("bearer", "").as_str());
    row(&key::bearer(), "authorization", &[b"Bearer \xff"], "ambiguous");
    row(&key::bearer(), "authorization", &["Basic abc.def"], "missing");
    row(&key::bearer(), "authorization", &["Bearerabc.def"], "missing");
    row(&key::bearer(), "authorization", &[""], "missing");
    row(&key::bearer(), "x-authorization", &["Bearer abc.def"], "missing");
}

#[test]
fn a_basic_user_is_who_stands_before_the_first_colon() {
    let user = key::basic_user().plain();
    row(&user, "authorization", &basic("ada:secret:x"), "basic_user:ada");
    row(&user, "authorization", &basic("ada:"), "basic_user:ada");
    row(&user, "authorization", &basic("ada"), "basic_user:ada");
    row(&user, "authorization", &basic(":secret"), "basic_user:");
    row(&user, "authorization", &basic(b"\xff:secret"), "ambiguous");
    row(&user, "authorization", &["basic YWRhOng"], "basic_user:ada");
    row(&user, "authorization", &["Basic ~~~"], "ambiguous");
    row(&user, "authorization", &[b"Basic \xff"], "ambiguous");
    row(&user, "authorization", &["Bearer YWRhOng="], "missing");
    row(&user, "x", &["y"], "missing");
    assert_eq!(STANDARD_NO_PAD.encode("ada:x"), "YWRhOng");
}

#[test]
fn secrets_leave_only_as_hashes() {
    row(&key::cookie("id"), "cookie", &["id=secret"], Key::hashed("cookie id", "secret").as_str());
    row(&key::bearer(), "authorization", &["Bearer secret"], Key::hashed("bearer", "secret").as_str());
    row(&key::basic_user(), "authorization", &basic("ada:secret"), Key::hashed("basic_user", "ada").as_str());
}

#[test]
fn a_megabyte_is_a_hash() {
    let long = "x".repeat(1 << 20);
    let hash = |kind: &str| Key::hashed(kind, &long).to_string();
    row(&key::cookie("id").plain(), "cookie", &[format!("id={long}")], &hash("cookie id"));
    row(&key::bearer(), "authorization", &[format!("Bearer {long}")], &hash("bearer"));
    row(&key::basic_user().plain(), "authorization", &basic(&long), &hash("basic_user"));
    row(&key::cookie("id"), "cookie", &["=;".repeat(1 << 19)], "missing");
}

#[test]
fn a_query_parameter_is_decoded() {
    let q = key::query("q");
    assert_eq!(text(&q, &asks("/?q=a")), "query q:a");
    assert_eq!(text(&q, &asks("/?x=1&q=a&q=a")), "query q:a");
    assert_eq!(text(&q, &asks("/?%71=%61+b")), "query q:a%20b");
    assert_eq!(text(&q, &asks("/?q")), "query q:");
    assert_eq!(text(&q, &asks("/?q=%FF")), "query q:%EF%BF%BD");
    assert_eq!(text(&q, &asks("/?q=%zz%")), "query q:%25zz%25");
    assert_eq!(text(&q, &asks("/?Q=a&qq=b")), "missing");
    assert_eq!(text(&q, &asks("/?")), "missing");
    assert_eq!(text(&q, &asks("/q=a")), "missing");
}

#[test]
fn a_host_is_lower_case_and_has_no_port() {
    row(&key::host(), "host", &["API.Example:8080"], "host:api.example");
    row(&key::host(), "host", &["api.example."], "host:api.example");
    row(&key::host(), "host", &["[2001:DB8::1]:80"], "host:[2001:db8::1]");
    row(&key::host(), "host", &["api.example:"], "host:api.example");
    assert_eq!(text(&key::host(), &asks("https://API.example:443/x")), "host:api.example");
    let mut parts = head("host", &["evil.example"]);
    parts.uri = Uri::from_static("https://api.example/");
    assert_eq!(text(&key::host(), &parts), "ambiguous", "who knows which the application reads?");
}

#[test]
fn a_malformed_host_is_ambiguous() {
    for host in ["", ".", ":80", "a b", "a/b", "user@a.example", "a.example:x", "a.example:80:80", "[::1"] {
        row(&key::host(), "host", &[host], "ambiguous");
    }
    row(&key::host(), "host", &["a.example", "a.example"], "host:a.example");
    row(&key::host(), "host", &["a.example", "b.example"], "ambiguous");
    row(&key::host(), "host", &[b"a\xff"], "ambiguous");
    row(&key::host(), "host", &["x".repeat(1 << 20)], Key::hashed("host", "x".repeat(1 << 20)).as_str());
    row(&key::host(), "x", &["y"], "missing");
}

#[test]
fn made_up_methods_share_one_key() {
    let of = |method: &str| {
        let request = Request::builder().method(method).body(()).unwrap();
        text(&key::method(), &request.into_parts().0)
    };
    assert_eq!(of("GET"), "method:GET");
    assert_eq!(of("PATCH"), "method:PATCH");
    assert_eq!(of("BREW"), "method:<other>");
    assert_eq!(of("get"), "method:<other>");
}

#[test]
fn an_extension_is_read_by_a_closure() {
    let by_user = key::extension(|user: &u32| Key::new("user", user.to_string()));
    let mut parts = asks("/");
    assert_eq!(text(&by_user, &parts), "missing");
    parts.extensions.insert(7_u32);
    assert_eq!(text(&by_user, &parts), "user:7");
    assert_eq!(text(&key::extension(|user: &u32| (*user > 7).then_some("big")), &parts), "missing");
}

#[test]
fn a_number_is_the_key_of_its_text() {
    let parts = asks("/");
    assert_eq!(text(&|_: &Parts| -7_i32, &parts), text(&|_: &Parts| "-7", &parts));
    assert_eq!(text(&|_: &Parts| i64::MIN, &parts), format!("key:{}", i64::MIN));
    assert_eq!(text(&|_: &Parts| 7_u32, &parts), "key:7");
    assert_eq!(text(&|_: &Parts| u64::MAX, &parts), format!("key:{}", u64::MAX));
    assert_eq!(text(&|_: &Parts| None::<u64>, &parts), "missing");
    assert_eq!(text(&|_: &Parts| Ok::<_, Ambiguous>(Some(7_u64)), &parts), "key:7");
    assert_eq!(text(&key::extension(|user: &u32| *user), &parts), "missing");
    assert_eq!(text(&key::lookup(key::host(), async |_| Ok::<_, Infallible>(7_u64)), &asks("http://a/")), "key:7");
}

/// The address that a layer for authentication or a proxy's protocol has found.
#[derive(Clone)]
struct Client(IpAddr);

fn by_client(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Client>().map(|client| client.0)
}

fn request_of(client: &str) -> Request<String> {
    let client = client.parse().expect("an address");
    let request = Request::builder().extension(Client(client)).extension(ConnectInfo(SocketAddr::new(client, 4_711)));
    request.body(String::new()).expect("a request")
}

#[test]
fn an_address_is_the_key_that_the_extractors_of_addresses_make() {
    for client in
        ["203.0.113.9", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9", "2001:db8::9", "2001:db8:0:1ff::1", "::1"]
    {
        let (parts, _) = request_of(client).into_parts();
        for extractor in [text(&key::client_ip(), &parts), text(&key::peer_ip(), &parts)] {
            assert_eq!(text(&by_client, &parts), extractor, "{client}");
        }
    }
    assert_eq!(text(&by_client, &asks("/")), "missing");
    assert_eq!(text(&|_: &Parts| Err::<IpAddr, _>(Ambiguous), &asks("/")), "ambiguous");
}

/// The status that a request of a client gets.
async fn status_of(layer: &RateLimitLayer, client: &str) -> StatusCode {
    send(layer, 1, |_| request_of(client)).await[0].status()
}

#[tokio::test]
async fn what_a_closure_makes_a_key_of_counts_on_the_counter_of_that_key() {
    let store = MemoryStore::new();
    let layer = |policy: Policy| RateLimitLayer::new(store.clone(), policy);
    let clients = || Policy::new("clients", Quota::per_hour(2));
    let (address, client_ip, peer_ip) =
        (layer(clients().key(by_client)), layer(clients().key(key::client_ip())), layer(clients().key(key::peer_ip())));
    assert_eq!(status_of(&address, "2001:db8::1").await, 200);
    assert_eq!(status_of(&client_ip, "2001:db8::1").await, 200);
    for (layer, client) in [(&address, "2001:db8::1"), (&address, "2001:db8::ff:2"), (&peer_ip, "2001:db8:0:ff::3")] {
        assert_eq!(status_of(layer, client).await, 429, "{client}");
    }
    assert_eq!(status_of(&address, "2001:db8:0:100::1").await, 200, "another /56");

    let numbers = || Policy::new("numbers", Quota::per_hour(2));
    let (number, text) = (layer(numbers().key(|_: &Parts| Some(7_u64))), layer(numbers().key(|_: &Parts| "7")));
    for (layer, status) in [(&number, 200), (&text, 200), (&number, 429), (&text, 429)] {
        assert_eq!(status_of(layer, "::1").await, status);
    }
}

#[test]
fn a_lookup_may_find_miss_refuse_or_fail() {
    let by_host = key::lookup(key::host(), async |host: Lookup| {
        tokio::task::yield_now().await;
        match host.text() {
            Some("refused") => Ok(Err(Box::new(status(StatusCode::FORBIDDEN)))),
            Some("broken") => Err("the directory is away"),
            Some("nobody") => Ok(Ok(None)),
            host => Ok(Ok(host.map(|host| Key::new("tenant", host)))),
        }
    });
    let found = |uri: &str| tokio_test::block_on(by_host.extract(&asks(uri)).wait());
    for _ in 0..2 {
        assert!(matches!(found("http://a/"), Extracted::Key(key) if key.as_str() == "tenant:a"));
        assert!(matches!(found("/"), Extracted::Missing));
        assert!(matches!(found("http://nobody/"), Extracted::Missing));
        assert!(matches!(found("http://refused/"), Extracted::Rejected(response) if response.status() == 403));
        assert!(matches!(found("http://broken/"), Extracted::Failed(error) if error.is_store()));
    }
}

#[test]
#[allow(clippy::result_large_err, reason = "a response as it is made is what users return")]
fn a_refusal_may_be_boxed_or_not() {
    let plain = key::from_fn(|_| Err::<Key, _>(status(StatusCode::FORBIDDEN)));
    let boxed = key::from_fn(|_| Err::<Key, _>(Box::new(status(StatusCode::FORBIDDEN))));
    assert_eq!(text(&plain, &asks("/")), "rejected with 403");
    assert_eq!(text(&boxed, &asks("/")), "rejected with 403");
}

#[test]
fn keys_join_each_other() {
    let both =
        (key::method(), key::query("q"), key::lookup(key::global(), |_| std::future::ready(Ok::<_, Infallible>("x"))));
    assert_eq!(text(&both, &asks("/?q=a")), "method+query q+key:GET|a|x");
    assert_eq!(text(&both, &asks("/")), "missing");
}

fn status(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
