//! What keys are made of: the text of a request's key in all its notable spellings, or that it is not certain.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tollgate::key::{self, Ambiguous, KeyExtractor};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_test::send;

use super::rig::{Text, by, get, of, text, with};

#[track_caller]
fn row(key: &impl KeyExtractor, header: &'static str, lines: &[impl AsRef<[u8]>], expected: &str) {
    assert_eq!(of(key, with(header, lines)), expected);
}

/// Each of these lines is the only one of its request.
#[track_caller]
fn rows(key: &impl KeyExtractor, header: &'static str, lines: &[impl AsRef<[u8]>], expected: &str) {
    for line in lines {
        let line = line.as_ref();
        assert_eq!(of(key, with(header, &[line])), expected, "{}", line.escape_ascii());
    }
}

fn basic(credentials: impl AsRef<[u8]>) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

/// What stands before a plus sign: a mail system's rule.
fn mailbox(value: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    value.split(|byte| *byte == b'+').next().unwrap_or_default().into()
}

#[test]
fn a_header_is_its_value_without_white_space_around() {
    let user = || key::header("X-User").plain();
    rows(&user(), "x-user", &["ada", " \t ada\t "], "header x-user:ada");
    row(&user(), "x-user", &["ada", " ada"], "header x-user:ada");
    row(&user(), "x-user", &["ada", "bob"], "ambiguous");
    row(&user(), "x-user", &[""], "header x-user:");
    row(&user(), "x-user", &[b"\xff"], "header x-user:%FF");
    row(&user(), "x-user", &["%FF"], "header x-user:%25FF");
    row(&user().last(), "x-user", &["x", "ada "], "header x-user:ada");
    row(&user().first(), "x-user", &[" ada", "x"], "header x-user:ada");
    row(&user().ignore_case(), "x-user", &["Ada", "aDA"], "header x-user:ada");
    row(&user().normalize(mailbox).ignore_case(), "x-user", &["ADA+1", " ada+2"], "header x-user:ada");
}

#[test]
fn a_cookie_is_found_among_others() {
    let id = || key::cookie("id").plain();
    let lines = ["id=a", "x=1;id = a ;y", "id=a; id=a", "id=\"a\"", "id=%61", "%69d=a", "id=%22a%22"];
    rows(&id(), "cookie", &lines, "cookie id:a");
    row(&id(), "cookie", &["x=1", "id=a"], "cookie id:a");
    row(&id(), "cookie", &[b"x=\xff; id=a"], "cookie id:a");
    row(&id(), "cookie", &["id=a=b"], "cookie id:a=b");
    rows(&id(), "cookie", &["id=", "x; id"], "cookie id:");
    rows(&id(), "cookie", &["ID=a; idx=b; xid=c", "\";=,"], "missing");
    row(&id().normalize(mailbox).ignore_case(), "cookie", &["id=%41%2B1"], "cookie id:a");
    row(&id(), "cookie", &["=;".repeat(1 << 19)], "missing");
    // Of several, the one that the application takes counts if all servers take it.
    rows(&id(), "cookie", &["id=x; id=a", "id=x; %69d=a", "id=\"x; id=a"], "ambiguous");
    row(&id(), "cookie", &["id=x", "id=a"], "ambiguous");
    row(&id(), "cookie", &[&b"id=x; y=\xff"[..], b"id=a"], "ambiguous");
    rows(&id().last(), "cookie", &["id=x; id=a", "id=%FF; id=a"], "cookie id:a");
    rows(&id().first(), "cookie", &["id=a; id=x", "%69d=a; id=a"], "cookie id:a");
}

#[test]
fn a_choice_of_cookies_in_which_servers_differ_is_ambiguous() {
    let (first, last) = (key::cookie("id").first(), key::cookie("id").last());
    rows(&last, "cookie", &["id=a; %69d=x", "id=a; id=%FF", "id=a; id=\"b\\101\""], "ambiguous");
    // Some leave out a value that begins with a tab.
    rows(&first, "cookie", &["%69d=x; id=a", "id=%FF; id=a", "id=b\"x; id=a", "id=\tx; id=a"], "ambiguous");
    // One server drops a lone quote, and another the line that is no text.
    row(&last, "cookie", &["id=\"", "id=\u{e9}"], "ambiguous");
    row(&last, "cookie", &[&b"id=a"[..], b"id=1;\xff"], "ambiguous");
    // White space of another script, which some trim around names and values.
    rows(&last, "cookie", &["id=\u{a0}a", "id=a\u{3000}"], "ambiguous");
    row(&last, "cookie", &[&b"id=x"[..], b"\xa0id\x85=a"], "ambiguous");
}

#[test]
fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
    let token = Key::hashed("bearer", "abc.def").to_string();
    rows(&key::bearer(), "authorization", &["Bearer abc.def", "bEARER \t abc.def ", " bearer\tabc.def"], &token);
    row(&key::bearer(), "authorization", &["Bearer"], Key::hashed("bearer", "").as_str());
    rows(&key::bearer(), "authorization", &["Basic abc.def", "Bearerabc.def", "", "Digest a=\"Bearer d\""], "missing");
    let lists = ["Bearer abc,x", "Bearer abc x", "Basic x, Bearer abc", "Digest a=\"1\",\tBearer abc ,"];
    rows(&key::bearer(), "authorization", &lists, "ambiguous");
    let odd = [&b"Bearer \xff"[..], b"Bearer abc\xa0", b"Bearer\xa0abc", b"\xa0Bearer abc"];
    rows(&key::bearer(), "authorization", &odd, "ambiguous");
    row(&key::bearer(), "authorization", &["Basic x", "Bearer abc"], "ambiguous");
}

#[test]
fn a_basic_user_is_who_stands_before_the_first_colon() {
    let user = || key::basic_user().plain();
    rows(&user(), "authorization", &["ada:secret:x", "ada:", "ada"].map(basic), "basic_user:ada");
    rows(&user(), "authorization", &["basic YWRhOng", "Basic  YWRhOng= "], "basic_user:ada");
    row(&user(), "authorization", &[basic(":secret")], "basic_user:");
    rows(&user(), "authorization", &["Bearer YWRhOng=", ""], "missing");
    let odd = ["~~~", "YWRhOng!", "YWRhOng-", "YW RhOng", "YWRhOng=="].map(|text| format!("Basic {text}"));
    rows(&user(), "authorization", &odd, "ambiguous");
    rows(&user(), "authorization", &[basic(b"\xff:secret"), basic(b"ada\xe9:secret")], "ambiguous");
    let two = [basic("x:"), basic("ada:")];
    row(&user(), "authorization", &two, "ambiguous");
    row(&user().last(), "authorization", &two, "basic_user:ada");
    row(&user().first(), "authorization", &two, "basic_user:x");
    row(&user().normalize(mailbox).ignore_case(), "authorization", &[basic("ADA+1:")], "basic_user:ada");
}

#[test]
fn secrets_leave_only_as_hashes_and_a_megabyte_as_a_hash_of_all_of_it() {
    for value in ["secret", &"x".repeat(1 << 20), &format!("{}y", "x".repeat((1 << 20) - 1))] {
        let hash = |kind: &str| Key::hashed(kind, value).to_string();
        row(&key::cookie("id"), "cookie", &[format!("id={value}")], &hash("cookie id"));
        row(&key::bearer(), "authorization", &[format!("Bearer {value}")], &hash("bearer"));
        row(&key::header("x-api-key"), "x-api-key", &[value], &hash("header x-api-key"));
        row(&key::basic_user(), "authorization", &[basic(format!("{value}:x"))], &hash("basic_user"));
        if value.len() > 10 {
            row(&key::header("x-user").plain(), "x-user", &[value], &hash("header x-user"));
            row(&key::host(), "host", &[value], &hash("host"));
        }
    }
}

#[test]
fn a_query_parameter_is_decoded() {
    let q = || key::query("q");
    for (key, uris, expected) in [
        (q(), &["/?x=1&q=a&q=a", "/?%71=%61", "/?q=a&q=%61"][..], "query q:a"),
        (q(), &["/?%71=%61+b"], "query q:a%20b"),
        (q(), &["/?q"], "query q:"),
        (q(), &["/?q=%FF"], "query q:%EF%BF%BD"),
        (q(), &["/?q=%zz%"], "query q:%25zz%25"),
        (q(), &["/?Q=a&qq=b", "/?", "/q=a"], "missing"),
        (q(), &["/?q=x&q=a", "/?q=a;x=1", "/?x=1;q=a"], "ambiguous"),
        (q().last(), &["/?q=x&q=a", "/?q&%71=%61"], "query q:a"),
        (q().first(), &["/?q=a&q=x"], "query q:a"),
        (q().last(), &["/?q=x;y&q=a"], "ambiguous"),
        (q().normalize(mailbox).ignore_case(), &["/?q=a%2B1&q=A"], "query q:a"),
    ] {
        for uri in uris {
            assert_eq!(of(&key, get(uri)), expected, "{uri}");
        }
    }
}

#[test]
fn a_host_is_lower_case_and_has_no_port_wherever_it_is_written() {
    for (uri, lines, expected) in [
        ("/", &["API.Example:8080"][..], "host:api.example"),
        ("/", &["[2001:DB8:0::1]:80"], "host:[2001:db8::1]"),
        ("/", &["a.example", "A.example"], "host:a.example"),
        ("https://API.example:443/x", &[], "host:api.example"),
        ("https://api.example/", &["API.example.:443"], "host:api.example"),
        ("/", &[], "missing"),
        ("https://api.example/", &["evil.example"], "ambiguous"),
        ("/", &["a.example", "b.example"], "ambiguous"),
        ("/", &["user@a.example"], "ambiguous"),
        ("/", &["a, b:"], "ambiguous"),
    ] {
        let mut request = with("host", lines);
        *request.uri_mut() = uri.parse().expect("a URI");
        assert_eq!(of(&key::host(), request), expected, "{uri} {lines:?}");
    }
    // A closure can go on from it on every version of HTTP.
    let tenant = key::from_fn(|parts| {
        let host = key::host_name(parts)?;
        let tenant = host.as_deref().and_then(|host| host.strip_suffix(".example.com"));
        Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
    });
    rows(&tenant, "host", &["acme.example.com", "ACME.example.com:443"], "tenant:acme");
    row(&tenant, "host", &["elsewhere"], "missing");
    row(&tenant, "host", &["a.example.com", "b.example.com"], "ambiguous");
    assert_eq!(of(&tenant, get("https://ACME.example.com:443/")), "tenant:acme");
}

#[test]
fn made_up_methods_share_one_key_and_head_has_that_of_get() {
    let rows = [("GET", "GET"), ("HEAD", "GET"), ("PATCH", "PATCH"), ("BREW", "<other>"), ("get", "<other>")];
    for (method, expected) in rows {
        let request = Request::builder().method(method).body(Text::default()).expect("a request");
        assert_eq!(of(&key::method(), request), format!("method:{expected}"));
    }
}

#[test]
fn an_extension_is_read_by_a_closure() {
    let by_user = key::extension(|user: &u32| Key::new("user", user.to_string()));
    let mut parts = get("/").into_parts().0;
    assert_eq!(text(&by_user, &parts), "missing");
    parts.extensions.insert(7_u32);
    assert_eq!(text(&by_user, &parts), "user:7");
    assert_eq!(text(&key::extension(|user: &u32| (*user > 7).then_some("big")), &parts), "missing");
}

#[test]
#[allow(clippy::result_large_err, reason = "a response as it is made is what users return")]
fn what_a_closure_returns_is_a_key() {
    let of = |key: &dyn KeyExtractor| of(key, get("http://a/"));
    assert_eq!(of(&|_: &Parts| -7_i32), of(&|_: &Parts| "-7"));
    assert_eq!(of(&|_: &Parts| i64::MIN), format!("key:{}", i64::MIN));
    assert_eq!(of(&|_: &Parts| u64::MAX), format!("key:{}", u64::MAX));
    assert_eq!(of(&|_: &Parts| None::<u64>), "missing");
    assert_eq!(of(&|_: &Parts| Ok::<_, Ambiguous>(Some(7_u64))), "key:7");
    assert_eq!(of(&key::lookup(key::host(), async |_| Ok::<_, Infallible>(7_u64))), "key:7");
    assert_eq!(of(&|_: &Parts| Err::<IpAddr, _>(Ambiguous)), "ambiguous");
    assert_eq!(of(&key::from_fn(|_| Err::<Key, _>(forbidden()))), "rejected with 403");
    assert_eq!(of(&key::from_fn(|_| Err::<Key, _>(Box::new(forbidden())))), "rejected with 403");
    let found = || key::lookup(key::global(), |_| ready(Ok::<_, Infallible>("x")));
    assert_eq!(of(&(key::method(), key::host(), found())), "method+host+key:GET|a|x");
    assert_eq!(of(&(key::method(), key::query("q"), found())), "missing");
}

fn forbidden() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// The address that a layer for authentication or a proxy's protocol has found.
#[derive(Clone)]
struct Client(IpAddr);

fn by_client(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Client>().map(|client| client.0)
}

#[test]
fn what_a_closure_makes_a_key_of_counts_on_the_counter_of_that_key() {
    let store = MemoryStore::new();
    let sent = |policy: Policy, client: &str| {
        let mut request = by(client, get("/"));
        request.extensions_mut().insert(Client(client.parse().expect("an address")));
        let layer = RateLimitLayer::new(store.clone(), policy);
        send(&layer, 1, |_| request.clone()).now_or_never().expect("at once")[0].status().as_u16()
    };
    let [clients, numbers] = ["clients", "numbers"].map(|name| Policy::new(name, Quota::per_hour(2)));
    for (policy, client, status) in [
        (clients.clone().key(by_client), "2001:db8::1", 200),
        (clients.clone().key(key::client_ip()), "2001:db8::1", 200),
        (clients.clone().key(by_client), "2001:db8::ff:2", 429),
        (clients.clone().key(key::client_ip()), "2001:db8:0:ff::3", 429),
        (clients.key(by_client), "2001:db8:0:100::1", 200),
        (numbers.clone().key(|_: &Parts| Some(7_u64)), "::1", 200),
        (numbers.clone().key(|_: &Parts| "7"), "::1", 200),
        (numbers.key(|_: &Parts| Some(7_u64)), "::1", 429),
    ] {
        assert_eq!(sent(policy, client), status, "{client}");
    }
}
